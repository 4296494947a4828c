"""Plans: offers for tasks, transfers and totals, with questions to them and their JSON form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from jupyter_sky.decisions.optimizer.solver.problem import Problem

# -- Parts of a plan as values: tasks, transfers, certificate, reasons and alternatives -----------


@dataclass(frozen=True)
class PlannedTask:
    """Offer, times and costs of one task.

    Attributes
    ----------
    offer : Offer
        The machine, its place, market and price, with source and date of the price.
    nodes : int
        Number of machines.
    hours, spin_up_hours, store_hours : float
        Work, with the expected repetitions on spot machines; time until a machine is ready; time
        of reading from and writing to stores.
    start_h, finish_h : float
        Hours from the start of the plan.
    usd, machine_usd, disk_usd : float
        All but transfers, and its parts.
    gco2 : float
        Grams of CO2.
    redone : float
        Expected number of times that the work is done.
    assumed : bool
        Whether the time is the default of an hour.
    """

    task: str
    offer: Offer
    nodes: int
    hours: float
    spin_up_hours: float
    store_hours: float
    start_h: float
    finish_h: float
    usd: float
    machine_usd: float
    disk_usd: float
    gco2: float
    redone: float = 1.0
    assumed: bool = False


@dataclass(frozen=True)
class PlannedTransfer:
    """Data that moves: from task to task, from a store to a task, or from a task to a store.

    Attributes
    ----------
    source, target : str
        Names of tasks, or the URI of a store.
    kind : str
        ``edge``, ``input`` or ``output``.
    gb, usd, hours : float
        Size, cost and duration.
    basis : str
        Basis of the price: ``listed``, ``estimate``, ``not known`` (then it is assumed), or
        ``free``.
    rate_basis : str
        Basis of the duration: ``observed`` by the tracker, or as the catalog says.
    objects : int
        Number of objects, whose requests are in the price; 0 where nobody has counted them.
    measured : float
        Unix time at which the size was measured; 0 for a size that somebody has said.
    """

    source: str
    target: str
    kind: str
    gb: float
    usd: float
    hours: float
    basis: str = "listed"
    rate_basis: str = ""
    objects: int = 0
    measured: float = 0.0


@dataclass(frozen=True)
class Certificate:
    """Proof of how good a plan is.

    Attributes
    ----------
    status : str
        ``optimal`` (proven) or ``feasible`` (the best found in the time given).
    value, bound, gap : float
        The objective, its lower bound, and their distance as a share of the value.
    proof, solver : str
        Names of the proof and the solver, see `problem.Solution`.
    offers, labels, labels_kept, tasks, edges, variables, rows : int
        Sizes before and after reduction.
    checked : bool
        Whether an evaluator that shares no code with the model came to the same cost and time.
    seconds : dict
        CPU s by stage.
    """

    status: str
    value: float
    bound: float
    gap: float
    proof: str
    solver: str
    offers: int
    labels: int
    labels_kept: int
    tasks: int
    edges: int
    variables: int
    rows: int
    checked: bool
    seconds: dict[str, float] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        by = {"none": "without a solver"}.get(self.solver, f"by {self.solver.upper()}")
        took = f"{sum(self.seconds.values()):.2f} CPU s"
        if self.status == "optimal":
            how = f"proven best of {self.offers:,} offers {by} ({self.proof}), {took}"
        else:
            how = f"the best found {by} in {took}: at most {100 * self.gap:.2g} % from the best"
        return how + ("; re-checked" if self.checked else "; THE RE-CHECK DISAGREES")


@dataclass(frozen=True)
class Reason:
    """Next best offer of a task, all other tasks as they are.

    Attributes
    ----------
    offer : Offer, optional
        The next best offer; None when there is no other.
    usd, hours, gco2 : float
        Differences of the whole plan with it.
    text : str
        The same in words.
    """

    task: str
    offer: Offer | None
    usd: float
    hours: float
    gco2: float
    text: str


@dataclass(frozen=True)
class Alternative:
    """Another offer for a task, all other tasks as they are.

    Attributes
    ----------
    kind : str
        ``next best``, ``other cloud``, ``spot`` or ``on demand``, or several of them; a market
        that the request rules out says so.
    usd, hours, gco2 : float
        Differences of the whole plan with it.
    """

    task: str
    kind: str
    offer: Offer
    nodes: int
    usd: float
    hours: float
    gco2: float


@dataclass(frozen=True)
class PlanComparison:
    """Totals of the plan under one more condition.

    Attributes
    ----------
    where : str
        Clouds that it would use.
    error : str
        Reason why there is none.
    """

    condition: str
    usd: float | None = None
    hours: float | None = None
    gco2: float | None = None
    error: str = ""
    where: str = ""


# -- Plans: offers for tasks, transfers and totals, with questions to them and their --------------

FORMAT = "jupyter-sky-plan/1"


@dataclass(frozen=True, slots=True)
class PlanQuestions:
    """Answers to further questions to a plan, from what it was made of.

    Attributes
    ----------
    find_reasons
        Returns for each task the reason for its place.
    compare_conditions
        Returns what the plan would come to under other conditions.
    find_alternatives
        Returns what each task could take instead.
    replan
        Returns another plan of the same graph, under more demands or other settings.
    replan_without
        Returns another plan that avoids places.
    next_best
        Returns the next best plans, each different from all before it.
    count_offers
        Returns for each task the number of offers that it could take.
    make_problem
        Returns the problem as arrays, with which `optimizer.evaluate` judges any choice.
    """

    find_reasons: Callable[[Plan], tuple[Reason, ...]]
    compare_conditions: Callable[[Plan], tuple[PlanComparison, ...]]
    find_alternatives: Callable[[Plan], tuple[Alternative, ...]]
    replan: Callable[..., Plan]
    replan_without: Callable[..., Plan]
    next_best: Callable[[int, str, int], tuple[Plan, ...]]
    count_offers: Callable[[], tuple[int, ...]]
    make_problem: Callable[[], Problem]


@dataclass(frozen=True)
class Plan:
    """One offer for each task, with what it comes to.

    Shows itself as a table and a graph in a notebook, and as text elsewhere.

    Attributes
    ----------
    name : str
        Of the graph.
    objective : str
        Objective and limits, in words.
    tasks : tuple of PlannedTask
    moves : tuple of PlannedTransfer
    usd, hours, gco2 : float
        Cost with all transfers; time from start to end; grams of CO2. All are estimates.
    certificate : Certificate
    notes : tuple of str
        Assumptions and caveats.
    obstacles : tuple of str
        Why it cannot be launched from here; empty if it can.
    deadline_h : float, optional
        Most hours that it may take, where that was asked.

    Examples
    --------
    >>> sky.plan(dag, deadline="3h")["train"].offer.place  # doctest: +SKIP
    'gcp us-central1-a tpu-v3-8'
    """

    name: str
    objective: str
    tasks: tuple[PlannedTask, ...]
    moves: tuple[PlannedTransfer, ...]
    usd: float
    hours: float
    gco2: float
    certificate: Certificate
    notes: tuple[str, ...] = ()
    reasons_: tuple[Reason, ...] | None = field(default=None, compare=False, repr=False)
    compared_: tuple[PlanComparison, ...] | None = field(default=None, compare=False, repr=False)
    alternatives_: tuple[Alternative, ...] | None = field(default=None, compare=False, repr=False)
    deadline_h: float | None = None
    obstacles: tuple[str, ...] = ()
    planner: PlanQuestions | None = field(default=None, compare=False, repr=False)
    begin: Callable[..., Any] | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, task: str) -> PlannedTask:
        found = {placed.task: placed for placed in self.tasks}
        if task not in found:
            raise SkyUsageError(
                _("there is no task {task!r}").format(task=task), hint=suggest(task, found)
            )
        return found[task]

    @property
    def clouds(self) -> tuple[str, ...]:
        """Clouds that it uses, sorted."""
        return tuple(sorted({placed.offer.cloud for placed in self.tasks}))

    # -- questions to the plan -------------------------------------------------------------------

    def reasons(self) -> tuple[Reason, ...]:
        """Return for each task why this offer, and what the next best one would cost more."""
        if self.reasons_ is None:
            object.__setattr__(self, "reasons_", self._require_planner().find_reasons(self))
        return self.reasons_ or ()

    def explain(self) -> str:
        """Return the reasons as text, a line for each task."""
        return "\n".join(reason.text for reason in self.reasons())

    def what_if(self, *constraints: Any, **labels: Any) -> Plan:
        """Return the best plan under more constraints: ``what_if(spot=True)``.

        Raises
        ------
        SkyNoPlan
            There is none; says what stands in the way.
        """
        from jupyter_sky.decisions.optimizer.constraints import Only

        more = (*constraints, *([Only(**labels)] if labels else []))
        return self._require_planner().replan(*more)

    def compared(self) -> tuple[PlanComparison, ...]:
        """Return its totals on each cloud alone, on demand, on spot, and with other aims."""
        if self.compared_ is None:
            found = self._require_planner().compare_conditions(self)
            object.__setattr__(self, "compared_", found)
        return self.compared_ or ()

    def alternatives(self) -> tuple[Alternative, ...]:
        """Return what each task could take instead: the next best, another cloud or market."""
        if self.alternatives_ is None:
            found = self._require_planner().find_alternatives(self)
            object.__setattr__(self, "alternatives_", found)
        return self.alternatives_ or ()

    def next_best(self, count: int = 2, by: str = "region", least: int = 1) -> tuple[Plan, ...]:
        """Return the next best plans, each with tasks elsewhere than in all before it.

        Parameters
        ----------
        by
            Property that must differ: ``region``, ``cloud`` or ``place``.
        least
            For how many tasks.
        """
        return self._require_planner().next_best(count, by, least)

    def replan(self, blocked: Iterable[Any] = (), **settings: Any) -> Plan:
        """Return a new plan that avoids places, or under other settings of `plan`.

        Parameters
        ----------
        blocked
            Offers, places of the tracker, or words: ``"aws us-east-1a"``, ``"gcp"``.
        **settings
            Such as ``deadline="2h"``.
        """
        given = [blocked] if isinstance(blocked, str | Offer) else list(blocked)
        return self._require_planner().replan_without(given, **settings)

    def run(self, **options: Any) -> Any:
        """Run the graph under the conditions of the plan; return the `PipelineRun` at once.

        Offers are chosen anew among what can be launched from here and now.

        Parameters
        ----------
        **options
            Of `jupyter_sky.run` for a Dag, such as ``name="nightly"``.

        Raises
        ------
        SkyUsageError
            It is not the plan of a Dag, or one of other offers than those on sale.
        """
        if self.begin is None:
            raise SkyUsageError(
                _("this plan has nothing to run"),
                hint=_("sky.plan(dag, ...).run(), or sky.run(dag, ...)"),
            )
        return self.begin(**options)

    def _require_planner(self) -> PlanQuestions:
        if self.planner is None:
            raise SkyUsageError(
                _("this plan was read from a file: what it was made from is not there"),
                hint=_("make it anew: sky.plan(dag, ...)"),
            )
        return self.planner

    # -- as data -----------------------------------------------------------------------------

    def to_json(self, indent: int | None = None) -> str:
        """Return the plan as JSON, with its reasons if these have been asked for."""
        data = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _LIVE}
        data = {key: _to_json_value(value) for key, value in data.items() if value is not None}
        return json.dumps({"format": FORMAT, **data}, indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Return a plan from what `to_json` wrote; equal to it."""
        try:
            data = json.loads(text)
            if data.pop("format") != FORMAT:
                raise KeyError("format")
            data["certificate"] = Certificate(**data["certificate"])
            data["notes"] = tuple(data["notes"])
            data["obstacles"] = tuple(data.get("obstacles", ()))
            for key in _PARTS.keys() & data.keys():
                data[key] = tuple(_read_part(_PARTS[key], one) for one in data[key])
            return cls(**data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SkyUsageError(
                _("this is not a plan: {name} {error}").format(
                    name=type(error).__name__, error=error
                ),
                hint=_("give what plan.to_json() wrote"),
            ) from None

    # -- shown -------------------------------------------------------------------------------

    def __str__(self) -> str:
        if _view is not None:
            return _view.to_text(self)
        lines = [f"{self.name}: {self.objective}: ${self.usd:.2f}, {self.hours:.2f} h (estimates)"]
        return "\n".join(lines + [f"{one.task}: {one.offer.place}" for one in self.tasks])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str | None:
        return None if _view is None else _view.to_html(self)

    def with_obstacles(self, *obstacles: str) -> Plan:
        """Return the plan with the reasons why it cannot be launched from here."""
        return replace(self, obstacles=tuple(dict.fromkeys(obstacles)))


class PlanView(NamedTuple):
    """Functions that draw a plan."""

    to_text: Callable[[Plan], str]
    to_html: Callable[[Plan], str]


_view: PlanView | None = None


def register_view(view: PlanView) -> None:
    """Set the functions that draw plans; without them a plan is shown as a few lines of text."""
    global _view
    _view = view


def _to_json_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_to_json_value(one) for one in value]
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value


_LIVE = ("planner", "begin")
"""Attributes that no file can have."""
_PARTS: dict[str, type] = {
    "tasks": PlannedTask,
    "moves": PlannedTransfer,
    "reasons_": Reason,
    "alternatives_": Alternative,
    "compared_": PlanComparison,
}


def _read_part(kind: type, data: dict[str, Any]) -> Any:
    if offer := data.get("offer"):
        data["offer"] = Offer(**offer | {"packages": tuple(offer["packages"])})
    return kind(**data)
