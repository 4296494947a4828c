"""Tab completion of ``%%sky`` and ``%sky`` lines, as one of IPython's custom matchers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from jupyter_sky.base.errors import SkyError, SkyUsageError
from jupyter_sky.base.requests.cell_options.schema import BY_FLAG, OPTIONS, Option
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.interfaces.forms.completion_names import complete_names, label_names
from jupyter_sky.interfaces.magics.arguments import Argument
from jupyter_sky.interfaces.magics.declaration import NOTEBOOK, Verb
from jupyter_sky.interfaces.magics.verbs import find_verb, list_verbs

_TASK_NAME = re.compile(r"%%sky\b.*\s--(?:task|name|bg)[=\s]+([^\W\d]\w*)")

_PATHS = 200  # entries of a directory that are offered; a menu of more helps nobody

_CELL = re.compile(r"%%sky\s(?P<rest>.*)", re.DOTALL)
_LINE = re.compile(r"\s*(?:[\w\s,.]+=\s*)?%sky\s(?P<rest>.*)", re.DOTALL)
_WORD = re.compile(r"""(?:"[^"]*"?|'[^']*'?|[^\s"'])+""")


class _Completions(NamedTuple):
    """Texts that can replace the fragment before the cursor."""

    fragment: str
    choices: Iterable[tuple[str, str]]  # (text, type)


def make_matcher(sources: SessionSources) -> Callable[[Any], Any]:
    """Matcher for ``shell.Completer.custom_matchers``.

    Parameters
    ----------
    sources : SessionSources
        Where names of clusters, variables and runs come from.

    Examples
    --------
    >>> shell.Completer.custom_matchers.append(make_matcher(sources))  # doctest: +SKIP
    """
    from IPython.core.completer import SimpleCompletion, context_matcher

    @context_matcher(identifier="jupyter_sky")  # type: ignore[arg-type]
    def sky_matcher(context: Any) -> Any:
        found = _complete(context, sources)
        if found is None:
            return {"completions": []}
        fragment = found.fragment
        return {
            "completions": [
                SimpleCompletion(text, type=kind)
                for text, kind in _without_longer_flags(found.choices, fragment)
                if text.lower().startswith(fragment.lower()) and _is_public(text, fragment)
            ],
            "matched_fragment": fragment,
            "suppress": True,
            "ordered": True,
        }

    return sky_matcher


def _without_longer_flags(
    choices: Iterable[tuple[str, str]], fragment: str
) -> list[tuple[str, str]]:
    """Return choices without ``--gpu-memory`` as long as ``--gpus`` may be meant.

    JupyterLab sorts by the alphabet, where the longer and rarer one is the first.
    """
    unique = list(dict.fromkeys(choices))
    plurals = [text[:-1] for text, _ in unique if text.startswith("--") and text.endswith("s")]
    hidden = [stem for stem in plurals if stem.startswith(fragment) and len(fragment) > len("--")]
    return [each for each in unique if not any(each[0].startswith(f"{stem}-") for stem in hidden)]


def _complete(context: Any, sources: SessionSources) -> _Completions | None:
    """Return completions at the cursor, or None when the line is not ours."""
    lines = context.full_text.split("\n")
    before = lines[context.cursor_line][: context.cursor_position]
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    cell = _CELL.fullmatch(before) if context.cursor_line == first else None
    if cell:
        words, fragment = _split_words(cell["rest"])
        return _option_line(words, fragment, sources, sources.aliases() if not words else ())
    # In the body of any %% cell, %sky is text for another interpreter.
    line = None if lines[first].startswith("%%") else _LINE.fullmatch(before)
    return _verb_line(*_split_words(line["rest"]), sources) if line else None


def _split_words(text: str) -> tuple[list[str], str]:
    """Complete words, and the one that the cursor is in."""
    words = list(_WORD.finditer(text))
    if words and words[-1].end() == len(text):
        return [word[0] for word in words[:-1]], words[-1][0]
    return [word[0] for word in words], ""


def _option_line(
    words: list[str], fragment: str, sources: SessionSources, aliases: Iterable[str] = ()
) -> _Completions:
    flag, equals, value = fragment.partition("=")
    if equals and flag in BY_FLAG:
        return _values(BY_FLAG[flag], value, sources)
    option = _open_option(words)
    if option and not fragment.startswith("-"):
        return _values(option, fragment, sources)
    return _Completions(fragment, [*label_names(aliases, "alias"), *_flags(words)])


def _open_option(words: list[str]) -> Option | None:
    """Return the option whose value the cursor is in; ``-i a, b`` is one list."""
    position = len(words) - 1
    while position > 0 and words[position].endswith(","):
        position -= 1
    option = BY_FLAG.get(words[position]) if position >= 0 else None
    return option if option and option.kind in ("value", "names") else None


def _flags(words: list[str]) -> Iterator[tuple[str, str]]:
    """Options, those that the line does not have yet first."""
    used = {BY_FLAG[flag].dest for flag in (w.partition("=")[0] for w in words) if flag in BY_FLAG}
    for option in sorted(OPTIONS, key=lambda option: option.dest in used):
        yield from ((flag, "option") for flag in reversed(option.flags))


def _values(option: Option, text: str, sources: SessionSources) -> _Completions:
    several = option.kind == "names" or option.complete == "cloud"
    fragment = re.split(r"[,\"']" if several else r"[\"']", text)[-1].lstrip()
    if option.complete == "gpu" and ":" in fragment:
        name = fragment.partition(":")[0]
        return _Completions(
            fragment, label_names((f"{name}:{count}" for count in (1, 2, 4, 8)), "gpu")
        )
    if option.complete == "path":
        return _Completions(fragment, label_names(_paths(fragment), "path"))
    if option.complete == "storage":
        return _Completions(fragment, label_names(_addresses(fragment), "address"))
    if option.complete == "help":
        return _Completions(fragment, [*label_names(_verbs(), "verb"), *_names(fragment)])
    names = complete_names(option.complete, sources)
    if "remote-path" in option.complete:
        names += label_names(sources.remote_paths(fragment), "path")
    return _Completions(fragment, names)


def _verb_line(words: list[str], fragment: str, sources: SessionSources) -> _Completions:
    if not words:
        return _Completions(fragment, label_names(_verbs(), "verb"))
    try:
        verb, rest = find_verb(words)
    except SkyUsageError:
        return _Completions(fragment, ())
    if verb.words and verb.words[-1].kind == "rest" and len(rest) >= len(verb.words) - 1:
        return _option_line(rest, fragment, sources)
    flag, equals, value = fragment.partition("=")
    options = {flag: each for each in verb.options for flag in each.flags}
    if equals and flag in options:
        return _values(options[flag], value, sources)
    if rest and rest[-1] in options and options[rest[-1]].metavar:
        return _values(options[rest[-1]], fragment, sources)
    choices = [] if rest else label_names((c.name.split()[1] for c in verb.commands), "verb")
    word = _next_word(verb, rest, options)
    if word and not fragment.startswith("-"):
        fragment, names = _values(word, fragment, sources)
        choices += names
    used = {options[flag].dest for flag in (w.partition("=")[0] for w in rest) if flag in options}
    for each in verb.options:
        choices += label_names(each.flags if each.dest not in used else (), "option")
    return _Completions(fragment, choices)


def _verbs() -> list[str]:
    return [verb.name for verb in list_verbs(NOTEBOOK) if " " not in verb.name]


def _names(fragment: str) -> list[tuple[str, str]]:
    """Public names, once ``sky.`` is written: many are spelled like verbs."""
    from jupyter_sky.interfaces.magics.reference import list_names

    names = list_names() if fragment.startswith("sky.") else []
    return label_names((f"sky.{name}" for name in names), "name")


def _next_word(verb: Verb, words: list[str], options: dict[str, Argument]) -> Argument | None:
    """Return the positional argument that follows some words."""
    values = sum(1 for word in words if word in options and options[word].metavar)
    position = sum(1 for word in words if not word.startswith("-")) - values
    last = len(verb.words) - 1
    if position > last and not (verb.words and verb.words[last].kind == "names"):
        return None
    return verb.words[min(position, last)]


def _is_public(text: str, fragment: str) -> bool:
    """Private names show only to those who begin to write one."""
    return not text.startswith("_") or fragment.startswith("_")


def _addresses(fragment: str) -> list[str]:
    """Addresses of data: paths of this machine, schemes, buckets and keys."""
    from jupyter_sky.machines.storage.datasets.completion import complete_address
    from jupyter_sky.machines.storage.datasets.data import usage_memory

    if fragment.startswith("file:"):
        return [f"file:{path}" for path in _paths(fragment.removeprefix("file:"))]
    paths = _paths(fragment) if "://" not in fragment else []
    return [*complete_address(fragment, usage_memory()), *paths]


def _paths(fragment: str) -> list[str]:
    """Entries of the directory that a fragment points into, directories first."""
    folder, name = os.path.split(fragment)
    try:
        with os.scandir(os.path.expanduser(folder) or ".") as entries:
            found = [
                (not entry.is_dir(), entry.name)
                for entry in entries
                if entry.name.startswith(name) and (name or not entry.name.startswith("."))
            ]
    except OSError:
        return []
    prefix = fragment[: len(fragment) - len(name)]
    return [f"{prefix}{name}{'' if is_file else '/'}" for is_file, name in sorted(found)[:_PATHS]]


class SessionSources:
    """Names for completion, from memory only."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell

    def _session(self) -> Any:
        from jupyter_sky.execution.sessions import session as sessions

        return sessions._session

    def clusters(self) -> Iterable[str]:
        """Names of live clusters."""
        session = self._session()
        return [row.name for row in session.store.clusters()] if session else []

    def local_names(self) -> Iterable[str]:
        """Variables of the notebook."""
        hidden = self.shell.user_ns_hidden
        return [n for n in self.shell.user_ns if not n.startswith("_") and n not in hidden]

    def remote_names(self) -> Iterable[str]:
        """Variables of the engines."""
        session = self._session()
        return sorted(session.variables.remote_names()) if session else []

    def remote_paths(self, fragment: str) -> Iterable[str]:
        """Ask the controller of a cluster that is connected, which answers while cells run."""
        session = self._session()
        live = next(iter(session.clusters.connected.values()), None) if session else None
        if live is None or live.connection.is_lost or live.connection.down_reason():
            return ()
        from jupyter_sky.execution.files.file_transfer import complete_path

        return complete_path(live, fragment)

    def aliases(self) -> Iterable[str]:
        """Short names of options."""
        return Sky.load().aliases

    def places(self, kind: str) -> Iterable[str]:
        """Regions, zones, countries, jurisdictions or instance types that offers have."""
        from jupyter_sky.knowledge.catalog import load

        here = ["this-machine"] if kind == "region" else []
        try:
            return [*here, *load().names(kind)]
        except SkyError:
            return here  # a menu is no place to complain of a damaged file

    def runs(self) -> Iterable[str]:
        """Names of runs."""
        session = self._session()
        return list(session.named) if session else []

    def tasks(self) -> Iterable[str]:
        """Names in the cells that have run; those of the kernel's file are not known here."""
        history = self.shell.history_manager
        return dict.fromkeys(
            name
            for cell in (history.input_hist_raw if history else ())
            for name in _TASK_NAME.findall(cell.lstrip().partition("\n")[0])
        )

    def graph_runs(self) -> Iterable[str]:
        """Names of runs of graphs."""
        if self._session() is None:
            return []
        from jupyter_sky.interfaces.api.pipelines import run_names

        return run_names()

    def bags(self) -> Iterable[str]:
        """Names of bags of jobs."""
        if self._session() is None:
            return []
        from jupyter_sky.interfaces.api.jobs import bag_names

        return bag_names()
