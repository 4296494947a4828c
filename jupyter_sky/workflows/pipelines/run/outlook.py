"""Outlook of a run: what has ended, what runs, what is left, when it would end and for how much.

All are pure functions of the state and the time; the estimates are those of the last plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_sky.workflows.pipelines.run.state import (
    FORCING,
    UNDER_WAY,
    ClusterPhase,
    ClusterState,
    Phase,
    Refusal,
    RunState,
    TaskEstimate,
    TaskState,
)

_BEGUN = frozenset({Phase.SENDING, Phase.RUNNING})


@dataclass(frozen=True, slots=True)
class Outlook:
    """Expected end and cost of a run under its last plan.

    Attributes
    ----------
    finish_at
        Unix time.
    spent_usd, usd
        Spent until now; in all, USD.
    """

    finish_at: float
    spent_usd: float
    usd: float


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a task that has ended well.

    Attributes
    ----------
    gb
        Size, GB; None where it is not known.
    place
        Where it lies, such as ``aws/us-east-1``; empty for where the task ran.
    cluster
        Where the task ran; empty where it did not run.
    """

    gb: float | None
    place: str
    cluster: str


@dataclass(frozen=True, slots=True)
class HeldTask:
    """Task that stays where it is: it runs, or its cluster is about to take it.

    Attributes
    ----------
    cluster
        Its cluster.
    hours, boot_hours
        Rest of its work, and of the time until its cluster is up.
    least_hours
        Rest of its work at best: nothing where it has run for longer than was expected.
    """

    cluster: str
    hours: float
    boot_hours: float
    least_hours: float


@dataclass(frozen=True, slots=True)
class Residual:
    """What is left of a run: the problem of its next plan.

    Attributes
    ----------
    now
        Unix time.
    plans
        Number of plans made before.
    causes
        Causes of this one; values of JSON.
    is_forced
        Whether a plan must be made, whatever it gains.
    done
        Results of the tasks that have ended well.
    held
        Tasks that stay where they are.
    rest
        Names of the others that have not ended, each with its cluster by the last plan, empty
        without one.
    live
        Clusters that are up or being launched.
    offers
        Offer of each cluster; values of JSON.
    blocked
        Places that are left out.
    spent_usd
        USD until now.
    deadline_at, budget_usd
        Limits of the whole run: Unix time, USD; None for none.
    """

    now: float
    plans: int
    causes: tuple[Mapping[str, Any], ...]
    is_forced: bool
    done: Mapping[str, Result]
    held: Mapping[str, HeldTask]
    rest: Mapping[str, str]
    live: frozenset[str]
    offers: Mapping[str, Any]
    blocked: Mapping[str, Refusal]
    spent_usd: float
    deadline_at: float | None
    budget_usd: float | None


def residual(state: RunState, now: float) -> Residual:
    """Return what is left of a run.

    Parameters
    ----------
    state
        Of the run.
    now
        Unix time.

    Examples
    --------
    >>> from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask
    >>> left = residual(RunState.begin(RunGraph([RunTask("a"), RunTask("b", ("a",))])), 0.0)
    >>> left.rest, left.spent_usd
    ({'a': '', 'b': ''}, 0.0)
    """
    done: dict[str, Result] = {}
    held: dict[str, HeldTask] = {}
    rest: dict[str, str] = {}
    for name, task in state.tasks.items():
        cluster = state.placement.get(name, "")
        if task.phase is Phase.SUCCEEDED:
            done[name] = Result(task.gb, task.place, "" if task.stored else cluster)
        elif task.phase.is_final:
            continue
        elif is_held(state, name):
            held[name] = _hold(state, name, now)
        else:
            rest[name] = cluster
    return Residual(
        now,
        state.plans,
        state.causes,
        "" in rest.values() or any(cause["kind"] in FORCING for cause in state.causes),
        done,
        held,
        rest,
        frozenset(name for name, cluster in state.clusters.items() if _is_live(cluster)),
        dict(state.offers),
        {place: refusal for place, refusal in state.refused.items() if refusal.until > now},
        spent_usd(state, now),
        state.deadline_at,
        state.budget_usd,
    )


def is_held(state: RunState, name: str) -> bool:
    """Whether a task stays where it is in every plan: it runs, or its cluster comes up for it."""
    task = state.tasks[name]
    if task.phase in UNDER_WAY:
        return True
    cluster = state.clusters.get(state.placement.get(name, ""))
    return task.phase is Phase.PLACING and cluster is not None and _is_live(cluster)


def _is_live(cluster: ClusterState) -> bool:
    return cluster.phase in (ClusterPhase.LAUNCHING, ClusterPhase.UP)


def _hold(state: RunState, name: str, now: float) -> HeldTask:
    task, cluster = state.tasks[name], state.placement[name]
    estimate = state.estimates.get(name, TaskEstimate(0.0))
    boot = _rest_of_boot(state.clusters[cluster], estimate, now)
    hours = _rest_hours(task, estimate, now)
    is_over = task.phase is Phase.RUNNING and now - task.begun_at > estimate.hours * 3600
    return HeldTask(cluster, hours, boot, 0.0 if is_over else hours)


def _rest_of_boot(cluster: ClusterState | None, estimate: TaskEstimate, now: float) -> float:
    """Return hours until a cluster is up; None stands for one that is not launched yet."""
    if cluster is None or cluster.phase in (ClusterPhase.DRAINING, ClusterPhase.GONE):
        return estimate.boot_hours
    if cluster.phase is ClusterPhase.UP:
        return 0.0
    return max(estimate.boot_hours - (now - cluster.since) / 3600, 0.0)


def _rest_hours(task: TaskState, estimate: TaskEstimate, now: float) -> float:
    """Return hours that a task still needs once its cluster is up.

    One that has run for longer than was expected is taken to need as much again as it is over.
    """
    if task.phase is Phase.RUNNING:
        return abs(estimate.hours - (now - task.begun_at) / 3600)
    moving = 0.0 if task.phase in _BEGUN else estimate.move_hours
    return moving + estimate.hours


def spent_usd(state: RunState, now: float) -> float:
    """Return USD that a run has cost: clusters, those that run until now, and transfers."""
    live = (
        cluster.cost(now)
        for cluster in state.clusters.values()
        if cluster.phase is not ClusterPhase.GONE
    )
    return state.usd + sum(live)


def forecast(state: RunState, now: float) -> Outlook:
    """Return when a run would end under its last plan, and what it would cost in all.

    Parameters
    ----------
    state
        Of the run; a task without an estimate takes no time.
    now
        Unix time.
    """
    finish: dict[str, float] = {}
    spent = spent_usd(state, now)
    usd, latest, booted = spent, now, set[str]()
    for name, task in state.graph.tasks.items():
        known = state.tasks[name]
        if known.phase.is_final:
            continue
        estimate = state.estimates.get(name, TaskEstimate(0.0))
        cluster = state.placement.get(name, "")
        start = max([now, *(finish[p] for p in task.after if p in finish)])
        is_first = cluster not in booted
        boot = _rest_of_boot(state.clusters.get(cluster), estimate, now) if is_first else 0.0
        booted.add(cluster)
        hours = boot + _rest_hours(known, estimate, now)
        finish[name] = start + hours * 3600
        latest = max(latest, finish[name])
        usd += hours * state.offers.get(cluster, {}).get("usd_h", 0.0)
        if known.phase not in UNDER_WAY:
            usd += estimate.move_usd
    return Outlook(latest, spent, usd)


# -- Room of clusters for more tasks: for one at a time, or for all short ones that are sent ------
#
# A task that may be sent with others is sent alone until it is known how long those of its cluster
# take, and again alone after an attempt that did not end well.

BATCH_SECONDS = 1.0
"""Time that the tasks which are sent together are to take."""
MOST_TASKS = 500
"""Most tasks that are sent together."""


class Room:
    """Room that the clusters of a run have left.

    Parameters
    ----------
    state
        Of the run; what is taken since is counted here.

    Examples
    --------
    >>> from jupyter_sky.workflows.pipelines.model.graph import RunGraph
    >>> Room(RunState.begin(RunGraph([]))).count_batch("pool")
    1
    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._used: Counter[str] = Counter()
        self._alone: set[str] = set()
        for phase in UNDER_WAY:
            for name in state.by_phase[phase]:
                self._hold(name)

    def take(self, name: str) -> bool:
        """Return whether the cluster of a task has room for it, and count it where it has."""
        if not self._has_room(self._state.placement[name], self._state.may_be_batched(name)):
            return False
        self._hold(name)
        return True

    def is_full(self, cluster: str) -> bool:
        """Return whether a cluster has no room for a task of any kind."""
        return not self._has_room(cluster, is_batched=True)

    def _has_room(self, cluster: str, is_batched: bool) -> bool:
        known = self._state.clusters.get(cluster)
        if known is None or known.phase is not ClusterPhase.UP:
            return False
        limit = self._state.offers[cluster].get("slots", 1)
        if is_batched and cluster not in self._alone:
            limit = max(limit, self.count_batch(cluster))
        return self._used[cluster] < limit

    def count_batch(self, cluster: str) -> int:
        """Return the number of tasks that are sent together, by the time of those that ended."""
        count, hours = self._state.batched.get(cluster, (0, 0.0))
        if not count:
            return 1
        mean_seconds = max(hours / count * 3600, 1e-6)
        return max(min(int(BATCH_SECONDS / mean_seconds), MOST_TASKS), 1)

    def _hold(self, name: str) -> None:
        cluster = self._state.placement[name]
        self._used[cluster] += 1
        if not self._state.may_be_batched(name):
            self._alone.add(cluster)
