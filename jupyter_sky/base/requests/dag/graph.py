"""A graph of tasks as frozen values: what `requests.dag.dag` writes and plans are made from."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from heapq import heapify, heappop, heappush
from typing import Any

from jupyter_sky.base.clouds.index import LOCAL
from jupyter_sky.base.clouds.register import find_facts, find_store
from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.quantities import parse_duration
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _

Estimate = Callable[[Offer], Any]
"""From a machine to hours, or to a duration such as ``"90m"``."""

_UNITS = {"": 1.0, "k": 1024.0**-2, "m": 1 / 1024, "g": 1.0, "t": 1024.0, "p": 1024.0**2}
_SIZE = r"(?i:(\d+(?:\.\d*)?|\.\d+)\s*([kmgtp]?)i?b?)"
_WEB_SCHEMES = ("http", "https", "ftp", "hf")


def parse_size(size: str | float, what: str = "size") -> float:
    """Read a number of GB, or a text with a unit: ``"150GB"``, ``"0.5 TB"``, ``"100MB"``.

    Units are binary, as everywhere here: clouds write GB and count GiB.

    Examples
    --------
    >>> parse_size("512MB"), parse_size(150), parse_size("1.5TB")
    (0.5, 150.0, 1536.0)
    """
    if isinstance(size, str):
        match = re.fullmatch(_SIZE, size.strip())
        value = float(match[1]) * _UNITS[match[2].lower()] if match else math.nan
    else:
        good = isinstance(size, int | float) and not isinstance(size, bool)
        value = float(size) if good else math.nan
    if not 0 <= value < math.inf:
        raise SkyUsageError(
            _("{what}: {size!r} is not a size").format(what=what, size=size),
            hint=_('give GB from 0, or a text with a unit: 150, "150GB", "100MB"'),
        )
    return value


def parse_hours(value: Any) -> float:
    """Hours from what an estimator gave; SkyUsageError for what is no time.

    Examples
    --------
    >>> parse_hours(1.5), parse_hours("90m"), parse_hours(timedelta(minutes=30))
    (1.5, 1.5, 0.5)
    """
    if isinstance(value, timedelta):
        hours = value.total_seconds() / 3600
    elif isinstance(value, str):
        hours = parse_duration(value, "time estimate") / 3600
    else:
        try:
            hours = float(value)
        except (TypeError, ValueError):
            hours = math.nan
    if math.isnan(hours) or hours < 0:
        raise SkyUsageError(
            _("{value!r} is not a time").format(value=value),
            hint=_('hours from 0, a duration such as "90m", or inf'),
        )
    return hours


@dataclass(frozen=True, slots=True)
class Constant:
    """An estimator: the same time on every machine."""

    hours: float

    def __call__(self, offer: Offer) -> float:
        """Return the constant time (hours)."""
        return self.hours


@dataclass(frozen=True, slots=True)
class Data:
    """Data that a task reads from a store, or writes.

    Attributes
    ----------
    uri : str
        Where it is; ``?:`` stands for the cloud on which the task runs.
    gb : float, optional
        How much, GB; None where nobody has said.
    cloud, region : str
        Where the store is; an empty region where nobody has said. Both are empty for ``?:``.
    objects : int
        Number of objects, each of which is a request at least; 0 where nobody has counted.
    measured : float
        Unix time at which the size was measured; 0 for a size that somebody has said.
    """

    uri: str
    gb: float | None = None
    cloud: str = ""
    region: str = ""
    objects: int = field(default=0, repr=False)
    measured: float = field(default=0.0, repr=False)

    @property
    def is_anywhere(self) -> bool:
        """Whether it lies wherever its task runs."""
        return not self.cloud

    @classmethod
    def from_uri(cls, uri: str, size: str | float | None, region: str | None = None) -> Data:
        """Return the data of a URI; the cloud follows from the scheme.

        Examples
        --------
        >>> Data.from_uri("s3://imagenet", "150GB", "us-east-1")
        Data(uri='s3://imagenet', gb=150.0, cloud='aws', region='us-east-1')
        """
        gb = None if size is None else parse_size(size, f"size of {uri}")
        cloud, found = _parse_uri(uri)
        return cls(uri, gb, cloud, region or found)


def _parse_uri(uri: str) -> tuple[str, str]:
    """Return cloud and region of a URI; no cloud means: wherever the task runs."""
    text = uri.strip()
    scheme, colons, rest = text.partition("://")
    if text.startswith("?") or not text:
        return "", ""
    scheme = scheme.lower()
    if colons and scheme in _WEB_SCHEMES:
        return find_store(scheme, rest.partition("/")[0]) or "internet", ""
    if (colons and scheme == "file") or (not colons and text.startswith((".", "/", "~", "file:"))):
        return LOCAL, ""
    if colons and (cloud := find_store(scheme)):
        return cloud, ""
    parts = text.split("/")  # as the catalog writes places: aws/us-east-1
    if (
        not colons
        and len(parts) <= 3
        and (parts[0] == "internet" or find_facts(parts[0]).storage_region)
    ):
        return parts[0], parts[1] if len(parts) > 1 else ""
    raise SkyUsageError(
        _("{uri!r} is not a place for data").format(uri=uri),
        hint=_(
            "such as s3://bucket, gs://bucket, az://container, https://..., "
            "./file, aws/us-east-1, or ?:/name for the cloud that the task runs on"
        ),
    )


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A task, checked and frozen.

    Attributes
    ----------
    needs : tuple of Resources
        Alternatives: any of them will do.
    inputs : tuple of Data
        What it reads from stores; it can come while others still work.
    stored : tuple of Data
        What it reads from stores to which the tasks before it have written.
    outputs : tuple of Data
        What it writes.
    estimator : callable, optional
        From an offer to hours; None for the default of one hour, which is marked as assumed.
    each_offer : bool
        Whether the estimator is asked for each place, not just for each kind of machine.
    residency : tuple of str
        Areas that it may run in; empty for all.
    spin_up : float, optional
        Hours until a machine is ready; None for what is known of its cloud.
    """

    name: str
    needs: tuple[Resources, ...]
    inputs: tuple[Data, ...] = ()
    stored: tuple[Data, ...] = ()
    outputs: tuple[Data, ...] = ()
    estimator: Estimate | None = None
    each_offer: bool = False
    residency: tuple[str, ...] = ()
    spin_up: float | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """Task `dst` starts when task `src` has ended and `gb` GB have come from it."""

    src: int
    dst: int
    gb: float
    residency: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Graph:
    """Frozen graph for plans: tasks in an order that respects the edges.

    Attributes
    ----------
    same_region, same_cluster : tuple of (str, str)
        Names of tasks that must share a region, or a machine.
    """

    name: str
    tasks: tuple[TaskSpec, ...]
    edges: tuple[Edge, ...] = ()
    same_region: tuple[tuple[str, str], ...] = ()
    same_cluster: tuple[tuple[str, str], ...] = ()
    _positions: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        positions = {task.name: index for index, task in enumerate(self.tasks)}
        object.__setattr__(self, "_positions", positions)

    def index(self, name: str) -> int:
        """Position of a task; SkyUsageError suggests the nearest name."""
        if name not in self._positions:
            raise SkyUsageError(
                _("there is no task {name!r}").format(name=name),
                hint=suggest(name, self._positions),
            )
        return self._positions[name]


def topological_order(names: list[str], links: Iterable[tuple[int, int]]) -> list[int]:
    """Tasks with every edge going forward, otherwise as they were written (Kahn's algorithm)."""
    after: dict[int, list[int]] = {index: [] for index in range(len(names))}
    waiting = [0] * len(names)
    for src, dst in links:
        after[src].append(dst)
        waiting[dst] += 1
    order: list[int] = []
    ready = [index for index, count in enumerate(waiting) if not count]
    heapify(ready)
    while ready:
        order.append(heappop(ready))
        for dst in after[order[-1]]:
            waiting[dst] -= 1
            if not waiting[dst]:
                heappush(ready, dst)
    if len(order) < len(names):
        placed = set(order)
        cycle = _find_cycle({v: after[v] for v in after if v not in placed})
        path = " >> ".join(names[index] for index in (*cycle, cycle[0]))
        raise SkyUsageError(
            _("the tasks wait for each other: {path}").format(path=path),
            hint=_("take one of these away"),
        )
    return order


def _find_cycle(after: Mapping[int, list[int]]) -> list[int]:
    """Find a cycle among tasks that all wait for another, by walking backwards."""
    before = {dst: src for src, dsts in after.items() for dst in dsts if dst in after}
    at, seen = next(iter(before)), []
    while at not in seen:
        seen.append(at)
        at = before[at]
    return seen[seen.index(at) :][::-1]
