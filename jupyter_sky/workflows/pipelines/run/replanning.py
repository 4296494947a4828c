"""Plans of what is left of a run: finished tasks are data, running ones stay where they are.

Two plans are made: one in which every task stays where it was to go, as far as it can, and one in
which those that have not begun may go anywhere. The second is taken where it gains enough.
"""

from __future__ import annotations

import base64
from collections import ChainMap, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any

from jupyter_sky.base.errors import SkyError, SkyNoOffer, SkyNoPlan, SkyUsageError
from jupyter_sky.base.requests.dag.dag import Graph
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.quantities import format_duration
from jupyter_sky.base.store.pickles import open_pickle
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.assumptions import SPIN_UP_HOURS
from jupyter_sky.decisions.optimizer.constraints import Avoid, parse_scope
from jupyter_sky.decisions.optimizer.objectives import build_objective
from jupyter_sky.decisions.optimizer.plan import Plan, PlannedTask
from jupyter_sky.knowledge.ledger.ledger import format_usd
from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask, plain_name
from jupyter_sky.workflows.pipelines.run.graph_parts import restrict_demand
from jupyter_sky.workflows.pipelines.run.outlook import Residual
from jupyter_sky.workflows.pipelines.run.placing import make_residual_graph, pin, read_offer
from jupyter_sky.workflows.pipelines.run.state import Event, Kind

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
        return open_pickle(base64.b64decode(text))


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


# -- Clusters of the tasks of a run: chains stay where they are, branches run side by side --------

Offers = Mapping[str, Mapping[str, Any]]
"""Offer of each task, or of each cluster, as values of JSON; its ``resources`` tell it apart."""


def assign_clusters(
    graph: RunGraph, wanted: Offers, left: Residual, finish_h: Mapping[str, float] | None = None
) -> tuple[dict[str, str], dict[str, Mapping[str, Any]]]:
    """Return the cluster of each task, and the offer of each cluster.

    Parameters
    ----------
    graph
        Of the run.
    wanted
        Planned offer of each task that may go anywhere.
    left
        What is left of the run.
    finish_h
        Planned end of each task, hours; of one that has ended 0.

    A task runs on the cluster of a producer that needs the same machines, if no other consumer
    does and if it need not stand idle for longer than a new machine takes to boot; so chains stay
    where they are, and branches run side by side. One that reads variables of another, or is to
    share its cluster, runs where that one does. A name of a cluster stands for one offer in the
    whole run.

    Examples
    --------
    >>> from jupyter_sky.workflows.pipelines.model.graph import RunTask
    >>> from jupyter_sky.workflows.pipelines.run.outlook import residual
    >>> from jupyter_sky.workflows.pipelines.run.state import RunState
    >>> graph = RunGraph([RunTask("a"), RunTask("b", ("a",))])
    >>> offer = {"resources": "--cpus 2"}
    >>> assign_clusters(graph, {"a": offer, "b": offer}, residual(RunState.begin(graph), 0.0))[0]
    {'a': 'a', 'b': 'a'}
    """
    clusters = {name: held.cluster for name, held in left.held.items()}
    clusters |= {name: result.cluster for name, result in left.done.items()}
    continued = _find_continued(graph, clusters)
    ends = finish_h or {}
    offers: dict[str, Mapping[str, Any]] = {}
    known = ChainMap(offers, dict(left.offers))
    shared: dict[str, str] = {}
    for name, task in graph.tasks.items():
        if name in clusters or name not in wanted:
            continue
        if kept := task.body.get("kept_by"):
            clusters[name] = clusters[kept]
            offers.setdefault(clusters[kept], left.offers.get(clusters[kept], wanted[name]))
            continue
        leader = task.body.get("shares", "")
        together = clusters.get(leader) or shared.get(leader, "")
        if together in offers or together in left.live:
            clusters[name] = together
            continue
        line = wanted[name]["resources"]
        free = [p for p in task.after if p not in continued and clusters.get(p)]
        same = [
            p
            for p in free
            if known[clusters[p]]["resources"] == line
            and (p not in left.done or clusters[p] in left.live)
            and (not wanted[name].get("usd_h") or _idle_hours(task, p, ends) <= SPIN_UP_HOURS)
        ]
        if same:
            continued.add(same[0])
            clusters[name] = clusters[same[0]]
        else:
            clusters[name] = _name_cluster(name, line, left)
        offers[clusters[name]] = wanted[name]
        if leader:  # of whose result was kept: the others that share its cluster take this one
            shared[leader] = clusters[name]
    return {name: clusters[name] for name in clusters if name in wanted}, offers


def _idle_hours(task: RunTask, producer: str, ends: Mapping[str, float]) -> float:
    """Return the hours from the end of a producer until the last one of a task has ended."""
    return max(ends.get(each, 0.0) for each in task.after) - ends.get(producer, 0.0)


def _find_continued(graph: RunGraph, clusters: Mapping[str, str]) -> set[str]:
    """Return the tasks whose clusters another task has taken over already."""
    return {
        producer
        for name, cluster in clusters.items()
        if not graph.tasks[name].body.get("kept_by")
        for producer in graph.tasks[name].after
        if cluster and clusters.get(producer) == cluster
    }


def _name_cluster(task: str, line: str, left: Residual) -> str:
    """Return the name of a cluster that begins with a task."""
    name, current = plain_name(task), left.rest.get(task, "")
    if current == name and left.offers[name]["resources"] == line:
        return name
    is_free = name not in left.live and name not in left.offers
    same = name in left.offers and left.offers[name]["resources"] == line and name not in left.live
    return name if is_free or same else f"{name}-plan{left.plans}"


# -- Sentences on the plans of a run: why another one was made, what it changes and what it -------

_SHOWN = 3
"""Tasks that a sentence names; the others are counted."""
_SMALL_USD, _SMALL_SECONDS = 0.00005, 1.0


def describe_change(left: Residual, plan: Plan, stay: Plan | None) -> str:
    """Return one sentence on a plan that is taken.

    Parameters
    ----------
    left
        What is left of the run.
    plan
        Of that.
    stay
        What it would come to if tasks stayed where they were to go; None where they cannot.
    """
    moved = [
        (one.task, one.offer.place)
        for one in plan.tasks
        if one.task in left.rest and _place(left, left.rest[one.task]) != one.offer.place
    ]
    words = [_("{task} goes to {place}").format(task=t, place=place) for t, place in moved]
    if len(words) > _SHOWN:
        more = _("{count} more tasks go elsewhere").format(count=len(words) - _SHOWN)
        words = [*words[:_SHOWN], more]
    change = ", ".join(words) or _("all tasks stay where they were to go")
    return _("{why}: {change}; {effect}").format(
        why=_describe_causes(left), change=change, effect=_describe_effect(plan, stay)
    )


def describe_kept(left: Residual, plan: Plan | None) -> str:
    """Return one sentence on a plan that stays, since another gains too little or there is none."""
    change = _("the plan stays, no other gains enough")
    if plan is None:
        return f"{_describe_causes(left)}: {change}"
    return _("{why}: {change}; {effect}").format(
        why=_describe_causes(left), change=change, effect=_describe_effect(plan, None)
    )


def describe_limits(left: Residual) -> str:
    """Return what is left of the deadline and the budget of a run; empty where it has none."""
    words = []
    if left.deadline_at is not None:
        time = format_duration(left.deadline_at - left.now)
        words.append(_("{time} are left until the deadline").format(time=time))
    if left.budget_usd is not None:
        usd, budget = format_usd(left.budget_usd - left.spent_usd), format_usd(left.budget_usd)
        words.append(_("{usd} are left of the budget of {budget}").format(usd=usd, budget=budget))
    return _(" and ").join(words)


def _place(left: Residual, cluster: str) -> str:
    return read_offer(left.offers[cluster]).place if cluster in left.offers else ""


def _describe_effect(plan: Plan, stay: Plan | None) -> str:
    """Return what a plan saves, or what the rest comes to."""
    words = []
    if stay is not None:
        usd, seconds = stay.usd - plan.usd, (stay.hours - plan.hours) * 3600
        if abs(usd) > _SMALL_USD:
            text = _("saves {usd}") if usd > 0 else _("costs {usd} more")
            words.append(text.format(usd=format_usd(abs(usd))))
        if abs(seconds) > _SMALL_SECONDS:
            text = _("ends {time} sooner") if seconds > 0 else _("ends {time} later")
            words.append(text.format(time=format_duration(abs(seconds))))
    rest = _("the rest costs {usd} and takes {time}").format(
        usd=format_usd(plan.usd), time=format_duration(plan.hours * 3600)
    )
    return _(" and ").join(words) if words else rest


def _describe_causes(left: Residual) -> str:
    found = dict.fromkeys(_describe_cause(cause, left) for cause in left.causes)
    return _(" and ").join(found) or _("tasks have no place")


def _describe_cause(cause: Mapping[str, Any], left: Residual) -> str:
    return _CAUSES[cause["kind"]](cause, left)


def _describe_trouble(cause: Mapping[str, Any], left: Residual) -> str:
    place = _place(left, cause["cluster"]) or cause["cluster"]
    text = _("{place} refused") if cause["kind"] == "refused" else _("{place} was lost")
    words = text.format(place=place)
    return f"{words} ({cause['reason']})" if cause["reason"] else words


def _describe_deadline(cause: Mapping[str, Any], left: Residual) -> str:
    return _("the run would end {time} after its deadline").format(
        time=format_duration(cause["seconds"])
    )


def _describe_budget(cause: Mapping[str, Any], left: Residual) -> str:
    text = _("{usd} of {budget} are spent")
    if cause["key"] != "budget":
        text = _("the run would cost {usd} and not {budget}")
    return text.format(usd=format_usd(cause["usd"]), budget=format_usd(cause["budget"]))


def _describe_overrun(cause: Mapping[str, Any], left: Residual) -> str:
    return _("{task} runs for {time} already and not {planned}").format(
        task=cause["task"],
        time=format_duration(cause["seconds"]),
        planned=format_duration(cause["planned"]),
    )


def _describe_end(cause: Mapping[str, Any], left: Residual) -> str:
    return _("{task} took {time} and not {planned}").format(
        task=cause["task"],
        time=format_duration(cause["seconds"]),
        planned=format_duration(cause["planned"]),
    )


def _describe_size(cause: Mapping[str, Any], left: Residual) -> str:
    return _("{task} gave {gb:.3g} GB and not {planned:.3g}").format(
        task=cause["task"], gb=cause["gb"], planned=cause["planned"]
    )


def _describe_price(cause: Mapping[str, Any], left: Residual) -> str:
    return _("{place} costs {usd}/h now and not {planned}/h").format(
        place=_place(left, cause["cluster"]),
        usd=format_usd(cause["usd_h"]),
        planned=format_usd(cause["planned"]),
    )


_CAUSES = {
    "refused": _describe_trouble,
    "lost": _describe_trouble,
    "deadline": _describe_deadline,
    "budget": _describe_budget,
    "overrun": _describe_overrun,
    "ended": _describe_end,
    "size": _describe_size,
    "price": _describe_price,
}
