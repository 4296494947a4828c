"""Parser of the words after ``%sky`` and ``jupyter sky``: argparse, with errors of this package."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.cell_options.parsing import is_option
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.magics.arguments import Argument
from jupyter_sky.interfaces.magics.declaration import Verb

_TWICE = "is given twice"


class _Parser(argparse.ArgumentParser):
    """A parser that raises: it neither prints nor exits."""

    def __init__(self) -> None:
        super().__init__(add_help=False, allow_abbrev=False, exit_on_error=False)

    def error(self, message: str) -> NoReturn:
        raise argparse.ArgumentError(None, message)


class _StoreOnce(argparse.Action):
    """Store a value; refuse a second one, which would silently replace the first."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            raise argparse.ArgumentError(self, _TWICE)
        setattr(namespace, self.dest, values)


def parse_arguments(verb: Verb, words: Sequence[str], command: str) -> dict[str, Any]:
    """Read the words after a verb into the arguments of its function.

    Options and words may be mixed; after ``--`` no word is an option.

    Parameters
    ----------
    verb
        The verb.
    words
        The words after it.
    command
        ``%sky`` or ``jupyter sky``, for messages.

    Returns
    -------
    dict of str to object
        All of the verb's own arguments; options of resources only where they are given.

    Raises
    ------
    SkyUsageError
        For words that are not understood.

    Examples
    --------
    >>> from jupyter_sky.interfaces.magics.arguments import option, word
    >>> logs = Verb("logs", print, "", "", (word("[CELL]", ""), option("-f --follow", "", "")))
    >>> parse_arguments(logs, ["-f", "7"], "%sky")
    {'cell': '7', 'follow': True}
    """
    title = f"{command} {verb.name}"
    if verb.words and verb.words[-1].kind == "rest":
        # cell_options reads these: some of its options take lists, as in `-i a, b`
        position = len(verb.words) - 1
        first = [*words[:position], *[None] * (position - len(words))]
        return dict(
            zip((each.dest for each in verb.words), [*first, words[position:]], strict=True)
        )
    split = list(words).index("--") if "--" in words else len(words)
    given, names = _read_options(verb, words[:split], title)
    for name in names:
        if is_option(name):
            _raise_unknown_option(verb, name, title)
    _read_words(verb, [*names, *words[split + 1 :]], given, title)
    return _convert(verb, given, title)


def _read_options(
    verb: Verb, words: Sequence[str], title: str
) -> tuple[argparse.Namespace, list[str]]:
    """Return the options that are known, and the other words."""
    parser = _Parser()
    for each in verb.options:
        if each.nargs == 0:
            parser.add_argument(*each.flags, dest=each.dest, action="store_true")
        else:
            parser.add_argument(*each.flags, dest=each.dest, action=_StoreOnce)
    try:
        return parser.parse_known_args(list(words))
    except argparse.ArgumentError as error:
        found = next(each for each in verb.options if "/".join(each.flags) == error.argument_name)
        problem, hint = _("needs a value"), _("such as {example}").format(example=found.example)
        if error.message == _TWICE:
            problem, hint = _TWICE, _("give it once")
        elif found.nargs == 0:
            problem, hint = _("takes no value"), f"write {found.flags[-1]}"
        raise SkyUsageError(f"{title}: {found.flags[-1]} {problem}", hint=hint) from None


def _raise_unknown_option(verb: Verb, text: str, title: str) -> NoReturn:
    flag = text.partition("=")[0]
    known = [flag for each in verb.options for flag in each.flags]
    hint = suggest(flag, known) if known else _("{title} has no options").format(title=title)
    raise SkyUsageError(
        _("{title}: unknown option {flag}").format(title=title, flag=flag), hint=hint
    )


def _read_words(verb: Verb, words: list[str], given: argparse.Namespace, title: str) -> None:
    """Read the words by their position into `given`."""
    has_list = any(each.kind == "names" for each in verb.words)
    extra = [] if has_list else words[len(verb.words) :]
    if extra and verb.commands:
        known = [each.name.removeprefix(f"{verb.name} ") for each in verb.commands]
        raise SkyUsageError(
            _("{title} {extra}: there is no such command").format(title=title, extra=extra[0]),
            hint=suggest(extra[0], known),
        )
    command = title.removesuffix(verb.name)
    if extra:
        raise SkyUsageError(
            _("{title}: {extra!r} is not understood").format(title=title, extra=" ".join(extra)),
            hint=_("usage: {command}{usage}").format(command=command, usage=verb.usage),
        )
    parser = _Parser()
    for each in verb.words:
        parser.add_argument(each.dest, nargs=each.nargs)
    try:
        parser.parse_known_args(["--", *words] if words else [], given)
    except argparse.ArgumentError:  # too few words: all other errors have been found above
        missing = ", ".join(each.metavar or "" for each in verb.words if each.is_required)
        hint = _("such as {command}{example}").format(command=command, example=verb.example)
        raise SkyUsageError(
            _("{title}: {missing} is missing").format(title=title, missing=missing), hint=hint
        ) from None


def _convert(verb: Verb, given: argparse.Namespace, title: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for each in verb.arguments:
        value = getattr(given, each.dest)
        if each.group and value in (None, False):
            continue
        if each.flags and isinstance(value, str) and not value.strip(" ,"):
            hint = _("such as {example}").format(example=each.example)
            raise SkyUsageError(
                _("{title}: {flags} needs a value").format(title=title, flags=each.flags[-1]),
                hint=hint,
            )
        values[each.dest] = _parse(each, value)
    return values


def _parse(argument: Argument, value: Any) -> Any:
    if argument.parse is None or not isinstance(value, str):
        return value
    return argument.parse(value, argument.flags[-1] if argument.flags else argument.metavar or "")
