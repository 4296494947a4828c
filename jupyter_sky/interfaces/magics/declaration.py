"""Declaration of verbs: a function, its arguments, an example.

Parser, help, completion and the README's tables are made from these.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from jupyter_sky.interfaces.magics.arguments import Argument

NOTEBOOK, SHELL = "%sky", "jupyter sky"
"""The two commands that verbs follow."""

USAGE_WIDTH = 37
"""Width in characters of the usage of a verb in lists of verbs."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb of ``%sky`` and ``jupyter sky``, or a command of a verb.

    Attributes
    ----------
    name : str
        One word, or two: that of the verb and its own, such as ``catalog refresh``.
    run : callable
        Takes the arguments by their `dest`; options of `RESOURCES` only where they are given.
    help, example : str
        Effect in one sentence, and a use.
    arguments : tuple of Argument
    only : str
        The one command that it can follow, empty for both.
    needs_session : bool
        Whether it works on clusters or settings of this process.
    """

    name: str
    run: Callable[..., Any]
    help: str
    example: str
    arguments: tuple[Argument, ...] = ()
    only: str = ""
    needs_session: bool = True

    @property
    def words(self) -> tuple[Argument, ...]:
        """Its positional arguments."""
        return tuple(each for each in self.arguments if not each.flags)

    @property
    def options(self) -> tuple[Argument, ...]:
        """Its arguments with flags."""
        return tuple(each for each in self.arguments if each.flags)

    @property
    def usage(self) -> str:
        """One line that says how it is written, resources as ``[OPTIONS]``.

        Examples
        --------
        >>> from jupyter_sky.interfaces.magics.arguments import option, word
        >>> Verb("logs", print, "", "", (word("[CELL]", ""), option("-f", "", ""))).usage
        'logs [CELL] [-f]'
        """
        own = [each.usage for each in (*self.words, *self.options) if not each.group]
        if any(each.group for each in self.arguments):
            own.insert(len(self.words), "[OPTIONS]")
        return " ".join([self.name, *own])

    @property
    def short_usage(self) -> str:
        """The usage, with all options as ``[OPTIONS]`` where it would be wide."""
        if len(self.usage) <= USAGE_WIDTH:
            return self.usage
        return " ".join([self.name, *(each.usage for each in self.words), "[OPTIONS]"])

    def is_available(self, command: str) -> bool:
        """Whether it can follow a command."""
        return self.only in ("", command)

    @property
    def commands(self) -> tuple[Verb, ...]:
        """The verbs of two words that begin with its word."""
        return tuple(each for name, each in VERBS.items() if name.startswith(f"{self.name} "))


VERBS: dict[str, Verb] = {}
"""All verbs by name; `interfaces.magics.verbs` imports the modules that declare them."""


def verb(
    name: str, example: str, *arguments: Argument, only: str = "", needs_session: bool = True
) -> Callable[[_Function], _Function]:
    """Declare a function as a verb; the first line of its docstring is the help."""

    def declare(function: _Function) -> _Function:
        text = (inspect.getdoc(function) or "").partition("\n")[0]
        VERBS[name] = Verb(name, function, text, example, arguments, only, needs_session)
        return function

    return declare
