"""Names of clusters, places, variables and settings that complete an argument, by their kind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Protocol

from jupyter_sky.base.clouds.register import known_names
from jupyter_sky.base.requests import accelerators
from jupyter_sky.base.requests.cell_options.data_engines import DATA_ENGINES
from jupyter_sky.base.requests.geography import ARCHES, SERVICES, VENDORS

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

    def tasks(self) -> Iterable[str]:
        """Names of the tasks of the notebook's pipeline."""
        ...

    def graph_runs(self) -> Iterable[str]:
        """Names of runs of graphs."""
        ...

    def bags(self) -> Iterable[str]:
        """Names of bags of jobs."""
        ...


def complete_names(kinds: str, sources: CompletionSources) -> list[tuple[str, str]]:
    """Return the names of some kinds, each with its kind; a word that is no kind is a name."""
    return [found for kind in kinds.split() for found in _names_of_kind(kind, sources)]


def _names_of_kind(kind: str, sources: CompletionSources) -> list[tuple[str, str]]:
    known: dict[str, Callable[[], Iterable[str]]] = {
        "alias": sources.aliases,
        "arch": lambda: ARCHES,
        "bag": sources.bags,
        "cloud": known_names,
        "cluster": sources.clusters,
        "cpu-vendor": lambda: VENDORS,
        "engine": lambda: DATA_ENGINES,
        "env": lambda: sorted(os.environ),
        "gpu": accelerators.names,
        "graph-run": sources.graph_runs,
        "grouping": _groupings,
        "local-name": sources.local_names,
        "price-source": _price_sources,
        "remote-name": sources.remote_names,
        "remote-path": tuple,  # needs the fragment
        "run": sources.runs,
        "service": lambda: SERVICES,
        "setting": _settings,
        "strategy": _strategies,
        "task": sources.tasks,
    }
    if kind in _PLACES:
        return label_names(sources.places(kind), kind)
    return label_names(known[kind]() if kind in known else (kind,), kind)


def label_names(texts: Iterable[str], kind: str) -> list[tuple[str, str]]:
    """Return names with their kind, as IPython shows it beside them."""
    return [(text, kind) for text in texts]


def _price_sources() -> Iterable[str]:
    from jupyter_sky.clouds.prices import sources

    return sources()


def _groupings() -> Iterable[str]:
    from jupyter_sky.knowledge.ledger.report import GROUPINGS

    return GROUPINGS


def _strategies() -> Iterable[str]:
    from jupyter_sky.knowledge.lifetimes.recovery import STRATEGIES

    return STRATEGIES


def _settings() -> list[str]:
    from jupyter_sky.base.settings.provider_settings import dotted_names
    from jupyter_sky.base.settings.settings import Sky

    names = [*sorted(Sky.class_own_traits(config=True)), *(name for name, _ in dotted_names())]
    return [f"{name}=" for name in names]
