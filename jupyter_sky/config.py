"""Settings, as traits of one object, ``Sky``.

Layers, the weakest first: defaults, ``[tool.jupyter_sky]`` of the nearest pyproject.toml,
``SKY_<NAME>`` environment variables, IPython's own configuration, then ``%config Sky.idle='20m'``.
What a cell says wins over them all. ``budget_usd_day`` alone is shared between all notebooks of a
user: see `jupyter_sky.budget`.
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from traitlets import Bool, Dict, Float, Integer, TraitError, Unicode, default, validate
from traitlets.config import Config, Configurable, SingletonConfigurable

from jupyter_sky.errors import SkyUsageError, suggest
from jupyter_sky.places import default_data_dir
from jupyter_sky.resources import parse_clouds, parse_duration


class _Shared(Float):
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
    ).tag(config=True)
    auto = Bool(False, help="Send the local variables that a cell reads without being told.").tag(
        config=True
    )
    cloud = Unicode("", help="Clouds to choose from, such as 'aws,gcp'; empty for all.").tag(
        config=True
    )
    cluster = Unicode("", help="Name of the cluster to use when a cell names none.").tag(
        config=True
    )
    max_hourly_cost = Float(
        None, allow_none=True, min=0, help="Most USD/h that a cluster may cost; None for no limit."
    ).tag(config=True)
    budget_usd_day = _Shared(
        None,
        allow_none=True,
        min=0,
        help="Most USD that all your notebooks together may spend on a day; None for no limit. "
        "At 80 % it is warned, at 100 % cells are stopped and clusters ended that cost anything.",
    ).tag(config=True)
    announce_mb = Float(50.0, min=0, help="Values larger than this many MB are announced.").tag(
        config=True
    )
    refuse_gb = Float(
        1.0, min=0, help="Values larger than this many GB are sent only with --yes."
    ).tag(config=True)
    browser_mb = Float(
        5.0, min=0, help="Most MB of one cell's text that reach the browser; the log keeps all."
    ).tag(config=True)
    aliases = Dict(
        key_trait=Unicode(),
        value_trait=Unicode(),
        help="Short names of options, such as {'big': '--cpus 16+ --memory 64+'}.",
    ).tag(config=True)
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
    silence = Unicode(
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
    mirror = Bool(
        True,
        help="Bring to machines elsewhere what a cell imports and they lack, in the versions "
        "that are here: public packages from their index, private ones from here.",
    ).tag(config=True)
    keep = Bool(False, help="Keep clusters that a headless run would stop at its end.").tag(
        config=True
    )

    on_budget: Callable[[float | None], None] | None = None
    """Told of every budget that is set by hand, also of one that is what it was."""
    asked: tuple[float | None, ...] = ()
    """The budget that was set by hand before there was a store to keep it."""

    def _ask(self, usd: float | None) -> None:
        self.asked = (usd,)

    def adopt_budget(self, usd: float | None) -> None:
        """Show the budget that holds for all; that is not setting it by hand."""
        self._trait_values["budget_usd_day"] = usd

    @default("data_dir")
    def _default_data_dir(self) -> str:
        return default_data_dir()

    @validate("idle", "lease", "silence")
    def _check_duration(self, proposal: dict[str, Any]) -> str:
        return _checked(parse_duration, proposal["value"], proposal["trait"].name)

    @validate("cloud")
    def _check_cloud(self, proposal: dict[str, Any]) -> str:
        value = proposal["value"]
        return _checked(parse_clouds, value, "cloud") if value.strip() else ""

    @validate("data_dir")
    def _check_data_dir(self, proposal: dict[str, Any]) -> str:
        return os.path.expanduser(proposal["value"])

    @classmethod
    def load(cls, parent: Configurable | None = None) -> Sky:
        """The settings, read from all their layers the first time.

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
        config = Config({cls.__name__: _pyproject(Path.cwd()) | _environment()})
        if parent is not None:
            config.merge(parent.config)
        try:
            settings = cls.instance(parent=parent, config=config)
        except TraitError as error:
            raise SkyUsageError(f"configuration of Sky: {error}") from error
        settings.on_budget = settings._ask
        return settings


def _checked(parse: Any, value: str, label: str) -> str:
    """The value, when its parser accepts it; traitlets wants a TraitError when it does not."""
    try:
        parse(value, label)
    except SkyUsageError as error:
        raise TraitError(str(error)) from None
    return value


def _pyproject(directory: Path) -> dict[str, Any]:
    """Settings of the nearest pyproject.toml, from `directory` upward."""
    for folder in (directory, *directory.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            return dict(_read_pyproject(path))
    return {}


def _read_pyproject(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SkyUsageError(f"{path}: cannot be read: {error}") from error
    tool = tables.get("tool")
    table = tool.get("jupyter_sky", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise SkyUsageError(f"{path}: tool.jupyter_sky is not a table", hint="[tool.jupyter_sky]")
    for key, value in table.items():
        name, traits = key.replace("-", "_"), Sky.class_own_traits(config=True)
        if name not in traits:
            raise SkyUsageError(
                f"{path}: [tool.jupyter_sky] has no setting {key!r}", hint=suggest(name, traits)
            )
        yield name, _valid(name, value, f"{path}: [tool.jupyter_sky] {key} = {value!r}")


def _environment() -> dict[str, Any]:
    """Settings of the environment: ``SKY_IDLE=20m``."""
    found = {}
    for name, trait in Sky.class_own_traits(config=True).items():
        variable = f"SKY_{name.upper()}"
        text = os.environ.get(variable, "").strip()
        if text:
            origin = f"environment variable {variable}={text}"
            try:
                value = trait.from_string(text)
            except (ValueError, SyntaxError, TraitError) as error:
                raise SkyUsageError(f"{origin}: {error}", hint=trait.help) from error
            found[name] = _valid(name, value, origin)
    return found


def _valid(name: str, value: Any, origin: str) -> Any:
    """The value, once a settings object has accepted it; an error says where it was written."""
    try:
        setattr(Sky(), name, value)
    except TraitError as error:
        raise SkyUsageError(
            f"{origin}: {error}", hint=Sky.class_own_traits(config=True)[name].help
        ) from error
    return value
