"""Triggers of another plan while a run goes on: pure functions of its state and the time.

A refusal or a loss leaves tasks without a cluster, which `runs.decisions` sees by itself. Those
here are forced (the deadline or the budget is in danger) or not (a task runs for too long or has
taken another time, a result has another size, a price has risen): then the plan changes only where
that gains enough. Each cause has a key, for which a plan is made once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from jupyter_sky.workflows.pipelines.run.cluster_state import ClusterPhase
from jupyter_sky.workflows.pipelines.run.outlook import forecast, is_held, spent_usd
from jupyter_sky.workflows.pipelines.run.state import RunState
from jupyter_sky.workflows.pipelines.run.task_state import UNDER_WAY, UNFINISHED, Phase

OVERRUN_SHARE, OVERRUN_SECONDS = 1.5, 600.0
"""A task runs for too long from so many times its estimate on, and so much time more than that."""
ENDED_SHARE = 0.1
"""A task has ended sooner or later than planned from such a share of its estimate on."""
PRICE_FACTOR = 1.2
"""A price has risen when it is so many times that of the plan."""
REVIEW_SECONDS = 600.0
"""Least time between two plans that nothing forced."""
BUDGET_SHARE = 0.8
"""Share of the budget at which the rest is planned anew."""
SLACK_SHARE = 0.01
"""Share of the time to the deadline by which the end must move for another forced plan."""

Cause = dict[str, Any]


def find_causes(state: RunState, now: float) -> list[Cause]:
    """Return why another plan is to be made now; empty where nothing calls for one.

    Parameters
    ----------
    state
        Of the run.
    now
        Unix time.
    """
    if not state.estimates or state.limit or not _movable(state):
        return []
    causes = [*_forced(state, now), *_ended(state)]
    if now >= state.reviewed_at + REVIEW_SECONDS:
        causes += _unforced(state, now)
    return [one for one in causes if one["key"] not in state.handled]


def _movable(state: RunState) -> bool:
    """Whether a task could still go elsewhere."""
    return any(
        not is_held(state, name)
        for phase in UNFINISHED
        if phase not in UNDER_WAY
        for name in state.by_phase[phase]
    )


def _forced(state: RunState, now: float) -> Iterator[Cause]:
    if state.deadline_at is None and state.budget_usd is None:
        return
    ended = sum(task.phase.is_final for task in state.tasks.values())
    outlook = forecast(state, now)
    if state.deadline_at is not None and outlook.finish_at > state.deadline_at + _EPSILON_SECONDS:
        late = outlook.finish_at - state.deadline_at
        doubled = int(math.log2(1 + late / _slack(state)))  # not each second that it moves
        key = f"deadline/{ended}/{doubled}"
        yield {"kind": "deadline", "key": key, "seconds": late}
    budget = state.budget_usd
    if budget is None:
        return
    if outlook.spent_usd >= BUDGET_SHARE * budget:
        yield {"kind": "budget", "key": "budget", "usd": outlook.spent_usd, "budget": budget}
    elif outlook.usd > budget * (1 + SLACK_SHARE):
        key = f"budget/{ended}"
        yield {"kind": "budget", "key": key, "usd": outlook.usd, "budget": budget}


def _ended(state: RunState) -> Iterator[Cause]:
    """Yield the tasks whose time was another than planned, where the rest has a limit to keep."""
    if state.deadline_at is None and state.budget_usd is None:
        return
    for name, task in state.tasks.items():
        planned = state.estimates[name].hours if name in state.estimates else 0.0
        is_over = task.phase is Phase.SUCCEEDED and not task.stored and planned > 0
        if is_over and abs(task.hours / planned - 1) >= ENDED_SHARE:
            facts = {"seconds": task.hours * 3600, "planned": planned * 3600}
            yield {"kind": "ended", "key": f"ended/{name}", "task": name, **facts}


_EPSILON_SECONDS = 1.0


def _slack(state: RunState) -> float:
    """Return seconds by which the expected end must move for another plan, at least one."""
    begun = min((one.since for one in state.clusters.values()), default=0.0)
    assert state.deadline_at is not None
    return max((state.deadline_at - begun) * SLACK_SHARE, 1.0)


def _unforced(state: RunState, now: float) -> Iterator[Cause]:
    for name in state.by_phase[Phase.RUNNING]:
        if (estimate := state.estimates.get(name)) and now >= _overrun_at(state, name):
            task = state.tasks[name]
            key = f"overrun/{name}/{task.attempts}"
            facts = {"seconds": now - task.begun_at, "planned": estimate.hours * 3600}
            yield {"kind": "overrun", "key": key, "task": name, **facts}
    for name, planned_gb in state.resized.items():
        facts = {"gb": state.tasks[name].gb, "planned": planned_gb}
        yield {"kind": "size", "key": f"size/{name}", "task": name, **facts}
    yield from _risen_prices(state)


def wants_prices(state: RunState, now: float) -> bool:
    """Whether prices of clusters that are not launched yet are to be looked up."""
    return now >= state.priced_at + REVIEW_SECONDS and _has_varying_prices(state)


def _has_varying_prices(state: RunState) -> bool:
    varying = {
        cluster
        for cluster, offer in state.offers.items()
        if cluster not in state.clusters and offer.get("is_spot")
    }
    return bool(varying) and any(
        cluster in varying and not state.tasks[name].phase.is_final
        for name, cluster in state.placement.items()
    )


def _risen_prices(state: RunState) -> Iterator[Cause]:
    """Yield the prices of clusters not launched yet that have risen since the plan."""
    for cluster, price in state.prices.items():
        planned = state.offers[cluster].get("usd_h", 0.0)
        if cluster not in state.clusters and planned and price >= PRICE_FACTOR * planned:
            key = f"price/{cluster}/{price:.4g}"
            facts = {"cluster": cluster, "usd_h": price, "planned": planned}
            yield {"kind": "price", "key": key, **facts}


def _overrun_at(state: RunState, name: str) -> float:
    """Return the Unix time from which a running task has run for too long."""
    planned = state.estimates[name].hours * 3600
    return state.tasks[name].begun_at + max(OVERRUN_SHARE * planned, planned + OVERRUN_SECONDS)


def next_trigger(state: RunState, now: float) -> float | None:
    """Return the Unix time at which a plan may be called for without an event; None for never."""
    if not state.estimates or state.limit or state.plan_at is not None:
        return None
    times: list[float] = []
    for name in state.by_phase[Phase.RUNNING]:
        if name in state.estimates:
            times.append(max(_overrun_at(state, name), state.reviewed_at + REVIEW_SECONDS))
    if _has_varying_prices(state):
        times.append(state.priced_at + REVIEW_SECONDS)
    if state.deadline_at is not None and state.is_active:
        times.append(now + _slack(state))
    if state.budget_usd is not None and state.is_active:
        times += _spending_times(state, now)
    return min((each for each in times if each > now), default=None)


def _spending_times(state: RunState, now: float) -> list[float]:
    """Return the times at which shares of the budget are spent if nothing changes."""
    live = [c for c in state.clusters.values() if c.phase is not ClusterPhase.GONE]
    rate = sum(cluster.usd_h for cluster in live)
    if not rate or state.budget_usd is None:
        return []
    spent = spent_usd(state, now)
    return [
        now + (share * state.budget_usd - spent) / rate * 3600 + 0.1 for share in (BUDGET_SHARE, 1)
    ]
