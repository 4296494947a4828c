"""Arguments of verbs as values, from which parser, help and completion are made."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from jupyter_sky.base.requests.cell_options.schema import OPTIONS, Kind, Option


@dataclass(frozen=True, slots=True)
class Argument(Option):
    """One option of a verb, or a word by its position when it has no flags.

    Attributes
    ----------
    parse : callable or None
        Conversion of the text and the name of the argument to a value; None keeps the text.
    """

    parse: Callable[[str, str], Any] | None = None

    @property
    def nargs(self) -> int | str | None:
        """The number of words that it takes, as argparse writes it."""
        if self.kind == "rest":
            return argparse.REMAINDER
        if self.kind == "flag":
            return 0
        if self.kind == "names":
            return "+" if self.is_required else "*"
        return None if self.flags or self.is_required else "?"

    @property
    def is_required(self) -> bool:
        """Whether the verb cannot do without it."""
        return not self.flags and not (self.metavar or "").startswith("[")

    @property
    def title(self) -> str:
        """Its spellings and the name of its value, as help shows them."""
        return " ".join(filter(None, (", ".join(self.flags), self.metavar)))

    @property
    def usage(self) -> str:
        """Its place in the usage of a verb."""
        if not self.flags:
            return self.metavar or ""
        return f"[{' '.join(filter(None, (self.flags[0], self.metavar)))}]"


def option(
    flags: str,
    metavar: str,
    text: str,
    example: str = "",
    complete: str = "",
    parse: Callable[[str, str], Any] | None = None,
) -> Argument:
    """Return an option; without a metavar it takes no value.

    Examples
    --------
    >>> option("-c --cluster", "NAME", "Cluster to send to.").usage
    '[-c NAME]'
    """
    spellings = tuple(flags.split())
    dest = spellings[-1].lstrip("-").replace("-", "_")
    kind: Kind = "value" if metavar else "flag"
    return Argument(
        spellings, dest, "", metavar or None, text, example or spellings[-1], kind, complete, parse
    )


def word(
    metavar: str, text: str, complete: str = "", parse: Callable[[str, str], Any] | None = None
) -> Argument:
    """Return a positional argument; ``[NAME]`` may be left out, ``NAME ...`` takes several.

    Examples
    --------
    >>> word("[CLOUD ...]", "Clouds to read.").dest
    'clouds'
    """
    match = re.search(r"\w+", metavar)
    assert match is not None
    several = "..." in metavar
    dest = match[0].lower() + "s" * several
    return Argument(
        (), dest, "", metavar, text, "", "names" if several else "value", complete, parse
    )


def rest(metavar: str, text: str) -> Argument:
    """Return the argument that takes all words from its position on, options of a cell."""
    return Argument((), "options", "", metavar, text, "", "rest", "cell-options")


def parse_path(text: str, name: str) -> Path:
    """Return a text as a path."""
    return Path(text)


RESOURCES = tuple(Argument(*astuple(each)) for each in OPTIONS if each.group == "Resources")
"""The options of a cell that describe machines, for verbs that take them too."""
