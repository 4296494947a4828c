"""Settings, as traits of one object, ``Sky``.

Layers, the weakest first: defaults, ``[tool.jupyter_sky]`` of the nearest pyproject.toml,
``SKY_<NAME>`` environment variables, Jupyter's or IPython's own configuration, then ``%config
Sky.idle='20m'``. What a cell says wins over them all. ``budget_usd_day`` alone is shared between
all notebooks of a user: see `jupyter_sky.ledger.budget`.

A project's file comes with its folder, from whoever made that. It may set only the traits tagged
``project``, which belong to a cell, and may only lower those tagged ``lower``: see
`jupyter_sky.config.project_file`.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Callable
from typing import Any

from traitlets import Bool, Dict, Float, Integer, TraitError, Unicode, default, validate
from traitlets.config import Config, Configurable, SingletonConfigurable

from jupyter_sky.config import project_file
from jupyter_sky.config.paths import (
    check_private,
    default_data_dir,
    expand_path,
    use_settings,
)
from jupyter_sky.config.renamed_settings import (
    RENAMED,
    current_name,
    warn_renamed,
    with_current_names,
)
from jupyter_sky.errors import SkyUsageError, suggest
from jupyter_sky.resources import parse_clouds, parse_duration

DEFAULT, BY_HAND = "default", "%config"
APPLICATION = "Jupyter or IPython configuration"
OTHER_SOURCES = "%config Sky.{0} = ..., the environment variable SKY_{1}, or ipython_config.py"


class _SharedAmount(Float):
    """An amount that all processes share: they are told whenever it is set.

    Observers would not do: what is set to what it was here may be another value elsewhere.
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
    aws_scheduler_role = Unicode(
        "",
        help="ARN of a role with which EventBridge ends machines of AWS at the end of their lease; "
        "without one they end by themselves.",
    ).tag(config=True)
    gcp_service_account = Unicode(
        "",
        help="Service account with which machines of Google Cloud delete themselves, an e-mail "
        "address or 'default'; without one they power off, and their disk is billed until "
        "%sky reap.",
    ).tag(config=True)
    sync_packages = Bool(
        True,
        help="Bring to machines elsewhere what a cell imports and they lack, in the versions "
        "that are here: public packages from their index, private ones from here.",
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
    """Where each setting that is not a default was set."""
    notice: str = ""
    """A sentence about a project file that was ignored; empty without one."""
    on_budget: Callable[[float | None], None] | None = None
    """Told of every budget that is set by hand, also of one that is what it was."""
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
        """Take what ``%config`` says, also where it is what it was."""
        config = with_current_names(config, "%config")
        super().update_config(config)
        for name in dict.get(config, "Sky", {}):
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

    @validate("cluster")
    def _check_cluster(self, proposal: dict[str, Any]) -> str:
        if proposal["value"] and not re.fullmatch(r"[A-Za-z0-9][\w.-]*", proposal["value"]):
            raise TraitError(f"cluster {proposal['value']!r}: not a name, such as 'train'")
        return proposal["value"]

    @validate("data_dir", "offers", "hosts")
    def _check_path(self, proposal: dict[str, Any]) -> str:
        name, value = proposal["trait"].name, proposal["value"]
        if not value and name != "data_dir":
            return value
        path = _checked(expand_path, value, name, keep=False)
        if name == "data_dir":
            _checked(check_private, path, name)
        return path

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
        project, environment = _project_settings(file), _environment()
        values = {name: value for name, (_, value) in environment.items()}
        config, origins = Config({cls.__name__: project | values}), {}
        if parent is not None:
            application = with_current_names(parent.config, APPLICATION)
            config.merge(application)
            origins = dict.fromkeys(dict.get(application, cls.__name__, {}), APPLICATION)
        try:
            settings = cls.instance(parent=parent, config=config)
            check_private(settings.data_dir, "data_dir")
        except (TraitError, SkyUsageError) as error:
            cls.clear_instance()
            hint = getattr(error, "hint", None)
            text = error.message if isinstance(error, SkyUsageError) else error
            raise SkyUsageError(f"configuration of Sky: {text}", hint=hint) from error
        settings.origins = (
            dict.fromkeys(project, str(file.path))
            | {name: f"environment variable {each}" for name, (each, _) in environment.items()}
            | origins
        )
        settings.notice = file.notice
        settings.on_budget = settings._ask
        return settings


def _checked(parse: Any, value: str, label: str, keep: bool = True) -> str:
    """Validate a value by its parser; traitlets needs a TraitError when it is invalid.

    Without `keep` it is what the parser makes of it.
    """
    try:
        parsed = parse(value, label)
    except SkyUsageError as error:
        raise TraitError(str(error)) from None
    return value if keep else parsed


def _project_settings(file: project_file.ProjectFile) -> dict[str, Any]:
    """Return the settings of a project's file; refuse those that it may not set."""
    settings: dict[str, Any] = {}
    if file.path is None:
        return settings
    path, where = file.path, f"{file.path}: [tool.jupyter_sky]"
    for key, value in _table(file).items():
        name = current_name(key.replace("-", "_"), where)
        traits = Sky.class_own_traits(config=True)
        allowed = sorted(each for each, trait in traits.items() if trait.metadata.get("project"))
        if name not in traits:
            raise SkyUsageError(f"{where} has no setting {key!r}", hint=suggest(name, allowed))
        if name in settings:
            raise SkyUsageError(
                f"{where} sets {name} twice", hint=f"remove one of them from {path}"
            )
        elsewhere = OTHER_SOURCES.format(name, name.upper())
        if name not in allowed:
            raise SkyUsageError(
                f"{where} may not set {key}: a folder's file sets only what belongs to a cell "
                f"({', '.join(allowed)})",
                hint=f"remove {key} from {path} and set it by {elsewhere}",
            )
        value = _validated(name, value, f"{where} {key} = {value!r}")
        most = traits[name].default_value
        if traits[name].metadata.get("lower") and value > most:
            raise SkyUsageError(
                f"{where} {key} = {value!r}: a folder's file may only lower it, from {most:g}",
                hint=f"to raise it, use {elsewhere}",
            )
        if name == "aliases":
            _check_aliases(value, where)
        settings[name] = value
    return settings


def _table(file: project_file.ProjectFile) -> dict[str, Any]:
    """Return ``[tool.jupyter_sky]`` of a project's file; nothing where that says nothing of us."""
    try:
        tables = tomllib.loads(file.text.decode())
    except (ValueError, RecursionError) as error:
        if b"jupyter_sky" not in file.text:  # others will complain of it
            return {}
        raise SkyUsageError(f"{file.path}: cannot be read: {error}") from error
    tool = tables.get("tool")
    table = tool.get("jupyter_sky", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise SkyUsageError(
            f"{file.path}: tool.jupyter_sky is not a table", hint="[tool.jupyter_sky]"
        )
    return table


def _check_aliases(aliases: dict[str, str], where: str) -> None:
    """Refuse aliases of a project that hide what the reader of a cell should see."""
    from jupyter_sky.cell_options.parsing import parse_cell_line

    for name, text in aliases.items():
        hint = f"to use it anyway: %sky alias {name} OPTIONS, in the notebook"
        try:
            if not name.isidentifier():
                raise SkyUsageError("a name has letters, digits and _ only")
            options = parse_cell_line(text, aliases)
        except (SkyUsageError, RecursionError) as error:
            raise SkyUsageError(f"{where} alias {name!r} = {text!r:.200}: {error}") from None
        hidden = {
            "--env sends environment variables": bool(options.env),
            "--yes agrees to what would be asked": options.yes,
            "-i evaluates an expression": any(
                not each.expression.isidentifier() for each in options.inputs
            ),
        }
        for what, found in hidden.items():
            if found:
                raise SkyUsageError(
                    f"{where} alias {name!r} = {text!r:.200}: {what}, which an alias of a folder's "
                    "file may not hide",
                    hint=hint,
                )


def _variable(name: str) -> str:
    return f"SKY_{name.upper()}"


def _environment() -> dict[str, tuple[str, Any]]:
    """Return variables and values of settings in the environment: ``SKY_IDLE=20m``."""
    old_names = {new: old for old, new in RENAMED.items()}
    settings = {}
    for name, trait in Sky.class_own_traits(config=True).items():
        variable = _variable(name)
        text = os.environ.get(variable, "").strip()
        if not text and name in old_names:
            variable = _variable(old_names[name])
            if text := os.environ.get(variable, "").strip():
                warn_renamed(variable, _variable(name), "environment")
        if text:
            origin = f"environment variable {variable}={text}"
            try:
                value = trait.from_string(text)
            except (ValueError, SyntaxError, TraitError) as error:
                raise SkyUsageError(f"{origin}: {error}", hint=trait.help) from error
            settings[name] = variable, _validated(name, value, origin)
    return settings


def _validated(name: str, value: Any, origin: str) -> Any:
    """Validate a value by a settings object; an error names the place of the value."""
    try:
        setattr(Sky(), name, value)
    except TraitError as error:
        raise SkyUsageError(
            f"{origin}: {error}", hint=Sky.class_own_traits(config=True)[name].help
        ) from error
    return value


use_settings(lambda name: getattr(Sky.load(), name))
