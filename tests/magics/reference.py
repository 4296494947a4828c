"""Generated tables of the README of magics; ``python -m tests.magics.reference``."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from traitlets import Undefined

from jupyter_sky.base.requests.cell_options.schema import OPTIONS
from jupyter_sky.base.settings.provider_settings import dotted_names
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.interfaces.magics.declaration import NOTEBOOK, SHELL
from jupyter_sky.interfaces.magics.verbs import VERBS

VERBS_BY_NAME = [verb for _, verb in sorted(VERBS.items())]
README = Path(__file__).parents[2] / "jupyter_sky/interfaces/magics/README.md"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def options_table() -> str:
    """Return the options of ``%%sky``, one table for each group."""
    parts = []
    for group, options in groupby(OPTIONS, key=lambda option: option.group):
        rows = [f"**{group}**", "", _row("Option", "Meaning", "Example"), "|---|---|---|"]
        for option in options:
            flags = ", ".join(f"`{flag}`" for flag in option.flags)
            value = f" `{option.metavar}`" if option.metavar else ""
            rows.append(_row(flags + value, option.help, f"`{option.example}`"))
        parts.append("\n".join(rows))
    return "\n\n".join(parts)


def verbs_table() -> str:
    """Return the verbs of ``%sky`` and ``jupyter sky``."""
    rows = [_row("Verb", "Meaning", "Example", "`%sky`", "`jupyter sky`"), "|---|---|---|---|---|"]
    for verb in VERBS_BY_NAME:
        places = ["yes" * verb.is_available(command) for command in (NOTEBOOK, SHELL)]
        rows.append(_row(f"`{verb.short_usage}`", verb.help, f"`{verb.example}`", *places))
    return "\n".join(rows)


def arguments_table() -> str:
    """Return the arguments of verbs, without the options that are also those of ``%%sky``."""
    rows = [_row("Verb", "Argument", "Meaning"), "|---|---|---|"]
    for verb in VERBS_BY_NAME:
        for argument in verb.arguments:
            if not argument.group:
                rows.append(_row(f"`{verb.name}`", f"`{argument.title}`", argument.help))
    return "\n".join(rows)


def settings_table() -> str:
    """Return the settings ``Sky.…``."""
    rows = [_row("Setting", "Default", "Meaning", "In a project file"), "|---|---|---|---|"]
    for name, trait in sorted(Sky.class_own_traits(config=True).items()):
        default = {} if trait.default_value is Undefined else trait.default_value
        value = "" if name == "data_dir" else f"`{default!r}`"
        allowed = "lower only" if trait.metadata.get("lower") else "yes"
        rows.append(_row(f"`{name}`", value, trait.help, allowed * ("project" in trait.metadata)))
    rows += [_row(f"`{name}`", "`''`", help, "") for name, help in dotted_names()]
    return "\n".join(rows)


TABLES = {
    "options": options_table,
    "verbs": verbs_table,
    "arguments": arguments_table,
    "settings": settings_table,
}


def render(text: str) -> str:
    """Return the README with its generated tables replaced by current ones."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name}: python -m tests.magics.reference -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        assert found, f"{README} has no part {name}"
        text = f"{before}{begin}\n\n{table()}\n\n{end}{after}"
    return text


if __name__ == "__main__":
    README.write_text(render(README.read_text(encoding="utf-8")), encoding="utf-8")
