"""Calls and help of the verbs of ``%sky`` and ``jupyter sky``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.cell_options.schema import OPTIONS, group_text, help_text
from jupyter_sky.base.requests.quantities import join_durations
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.magics import (  # noqa: F401 (each declares its verbs)
    bag_verbs,
    catalog_verbs,
    cell_verbs,
    cluster_verbs,
    example_verbs,
    launch_verbs,
    pipeline_verbs,
    placement_verbs,
    settings_verbs,
    storage_verbs,
)
from jupyter_sky.interfaces.magics.arguments import word
from jupyter_sky.interfaces.magics.declaration import NOTEBOOK, USAGE_WIDTH, VERBS, Verb, verb
from jupyter_sky.interfaces.magics.verb_parser import parse_arguments

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
