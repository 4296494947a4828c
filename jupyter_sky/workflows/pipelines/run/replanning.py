"""Plans of what is left of a run: finished tasks are data, running ones stay where they are.

Two plans are made: one in which every task stays where it was to go, as far as it can, and one in
which those that have not begun may go anywhere. The second is taken where it gains enough.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any

from jupyter_sky.base.errors import SkyError, SkyNoOffer, SkyNoPlan, SkyUsageError
from jupyter_sky.base.requests.dag.graph import Graph
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.assumptions import SPIN_UP_HOURS
from jupyter_sky.decisions.optimizer.constraints import Avoid
from jupyter_sky.decisions.optimizer.objectives import build_objective
from jupyter_sky.decisions.optimizer.plan import Plan
from jupyter_sky.decisions.optimizer.plan_values import PlannedTask
from jupyter_sky.decisions.optimizer.scopes import parse_scope
from jupyter_sky.workflows.pipelines.model.graph import RunGraph
from jupyter_sky.workflows.pipelines.run.cluster_assignment import assign_clusters
from jupyter_sky.workflows.pipelines.run.events import Event, Kind
from jupyter_sky.workflows.pipelines.run.graph_parts import restrict_demand
from jupyter_sky.workflows.pipelines.run.outlook import Residual
from jupyter_sky.workflows.pipelines.run.placing import pin
from jupyter_sky.workflows.pipelines.run.plan_changes import (
    describe_change,
    describe_kept,
    describe_limits,
)
from jupyter_sky.workflows.pipelines.run.residual_graph import make_residual_graph, read_offer

GAIN_SHARE = 0.05
"""Share of the value of the rest that another plan must gain to be taken."""

PlanGraph = Callable[..., Plan]
"""Plans a frozen graph, as `placing.plan_graph` does."""


@dataclass(frozen=True)
class RunProblem:
    """What a run is planned from, kept in its journal.

    Attributes
    ----------
    graph
        Its tasks, with what they ask for, their data and time estimators.
    minimize, settings
        Of `sky.plan`, without the limits.
    deadline_at, budget_usd
        Limits of the run: Unix time, USD; None for none.
    """

    graph: Graph
    minimize: Any = "cost"
    settings: Mapping[str, Any] = field(default_factory=dict)
    deadline_at: float | None = None
    budget_usd: float | None = None

    def to_text(self) -> str:
        """Return a text from which `from_text` makes an equal problem.

        Raises
        ------
        SkyUsageError
            A time estimator or a constraint cannot be kept.
        """
        import cloudpickle

        try:
            return base64.b64encode(cloudpickle.dumps(self)).decode()
        except Exception as error:
            raise SkyUsageError(
                _("what the graph is planned from cannot be kept: {error}").format(error=error),
                hint=_("make what a time estimator reads inside it"),
            ) from error

    @classmethod
    def from_text(cls, text: str) -> RunProblem:
        """Return the problem of what `to_text` gave."""
        import cloudpickle

        return cloudpickle.loads(base64.b64decode(text))


def make_problem(
    graph: Graph,
    now: float,
    minimize: Any = "cost",
    deadline: Any = None,
    budget: Any = None,
    **settings: Any,
) -> RunProblem:
    """Return what a run is planned from.

    Parameters
    ----------
    graph
        Of its tasks.
    now
        Unix time at which it begins, from which its deadline counts.
    minimize, deadline, budget, **settings
        As `sky.plan` has them.
    """
    limits = build_objective(minimize, deadline, budget)
    deadline_at = None if limits.deadline_h is None else now + limits.deadline_h * 3600
    return RunProblem(graph, minimize, settings, deadline_at, limits.budget_usd)


def first_event(problem: RunProblem, graph: RunGraph, plan: Plan, left: Residual) -> Event:
    """Return the event that a run begins with its plan.

    Parameters
    ----------
    problem, graph
        Of the run.
    plan
        Made when it was begun.
    left
        What is to be run.
    """
    return _planned(problem, graph, plan, left, "")


def replan(problem: RunProblem, graph: RunGraph, left: Residual, plan_graph: PlanGraph) -> Event:
    """Plan what is left of a run; return what follows: a plan, the old one, or none.

    Parameters
    ----------
    problem, graph
        Of the run.
    left
        What is left.
    plan_graph
        Plans a frozen graph.
    """
    try:
        plan, stay = _choose_plan(problem, left, plan_graph)
    except SkyError as error:
        if not left.is_forced:
            return Event(Kind.PLAN_KEPT, "", left.now, {"text": describe_kept(left, None)})
        return _no_plan(problem, left, plan_graph, error)
    if plan is stay and not left.is_forced:
        return Event(Kind.PLAN_KEPT, "", left.now, {"text": describe_kept(left, plan)})
    return _planned(problem, graph, plan, left, describe_change(left, plan, stay))


def _choose_plan(
    problem: RunProblem, left: Residual, plan_graph: PlanGraph
) -> tuple[Plan, Plan | None]:
    """Return the plan to take, and the one in which tasks stay where they were to go, if any."""
    stay = None
    try:
        stay = _solve(problem, left, plan_graph, stay=True)
    except SkyNoOffer:
        pass
    try:
        free = _solve(problem, left, plan_graph)
    except SkyError as error:
        if stay is not None:
            return stay, stay
        overdue = any(held.least_hours < held.hours for held in left.held.values())
        if not (overdue and isinstance(error, SkyNoPlan)):
            raise
        # one that has run for too long may end at any moment: hope for that
        return _solve(problem, left, plan_graph, is_hopeful=True), None
    if stay is not None and not _gains_enough(problem, left, free, stay):
        return stay, stay
    return free, stay


def _gains_enough(problem: RunProblem, left: Residual, free: Plan, stay: Plan) -> bool:
    gain, value = stay.certificate.value - free.certificate.value, stay.certificate.value
    paid = _paid_boots(left, free, stay) if problem.minimize == "cost" else 0.0
    return gain > max(GAIN_SHARE * value, paid)


def _paid_boots(left: Residual, free: Plan, stay: Plan) -> float:
    """Return what the start of clusters has cost that another plan would not use, USD."""
    places = {one.task: one.offer for one in free.tasks}
    given_up = {
        cluster: one
        for one in stay.tasks
        if (cluster := left.rest.get(one.task, "")) in left.live and places[one.task] != one.offer
    }
    hourly = sum((one.offer.price or 0.0) * one.nodes for one in given_up.values())
    return hourly * SPIN_UP_HOURS


def _solve(
    problem: RunProblem,
    left: Residual,
    plan_graph: PlanGraph,
    stay: bool = False,
    is_hopeful: bool = False,
) -> Plan:
    graph = make_residual_graph(problem.graph, left, stay, is_hopeful)
    names = {spec.name for spec in graph.tasks}
    settings = dict(problem.settings)
    constraints = [restrict_demand(demand, names) for demand in settings.pop("constraints", ())]
    scopes = tuple(
        parse_scope(read_offer(refusal.offer))
        for refusal in left.blocked.values()
        if refusal.offer and "offer" in refusal.offer
    )
    if scopes and left.rest:
        constraints.append(Avoid(scopes, "places that have refused", tasks=tuple(left.rest)))
    if left.deadline_at is not None:
        hours = (left.deadline_at - left.now) / 3600
        if hours <= 0:
            raise SkyNoPlan(_("the deadline has passed"))
        settings["deadline"] = hours
    if left.budget_usd is not None:
        settings["budget"] = max(left.budget_usd - left.spent_usd, 0.0)
    kept = [demand for demand in constraints if demand is not None]
    minimize = "time_then_cost" if is_hopeful else problem.minimize
    return plan_graph(graph, minimize, constraints=kept, begun=tuple(left.held), **settings)


def _no_plan(problem: RunProblem, left: Residual, plan_graph: PlanGraph, error: SkyError) -> Event:
    """Return the event that nothing is left, with the tasks that end by it."""
    reason = error.message if not error.hint else f"{error.message}; {error.hint}"
    limits = describe_limits(left)
    reason = f"{limits}: {reason}" if limits else reason
    refusals = "; ".join(filter(None, (cause.get("reason", "") for cause in left.causes)))
    if refusals:
        reason = f"{refusals}; {reason}"
    data: dict[str, Any] = {"reason": reason}
    if left.deadline_at is None and left.budget_usd is None:
        unplaced = [name for name, cluster in left.rest.items() if not cluster]
        without = [name for name in unplaced if not _has_offer(problem, left, plan_graph, name)]
        data["tasks"] = without or unplaced or list(left.rest)
    return Event(Kind.NO_PLAN, "", left.now, data)


def _has_offer(problem: RunProblem, left: Residual, plan_graph: PlanGraph, name: str) -> bool:
    alone = replace(left, done={}, held={}, rest={name: ""})
    try:
        _solve(problem, alone, plan_graph)
    except SkyError:
        return False
    return True


def _planned(problem: RunProblem, graph: RunGraph, plan: Plan, left: Residual, text: str) -> Event:
    specs = {spec.name: spec for spec in problem.graph.tasks}
    placed = {one.task: one for one in plan.tasks if one.task in left.rest}
    facts_of = cache(_offer_facts)  # tasks of one kind share their offer
    wanted = {
        name: facts_of(specs[name].needs, one.offer, one.nodes) for name, one in placed.items()
    }
    finish_h = {one.task: one.finish_h for one in plan.tasks}
    clusters, offers = assign_clusters(graph, wanted, left, finish_h)
    data = {
        "clusters": clusters,
        "offers": offers,
        "estimates": _estimate(problem.graph, plan, placed),
        "deadline_at": problem.deadline_at,
        "budget_usd": problem.budget_usd,
        "text": text,
    }
    return Event(Kind.PLANNED, "", left.now, data)


def _offer_facts(needs: tuple[Any, ...], offer: Offer, nodes: int) -> dict[str, Any]:
    return {
        "resources": pin(needs, offer).command_line(),
        "slots": 1,
        "usd_h": (offer.price or 0.0) * nodes,
        "is_spot": offer.spot,
        "offer": asdict(offer),
    }


def _estimate(
    graph: Graph, plan: Plan, placed: Mapping[str, PlannedTask]
) -> dict[str, dict[str, Any]]:
    """Return the facts of a `TaskEstimate` for each task that a plan places."""
    move_hours: defaultdict[str, float] = defaultdict(float)
    move_usd: defaultdict[str, float] = defaultdict(float)
    gb: defaultdict[str, float] = defaultdict(float)
    for move in plan.moves:
        move_hours[move.target] = max(move_hours[move.target], move.hours)
        payer = move.source if move.kind == "output" else move.target
        move_usd[payer] += move.usd
    for edge in graph.edges:
        producer = graph.tasks[edge.src].name
        gb[producer] = max(gb[producer], edge.gb)
    return {
        name: {
            "hours": one.hours + one.store_hours,
            "boot_hours": one.spin_up_hours,
            "move_hours": move_hours[name],
            "move_usd": move_usd[name],
            "gb": gb[name] or None,
        }
        for name, one in placed.items()
    }


def look_up_prices(offers: Mapping[str, Any], price: Callable[[Offer], float | None]) -> Event:
    """Return the prices of clusters that are not launched yet.

    Parameters
    ----------
    offers
        Offer of each cluster; values of JSON.
    price
        Returns USD/h of one node of an offer now, None where it is not known.
    """
    found: dict[str, float] = {}
    for cluster, facts in offers.items():
        if facts.get("is_spot") and (now := price(offer := read_offer(facts))) is not None:
            planned = offer.price or 0.0
            found[cluster] = now * (facts["usd_h"] / planned if planned else 1.0)
    return Event(Kind.PRICES, "", 0.0, {"usd_h": found})
