"""Tab completion of ``%%sky`` and ``%sky`` lines, as one of IPython's custom matchers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from jupyter_sky import accelerators
from jupyter_sky.cell_options.schema import BY_FLAG, OPTIONS, Option
from jupyter_sky.geography import ARCHES, SERVICES, VENDORS
from jupyter_sky.provider.register import known_names

_PATHS = 200  # entries of a directory that are offered; a menu of more helps nobody

_CELL = re.compile(r"%%sky\s(?P<rest>.*)", re.DOTALL)
_LINE = re.compile(r"\s*(?:[\w\s,.]+=\s*)?%sky\s(?P<rest>.*)", re.DOTALL)
_WORD = re.compile(r"""(?:"[^"]*"?|'[^']*'?|[^\s"'])+""")

# What follows each verb of %sky: kinds of names, or options.
_VERBS: dict[str, tuple[str, ...]] = {
    "catalog": ("refresh", "check", "build", "price-source", "--dry-run", "--force"),
    "check": ("cloud",),
    "config": ("setting",),
    "cost": ("--by", "--since", "--csv"),
    "cancel": ("run",),
    "down": ("cluster", "all", "--all", "--yes"),
    "extend": ("cluster",),
    "get": ("remote-name",),
    "help": ("verb",),
    "logs": ("run", "-f", "--provision"),
    "put": ("local-name",),
    "ssh": ("cluster",),
    "status": ("cluster",),
    "tracker": ("clear", "--blocked", "--launches", "--lifetimes", "--prices", "--cloud", "cloud"),
    "vars": ("cluster",),
    "wait": ("run",),
}


_PLACES = ("country", "instance-type", "jurisdiction", "region", "zone")


class CompletionSources(Protocol):
    """Names that only a live session knows. Each must answer at once, from memory."""

    def clusters(self) -> Iterable[str]:
        """Names of live clusters."""
        ...

    def local_names(self) -> Iterable[str]:
        """Variables of the notebook."""
        ...

    def remote_names(self) -> Iterable[str]:
        """Variables of the engines."""
        ...

    def aliases(self) -> Iterable[str]:
        """Short names of options."""
        ...

    def places(self, kind: str) -> Iterable[str]:
        """Regions, zones, countries, jurisdictions or instance types that offers have."""
        ...

    def runs(self) -> Iterable[str]:
        """Names of runs."""
        ...

    def verbs(self) -> Iterable[str]:
        """Return the verbs and options that can follow ``%sky``."""
        ...


class _Completions(NamedTuple):
    """What could stand in place of the fragment before the cursor."""

    fragment: str
    choices: Iterable[tuple[str, str]]  # (text, type)


def make_matcher(sources: CompletionSources) -> Callable[[Any], Any]:
    """Matcher for ``shell.Completer.custom_matchers``.

    Parameters
    ----------
    sources : CompletionSources
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
                for text, kind in dict.fromkeys(found.choices)
                if text.lower().startswith(fragment.lower()) and _is_public(text, fragment)
            ],
            "matched_fragment": fragment,
            "suppress": True,
            "ordered": True,
        }

    return sky_matcher


def _complete(context: Any, sources: CompletionSources) -> _Completions | None:
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
    words: list[str], fragment: str, sources: CompletionSources, aliases: Iterable[str] = ()
) -> _Completions:
    flag, equals, value = fragment.partition("=")
    if equals and flag in BY_FLAG:
        return _values(BY_FLAG[flag], value, sources)
    option = _open_option(words)
    if option and not fragment.startswith("-"):
        return _values(option, fragment, sources)
    return _Completions(fragment, [*_options_of_kind(aliases, "alias"), *_flags(words)])


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


def _values(option: Option, text: str, sources: CompletionSources) -> _Completions:
    several = option.kind == "names" or option.complete == "cloud"
    fragment = re.split(r"[,\"']" if several else r"[\"']", text)[-1].lstrip()
    if option.complete == "gpu" and ":" in fragment:
        name = fragment.partition(":")[0]
        return _Completions(
            fragment, _options_of_kind((f"{name}:{count}" for count in (1, 2, 4, 8)), "gpu")
        )
    if option.complete == "path":
        return _Completions(fragment, _options_of_kind(_paths(fragment), "path"))
    return _Completions(fragment, complete_names(option.complete, sources))


def _verb_line(words: list[str], fragment: str, sources: CompletionSources) -> _Completions:
    if not words:
        return _Completions(fragment, _options_of_kind(sources.verbs(), "verb"))
    verb, *rest = words
    if verb == "up" or (verb == "alias" and rest):
        return _option_line(rest, fragment, sources)
    if verb == "offers":
        return _offers_line(rest, fragment, sources)
    if verb == "plan":
        return _plan_line(rest, fragment, sources)
    if verb == "alias":
        return _Completions(fragment, _options_of_kind(sources.aliases(), "alias"))
    kinds = [kind for kind in _VERBS.get(verb, ()) if kind not in rest]
    return _Completions(
        fragment, [choice for kind in kinds for choice in complete_names(kind, sources)]
    )


def _offers_line(words: list[str], fragment: str, sources: CompletionSources) -> _Completions:
    """Accelerators, and the options that say which machines."""
    if _open_option(words) or "=" in fragment:
        return _option_line(words, fragment, sources)
    if not fragment.startswith("-") and not any(not word.startswith("-") for word in words):
        return _values(BY_FLAG["--gpus"], fragment, sources)
    shared = [option for option in OPTIONS if option.group == "Resources"]
    flags = [flag for option in shared for flag in option.flags]
    return _Completions(fragment, _options_of_kind([*flags, "--flagged", "--limit"], "option"))


def _plan_line(words: list[str], fragment: str, sources: CompletionSources) -> _Completions:
    """Variables of the notebook, the options that say which machines, and those of a plan."""
    kinds = {
        "--minimize": ["cost", "time", "time_then_cost", "carbon"],
        "--solver": ["auto", "glpk", "highs"],
    }
    if words and words[-1] in kinds:
        return _Completions(fragment, _options_of_kind(kinds[words[-1]], "value"))
    if _open_option(words) or "=" in fragment:
        return _option_line(words, fragment, sources)
    if not fragment.startswith("-") and not any(not word.startswith("-") for word in words):
        return _Completions(fragment, _options_of_kind(sources.local_names(), "local-name"))
    shared = [option for option in OPTIONS if option.group == "Resources"]
    flags = [flag for option in shared for flag in option.flags]
    own = ["--minimize", "--deadline", "--budget", "--carbon-cap", "--solver"]
    return _Completions(fragment, _options_of_kind([*own, *flags], "option"))


def complete_names(kind: str, sources: CompletionSources) -> list[tuple[str, str]]:
    """Names of a kind; a kind that is none stands for itself."""
    known: dict[str, Callable[[], Iterable[str]]] = {
        "": tuple,
        "arch": lambda: ARCHES,
        "cloud": known_names,
        "cluster": sources.clusters,
        "cpu-vendor": lambda: VENDORS,
        "env": lambda: sorted(os.environ),
        "gpu": accelerators.names,
        "local-name": sources.local_names,
        "price-source": _price_sources,
        "remote-name": sources.remote_names,
        "run": sources.runs,
        "service": lambda: SERVICES,
        "setting": _settings,
        "verb": sources.verbs,
    }
    if kind in _PLACES:
        return _options_of_kind(sources.places(kind), kind)
    return _options_of_kind(known[kind]() if kind in known else (kind,), kind)


def _options_of_kind(texts: Iterable[str], kind: str) -> list[tuple[str, str]]:
    return [(text, kind) for text in texts]


def _price_sources() -> Iterable[str]:
    from jupyter_sky.catalog.refresh import sources

    return sources()


def _settings() -> list[str]:
    from jupyter_sky.config.provider_settings import dotted_names
    from jupyter_sky.config.settings import Sky

    names = [*sorted(Sky.class_own_traits(config=True)), *(name for name, _ in dotted_names())]
    return [f"{name}=" for name in names]


def _is_public(text: str, fragment: str) -> bool:
    """Private names show only to those who begin to write one."""
    return not text.startswith("_") or fragment.startswith("_")


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
