"""Clouds on a clock of their own: machines of known speeds, behind the protocol of a run's world.

Controller, decisions and optimizer are the real ones. A run of hours takes the time that these
need, as the loop's clock jumps to the next timer. Machines boot, refuse, are lost, and cost money;
data take their time from place to place. What a task really takes is its estimate times a factor.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jupyter_sky import catalog
from jupyter_sky.base.requests.dag.dag import Graph
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.decisions.optimizer.assumptions import SPIN_UP_HOURS, billed_hours
from jupyter_sky.decisions.optimizer.plan import Plan
from jupyter_sky.decisions.optimizer.planning import plan
from jupyter_sky.decisions.optimizer.transfers import get_transfer_prices
from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask
from jupyter_sky.workflows.pipelines.run import controller as controller_module
from jupyter_sky.workflows.pipelines.run.actions import (
    Action,
    FindResult,
    Follow,
    Launch,
    LookUpPrices,
    MakePlan,
    Move,
    Release,
    Send,
    Stop,
    World,
)
from jupyter_sky.workflows.pipelines.run.controller import Controller
from jupyter_sky.workflows.pipelines.run.journal import RunJournal
from jupyter_sky.workflows.pipelines.run.outlook import HeldTask, Residual, Result
from jupyter_sky.workflows.pipelines.run.placing import make_residual_graph, read_offer
from jupyter_sky.workflows.pipelines.run.replanning import (
    PlanGraph,
    RunProblem,
    first_event,
    make_problem,
    replan,
)
from jupyter_sky.workflows.pipelines.run.state import Event, Kind, Refusal, RunState

SIZES = (2, 4, 8, 16, 32)
_KINDS = {
    "aws": ("m5.large", "m5.xlarge", "m5.2xlarge", "m5.4xlarge", "m5.8xlarge"),
    "gcp": tuple(f"n2-standard-{size}" for size in SIZES),
    "azure": tuple(f"Standard_D{size}s_v3" for size in SIZES),
}
_PLACES = {
    ("aws", "us-east-1"): 1.0,
    ("aws", "eu-west-1"): 1.12,
    ("gcp", "us-central1"): 1.03,
    ("gcp", "europe-west4"): 1.1,
    ("azure", "eastus"): 1.05,
}
REFUSAL_SECONDS = 20.0
"""Time until a cloud says that it has no machine."""

OFFERS = tuple(
    Offer(cloud, region, kind, size, 4 * size, price=round(0.048 * size * factor, 4))
    for (cloud, region), factor in _PLACES.items()
    for kind, size in zip(_KINDS[cloud], SIZES, strict=True)
)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop whose clock jumps to the next timer when nothing else is to be done."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._clock_resolution = 0.0  # timers fire when the clock has passed them, not before

    def time(self) -> float:
        """Return virtual seconds."""
        return self._now

    def _run_once(self) -> None:
        # asyncio has no public way to look at its timers
        if not self._ready:  # type: ignore[attr-defined]
            timers = [t.when() for t in self._scheduled if not t.cancelled()]  # type: ignore[attr-defined]
            if timers:
                # at least so much that a wait below the clock's precision ends
                self._now = max(self._now + 1e-6, min(timers))
        super()._run_once()  # type: ignore[misc]


@dataclass
class Faults:
    """What goes wrong in a run.

    Attributes
    ----------
    factors
        Real time of a task over its estimate.
    refusals
        Number of launches for a task that are refused, by task.
    losses
        Number of attempts of a task whose machine is lost half way.
    gb
        Real sizes of results, GB, where they differ from what was said.
    prices
        Real price of a kind of machine over that of the plan, for look-ups.
    """

    factors: Mapping[str, float] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)
    losses: dict[str, int] = field(default_factory=dict)
    gb: Mapping[str, float] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)


@dataclass
class _Machine:
    offer: Offer
    since: float
    is_up: bool = False
    ended: float | None = None


class SimulatedClouds(World):
    """World of a run on simulated machines.

    Parameters
    ----------
    problem, first
        What the run is planned from, and the plan with which it begins.
    graph
        Of the run.
    faults
        What goes wrong.
    is_static
        Whether the rest is never planned anew but for tasks that have no place.
    planner
        Makes plans; over the machines of `OFFERS` unless given.
    """

    def __init__(
        self,
        problem: RunProblem,
        first: Plan,
        graph: RunGraph,
        faults: Faults,
        is_static: bool = False,
        planner: PlanGraph | None = None,
    ) -> None:
        self.planner = planner or plan_offers
        self.problem, self.first, self.graph, self.faults = problem, first, graph, faults
        self.is_static = is_static
        self.machines: dict[str, _Machine] = {}
        self.usd = 0.0
        self.running: dict[str, tuple[str, float]] = {}
        self.done: dict[str, str] = {}
        self.refused: list[Offer] = []
        self.rescues: list[bool] = []
        """Whether a fresh plan could meet the deadline, after each refusal and overrun."""
        self.moves = get_transfer_prices(catalog.load())
        self.specs = {spec.name: spec for spec in problem.graph.tasks}

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return asyncio.get_running_loop().time()

    def prepare(self, run: str, graph: RunGraph, settings: Mapping[str, Any]) -> None:
        """Know the run already."""

    async def perform(self, action: Action, task: RunTask | None) -> Sequence[Event]:
        """Carry out an action, in its time."""
        match action:
            case MakePlan():
                return [self._plan(action.residual)]
            case LookUpPrices():
                usd = {
                    name: facts["usd_h"] * self.faults.prices.get(read_offer(facts).place, 1.0)
                    for name, facts in action.offers.items()
                }
                return [Event(Kind.PRICES, "", self.now, {"usd_h": usd})]
            case FindResult(task=name):
                return [Event(Kind.NO_RESULT, name, self.now)]
            case Launch():
                return [await self._launch(action)]
            case Move():
                return [await self._move(action)]
            case Send(task=name):
                return [Event(Kind.BEGUN, name, self.now)]
            case Follow():
                return [await self._follow(action)]
            case Stop(task=name):
                self.running.pop(name, None)
                return [Event(Kind.STOPPED, name, self.now)]
            case Release(cluster=name):
                self._end(name)
                return [Event(Kind.RELEASED, name, self.now)]

    def _plan(self, left: Residual) -> Event:
        if not left.plans:
            return first_event(self.problem, self.graph, self.first, left)
        if self.is_static:
            if "" not in left.rest.values():
                return Event(Kind.PLAN_KEPT, "", self.now, {"text": ""})
            left = _without_limits(left)
        return replan(self.problem, self.graph, left, self.planner)

    async def _launch(self, action: Launch) -> Event:
        offer = read_offer(action.offer)
        for name in self.graph.tasks:
            if name == action.cluster.partition("-plan")[0] and self.faults.refusals.get(name, 0):
                self.faults.refusals[name] -= 1
                self.refused.append(offer)
                await asyncio.sleep(REFUSAL_SECONDS)
                self.judge()
                data = {"reason": "no capacity", "place": offer.place}
                return Event(Kind.REFUSED, action.cluster, self.now, data)
        self.machines[action.cluster] = _Machine(offer, self.now)
        await asyncio.sleep(SPIN_UP_HOURS * 3600)
        self.machines[action.cluster].is_up = True
        return Event(Kind.LAUNCHED, action.cluster, self.now)

    async def _move(self, action: Move) -> Event:
        here = self.machines[action.cluster].offer
        target = np.array([self.moves.region(here.cloud, here.region)])
        graph, hours = self.problem.graph, [0.0]
        sources = [(d.cloud, d.region, d.gb or 0.0) for d in self.specs[action.task].inputs]
        for edge in graph.edges:
            if graph.tasks[edge.dst].name == action.task:
                source = graph.tasks[edge.src].name
                place = self.machines[self.done[source]].offer
                gb = self.faults.gb.get(source, edge.gb)
                sources.append((place.cloud, place.region, gb))
        for cloud, region, gb in sources:
            source = np.array([self.moves.region(cloud, region)])
            if gb and (cloud, region) != (here.cloud, here.region):
                self.usd += float(self.moves.usd(source, target, gb).sum())
                hours.append(float(self.moves.hours_per_gb(source, target).sum()) * gb)
        await asyncio.sleep(max(hours) * 3600)
        return Event(Kind.MOVED, action.task, self.now)

    async def _follow(self, action: Follow) -> Event:
        name, offer = action.task, self.machines[action.cluster].offer
        estimated, factor = self.hours(name, offer), self.faults.factors.get(name, 1.0)
        if self.faults.losses.get(name, 0):
            self.faults.losses[name] -= 1
            await asyncio.sleep(estimated * 1800)
            self._end(action.cluster)
            self.judge()
            data = {"reason": "preempted"}
            return Event(Kind.CLUSTER_LOST, action.cluster, self.now, data)
        ends = self.now + estimated * factor * 3600
        self.running[name] = (action.cluster, ends)
        late = max(1.5 * estimated * 3600, estimated * 3600 + 600)
        if estimated * factor * 3600 > late:
            await asyncio.sleep(late)
            self.judge()
        await asyncio.sleep(max(ends - self.now, 0.0))
        self.running.pop(name, None)
        self.done[name] = action.cluster
        place = f"{offer.cloud}/{offer.region}"
        data = {"hours": estimated * factor, "usd": 0.0, "place": place}
        if name in self.faults.gb:
            data["gb"] = self.faults.gb[name]
        return Event(Kind.SUCCEEDED, name, self.now, data)

    def hours(self, task: str, offer: Offer) -> float:
        """Return the estimated hours of a task on a machine."""
        estimator = self.specs[task].estimator
        assert estimator is not None
        return float(estimator(offer))

    def _end(self, cluster: str) -> None:
        machine = self.machines[cluster]
        if machine.ended is None:
            machine.ended = self.now
            up = np.array([(self.now - machine.since) / 3600])
            hours = float(billed_hours(machine.offer.cloud, up)[0])
            self.usd += (machine.offer.price or 0.0) * hours

    def judge(self) -> None:
        """Note whether a plan made now, by one who knows all real times, meets the deadline."""
        if self.problem.deadline_at is None:
            return
        left = self._true_residual()
        allowed = (self.problem.deadline_at - self.now) / 3600
        graph = make_residual_graph(self.problem.graph, left)
        offers = [offer for offer in OFFERS if offer not in self.refused] + [
            self.machines[held.cluster].offer for held in left.held.values()
        ]
        best = plan(graph, "time", offers=list(dict.fromkeys(offers)), tracked=False)
        self.rescues.append(best.hours <= allowed)

    def _true_residual(self) -> Residual:
        offers = {name: _as_facts(machine.offer) for name, machine in self.machines.items()}
        held = {
            name: HeldTask(cluster, (ends - self.now) / 3600, 0.0, 0.0)
            for name, (cluster, ends) in self.running.items()
        }
        done = {name: Result(None, "", cluster) for name, cluster in self.done.items()}
        rest = {name: "" for name in self.specs if name not in held and name not in done}
        blocked = {o.place: Refusal(float("inf"), _as_facts(o)) for o in self.refused}
        return Residual(
            self.now, 1, (), True, done, held, rest, frozenset(), offers, blocked, 0.0, None, None
        )


def _as_facts(offer: Offer) -> dict[str, Any]:
    return {"offer": asdict(offer), "resources": ""}


def _without_limits(left: Residual) -> Residual:
    return replace(left, deadline_at=None, budget_usd=None)


plan_offers = partial(plan, offers=OFFERS, tracked=False)
"""Plan over the machines that there are."""


@dataclass(frozen=True)
class Ended:
    """What became of a run: its state, seconds, USD, events, and its world."""

    state: RunState
    seconds: float
    usd: float
    events: list[Event]
    world: SimulatedClouds
    first: Plan

    @property
    def has_succeeded(self) -> bool:
        """Whether every task has ended well."""
        return all(str(task.phase) == "succeeded" for task in self.state.tasks.values())

    @property
    def texts(self) -> list[str]:
        """Sentences on the plans that were made anew."""
        return [event.data["text"] for event in self.events if event.data.get("text")]


def carry_out(
    graph: Graph,
    faults: Faults | None = None,
    is_static: bool = False,
    planner: PlanGraph | None = None,
    **settings: Any,
) -> Ended:
    """Carry a graph out on simulated machines.

    Parameters
    ----------
    faults
        What goes wrong.
    is_static
        Whether the rest is never planned anew but for tasks that have no place.
    planner
        Makes plans; over the machines of `OFFERS` unless given.
    **settings
        As `sky.plan` has them.
    """
    planner = planner or plan_offers
    first = planner(graph, **settings)
    names = [spec.name for spec in graph.tasks]
    before: dict[str, list[str]] = {name: [] for name in names}
    for edge in graph.edges:
        before[names[edge.dst]].append(names[edge.src])
    run_graph = RunGraph(RunTask(name, tuple(before[name])) for name in names)
    problem = make_problem(graph, 0.0, **settings)
    faults = deepcopy(faults or Faults())
    world = SimulatedClouds(problem, first, run_graph, faults, is_static, planner)
    loop, wishes = VirtualLoop(), controller_module.WISH_SECONDS
    folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
    try:
        controller_module.WISH_SECONDS = 1e7  # nobody wishes anything
        with tempfile.TemporaryDirectory(dir=folder) as path:
            journal = RunJournal(Path(path, "runs.db"))
            journal.add("r", run_graph, {}, 0.0)
            state = loop.run_until_complete(Controller(journal, "r", world, loop.time).run())
            events = journal.events("r")
            journal.close()
    finally:
        controller_module.WISH_SECONDS = wishes
        loop.close()
    return Ended(state, events[-1].at, world.usd, events, world, first)
