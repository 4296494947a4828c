"""The verbs of ``%sky`` and ``jupyter sky``, their calls and their help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ..cell_options.schema import OPTIONS, group_text, help_text
from ..errors import SkyUsageError, suggest
from . import catalog_verbs, cell_verbs, cluster_verbs, placement_verbs, settings_verbs
from .arguments import NOTEBOOK, USAGE_WIDTH, Verb, word
from .verb_parser import parse_arguments


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
    words = list(words) or ["status"]
    verb, rest = find_verb(words, command)
    before = rest[: rest.index("--")] if "--" in rest else rest
    if {"-h", "--help"} & set(before):
        verb, rest = _HELP, verb.name.split()
    arguments = parse_arguments(verb, rest, command)
    return VerbCall(verb, arguments | {"command": command} if verb is _HELP else arguments)


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
        hint = suggest(name, [each.name for each in _available(command)])
        if command == NOTEBOOK:
            hint += " (to run code on a cluster, put %%sky above a cell)"
        raise SkyUsageError(f"{command} {name}: there is no such verb", hint=hint)
    verb = VERBS[name]
    if not verb.is_available(command):
        where = "a notebook" if verb.only == NOTEBOOK else "a shell"
        raise SkyUsageError(f"{name} works in {where} only", hint=f"{verb.only} {verb.usage}")
    for each in verb.commands:
        if [name, *rest[:1]] == each.name.split():
            return each, rest[1:]
    return verb, rest


def _available(command: str) -> Iterator[Verb]:
    return (verb for verb in VERBS.values() if verb.is_available(command))


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
        f"    {verb.help}",
        f"    example: {command} {verb.example}",
    ]
    own = [each for each in verb.arguments if not each.group]
    if own:
        lines += ["", *(_row(each.title, each.help) for each in own)]
    for each in verb.commands:
        lines += ["", describe_verb(each, command)]
    takes_all = any(each.kind == "rest" for each in verb.words)
    groups = dict.fromkeys(each.group for each in (OPTIONS if takes_all else verb.arguments))
    return "\n".join([*lines, *(f"\n{group_text(group)}" for group in groups if group)])


def describe_verbs(command: str) -> str:
    """Return the list of verbs that can follow a command."""
    lines = [f"usage: {command} VERB", f"{command} help VERB describes one.", ""]
    for verb in _available(command):
        lines += [_row(each.short_usage, each.help) for each in (verb, *verb.commands)]
    return "\n".join(lines)


def _row(left: str, right: str) -> str:
    return f"  {left:{USAGE_WIDTH}} {right}"


def show_help(verbs: Sequence[str], command: str) -> None:
    """Print the help of one verb, or the list of verbs."""
    if not verbs:
        print(describe_verbs(command))
        if command == NOTEBOOK:
            print(f"\n{help_text()}")
        return
    verb, extra = find_verb(verbs, command)
    if extra:
        text = f"{command} help {' '.join(verbs)}: {extra[0]!r} is not understood"
        raise SkyUsageError(text, hint=f"{command} help {verb.name}")
    print(describe_verb(verb, command))


_HELP = Verb(
    "help",
    show_help,
    "Show this help, or that of a verb.",
    "help logs",
    (word("[VERB ...]", "Verb to describe.", "verb"),),
    needs_session=False,
)

VERBS: Mapping[str, Verb] = MappingProxyType(
    {
        verb.name: verb
        for verb in (
            *cluster_verbs.VERBS,
            *cell_verbs.VERBS,
            *settings_verbs.VERBS,
            *placement_verbs.VERBS,
            *catalog_verbs.VERBS,
            _HELP,
        )
    }
)
