"""Constraints on plans beyond the requests of tasks: one small value for each kind.

::

    sky.plan(dag, constraints=[Residency("eu", tasks=["clean"]), Quota(8, cloud="aws", family="p"),
                               NodeCeiling(20), Reliable(24)])

Demands on single offers (`Residency`, `Only`, `Reliable`, `Avoid`) leave offers out before the
model is made. Demands on several tasks (`Colocation`, `Quota`, `NodeCeiling`, `HourlyCeiling`,
`Custom`) are rows of it. Each has a name, by which a conflict is explained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from jupyter_sky.base.clouds.register import check_name
from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.dag.dag import Graph
from jupyter_sky.base.requests.geography import in_area, parse_area
from jupyter_sky.base.requests.offers import Offer, Place
from jupyter_sky.base.requests.resources import Resources, format_option
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.market import Market, OfferPool
from jupyter_sky.decisions.optimizer.solver.problem import Flags
from jupyter_sky.knowledge.tracker.blocks import Scope


class Demand(Protocol):
    """Demand that a plan must keep."""

    @property
    def name(self) -> str:
        """Name in error messages."""
        ...


def _names(tasks: str | Iterable[str]) -> tuple[str, ...]:
    found = (tasks,) if isinstance(tasks, str) else tuple(tasks)
    return tuple(getattr(task, "name", task) for task in found)


@dataclass(frozen=True)
class _OfferDemand:
    """A demand on each offer by itself, of all tasks or of some."""

    tasks: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tasks", _names(self.tasks))

    @property
    def name(self) -> str:
        """Name in error messages."""
        raise NotImplementedError

    def allowed(self, market: Market, pool: OfferPool) -> Flags:
        """Return which offers of a pool keep it."""
        raise NotImplementedError

    def _for(self) -> str:
        return f" of {', '.join(self.tasks)}" if self.tasks else ""


def _filter_by_site(
    market: Market, pool: OfferPool, test: Callable[[str, str, str], bool]
) -> Flags:
    """Return offers whose site passes a test, which is called once for each site."""
    used = np.flatnonzero(np.bincount(pool.site, minlength=1)) if len(pool) else []
    passed = np.zeros(len(market.sites), bool)
    for site in used:
        passed[site] = test(*market.sites[site])
    return passed[pool.site]


@dataclass(frozen=True)
class Residency(_OfferDemand):
    """Only in these countries or jurisdictions.

    Parameters
    ----------
    areas
        Codes such as ``"eu"`` or ``"ch"``, one by one or with commas between them.
    tasks
        Names of the tasks that it binds; all unless given.

    Examples
    --------
    >>> Residency("eu, ch", tasks=["clean"]).name
    'residency EU, CH of clean'
    """

    areas: str | Sequence[str] = ()

    def __init__(self, *areas: str | Sequence[str], tasks: str | Iterable[str] = ()) -> None:
        flat = [one for area in areas for one in ([area] if isinstance(area, str) else area)]
        words = [word for text in flat for word in text.replace(",", " ").split()]
        if not words:
            raise SkyUsageError(_("residency needs an area"), hint=_('such as Residency("eu")'))
        found = tuple(dict.fromkeys(parse_area(word, "residency") for word in words))
        object.__setattr__(self, "areas", found)
        object.__setattr__(self, "tasks", _names(tasks))

    @property
    def name(self) -> str:
        """Name, such as ``residency EU``."""
        return f"residency {', '.join(self.areas)}{self._for()}"

    def allowed(self, market: Market, pool: OfferPool) -> Flags:
        """Return offers in a region that lies in one of the areas."""

        def inside(cloud: str, region: str, zone: str) -> bool:
            found = market.catalog.region(cloud, region)
            return any(in_area(a, found.country, found.jurisdiction) for a in self.areas)

        return _filter_by_site(market, pool, inside)


@dataclass(frozen=True)
class Only(_OfferDemand):
    """Only offers that meet a request as well: ``Only(cloud="aws")``, ``Only(on_demand=True)``.

    Examples
    --------
    >>> Only(cloud="aws").name
    'only --cloud aws'
    """

    need: Resources = field(default_factory=Resources)

    def __init__(self, *, tasks: str | Iterable[str] = (), **labels: Any) -> None:
        object.__setattr__(self, "need", Resources.parse(**labels))
        object.__setattr__(self, "tasks", _names(tasks))

    @property
    def name(self) -> str:
        """Name, such as ``only --cloud aws``."""
        words = [format_option(key, text) for key, text in self.need.labels().items()]
        return f"only {' '.join(words)}{self._for()}"

    def allowed(self, market: Market, pool: OfferPool) -> Flags:
        """Return offers that the request's own pool holds too."""
        if self.need.labels().keys() <= {"cloud", "spot", "on_demand"}:
            mask = np.ones(len(pool), bool)
            if self.need.clouds:
                mask &= _filter_by_site(market, pool, lambda cloud, *__: cloud in self.need.clouds)
            return mask if self.need.spot is None else mask & (pool.spot == self.need.spot)
        other = market.pool((self.need,))
        return np.isin(pool.row * 2 + pool.spot, other.row * 2 + other.spot)


@dataclass(frozen=True)
class Reliable(_OfferDemand):
    """Only machines of which one is taken back in so many hours, or more, of their first day."""

    hours: float = 0.0

    def __init__(self, hours: float, *, tasks: str | Iterable[str] = ()) -> None:
        if not hours >= 0:
            raise SkyUsageError(
                _("Reliable({hours!r})").format(hours=hours), hint=_("mean hours of life, from 0")
            )
        object.__setattr__(self, "hours", float(hours))
        object.__setattr__(self, "tasks", _names(tasks))

    @property
    def name(self) -> str:
        """Name, such as ``a mean life of 24 h``."""
        return f"a mean life of {self.hours:g} h{self._for()}"

    def allowed(self, market: Market, pool: OfferPool) -> Flags:
        """Return offers that live as long, by priors and what the tracker has seen."""
        return pool.mean_life_hours >= self.hours


@dataclass(frozen=True)
class Avoid(_OfferDemand):
    """Not these places: what the tracker has blocked, or what was given to ``replan``."""

    places: tuple[Scope, ...] = ()
    why: str = "places that are blocked"

    @property
    def name(self) -> str:
        """Name, such as ``places that are blocked``."""
        return f"avoiding {self.why}{self._for()}"

    def allowed(self, market: Market, pool: OfferPool) -> Flags:
        """Return offers that no scope covers."""
        mask = np.ones(len(pool), bool)
        for scope in self.places:
            covered = _filter_by_site(market, pool, lambda *site, s=scope: covers(s, site))
            if scope.spot is not None:
                covered &= pool.spot == scope.spot
            if covered.any() and (scope.instance_type or scope.family):
                inside = np.flatnonzero(covered)
                covered[inside] = [
                    covers_machine(market, kind, scope) for kind in pool.machine[inside]
                ]
            mask &= ~covered
        return mask


def merge_avoided(demands: Iterable[Any]) -> tuple[Any, ...]:
    """Return the same demands with places that are avoided for one reason in one demand.

    A launch adds one after each refusal; as demands of their own they would be too many to count
    as the bits of a number.

    Examples
    --------
    >>> gcp, aws = Avoid((Scope("capacity", "gcp"),)), Avoid((Scope("capacity", "aws"),))
    >>> merged = merge_avoided((gcp, Quota(8), aws))
    >>> len(merged), len(merged[0].places)
    (2, 2)
    """
    found: dict[Any, Any] = {}
    for demand in demands:
        key = (Avoid, demand.why, demand.tasks) if isinstance(demand, Avoid) else id(demand)
        known = found.get(key)
        if known is not None and isinstance(demand, Avoid):
            places = tuple(dict.fromkeys((*known.places, *demand.places)))
            demand = Avoid(places, demand.why, tasks=demand.tasks)
        found[key] = demand
    return tuple(found.values())


# -- demands on several tasks ----------------------------------------------------------------


@dataclass(frozen=True)
class Colocation:
    """Tasks in one region, or on one cluster; see `same_region` and `same_cluster`."""

    tasks: tuple[str, ...]
    by: str = "region"

    @property
    def name(self) -> str:
        """Name, such as ``train and infer in one region``."""
        return f"{' and '.join(self.tasks)} in one {self.by}"


def same_region(*tasks: Any) -> Colocation:
    """Keep tasks in one region, whichever it is."""
    return Colocation(_names(tasks), "region")


def same_cluster(*tasks: Any) -> Colocation:
    """Keep tasks on one cluster; only the first of them pays for its spin-up."""
    return Colocation(_names(tasks), "cluster")


@dataclass(frozen=True)
class Quota:
    """At most so many nodes at once: of an account's cloud, of a region, of a family of machines.

    Attributes
    ----------
    nodes : int
        The most.
    cloud, region : str
        Where; an empty word stands for all of them together.
    family : str
        As `knowledge.tracker.observations.quota_family` calls it: ``p`` or ``standard`` on AWS.

    Examples
    --------
    >>> Quota(8, "aws", "us-east-1", family="p").name
    'a quota of 8 nodes in aws us-east-1 family p'
    """

    nodes: int
    cloud: str = ""
    region: str = ""
    family: str = ""

    @property
    def name(self) -> str:
        """Name, such as ``a quota of 8 nodes in aws us-east-1``."""
        words = [self.cloud, self.region, f"family {self.family}" if self.family else ""]
        return f"a quota of {self.nodes} nodes in {' '.join(filter(None, words))}".rstrip(" in")


@dataclass(frozen=True)
class NodeCeiling:
    """At most so many nodes at once, wherever they are."""

    nodes: int

    @property
    def name(self) -> str:
        """Name, such as ``at most 8 nodes at once``."""
        return f"at most {self.nodes} nodes at once"


@dataclass(frozen=True)
class HourlyCeiling:
    """At most so many USD/h of all machines that may run at once."""

    usd: float

    @property
    def name(self) -> str:
        """Name, such as ``at most $5/h at once``."""
        return f"at most ${self.usd:g}/h at once"


@dataclass(frozen=True)
class PlanVariables:
    """Expressions of CVXPY that the function of a `Custom` demand is given.

    Attributes
    ----------
    cost, gco2 : expression
        USD and g of the plan.
    finish : sequence of expression, optional
        Finish time of each task, h, where the objective knows of time.
    """

    cost: Any
    gco2: Any
    finish: Any
    _chosen: tuple[Any, ...] = ()
    _offers: tuple[tuple[Offer, ...], ...] = ()
    _names: tuple[str, ...] = ()

    def chosen(self, task: str, test: Callable[[Offer], bool] | None = None, **fields: Any) -> Any:
        """Return 1 where the task takes an offer that passes a test, else 0.

        Parameters
        ----------
        test
            Of an offer; or give fields that it must have: ``cloud="aws", spot=True``.
        """
        if task not in self._names:
            raise SkyUsageError(
                _("there is no task {task!r}").format(task=task), hint=suggest(task, self._names)
            )
        index = self._names.index(task)
        passed = [
            all(getattr(offer, key) == value for key, value in fields.items())
            and (test is None or bool(test(offer)))
            for offer in self._offers[index]
        ]
        return np.array(passed, float) @ self._chosen[index]


@dataclass(frozen=True)
class Custom:
    """Constraints that you write yourself in CVXPY: the one hook there is.

    Attributes
    ----------
    function : callable
        Gets `PlanVariables`, returns a list of CVXPY constraints.

    Examples
    --------
    At most one of two tasks on a spot machine::

        def one_spot(view):
            return [view.chosen("train", spot=True) + view.chosen("infer", spot=True) <= 1]

        sky.plan(dag, constraints=[Custom(one_spot)])

    Of the offers of one kind of machine, market and place only one is there to be chosen; offers
    that differ in nothing that the function could ask for are the same to it.
    """

    function: Callable[[PlanVariables], Sequence[Any]]

    @property
    def name(self) -> str:
        """``hook``: what the model calls it."""
        return "hook"


def collect_graph_demands(graph: Graph) -> list[Any]:
    """Return demands of the graph itself: residency of tasks and edges, tasks kept together."""
    found: list[Any] = [
        Residency(task.residency, tasks=task.name) for task in graph.tasks if task.residency
    ]
    for edge in graph.edges:
        if edge.residency:
            ends = (graph.tasks[edge.src].name, graph.tasks[edge.dst].name)
            found.append(Residency(edge.residency, tasks=ends))
    found += [Colocation(pair, "region") for pair in graph.same_region]
    found += [Colocation(pair, "cluster") for pair in graph.same_cluster]
    return found


def check_demands(demands: Sequence[Any], graph: Graph) -> None:
    """Raise SkyUsageError for a demand that is none, or that names no task of the graph."""
    kinds = (_OfferDemand, Colocation, Quota, NodeCeiling, HourlyCeiling, Custom)
    for demand in demands:
        if not isinstance(demand, kinds):
            raise SkyUsageError(
                _("{demand!r} is not a constraint").format(demand=demand),
                hint=_("one of sky.optimizer, such as sky.Residency('eu')"),
            )
        for name in getattr(demand, "tasks", ()):
            graph.index(name)
        if isinstance(demand, Colocation) and len(set(demand.tasks)) < 2:
            raise SkyUsageError(
                _("{name}: one task is always with itself").format(name=demand.name),
                hint=_('same_region("a", "b")'),
            )
        limit = getattr(demand, "nodes", getattr(demand, "usd", 1))
        if not limit >= 0:
            raise SkyUsageError(
                _("{name}: not a limit").format(name=demand.name), hint=_("a number from 0")
            )
        word = getattr(demand, "cloud", "")
        if word:
            check_name(word, f"{demand.name}: {word!r} is no cloud")


# -- Places that a plan is to avoid, however they are named ---------------------------------------


def covers(scope: Scope, site: Sequence[str]) -> bool:
    """Return whether a cloud, region and zone lie within a scope, whatever the machine."""
    mine = (scope.cloud, scope.region, scope.zone)
    return all(not word or word == other for word, other in zip(mine, site, strict=True))


def covers_machine(market: Market, kind: int, scope: Scope) -> bool:
    """Return whether a kind of machine is what a scope is about."""
    if scope.instance_type:
        return market.machine(kind).instance_type == scope.instance_type
    return market.quota_family(kind) == scope.family


def parse_scope(where: Any, market: Market | None = None) -> Scope:
    """Return what is to be avoided: a place of the tracker, an offer, a block, or its words.

    Examples
    --------
    >>> str(parse_scope("aws us-east-1 us-east-1a"))
    'aws us-east-1a'
    """
    if isinstance(where, Scope):
        return where
    if isinstance(getattr(where, "scope", None), Scope):
        return where.scope
    if isinstance(where, Offer | Place):
        at = Place.of(where)
        kind = at.instance_type
        return Scope("capacity", at.cloud, at.region, at.zone, kind, spot=at.spot)
    if not isinstance(where, str) or not where.split():
        raise SkyUsageError(
            _("{where!r} is not a place").format(where=where), hint=_('such as "aws us-east-1a"')
        )
    cloud, *words = where.replace("/", " ").split()
    check_name(cloud, f"{where!r}: no cloud is called {cloud}")
    return _parse_words(cloud, words, where, market)


def _parse_words(cloud: str, words: list[str], text: str, market: Market | None) -> Scope:
    spot = {"spot": True, "on-demand": False}
    found: dict[str, Any] = {}
    for word in words:
        if word in spot:
            found["spot"] = spot[word]
    names = [word for word in words if word not in spot]
    sites = market.sites if market else []
    for word in names:
        regions = {region for c, region, __ in sites if c == cloud}
        zones = {zone for c, __, zone in sites if c == cloud}
        if word in zones and word not in regions:
            key = "zone"
        elif word in regions or (market is None and "region" not in found):
            key = "region"
        else:
            key = "zone" if market is None and "zone" not in found else "instance_type"
        found[key] = word
    kind = found.get("instance_type", "")
    if market and kind and market.catalog.offers.code("instance_type", kind) < 0:
        known = sorted({name for c, *names in sites if c == cloud for name in names if name})
        hint = suggest(kind, known)
        if not hint.startswith("did"):  # all of them would hide what they are meant to show
            hint = f"such as {', '.join(known[:5])}"
        raise SkyUsageError(
            _("{text!r}: {cloud} has no place called {kind}").format(
                text=text, cloud=cloud, kind=kind
            ),
            hint=hint,
        )
    return Scope("capacity", cloud, **found)
