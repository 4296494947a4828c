"""Objectives, and solutions with their certificates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

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
