"""The verbs for settings and short names of options, as Python calls."""

from __future__ import annotations

from typing import Any

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.settings.provider_settings import TRAIT, dotted_names, merge, nest
from jupyter_sky.base.settings.renamed_settings import current_name
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _


def config(key: str | None = None, value: Any = None) -> Table | Any:
    """Show the settings, or one, or set one for this session.

    Parameters
    ----------
    key
        Name of the setting, such as ``idle`` or ``providers.aws.scheduler_role``; without it all
        are listed.
    value
        New value, or text that is parsed as on the command line.

    Returns
    -------
    Table or object
        The table of all settings, or the value of `key`.

    Examples
    --------
    >>> sky.config("idle", "20m")  # doctest: +SKIP
    """
    settings = Sky.load()
    names = sorted({*settings.trait_names(config=True)} - {"log"})
    nested = dict(dotted_names())
    if key is None:
        rows = [
            (
                name,
                repr(getattr(settings, name)),
                settings.origin(name),
                _project_permission(settings, name),
                str(settings.trait_metadata(name, "help")),
            )
            for name in names
        ]
        rows += [
            (name, repr(_nested_value(settings, name)), settings.origin(TRAIT), "no", description)
            for name, description in nested.items()
        ]
        columns = ("name", "value", _("set by"), _("pyproject.toml may"), _("what it does"))
        return Table("Settings", columns, tuple(rows), note=settings.notice)
    key = current_name(key, "%sky config")
    if key not in names and key not in nested:
        raise SkyUsageError(
            _("there is no setting {key!r}").format(key=key), hint=suggest(key, (*names, *nested))
        )
    if key in nested:
        if value is not None:
            settings.providers = merge(settings.providers, nest(key, str(value))[1])
        return _nested_value(settings, key)
    if value is not None:
        from traitlets import TraitError

        try:
            trait = settings.traits()[key]
            setattr(settings, key, trait.from_string(value) if isinstance(value, str) else value)
        except (TraitError, ValueError) as error:
            raise SkyUsageError(f"{key}={value}: {error}") from None
    return getattr(settings, key)


def _nested_value(settings: Sky, name: str) -> str:
    __, cloud, key = name.split(".", 2)
    return settings.provider_setting(cloud, key)


def _project_permission(settings: Sky, name: str) -> str:
    """Return whether a project's file may set a setting."""
    if not settings.trait_metadata(name, "project"):
        return "no"
    return _("lower it") if settings.trait_metadata(name, "lower") else "yes"


def alias(name: str | None = None, options: str | None = None) -> Table | None:
    """Give options a short name, as in ``%%sky gpu``; without arguments, list them.

    Parameters
    ----------
    name
        The short name: letters, digits and ``_``.
    options
        Options as they are written above a cell; without them the alias is shown.

    Returns
    -------
    Table or None
        All aliases, or the one of this name; None when one was set.

    Examples
    --------
    >>> sky.alias("gpu", "--gpus A100:1")  # doctest: +SKIP
    >>> sky.alias()  # doctest: +SKIP
    """
    settings = Sky.load()
    if name is None:
        rows = tuple(sorted(settings.aliases.items()))
        hint = _("none: %sky alias gpu --gpus A100:1")
        return Table("Aliases", ("name", "options"), rows, empty=hint)
    if not name.isidentifier():
        raise SkyUsageError(
            _("alias {name!r}: a name has letters, digits and _ only").format(name=name)
        )
    if not options:
        if name not in settings.aliases:
            raise SkyUsageError(
                _("no alias {name!r}").format(name=name), hint=suggest(name, settings.aliases)
            )
        return Table("Aliases", ("name", "options"), ((name, settings.aliases[name]),))
    from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line

    parse_cell_line(options, settings.aliases)  # a mistake shows now, not when it is used
    settings.aliases = {**settings.aliases, name: options}
    return None
