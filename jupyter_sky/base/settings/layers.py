"""Layers of the settings that are read once: a project's file and environment variables."""

from __future__ import annotations

import os
import tomllib
from ast import literal_eval
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from traitlets import Dict, TraitError
from traitlets.config import Configurable, SingletonConfigurable

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.settings.project_file import ProjectFile
from jupyter_sky.base.settings.provider_settings import TRAIT, merge, nest
from jupyter_sky.base.settings.renamed_settings import RENAMED, current_name, warn_renamed
from jupyter_sky.base.translation import _

OTHER_SOURCES = "%config Sky.{0} = ..., the environment variable {1}, or ipython_config.py"
Settings = type[SingletonConfigurable]
"""The class of the settings, which imports this module."""


def project_settings(sky: Settings, file: ProjectFile) -> dict[str, Any]:
    """Return the settings of a project's file; refuse those that it may not set."""
    settings: dict[str, Any] = {}
    if file.path is None:
        return settings
    path, where = file.path, f"{file.path}: [tool.jupyter_sky]"
    for key, value in _table(file).items():
        name = current_name(key.replace("-", "_"), where)
        if name in settings:
            raise SkyUsageError(
                _("{where} sets {name} twice").format(where=where, name=name),
                hint=_("remove one of them from {path}").format(path=path),
            )
        _check_allowed(sky, name, key, path)
        value = _validated(sky, name, value, f"{where} {key} = {value!r}")
        trait = sky.class_own_traits(config=True)[name]
        most = trait.default_value
        if trait.metadata.get("lower") and value > most:
            raise SkyUsageError(
                _(
                    "{where} {key} = {value!r}: a folder's file may only lower it, from {most:g}"
                ).format(where=where, key=key, value=value, most=most),
                hint=_("to raise it, use {elsewhere}").format(
                    elsewhere=OTHER_SOURCES.format(name, _variable(name))
                ),
            )
        if name == "aliases":
            _check_aliases(value, where)
        settings[name] = value
    return settings


def _check_allowed(sky: Settings, name: str, key: str, path: Path) -> None:
    """Raise SkyUsageError for a setting that is not known, or that a folder may not have."""
    where, traits = f"{path}: [tool.jupyter_sky]", sky.class_own_traits(config=True)
    allowed = sorted(trait for trait, one in traits.items() if one.metadata.get("project"))
    if name.partition(".")[0] not in traits:
        raise SkyUsageError(
            _("{where} has no setting {key!r}").format(where=where, key=key),
            hint=suggest(name, allowed),
        )
    if name not in allowed:
        raise SkyUsageError(
            _(
                "{where} may not set {key}: a folder's file sets only what belongs to "
                "a cell ({allowed})"
            ).format(where=where, key=key, allowed=", ".join(allowed)),
            hint=_("remove {key} from {path} and set it by {elsewhere}").format(
                key=key, path=path, elsewhere=OTHER_SOURCES.format(name, _variable(name))
            ),
        )


def _table(file: ProjectFile) -> dict[str, Any]:
    """Return ``[tool.jupyter_sky]`` of a project's file; nothing where that says nothing of us."""
    try:
        tables = tomllib.loads(file.text.decode())
    except (ValueError, RecursionError) as error:
        if b"jupyter_sky" not in file.text:  # others will complain of it
            return {}
        raise SkyUsageError(
            _("{path}: cannot be read: {error}").format(path=file.path, error=error)
        ) from error
    tool = tables.get("tool")
    table = tool.get("jupyter_sky", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise SkyUsageError(
            _("{path}: tool.jupyter_sky is not a table").format(path=file.path),
            hint=_("[tool.jupyter_sky]"),
        )
    return table


def _check_aliases(aliases: dict[str, str], where: str) -> None:
    """Refuse aliases of a project that hide what the reader of a cell should see."""
    from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line

    for name, text in aliases.items():
        hint = f"to use it anyway: %sky alias {name} OPTIONS, in the notebook"
        try:
            if not name.isidentifier():
                raise SkyUsageError(_("a name has letters, digits and _ only"))
            options = parse_cell_line(text, aliases)
        except (SkyUsageError, RecursionError) as error:
            raise SkyUsageError(
                _("{where} alias {name!r} = {text!r:.200}: {error}").format(
                    where=where, name=name, text=text, error=error
                )
            ) from None
        hidden = {
            "--env sends environment variables": bool(options.env),
            "--yes agrees to what would be asked": options.yes,
            "-i evaluates an expression": any(
                not sent.expression.isidentifier() for sent in options.inputs
            ),
        }
        for risk, present in hidden.items():
            if present:
                raise SkyUsageError(
                    _(
                        "{where} alias {name!r} = {text!r:.200}: {risk}, which an alias of a "
                        "folder's file may not hide"
                    ).format(where=where, name=name, text=text, risk=risk),
                    hint=hint,
                )


def _variable(name: str) -> str:
    return f"SKY_{name.replace('.', '_').upper()}"


def environment_settings(sky: Settings) -> dict[str, tuple[str, Any]]:
    """Return variables and values of settings in the environment: ``SKY_IDLE=20m``."""
    old_names = {new: old for old, new in RENAMED.items()}
    settings = {}
    for name, trait in sky.class_own_traits(config=True).items():
        variable = _variable(name)
        text = os.environ.get(variable, "").strip()
        if not text and name in old_names:
            variable = _variable(old_names[name])
            if text := os.environ.get(variable, "").strip():
                warn_renamed(variable, _variable(name), "environment")
        if text:
            origin = f"environment variable {variable}={text}"
            try:
                value = literal_eval(text) if isinstance(trait, Dict) else trait.from_string(text)
            except (ValueError, SyntaxError, TraitError) as error:
                raise SkyUsageError(f"{origin}: {error}", hint=_(trait.help)) from error
            settings[name] = variable, _validated(sky, name, value, origin)
    for variable, name in _provider_variables():
        trait, value = nest(name, os.environ[variable].strip())
        origin = f"environment variable {variable}"
        _validated(sky, trait, value, origin)
        variables, others = settings.get(trait, ("", {}))
        variables = ", ".join(filter(None, (variables, variable)))
        settings[trait] = variables, merge(others, value)
    return settings


def as_environment(settings: Configurable) -> dict[str, str]:
    """Return the variables that give another process these settings.

    Examples
    --------
    >>> from jupyter_sky.base.settings.settings import Sky
    >>> as_environment(Sky(idle="20m"))["SKY_IDLE"]
    '20m'
    """
    found = {}
    for name, trait in settings.traits(config=True).items():
        value = getattr(settings, name)
        if value != trait.default():
            found[_variable(name)] = repr(value) if isinstance(trait, Dict) else str(value)
    return found


def _provider_variables() -> Iterator[tuple[str, str]]:
    """Yield variables of single clouds' settings with the names of these, the weaker first."""
    for old, name in RENAMED.items():
        if "." in name and _variable(old) in os.environ and _variable(name) not in os.environ:
            warn_renamed(_variable(old), _variable(name), "environment")
            yield _variable(old), name
    prefix = _variable(TRAIT) + "_"
    for variable in sorted(os.environ):
        if variable.startswith(prefix):
            cloud, __, key = variable.removeprefix(prefix).lower().partition("_")
            yield variable, f"{TRAIT}.{cloud}.{key}"


def _validated(sky: Settings, name: str, value: Any, origin: str) -> Any:
    """Validate a value by a settings object; an error names the place of the value."""
    try:
        setattr(sky(), name, value)
    except TraitError as error:
        raise SkyUsageError(
            f"{origin}: {error}", hint=_(sky.class_own_traits(config=True)[name].help)
        ) from error
    return value
