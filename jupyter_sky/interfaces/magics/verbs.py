"""Calls and help of the verbs of ``%sky`` and ``jupyter sky``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.cell_options.parsing import is_option
from jupyter_sky.base.requests.cell_options.schema import OPTIONS, group_text, help_text
from jupyter_sky.base.requests.quantities import join_durations
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.magics import (  # noqa: F401 (each declares its verbs)
    bag_verbs,
    cell_verbs,
    cluster_verbs,
    launch_verbs,
    pipeline_verbs,
    placement_verbs,
    settings_verbs,
    storage_verbs,
)
from jupyter_sky.interfaces.magics.arguments import Argument, word
from jupyter_sky.interfaces.magics.declaration import NOTEBOOK, USAGE_WIDTH, VERBS, Verb, verb

if TYPE_CHECKING:
    from jupyter_sky.interfaces.magics.reference import HelpPage


HELP_FLAGS = frozenset({"-h", "--help"})


@dataclass(frozen=True, slots=True)
class VerbCall:
    """A verb with its arguments, read and not yet carried out."""

    verb: Verb
    arguments: Mapping[str, Any]

    def run(self) -> Any:
        """Carry out the verb; return what it shows."""
        return self.verb.run(**self.arguments)


def read_call(words: Sequence[str], command: str = NOTEBOOK) -> VerbCall:
    """Read the words after a command; without any, they are ``status``.

    Raises
    ------
    SkyUsageError
        For words that are not understood.

    Examples
    --------
    >>> read_call(["down", "train"]).arguments
    {'cluster': 'train', 'all': False, 'yes': False}
    """
    words = join_durations(words) or ["status"]
    if words[0] in HELP_FLAGS:
        words = ["help", *words[1:]]
    found, rest = find_verb(words, command)
    before = rest[: rest.index("--")] if "--" in rest else rest
    if HELP_FLAGS & set(before):
        found, rest = VERBS["help"], found.name.split()
    arguments = parse_arguments(found, rest, command)
    return VerbCall(found, arguments | {"command": command} if found.name == "help" else arguments)


def call_verb(words: Sequence[str], command: str = NOTEBOOK) -> Any:
    """Carry out a verb; without one, show the status."""
    return read_call(words, command).run()


def find_verb(words: Sequence[str], command: str = NOTEBOOK) -> tuple[Verb, list[str]]:
    """Return the verb, or the command of a verb, that words begin with, and the other words.

    Raises
    ------
    SkyUsageError
        There is no such verb after this command; suggests the nearest.
    """
    name, *rest = words
    if name not in VERBS:
        hint = suggest(name, [each.name for each in list_verbs(command) if " " not in each.name])
        if command == NOTEBOOK:
            hint += _(" (to run code on a cluster, put %%sky above a cell)")
        raise SkyUsageError(
            _("{command} {name}: there is no such verb").format(command=command, name=name),
            hint=hint,
        )
    found = VERBS[name]
    if not found.is_available(command):
        where = "a notebook" if found.only == NOTEBOOK else "a shell"
        raise SkyUsageError(
            _("{name} works in {where} only").format(name=name, where=where),
            hint=f"{found.only} {found.usage}",
        )
    longer = VERBS.get(" ".join(words[:2])) if rest else None
    return (longer, rest[1:]) if longer else (found, rest)


def list_verbs(command: str) -> list[Verb]:
    """Return the verbs that can follow a command, by name."""
    return [each for __, each in sorted(VERBS.items()) if each.is_available(command)]


# -- help ------------------------------------------------------------------------------------


def describe_verb(verb: Verb, command: str) -> str:
    """Return how a verb is written after a command, what it does, its arguments, an example.

    Examples
    --------
    >>> print(describe_verb(VERBS["check"], "jupyter sky"))
    jupyter sky check
        Show which clouds can be used from here.
        example: jupyter sky check
    """
    lines = [
        f"{command} {verb.usage}",
        f"    {_(verb.help)}",
        _("    example: {command} {example}").format(command=command, example=verb.example),
    ]
    own = [each for each in verb.arguments if not each.group]
    if own:
        lines += ["", *(_row(each.title, _(each.help)) for each in own)]
    for each in verb.commands:
        lines += ["", describe_verb(each, command)]
    takes_all = any(each.kind == "rest" for each in verb.words)
    groups = dict.fromkeys(each.group for each in (OPTIONS if takes_all else verb.arguments))
    return "\n".join([*lines, *(f"\n{group_text(group)}" for group in groups if group)])


def describe_verbs(command: str) -> str:
    """Return the list of verbs that can follow a command."""
    lines = [
        _("usage: {command} VERB").format(command=command),
        _("{command} help VERB describes one.").format(command=command),
        _("{command} help sky.plan describes a name in Python.").format(command=command),
        _("{command} help 1 shows the first page of the guide.").format(command=command),
        "",
    ]
    lines += [_row(each.short_usage, _(each.help)) for each in list_verbs(command)]
    return "\n".join(lines)


def _row(left: str, right: str) -> str:
    if len(left) > USAGE_WIDTH:
        left = f"{left}\n{'':{USAGE_WIDTH + 2}}"
    return f"  {left:{USAGE_WIDTH}} {right}"


def describe_verb_page(verb: Verb, command: str) -> HelpPage:
    """Return the help of a verb, with a pointer to the Python name that is spelled like it."""
    from jupyter_sky.interfaces.magics.reference import HelpPage, list_names

    title, __, text = describe_verb(verb, command).partition("\n")
    if verb.name in list_names():
        pointer = _("In Python: sky.{name}(), see {command} help sky.{name}")
        text += "\n\n" + pointer.format(name=verb.name, command=command)
    return HelpPage("verb", verb.name, title, _(verb.help), text)


def find_page(words: Sequence[str], command: str = NOTEBOOK) -> HelpPage:
    """Return the page of a verb, a public name or a page of the guide, in this order.

    Parameters
    ----------
    words
        One word, or the two of a command such as ``catalog refresh``.
    command
        What a verb follows in the text: ``%sky`` or ``jupyter sky``.

    Raises
    ------
    SkyUsageError
        Nothing has that name; suggests the nearest.
    """
    from jupyter_sky.interfaces.magics.guide import find_guide, list_guide
    from jupyter_sky.interfaces.magics.reference import describe_name, is_public, list_names

    first = words[0]
    if first in VERBS:
        found, extra = find_verb(words, command)
        if extra:
            text = _("{command} help {verbs}: {extra!r} is not understood").format(
                command=command, verbs=" ".join(words), extra=extra[0]
            )
            raise SkyUsageError(
                text, hint=_("{command} help {name}").format(command=command, name=found.name)
            )
        return describe_verb_page(found, command)
    if len(words) == 1 and is_public(first):
        return describe_name(first, command)
    if len(words) == 1 and (page := find_guide(first)):
        return page
    verbs = [each.name for each in list_verbs(command) if " " not in each.name]
    topics = [page.name.partition("-")[2] for page in list_guide()]
    raise SkyUsageError(
        _("{command} help {words}: there is no such verb, name or page").format(
            command=command, words=" ".join(words)
        ),
        hint=suggest(
            first,
            [*list_names(), *topics, *verbs],
            _("{command} help lists all verbs").format(command=command),
        ),
    )


@verb(
    "help",
    "help logs",
    word("[NAME ...]", "Verb, public name such as sky.plan, or page of the guide.", "help"),
    needs_session=False,
)
def show_help(names: Sequence[str], command: str) -> None:
    """Show this help, or that of a verb, a public name or a page of the guide."""
    if names:
        print(find_page(names, command))
        return
    print(describe_verbs(command))
    if command == NOTEBOOK:
        print(f"\n{help_text()}")


# -- Parser of the words after ``%sky`` and ``jupyter sky``: argparse, with errors of this --------

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
