"""Placement problems as arrays: labels of tasks, transfers, limits and constraints.

Nothing here knows of clouds, offers or notebooks. A task has *labels* (its candidates); a label
lies at a *place*; what moves along an edge costs money, hours and carbon by the two places.
The names follow section 4.3 of the SkyPilot paper (NSDI 2023): c_v and t_v are `TaskLabels.usd` and
`TaskLabels.hours`, Q_uv and P_uv are `Edges` over `TransferTable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_LABEL_FIELDS = ("usd", "hours", "ready_hours", "gco2", "hourly_usd", "nodes")
_TAGS = ("cluster", "family")

__all__ = [
    "Edges",
    "Flags",
    "Floats",
    "Hook",
    "Ints",
    "Kind",
    "LabelMask",
    "LinearLimit",
    "ModelVariables",
    "Objective",
    "Places",
    "Problem",
    "ProblemSizes",
    "SameConstraint",
    "Solution",
    "Solver",
    "Status",
    "TaskLabels",
    "TransferTable",
    "add_quota",
    "make_edges",
    "make_task_labels",
    "require_difference",
]


@dataclass(frozen=True, eq=False)
class Places:
    """Places of machines and data.

    Attributes
    ----------
    names : tuple of str
        One for each place, in canonical order (cloud, region, zone): the first wins a tie.
    levels : mapping of str to int array
        For each level, from the finest to the coarsest (say zone, region, group, continent,
        cloud), the node of every place. The levels must nest. They are hints to where transfers
        may have structure, which is checked, never assumed; ``region`` and ``cloud`` are also
        what `same` and `quota` go by.

    Examples
    --------
    >>> places = Places(("a", "b"), {"region": np.array([0, 0]), "cloud": np.array([0, 0])})
    >>> len(places)
    2
    """

    names: tuple[str, ...]
    levels: Mapping[str, Ints] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, eq=False)
class TaskLabels:
    """A task and its labels; every array has one entry for each label.

    Attributes
    ----------
    name : str
        How messages call the task.
    place : int array
        Index into `Places`.
    usd : float array
        All that the choice costs by itself, USD: run time, spin-up, disk, transfers from and to
        fixed stores. ``inf`` where it cannot be had.
    hours : float array
        Run time with spin-up, h.
    ready_hours : float array
        Delay before the start while inputs come from stores, h; 0 without.
    gco2 : float array
        Emissions of the choice by itself, g.
    hourly_usd : float array
        Price of all nodes together while the task runs, USD/h.
    nodes : float array
        Machines taken while the task runs; 1 without.
    cluster, family : int array
        Tags: labels of two tasks with an equal `cluster` can be one cluster; `family` is what a
        quota counts by.

    Examples
    --------
    >>> make_task_labels("train", place=[0, 1], usd=[1.0, 2.0], hours=[3.0, 2.0]).usd
    array([1., 2.])
    """

    name: str
    place: Ints
    usd: Floats
    hours: Floats
    ready_hours: Floats
    gco2: Floats
    hourly_usd: Floats
    nodes: Floats
    cluster: Ints
    family: Ints

    def __len__(self) -> int:
        return len(self.place)

    def take(self, keep: Ints) -> TaskLabels:
        """Return the same task with only some of its labels."""
        arrays = {key: getattr(self, key)[keep] for key in ("place", *_LABEL_FIELDS, *_TAGS)}
        return TaskLabels(self.name, **arrays)


def make_task_labels(
    name: str, place: ArrayLike, usd: ArrayLike, hours: ArrayLike, **other: Any
) -> TaskLabels:
    """Return labels from anything like arrays; a number stands for itself at every label.

    Parameters
    ----------
    name, place, usd, hours
        See `TaskLabels`.
    **other
        The other arrays of `TaskLabels`; those not given are 0 (`nodes`: 1, tags: the place).

    Examples
    --------
    >>> make_task_labels("prepare", place=[0, 1], usd=0.5, hours=1, nodes=2).nodes
    array([2., 2.])
    """
    where = np.atleast_1d(np.asarray(place, np.int64))
    values = {"usd": usd, "hours": hours, "nodes": 1.0} | other
    unknown = set(values) - {*_LABEL_FIELDS, *_TAGS}
    if unknown:
        raise TypeError(f"labels have no {', '.join(sorted(unknown))}")

    def full(key: str, dtype: type, default: Any) -> Any:
        return np.broadcast_to(np.asarray(values.get(key, default), dtype), where.shape).copy()

    floats = {key: full(key, np.float64, 0.0) for key in _LABEL_FIELDS}
    tags = {key: full(key, np.int64, where) for key in _TAGS}
    return TaskLabels(name, where, **floats, **tags)


@dataclass(frozen=True, eq=False)
class TransferTable:
    """Cost and time of transfers between every two places; rows are sources.

    Attributes
    ----------
    usd, hours : float array, P x P
        USD and h for one unit of the edge's `scale` (1 GB, or the whole of an edge that has a
        table of its own because its price per GB depends on how much moves).
    gco2 : float array, P x P, optional
        Grams of CO2 for the same.

    Examples
    --------
    >>> TransferTable(np.array([[0, 0.09], [0.12, 0]]), np.zeros((2, 2))).usd[1, 0]
    np.float64(0.12)
    """

    usd: Floats
    hours: Floats
    gco2: Floats | None = None


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges of the graph: task `src[e]` sends to task `dst[e]`.

    Attributes
    ----------
    src, dst : int array
        Indices of tasks.
    scale : float array
        What each edge's table is multiplied by: GB as a rule.
    table : int array
        Which of `Problem.tables` holds for the edge.

    Examples
    --------
    >>> len(make_edges([(0, 1, 2.5), (1, 2, 0.0)]))
    2
    """

    src: Ints
    dst: Ints
    scale: Floats
    table: Ints

    def __len__(self) -> int:
        return len(self.src)


def make_edges(edges: Iterable[Sequence[float]]) -> Edges:
    """Return edges from rows of (src, dst, scale) or (src, dst, scale, table)."""
    rows = [tuple(edge) for edge in edges]
    integers = [[int(row[k]) for row in rows] for k in (0, 1)]
    which = [int(row[3]) if len(row) > 3 else 0 for row in rows]
    return Edges(
        np.array(integers[0], np.int64),
        np.array(integers[1], np.int64),
        np.array([float(row[2]) for row in rows], np.float64),
        np.array(which, np.int64),
    )


@dataclass(frozen=True, eq=False)
class LabelMask:
    """Labels that one named demand leaves to one task: residency, a ceiling, a blocked place.

    Attributes
    ----------
    name : str
        What the demand is called when nothing meets it.
    task : int
        Whose labels.
    allowed : bool array
        One for each label of the task.
    """

    name: str
    task: int
    allowed: Flags


@dataclass(frozen=True, eq=False)
class LinearLimit:
    """A named limit over chosen labels: the sum of `terms[v][label of v]` is at most `limit`.

    Quotas, ceilings in all, "at most n nodes at once" and "not the same plan again" are such rows;
    `add_quota` and `require_difference` write them.
    """

    name: str
    terms: Mapping[int, Floats]
    limit: float


@dataclass(frozen=True)
class SameConstraint:
    """Tasks whose chosen labels must agree.

    Attributes
    ----------
    name : str
        What the demand is called when nothing meets it.
    tasks : tuple of int
        Two or more.
    by : str
        ``"cluster"``, ``"family"``, ``"place"``, or a level of `Places` such as ``"region"``.
    """

    name: str
    tasks: tuple[int, ...]
    by: str = "region"


@dataclass(frozen=True)
class ModelVariables:
    """Expressions of CVXPY over the model, as a user's hook gets them.

    Attributes
    ----------
    chosen : tuple
        For each task a vector of 0-1 expressions over the labels of `Problem.tasks` (all of them,
        in their order; 0 where a label cannot be taken).
    cost, gco2 : expression
        USD and g of the plan.
    finish : expression or None
        Finish time of each task, h, where the objective knows of time.
    """

    chosen: tuple[Any, ...]
    cost: Any
    gco2: Any
    finish: Any = None


Hook = Callable[[ModelVariables], Sequence[Any]]


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything that decides a plan.

    Attributes
    ----------
    places : Places
    tasks : tuple of TaskLabels
    edges : Edges
        They must not form a cycle.
    tables : tuple of TransferTable
    masks, rows, same
        Side constraints as data, each with a name. Constraints of one name stand or fall together
        when a conflict is explained.
    hook : callable, optional
        Gets `ModelVariables`, gives back constraints of CVXPY.

    Examples
    --------
    >>> two = Places(("a", "b"), {"cloud": np.array([0, 1])})
    >>> work = tuple(make_task_labels(name, [0, 1], [1.0, 1.5], [2.0, 1.0]) for name in "uv")
    >>> price = TransferTable(np.array([[0, 0.09], [0.12, 0]]), np.array([[0, 0.01], [0.01, 0]]))
    >>> problem = Problem(two, work, make_edges([(0, 1, 10.0)]), (price,))
    >>> problem.constraint_names()
    ()
    """

    places: Places
    tasks: tuple[TaskLabels, ...]
    edges: Edges
    tables: tuple[TransferTable, ...] = ()
    masks: tuple[LabelMask, ...] = ()
    rows: tuple[LinearLimit, ...] = ()
    same: tuple[SameConstraint, ...] = ()
    hook: Hook | None = None

    def without(self, names: Iterable[str]) -> Problem:
        """Return the problem relieved of the masks, rows and sameness of these names."""
        gone = set(names)
        return replace(
            self,
            masks=tuple(one for one in self.masks if one.name not in gone),
            rows=tuple(one for one in self.rows if one.name not in gone),
            same=tuple(one for one in self.same if one.name not in gone),
            hook=None if "hook" in gone else self.hook,
        )

    def constraint_names(self) -> tuple[str, ...]:
        """Return names of the side constraints, each once, in the order of the fields."""
        named = [one.name for group in (self.masks, self.rows, self.same) for one in group]
        return tuple(dict.fromkeys([*named, *(["hook"] if self.hook else [])]))

    def tag(self, task: int, by: str) -> Ints:
        """Return what the labels of a task are called by a tag or a level: region, cluster..."""
        labels = self.tasks[task]
        if by == "place":
            return labels.place
        if by in _TAGS:
            return getattr(labels, by)
        return np.asarray(self.places.levels[by])[labels.place]


def add_quota(
    problem: Problem,
    name: str,
    tasks: Iterable[int],
    limit: float,
    *,
    unit: Literal["nodes", "hourly_usd"] = "nodes",
    **by: int,
) -> LinearLimit:
    """Return a row: at most `limit` nodes (or USD/h) over tasks that may run at once.

    Parameters
    ----------
    tasks : iterable of int
        Tasks that may run at the same time; see `find_concurrent_sets`.
    limit : float
        Nodes, or USD/h.
    **by
        What counts: ``cloud=0, region=3, family=1``; nothing counts everything.

    Examples
    --------
    >>> two = Places(("a", "b"), {"cloud": np.array([0, 1])})
    >>> problem = Problem(two, (make_task_labels("u", [0, 1], 1, 1, nodes=4),), make_edges([]))
    >>> add_quota(problem, "quota of b", [0], 3, cloud=1).terms[0]
    array([0., 4.])
    """
    terms = {}
    for task in tasks:
        counted = np.ones(len(problem.tasks[task]), bool)
        for key, node in by.items():
            counted &= problem.tag(task, key) == node
        terms[task] = np.where(counted, getattr(problem.tasks[task], unit), 0.0)
    return LinearLimit(name, terms, limit)


def require_difference(
    problem: Problem, choice: Sequence[int], by: str = "region", least: int = 1
) -> LinearLimit:
    """Return a row that excludes a plan: so many tasks leave their region (place, cloud...).

    Examples
    --------
    >>> two = Places(("a", "b"), {"cloud": np.array([0, 1])})
    >>> problem = Problem(two, (make_task_labels("u", [0, 1], [1, 2], 1),), make_edges([]))
    >>> row = require_difference(problem, (0,), "cloud")
    >>> row.terms[0], row.limit
    (array([1., 0.]), 0)
    """
    terms = {}
    for task, label in enumerate(choice):
        tags = problem.tag(task, by)
        terms[task] = (tags == tags[label]).astype(np.float64)
    return LinearLimit(f"another {by}", terms, len(problem.tasks) - least)


# -- Objectives, and solutions with their certificates --------------------------------------------

Kind = Literal["cost", "time", "time_then_cost", "weighted", "carbon"]
Status = Literal["optimal", "feasible", "infeasible", "unknown"]
Solver = Literal["auto", "glpk", "highs"]


@dataclass(frozen=True)
class Objective:
    """Quantity to minimize, and limits to keep.

    Attributes
    ----------
    kind : str
        ``cost`` (eq. 1), ``time`` (eqs. 2 and 3: the longest path), ``time_then_cost`` (the
        cheapest of the fastest plans), ``carbon``, or ``weighted``.
    usd_weight, hour_weight, gram_weight : float
        With ``weighted``: what is made small is usd_weight x USD + hour_weight x makespan (h) +
        gram_weight x g.
    deadline_h, budget_usd, carbon_cap_g : float, optional
        Limits: h of makespan, USD, g.

    Examples
    --------
    >>> Objective("cost", deadline_h=4.0).is_timed
    True
    """

    kind: Kind = "cost"
    usd_weight: float = 1.0
    hour_weight: float = 0.0
    gram_weight: float = 0.0
    deadline_h: float | None = None
    budget_usd: float | None = None
    carbon_cap_g: float | None = None

    @property
    def is_timed(self) -> bool:
        """Whether the longest path matters."""
        weighs = self.kind == "weighted" and self.hour_weight > 0
        return self.kind in ("time", "time_then_cost") or weighs or self.deadline_h is not None

    def limits(self) -> dict[str, float]:
        """Return the limits that are set, by the names `explain` gives them."""
        named = {
            "deadline": self.deadline_h,
            "budget": self.budget_usd,
            "carbon cap": self.carbon_cap_g,
        }
        return {name: value for name, value in named.items() if value is not None}

    def without(self, names: Iterable[str]) -> Objective:
        """Return the objective relieved of the limits of these names."""
        gone, new = set(names), self
        if "deadline" in gone:
            new = replace(new, deadline_h=None)
        if "budget" in gone:
            new = replace(new, budget_usd=None)
        return replace(new, carbon_cap_g=None) if "carbon cap" in gone else new


@dataclass(frozen=True)
class ProblemSizes:
    """Labels and model before and after reduction; the model's are 0 where none was built."""

    tasks: int = 0
    edges: int = 0
    labels: int = 0
    labels_kept: int = 0
    open_tasks: int = 0
    variables: int = 0
    rows: int = 0


@dataclass(frozen=True, eq=False)
class Solution:
    """A plan and its certificate.

    Attributes
    ----------
    status : str
        ``optimal`` (proven), ``feasible`` (the best known at the time limit), ``infeasible``
        (proven), ``unknown`` (no plan found in time, none excluded).
    choice : tuple of int, optional
        Index of the label of each task; None without a plan.
    cost, hours, gco2 : float
        USD, h, g, computed anew by `evaluate`; nan without a plan.
    value : float
        The objective (USD, h, g, or the weighted sum); with ``time_then_cost`` the cost.
    bound : float
        No plan has a smaller value; with ``time_then_cost`` none among the fastest.
    gap : float
        (value - bound) / max(abs(value), 1e-9); 0 when proven.
    proof : str
        ``dual`` (message bound), ``paths`` (longest-path bound), ``elimination``,
        ``lp`` (the relaxation was integral), ``branch-and-bound``, ``limit`` (none: see `gap`),
        ``trivial`` or ``presolve`` (for infeasible: no label left).
    solver : str
        ``none``, ``glpk`` or ``highs``.
    seconds : mapping of str to float
        CPU s by stage: reduce, build, solve, check.
    sizes : ProblemSizes
    fastest_h : float
        With ``time_then_cost`` the proven bound on the makespan, h; else nan.
    state : object
        What `resolve` goes on from; opaque.
    """

    status: Status
    choice: tuple[int, ...] | None = None
    cost: float = float("nan")
    hours: float = float("nan")
    gco2: float = float("nan")
    value: float = float("nan")
    bound: float = float("-inf")
    gap: float = float("inf")
    proof: str = ""
    solver: str = "none"
    seconds: Mapping[str, float] = field(default_factory=dict)
    sizes: ProblemSizes = field(default_factory=ProblemSizes)
    fastest_h: float = float("nan")
    state: Any = field(default=None, repr=False)
