"""Builder of placement problems from a graph, its requests and the catalog.

For each task, every offer of its pool is given its cost (run time x price in billing units, the
spin-up billed, disk, transfers from and to fixed stores), its hours and its grams of CO2, all in
numpy; offers that another one of the same place beats are left out (`pareto`), the rest are the
labels of `problem.Problem`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jupyter_sky.base.requests.dag.dag import Graph, TaskSpec
from jupyter_sky.base.requests.geography import SERVICES
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.decisions.optimizer import constraints
from jupyter_sky.decisions.optimizer.constraints import (
    Avoid,
    Colocation,
    Custom,
    HourlyCeiling,
    NodeCeiling,
    Quota,
    _OfferDemand,
)
from jupyter_sky.decisions.optimizer.market import Market
from jupyter_sky.decisions.optimizer.pricing import PricedTask, Pricer
from jupyter_sky.decisions.optimizer.solver import pareto
from jupyter_sky.decisions.optimizer.solver.problem import (
    Edges,
    Flags,
    Floats,
    Ints,
    LabelMask,
    LinearLimit,
    ModelVariables,
    Objective,
    Places,
    Problem,
    SameConstraint,
    TaskLabels,
    add_quota,
)
from jupyter_sky.knowledge.lifetimes.recomputation import Recompute, expected_runs


def _service_number(service: str) -> int:
    """Return a number for a managed service, the same in every task."""
    return SERVICES.index(service) + 1 if service in SERVICES else len(SERVICES) + 1


@dataclass(frozen=True, eq=False)
class BuiltProblem:
    """A problem, and the way back from its labels to offers."""

    graph: Graph
    market: Market
    problem: Problem
    labels: tuple[PricedTask, ...]
    offer_count: int = 0
    notes: tuple[str, ...] = ()

    def offer(self, task: int, label: int) -> Offer:
        """Return the offer behind a label."""
        return self.market.offer(self.labels[task].pool, label)


@dataclass(eq=False)
class ProblemBuilder:
    """Makes tables for one graph in one market; see `Pricer` for what it keeps.

    Parameters
    ----------
    demands
        Constraints beside those of the graph itself.
    recompute, warm
        See `Pricer`.
    """

    graph: Graph
    market: Market
    demands: tuple[Any, ...] = ()
    recompute: Recompute = expected_runs
    warm: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.demands = (*constraints.collect_graph_demands(self.graph), *self.demands)
        constraints.check_demands(self.demands, self.graph)
        self.index = DemandIndex(self.demands)
        later = {
            name
            for demand in self.demands
            if isinstance(demand, Colocation) and demand.by == "cluster"
            for name in sorted(demand.tasks, key=self.graph.index)[1:]
        }
        self.pricer = Pricer(self.market, self.recompute, self.warm, frozenset(later))
        self.notes = self.pricer.notes
        self._refused: dict[tuple, Flags] = {}

    def with_demands(self, *demands: Any) -> ProblemBuilder:
        """Return the same with more demands; prices that are known are kept."""
        other = ProblemBuilder(self.graph, self.market, (), self.recompute, self.warm)
        other.demands = constraints.merge_avoided((*self.demands, *demands))
        constraints.check_demands(other.demands, self.graph)
        other.index = DemandIndex(other.demands)
        if other.pricer.shared == self.pricer.shared:
            other.pricer, other.notes = self.pricer, self.notes
        other._refused = self._refused
        return other

    def offer_demands(self, spec: TaskSpec) -> list[_OfferDemand]:
        """Return demands on single offers that are about a task."""
        return self.index.offer_demands(spec.name)

    def allowed(self, demand: _OfferDemand, one: PricedTask) -> Flags:
        """Return which offers of a task's whole pool a demand admits."""
        key = (demand, one.spec.needs)
        if key not in self._refused:
            self._refused[key] = self._allowed(demand, one)
        return self._refused[key]

    def find_refusals(self, one: PricedTask) -> Ints:
        """Return which of a task's demands refuse each offer, as bits."""
        refused = np.zeros(len(one), np.int64)
        for bit, demand in enumerate(self.offer_demands(one.spec)):
            refused |= np.where(self.allowed(demand, one), 0, 1 << bit)
        return refused

    def _allowed(self, demand: _OfferDemand, one: PricedTask) -> Flags:
        if isinstance(demand, Avoid) and len(demand.places) > 1:
            # a launch adds one place after each refusal: the others are known already
            before = replace(demand, places=demand.places[:-1])
            known = self._refused.pop((before, one.spec.needs), None)
            if known is not None:
                last = replace(demand, places=demand.places[-1:])
                return known & last.allowed(self.market, one.pool)
        return demand.allowed(self.market, one.pool)

    # -- all tasks -----------------------------------------------------------------------------

    def build(self, objective: Objective, explain: bool = False) -> BuiltProblem:
        """Return the problem for an objective.

        Parameters
        ----------
        explain
            Keep what demands on offers refuse, as masks with their names, so that a conflict can
            be explained.
        """
        whole = [self.pricer.price_task(spec) for spec in self.graph.tasks]
        labels, refused = zip(
            *(self._prune_offers(one, objective, explain) for one in whole), strict=True
        )
        used = sorted({s for one in labels for s in one.pool.site.tolist()}, key=self._site_key)
        place = np.full(len(self.market.sites), -1, np.int64)
        place[used] = np.arange(len(used))
        sites = [self.market.sites[s] for s in used]
        families: dict[tuple[str, str], int] = {}
        choices = tuple(self._make_task_labels(one, place, families) for one in labels)
        problem = Problem(self._places(sites), choices, *self._edges(sites))
        if explain:
            problem = replace(problem, masks=self._masks(labels, refused))
        problem = self._add_constraints(problem, labels, families)
        offered = sum(map(len, whole))
        return BuiltProblem(self.graph, self.market, problem, labels, offered, tuple(self.notes))

    def _site_key(self, site: int) -> tuple[str, str, str]:
        return self.market.sites[site]

    def _prune_offers(
        self, one: PricedTask, objective: Objective, explain: bool
    ) -> tuple[PricedTask, Ints]:
        """Return offers that can be part of an optimum, and which demands refuse each, as bits."""
        refused = self.find_refusals(one)
        criteria = self._criteria(one, objective)
        keep = np.isfinite(criteria[0])
        if not explain:
            keep &= refused == 0
        if not keep.all():
            which = np.flatnonzero(keep)
            one, refused = one.take(which), refused[which]
            criteria = [values[which] for values in criteria]
        tags = self._tags(one) + ([refused] if explain else [])
        group, order = one.pool.site, np.arange(len(one))
        if tags:
            order, group = pareto.sort_into_groups([group, *tags])
        chosen = pareto.find_front(group, [values[order] for values in criteria])
        which = np.sort(order[chosen])
        return one.take(which), refused[which]

    def _tags(self, one: PricedTask) -> list[Ints]:
        """Return what offers of one place must share to be compared, beyond the place."""
        tags: list[Ints] = []
        if self.index.has_custom or one.spec.name in self.index.clustered:
            tags += [one.pool.machine, one.pool.spot.astype(np.int64), one.pool.service]
        if self.index.has_family_quota:
            known, back = np.unique(one.pool.machine, return_inverse=True)
            names = [self.market.quota_family(kind) for kind in known.tolist()]
            ids = {name: index for index, name in enumerate(sorted(set(names)))}
            tags.append(np.array([ids[name] for name in names], np.int64)[back.reshape(-1)])
        return tags

    def _criteria(self, one: PricedTask, objective: Objective) -> list[Floats]:
        """Return what a plan under this objective can feel of an offer, beside its place."""
        kind, usd = objective.kind, one.own_usd()
        bounded = objective.budget_usd is not None or objective.carbon_cap_g is not None
        found: list[Floats] = []
        if kind == "weighted" and not bounded:
            found.append(objective.usd_weight * usd + objective.gram_weight * one.grams())
            usd_felt = grams_felt = False
        else:
            usd_felt = True  # of offers that are equal in all else the cheapest is left
            weighed = kind == "carbon" or objective.carbon_cap_g is not None
            grams_felt = weighed or (kind == "weighted" and objective.gram_weight > 0)
        if usd_felt:
            found.append(usd)
        if objective.is_timed:
            found.append(one.own_hours())
        if grams_felt:
            found.append(one.grams())
        if self.index.has_hourly_ceiling:
            found.append(one.pool.price * one.nodes[one.at])
        if self.index.has_node_limit and len(one.spec.needs) > 1:
            found.append(one.nodes[one.at])
        return found

    def _make_task_labels(
        self, one: PricedTask, place: Ints, families: dict[tuple[str, str], int]
    ) -> TaskLabels:
        pool = one.pool
        known, back = np.unique(pool.machine, return_inverse=True)
        names = [self.market.quota_family(kind) for kind in known.tolist()]
        clouds = [self.market.sites[s][0] for s in pool.site.tolist()]
        family = [
            families.setdefault((cloud, names[k]), len(families))
            for cloud, k in zip(clouds, back.reshape(-1).tolist(), strict=True)
        ]
        numbers = [0, *(_service_number(service.name) for service in pool.services)]
        service = np.array(numbers, np.int64)[pool.service + 1]
        row = pool.row + len(self.market.own)  # own offers have negative rows
        return TaskLabels(
            name=one.spec.name,
            place=place[pool.site],
            usd=one.usd(),
            hours=one.hours(),
            ready_hours=one.ready_hours[pool.site],
            gco2=one.grams(),
            hourly_usd=pool.price * one.nodes[one.at],
            nodes=one.nodes[one.at],
            cluster=(row * 2 + pool.spot) * (len(SERVICES) + 2) + service,
            family=np.array(family, np.int64),
        )

    def _masks(
        self, labels: Sequence[PricedTask], refused: Sequence[Ints]
    ) -> tuple[LabelMask, ...]:
        return tuple(
            LabelMask(demand.name, task, bits >> bit & 1 == 0)
            for task, (one, bits) in enumerate(zip(labels, refused, strict=True))
            for bit, demand in enumerate(self.offer_demands(one.spec))
        )

    def _places(self, sites: Sequence[tuple[str, str, str]]) -> Places:
        continent = [self.market.catalog.region(c, r).continent for c, r, _ in sites]
        keys = {
            "zone": sites,
            "region": [site[:2] for site in sites],
            "continent": [(site[0], c) for site, c in zip(sites, continent, strict=True)],
            "cloud": [site[0] for site in sites],
        }
        levels = {}
        for level, names in keys.items():
            ids = {name: index for index, name in enumerate(dict.fromkeys(names))}
            levels[level] = np.array([ids[name] for name in names], np.int64)
        return Places(tuple("/".join(filter(None, site)) for site in sites), levels)

    def _edges(self, sites: Sequence[tuple[str, str, str]]) -> tuple[Edges, tuple]:
        edges = self.graph.edges
        if not edges:
            empty = np.zeros(0, np.int64)
            return Edges(empty, empty, np.zeros(0), empty), ()
        moves = self.pricer.moves
        tables, index = [moves.table(sites)], {}
        for gb in sorted({edge.gb for edge in edges if moves.has_tiers(edge.gb)}):
            index[gb] = len(tables)
            tables.append(moves.table(sites, gb))
        return (
            Edges(
                np.array([edge.src for edge in edges], np.int64),
                np.array([edge.dst for edge in edges], np.int64),
                np.array([1.0 if edge.gb in index else edge.gb for edge in edges]),
                np.array([index.get(edge.gb, 0) for edge in edges], np.int64),
            ),
            tuple(tables),
        )

    # -- demands on several tasks -----------------------------------------------------------------

    def _add_constraints(
        self, problem: Problem, labels: Sequence[PricedTask], families: dict[tuple[str, str], int]
    ) -> Problem:
        same = [
            SameConstraint(d.name, tuple(self.graph.index(name) for name in d.tasks), d.by)
            for d in self.demands
            if isinstance(d, Colocation)
        ]
        rows: list[LinearLimit] = []
        for demand in self.demands:
            if isinstance(demand, Quota | NodeCeiling | HourlyCeiling):
                rows += self._rows(problem, demand, families)
        hooks = [demand for demand in self.demands if isinstance(demand, Custom)]
        hook = self._hook(labels, hooks) if hooks else None
        return replace(problem, rows=tuple(rows), same=tuple(same), hook=hook)

    def _rows(self, problem: Problem, demand: Any, families: dict) -> list[LinearLimit]:
        sets, exact = find_concurrent_sets(self.graph)
        if not exact:
            self.notes[f"{demand.name} is kept for more tasks than can run at once"] = None
        if isinstance(demand, HourlyCeiling):
            return [add_quota(problem, demand.name, s, demand.usd, unit="hourly_usd") for s in sets]
        rows: list[LinearLimit] = []
        for by in self._find_quota_nodes(problem, demand, families):
            for tasks in sets:
                one = add_quota(problem, demand.name, tasks, demand.nodes, unit="nodes", **by)
                rows.append(one)
        return rows

    def _find_quota_nodes(
        self, problem: Problem, demand: Any, families: dict
    ) -> list[dict[str, int]]:
        """Return what a quota counts by, as nodes of the levels; nothing when nothing is there."""
        if isinstance(demand, NodeCeiling) or not (demand.cloud or demand.region or demand.family):
            return [{}]
        names, levels = problem.places.names, problem.places.levels
        parts = [[*name.split("/"), ""][:2] for name in names]
        found = {
            (int(levels["cloud"][p]), int(levels["region"][p]) if demand.region else -1)
            for p, (cloud, region) in enumerate(parts)
            if demand.cloud in ("", cloud) and demand.region in ("", region)
        }
        kin = [
            (number, name)
            for (cloud, name), number in families.items()
            if name == demand.family and demand.cloud in ("", cloud)
        ]
        counted = []
        for cloud, region in sorted(found):
            by = {"cloud": cloud} if region < 0 else {"cloud": cloud, "region": region}
            counted += [by | {"family": number} for number, _ in kin] if demand.family else [by]
        return counted

    def _hook(self, labels: Sequence[PricedTask], hooks: Sequence[Custom]) -> Callable[..., list]:
        offers = tuple(
            tuple(self.market.offer(one.pool, index) for index in range(len(one))) for one in labels
        )
        names = tuple(task.name for task in self.graph.tasks)

        def hook(model: ModelVariables) -> list:
            view = constraints.PlanVariables(
                model.cost, model.gco2, model.finish, model.chosen, offers, names
            )
            return [found for custom in hooks for found in custom.function(view)]

        return hook


# -- Sets of tasks that may run at the same time, which quotas are about --------------------------

MAX_SETS = 256
"""Sets of tasks that are told apart; with more, quotas are kept in a stricter way."""


def ancestor_masks(graph: Graph) -> list[int]:
    """Return for each task a bit mask of all tasks that must have ended before it."""
    before = [0] * len(graph.tasks)
    into: list[list[int]] = [[] for _ in graph.tasks]
    for edge in graph.edges:
        into[edge.dst].append(edge.src)
    for task in range(len(graph.tasks)):
        for src in into[task]:
            before[task] |= before[src] | 1 << src
    return before


def find_concurrent_sets(graph: Graph) -> tuple[list[tuple[int, ...]], bool]:
    """Return largest sets of tasks none of which waits for another, and whether they are all.

    Where there are too many, the sets are, for each task, all that may run beside it: to limit
    these keeps every limit, and may forbid plans that would have kept it too.

    Examples
    --------
    >>> from jupyter_sky.base.requests.dag.dag import Edge, TaskSpec
    >>> fork = Graph("", tuple(TaskSpec(n, ()) for n in "abc"), (Edge(0, 1, 0), Edge(0, 2, 0)))
    >>> find_concurrent_sets(fork)
    ([(0,), (1, 2)], True)
    """
    count, before = len(graph.tasks), ancestor_masks(graph)
    beside = [0] * count
    for one in range(count):
        for other in range(one):
            if not (before[one] >> other & 1):
                beside[one] |= 1 << other
                beside[other] |= 1 << one
    found: list[int] = []

    def grow(chosen: int, open_: int, closed: int) -> bool:
        """Search for largest cliques as Bron and Kerbosch do, with a pivot."""
        if not open_ and not closed:
            found.append(chosen)
            return len(found) <= MAX_SETS
        both = open_ | closed
        pivot = max(_bits(both), key=lambda v: (beside[v] & open_).bit_count())
        for task in _bits(open_ & ~beside[pivot]):
            if not grow(chosen | 1 << task, open_ & beside[task], closed & beside[task]):
                return False
            open_ &= ~(1 << task)
            closed |= 1 << task
        return True

    if grow(0, (1 << count) - 1, 0):
        return sorted(tuple(_bits(mask)) for mask in found), True
    wide = {mask | 1 << task for task, mask in enumerate(beside)}
    return sorted(tuple(_bits(mask)) for mask in wide), False


def _bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


# -- Demands of a plan by the tasks that they are about, so that no task looks through all --------


class DemandIndex:
    """Demands in an order that is kept, and what problems ask of them.

    Parameters
    ----------
    demands
        Checked before.

    Attributes
    ----------
    has_custom, has_family_quota, has_hourly_ceiling, has_node_limit : bool
        Whether there is a demand of a kind.
    clustered : frozenset of str
        Names of the tasks that share a cluster with others.

    Examples
    --------
    >>> from jupyter_sky.decisions.optimizer.constraints import Residency, same_cluster
    >>> index = DemandIndex([Residency("eu"), Residency("ch", tasks="a"), same_cluster("a", "b")])
    >>> [demand.name for demand in index.offer_demands("a")], len(index.offer_demands("b"))
    (['residency EU', 'residency CH of a'], 1)
    >>> sorted(index.clustered)
    ['a', 'b']
    """

    def __init__(self, demands: Iterable[Any]) -> None:
        known = tuple(demands)
        quotas = [demand for demand in known if isinstance(demand, Quota)]
        self.has_custom = _has(known, Custom)
        self.has_family_quota = any(quota.family for quota in quotas)
        self.has_hourly_ceiling = _has(known, HourlyCeiling)
        self.has_node_limit = bool(quotas) or _has(known, NodeCeiling)
        self.clustered = frozenset(
            name
            for demand in known
            if isinstance(demand, Colocation) and demand.by == "cluster"
            for name in demand.tasks
        )
        self._of_all: list[tuple[int, _OfferDemand]] = []
        self._of_task: dict[str, list[tuple[int, _OfferDemand]]] = {}
        for place, demand in enumerate(known):
            if isinstance(demand, _OfferDemand):
                if not demand.tasks:
                    self._of_all.append((place, demand))
                for name in dict.fromkeys(demand.tasks):
                    self._of_task.setdefault(name, []).append((place, demand))

    def offer_demands(self, task: str) -> list[_OfferDemand]:
        """Return the demands on single offers that are about a task, in their order."""
        found = sorted(self._of_all + self._of_task.get(task, []), key=lambda pair: pair[0])
        return [demand for _place, demand in found]


def _has(demands: Sequence[Any], kind: type) -> bool:
    return any(isinstance(demand, kind) for demand in demands)
