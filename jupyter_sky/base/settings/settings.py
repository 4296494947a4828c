"""Settings, as traits of one object, ``Sky``.

Layers, the weakest first: defaults, ``[tool.jupyter_sky]`` of the nearest pyproject.toml,
``SKY_<NAME>`` environment variables, Jupyter's or IPython's own configuration, then ``%config
Sky.idle='20m'``. What a cell says wins over them all. ``budget_usd_day`` alone is shared between
all notebooks of a user: see `jupyter_sky.knowledge.ledger.budget`.

A project's file comes with its folder, from any author. It may set only the traits tagged
``project``, which belong to a cell, and may only lower those tagged ``lower``: see
`jupyter_sky.base.settings.project_file`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from traitlets import Bool, Dict, Float, Integer, TraitError, Unicode, default, validate
from traitlets.config import Config, Configurable, SingletonConfigurable

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.cell_options.burst import check_burst
from jupyter_sky.base.requests.resources import parse_clouds, parse_duration
from jupyter_sky.base.settings import project_file
from jupyter_sky.base.settings.layers import environment_settings, project_settings
from jupyter_sky.base.settings.paths import (
    check_private,
    default_data_dir,
    expand_path,
    use_settings,
)
from jupyter_sky.base.settings.provider_settings import TRAIT, check, merge
from jupyter_sky.base.settings.renamed_settings import with_current_names
from jupyter_sky.base.translation import _

_T = TypeVar("_T")
DEFAULT, BY_HAND = "default", "%config"
APPLICATION = "Jupyter or IPython configuration"


class _SharedAmount(Float):
    """An amount that all processes share: a callback is called whenever it is set.

    Observers are not called for an unchanged value, which may be another one elsewhere.
    """

    def validate(self, obj: Any, value: Any) -> Any:
        amount = super().validate(obj, value)
        if amount is not None and not math.isfinite(amount):
            raise TraitError(f"{self.name} = {amount}: not an amount; None for no limit")
        return amount

    def set(self, obj: Any, value: Any) -> None:
        super().set(obj, value)
        if obj.on_budget is not None:
            obj.on_budget(obj._trait_values[self.name])


class Sky(SingletonConfigurable):
    """Settings of jupyter_sky.

    Examples
    --------
    In a notebook: ``%config Sky.idle = '20m'``. In pyproject.toml::

        [tool.jupyter_sky]
        idle = "20m"
        aliases = {big = "--cpus 16+ --memory 64+"}
    """

    idle = Unicode(
        "10m", help="A cluster that nobody uses for this long shuts itself down, such as '20m'."
    ).tag(config=True, project=True)
    auto_inputs = Bool(
        False, help="Send the local variables that a cell reads without being told."
    ).tag(config=True, project=True)
    cloud = Unicode("", help="Clouds to choose from, such as 'aws,gcp'; empty for all.").tag(
        config=True, project=True
    )
    cluster = Unicode("", help="Name of the cluster to use when a cell names none.").tag(
        config=True, project=True
    )
    max_hourly_cost = Float(
        None, allow_none=True, min=0, help="Most USD/h that a cluster may cost; None for no limit."
    ).tag(config=True, project=True)
    budget_usd_day = _SharedAmount(
        None,
        allow_none=True,
        min=0,
        help="Most USD that all your notebooks together may spend on a day; None for no limit. "
        "At 80 % it is warned, at 100 % cells are stopped and clusters ended that cost anything.",
    ).tag(config=True)
    announce_mb = Float(50.0, min=0, help="Values larger than this many MB are announced.").tag(
        config=True, project=True, lower=True
    )
    refuse_gb = Float(
        1.0, min=0, help="Values larger than this many GB are sent only with --yes."
    ).tag(config=True, project=True, lower=True)
    ask_usd = Float(
        5.0, min=0, help="Transfers that cost more than this many USD are made only with --yes."
    ).tag(config=True, project=True, lower=True)
    scratch = Dict(
        key_trait=Unicode(),
        value_trait=Unicode(),
        help="Where intermediate data lie, by place, such as {'aws/us-east-1': 's3://mine/tmp'}; a "
        "place without one gets a bucket that empties itself after a day.",
    ).tag(config=True)
    results = Unicode(
        "",
        help="Store in which tasks of pipelines leave results above 64 KiB, such as "
        "'s3://mine/results/': machines write there and read from there, and what one machine has "
        "kept is found by others. Empty: results come to this machine.",
    ).tag(config=True)
    residency = Dict(
        key_trait=Unicode(),
        value_trait=Unicode(),
        help="Areas that data may not leave, by the beginning of their address, such as "
        "{'s3://patients/': 'eu, local'}; 'local' is this machine.",
    ).tag(config=True)
    endpoints = Dict(
        key_trait=Unicode(),
        value_trait=Unicode(),
        help="Stores at other addresses than their cloud's, by bucket, account or scheme, such as "
        "{'s3://data': 'https://minio.lab:9000?region=lab&profile=lab'}; the profile is one of "
        "~/.aws.",
    ).tag(config=True)
    max_output_mb = Float(
        5.0, min=0, help="Most MB of one cell's text that reach the browser; the log keeps all."
    ).tag(config=True, project=True, lower=True)
    aliases = Dict(
        key_trait=Unicode(),
        value_trait=Unicode(),
        help="Short names of options, such as {'big': '--cpus 16+ --memory 64+'}.",
    ).tag(config=True, project=True)
    data_dir = Unicode(
        help="Directory of the ledger and the journals; 'sky' in Jupyter's data directory."
    ).tag(config=True)
    offers = Unicode(
        "",
        help="File of your own offers and discounts (CSV or TOML); offers.csv or offers.toml in "
        "data_dir unless given.",
    ).tag(config=True)
    hosts = Unicode(
        "", help="File that lists the machines of the ssh cloud; hosts.toml in data_dir if empty."
    ).tag(config=True)
    burst = Unicode(
        "",
        help="What to rent while your own machines are busy, such as 'spot<=2/h after 10m': spot "
        "machines up to 2 USD/h where the wait is longer than 10 minutes. Empty: machines on "
        "demand at once.",
    ).tag(config=True)
    lease = Unicode(
        "3d",
        help="A machine of a cloud ends after this long at the latest, in use or not, even if this "
        "machine is gone by then.",
    ).tag(config=True)
    heartbeat_timeout = Unicode(
        "5m",
        help="A machine of a cloud that no cluster has renewed for this long ends by itself.",
    ).tag(config=True)
    login = Unicode("sky", help="Name of the user that we are on machines of a cloud.").tag(
        config=True
    )
    ssh_from = Unicode(
        "0.0.0.0/0",
        help="Networks that may reach machines of a cloud by SSH, such as '203.0.113.0/24'.",
    ).tag(config=True)
    ssh_port = Integer(
        22, min=1, max=65535, help="Port of SSH on machines of a cloud, where an image has another."
    ).tag(config=True)
    providers = Dict(
        key_trait=Unicode(),
        value_trait=Dict(key_trait=Unicode(), value_trait=Unicode()),
        help="Settings of single clouds, such as {'gcp': {'service_account': 'default'}}; "
        "%sky config lists them.",
    ).tag(config=True)
    sync_packages = Bool(
        True,
        help="Bring to machines elsewhere what a cell imports and they lack, in the versions "
        "that are here: public packages from their index, private ones from here.",
    ).tag(config=True)
    renew = Bool(
        True,
        help="Read from clouds with an account here, in the background: spot prices hourly, quotas "
        "daily, and the catalog when it is older than a week.",
    ).tag(config=True)
    keep_clusters = Bool(
        False, help="Keep clusters that a headless run would stop at its end."
    ).tag(config=True)

    trust = Bool(
        True,
        help="Open what machines send back as Python objects (pickles), which lets whoever "
        "controls a machine run code here. False: only JSON, Arrow and NumPy data come back.",
    ).tag(config=True)

    origins: dict[str, str]
    """Origins of the settings that are not defaults, by name."""
    notice: str = ""
    """A sentence about a project file that was ignored; empty without one."""
    on_budget: Callable[[float | None], None] | None = None
    """Called with every budget that is set by hand, also with an unchanged one."""
    requested_budget: tuple[float | None, ...] = ()
    """The budget that was set by hand before there was a store to keep it."""

    def _ask(self, usd: float | None) -> None:
        self.requested_budget = (usd,)

    def adopt_budget(self, usd: float | None) -> None:
        """Show the budget that holds for all; that is not setting it by hand."""
        if usd != self.budget_usd_day:
            self.origins["budget_usd_day"] = "set by hand, for all notebooks of this user"
        self._trait_values["budget_usd_day"] = usd

    def __init__(self, **kwargs: Any) -> None:
        self.origins = {}
        super().__init__(**kwargs)
        self.observe(self._note_origin)

    def _note_origin(self, change: Any) -> None:
        if change["name"] in self.class_own_traits(config=True):
            self.origins[change["name"]] = BY_HAND

    def update_config(self, config: Config) -> None:
        """Apply values of ``%config``; an unchanged value counts as set by hand too."""
        current = with_current_names(config, "%config")
        if current is not config and TRAIT in current.Sky:  # other clouds keep their settings
            current.Sky[TRAIT] = merge(self.providers, current.Sky[TRAIT])
        super().update_config(current)
        for name in dict.get(current, "Sky", {}):
            self.origins[name] = BY_HAND

    def origin(self, name: str) -> str:
        """Say where the value of a setting was set."""
        return self.origins.get(name, DEFAULT)

    @default("data_dir")
    def _default_data_dir(self) -> str:
        return default_data_dir()

    @validate("idle", "lease", "heartbeat_timeout")
    def _check_duration(self, proposal: dict[str, Any]) -> str:
        return _checked(parse_duration, proposal["value"], proposal["trait"].name)

    @validate("cloud")
    def _check_cloud(self, proposal: dict[str, Any]) -> str:
        value = proposal["value"]
        return _checked(parse_clouds, value, "cloud") if value.strip() else ""

    @validate("burst")
    def _check_burst(self, proposal: dict[str, Any]) -> str:
        return _checked(check_burst, proposal["value"], "burst")

    @validate("cluster")
    def _check_cluster(self, proposal: dict[str, Any]) -> str:
        if proposal["value"] and not re.fullmatch(r"[A-Za-z0-9][\w.-]*", proposal["value"]):
            raise TraitError(
                _("cluster {name!r}: letters, digits and . - _, such as 'train'").format(
                    name=proposal["value"]
                )
            )
        return proposal["value"]

    @validate("providers")
    def _check_providers(self, proposal: dict[str, Any]) -> dict[str, dict[str, str]]:
        return _checked(check, proposal["value"], TRAIT)

    @validate("endpoints")
    def _check_endpoints(self, proposal: dict[str, Any]) -> dict[str, str]:
        return _checked(check_endpoints, proposal["value"], "endpoints")

    def provider_setting(self, cloud: str, key: str) -> str:
        """Return a setting of one cloud, see `CloudFacts.settings`; empty where it is not set."""
        return self.providers.get(cloud, {}).get(key, "").strip()

    @validate("data_dir", "offers", "hosts")
    def _check_path(self, proposal: dict[str, Any]) -> str:
        name, value = proposal["trait"].name, proposal["value"]
        if not value and name != "data_dir":
            return value
        path = expand_path(_checked(expand_path, value, name), name)
        return _checked(check_private, path, name) if name == "data_dir" else path

    @classmethod
    def load(cls, parent: Configurable | None = None) -> Sky:
        """Return the settings, read from all their layers the first time.

        Parameters
        ----------
        parent : Configurable, optional
            IPython's shell or another application, whose configuration is the strongest layer.

        Raises
        ------
        SkyUsageError
            For a key that does not exist or a value that it cannot have; names where it stands.
        """
        if cls.initialized():
            return cls.instance()
        file = project_file.find_project_file()
        project, environment = project_settings(cls, file), environment_settings(cls)
        values = {name: value for name, (__, value) in environment.items()}
        config, origins = Config({cls.__name__: project | values}), {}
        if parent is not None:
            application = with_current_names(parent.config, APPLICATION)
            section = dict.get(application, cls.__name__, {})
            config.merge(application)
            if TRAIT in section:
                config[cls.__name__][TRAIT] = merge(values.get(TRAIT, {}), section[TRAIT])
            origins = dict.fromkeys(section, APPLICATION)
        try:
            settings = cls.instance(parent=parent, config=config)
            check_private(settings.data_dir, "data_dir")
        except (TraitError, SkyUsageError) as error:
            cls.clear_instance()
            hint = getattr(error, "hint", None)
            text = error.message if isinstance(error, SkyUsageError) else error
            raise SkyUsageError(
                _("configuration of Sky: {text}").format(text=text), hint=hint
            ) from error
        settings.origins = (
            dict.fromkeys(project, str(file.path))
            | {name: f"environment variable {each}" for name, (each, __) in environment.items()}
            | origins
        )
        settings.notice = file.notice
        settings.on_budget = settings._ask
        return settings


def _checked(parse: Callable[[_T, str], object], value: _T, label: str) -> _T:
    """Return a value that its parser accepts; traitlets needs a TraitError for any other."""
    try:
        parse(value, label)
    except SkyUsageError as error:
        raise TraitError(str(error)) from None
    return value


use_settings(lambda name: getattr(Sky.load(), name))


# -- Validation of ``Sky.endpoints``: addresses of compatible stores by bucket, account or --------

SCHEMES = ("s3", "gs", "az", "r2")
OPTIONS = ("region", "profile", "place")
_EXAMPLE = "{'s3://data': 'https://minio.lab:9000?region=lab&profile=lab'}"


def check_endpoints(endpoints: Mapping[str, str], label: str) -> None:
    """Raise SkyUsageError for an entry that no address of a store can use.

    Parameters
    ----------
    endpoints : mapping of str to str
        Value of the setting.
    label : str
        Its name, for messages.
    """
    for name, text in endpoints.items():
        where = f"{label} {name!r}: {text!r}"
        scheme, slashes, rest = name.partition("://")
        if scheme not in SCHEMES or bool(slashes) != bool(rest.strip("/")):
            hint = _("a bucket or a scheme ({schemes}), such as {example}").format(
                schemes=", ".join(SCHEMES), example=_EXAMPLE
            )
            raise SkyUsageError(_("{where}: names no store").format(where=where), hint=hint)
        address, __, options = text.partition("?")
        if address and not (
            re.match(r"https?://", address) and urlsplit(address).hostname and "@" not in address
        ):
            raise SkyUsageError(
                _("{where}: not an address that begins with https:// or http://").format(
                    where=where
                ),
                hint=_EXAMPLE,
            )
        for option, value in parse_qsl(options, keep_blank_values=True):
            if option not in OPTIONS or not value:
                raise SkyUsageError(
                    _("{where}: has no option {option}").format(where=where, option=option),
                    hint=suggest(option, OPTIONS),
                )
