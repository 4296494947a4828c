"""Causes of another plan, and what is left of a run, as functions of its state and the time."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask
from jupyter_sky.workflows.pipelines.run.controller import (
    decide,
    due_actions,
    find_causes,
    next_time,
    next_trigger,
)
from jupyter_sky.workflows.pipelines.run.outlook import forecast, residual
from jupyter_sky.workflows.pipelines.run.state import Event, Kind, RunState, fold

HOUR = 3600.0
GRAPH = RunGraph([RunTask("a"), RunTask("b", ("a",)), RunTask("c", ("b",))])
TOKEN = {"token": "r/a/1"}
ATTEMPT = {"attempt": 1, **TOKEN}


def _running(**limits: Any) -> RunState:
    """Return a run whose first task of an hour has begun at 0, the others to come elsewhere."""
    offers = {name: {"slots": 1, "usd_h": 2.0, "is_spot": name == "c"} for name in "abc"}
    plan = {
        "clusters": {name: name for name in "abc"},
        "offers": offers,
        "estimates": {name: {"hours": 1.0, "boot_hours": 0.1, "gb": 10.0} for name in "abc"},
        **limits,
    }
    events = [
        Event(Kind.READY, "a"),
        Event(Kind.NO_RESULT, "a"),
        Event(Kind.PLANNED, data=plan),
        Event(Kind.CLUSTER_WANTED, "a", 0.0, {**TOKEN, "offer": offers["a"]}),
        Event(Kind.LAUNCHED, "a", 0.0, TOKEN),
        Event(Kind.PLACED, "a", 0.0),
        Event(Kind.MOVED, "a", 0.0, ATTEMPT),
        Event(Kind.BEGUN, "a", 0.0, ATTEMPT),
    ]
    return fold(RunState.begin(GRAPH), events)


def _kinds(state: RunState, now: float) -> list[str]:
    return [cause["kind"] for cause in find_causes(state, now)]


def _end(state: RunState, at: float, hours: float, **facts: Any) -> RunState:
    data = {**ATTEMPT, "hours": hours, "usd": 0.0, **facts}
    return fold(state, [Event(Kind.SUCCEEDED, "a", at, data)])


def test_a_task_overruns_after_half_its_estimate_more() -> None:
    state = _running()
    assert _kinds(state, 1.49 * HOUR) == [] and _kinds(state, 1.5 * HOUR) == ["overrun"]
    assert next_trigger(state, 0.0) == pytest.approx(600.0)  # c's price is looked up first
    assert next_trigger(state, 1.4 * HOUR) == pytest.approx(1.5 * HOUR)


def test_a_short_task_overruns_after_ten_minutes_more() -> None:
    state = _running()
    state.estimates = {n: type(e)(hours=0.1, boot_hours=0.1) for n, e in state.estimates.items()}
    assert _kinds(state, 6 * 60 + 599) == [] and _kinds(state, 6 * 60 + 601) == ["overrun"]


def test_each_cause_calls_for_one_plan_and_unforced_ones_are_rare() -> None:
    state, events = decide(_running(), 1.5 * HOUR, "r")
    wanted = [event for event in events if event.kind is Kind.PLAN_WANTED]
    assert [cause["task"] for cause in wanted[0].data["causes"]] == ["a"]
    kept = fold(state, [Event(Kind.PLAN_KEPT, "", 1.5 * HOUR, {"text": ""})])
    assert _kinds(kept, 3 * HOUR) == []
    larger = _end(kept, 1.55 * HOUR, 1.55, gb=30.0)
    assert _kinds(larger, 1.55 * HOUR) == [] and _kinds(larger, 1.7 * HOUR) == ["size"]


@pytest.mark.parametrize(("gb", "kinds"), [(19.9, []), (20.0, ["size"]), (5.0, ["size"])])
def test_a_result_of_another_size(gb: float, kinds: list[str]) -> None:
    assert _kinds(_end(_running(), HOUR, 1.0, gb=gb), HOUR) == kinds


def test_a_risen_price_of_a_machine_that_is_not_launched_yet() -> None:
    state = _running()
    assert [type(one).__name__ for one in due_actions(state, 601.0)][:1] == ["LookUpPrices"]
    for usd, kinds in ((2.39, []), (2.4, ["price"])):
        prices = {"a": 9.0, "c": usd}  # a runs already
        known = fold(state, [Event(Kind.PRICES, "", 601.0, {"usd_h": prices})])
        assert _kinds(known, 601.0) == kinds


def test_a_deadline_is_in_danger_when_the_forecast_ends_after_it() -> None:
    state = _running(deadline_at=3.2 * HOUR)
    assert forecast(state, 0.0).finish_at == pytest.approx(3.2 * HOUR)
    assert _kinds(state, 0.99 * HOUR) == []
    assert _kinds(state, 1.05 * HOUR) == ["deadline"]
    assert _kinds(_end(state, 0.8 * HOUR, 0.8), 0.8 * HOUR) == ["ended"]
    assert _kinds(_end(state, 1.3 * HOUR, 1.3), 1.3 * HOUR) == ["deadline", "ended"]


def test_a_plan_that_is_due_launches_nothing() -> None:
    state = _end(_running(deadline_at=3.2 * HOUR), 1.3 * HOUR, 1.3)
    found = [Event(Kind.READY, "b"), Event(Kind.NO_RESULT, "b")]
    state, events = decide(fold(state, found), 1.3 * HOUR, "r")
    kinds = {event.kind for event in events}
    assert Kind.PLAN_WANTED in kinds and Kind.CLUSTER_WANTED not in kinds
    assert next_time(state, 1.3 * HOUR) == pytest.approx(1.3 * HOUR + 2)
    kept = fold(state, [Event(Kind.PLAN_KEPT, "", 1.3 * HOUR, {"text": ""})])
    assert Kind.CLUSTER_WANTED in {event.kind for event in decide(kept, 1.3 * HOUR, "r")[1]}


def test_four_fifths_of_the_budget_call_for_a_plan_and_all_of_it_ends_the_run() -> None:
    state = _running(budget_usd=7.0)
    assert _kinds(state, HOUR) == []
    for hours, key in ((1.4, "budget/0"), (2.8, "budget")):  # would cost more; four fifths spent
        assert find_causes(state, hours * HOUR + 1)[0]["key"] == key
    state, events = decide(state, 3.5 * HOUR + 1, "r")
    assert [event.kind for event in events] == [Kind.LIMIT_REACHED]
    assert str(state.tasks["b"].phase) == "failed"
    assert "the budget of $7.00 is used up" in state.tasks["b"].reason
    assert [type(one).__name__ for one in due_actions(state, 3.5 * HOUR + 1)] == ["Stop"]
    stopped = fold(state, [Event(Kind.STOPPED, "a", 3.6 * HOUR, ATTEMPT)])
    assert str(stopped.tasks["a"].phase) == "failed"
    assert "budget" in stopped.tasks["a"].reason


def test_what_is_left_counts_spent_money_and_the_rest_of_running_tasks() -> None:
    left = residual(_running(deadline_at=9 * HOUR, budget_usd=20.0), 0.25 * HOUR)
    assert left.held["a"].cluster == "a" and left.held["a"].hours == pytest.approx(0.75)
    assert left.rest == {"b": "b", "c": "c"} and left.done == {} and not left.is_forced
    assert left.spent_usd == pytest.approx(0.5)
    later = residual(_running(), 1.4 * HOUR).held["a"]
    assert (later.hours, later.least_hours) == (pytest.approx(0.4), 0.0)
    ended = residual(_end(_running(), HOUR, 1.0, gb=3.0, place="local"), HOUR)
    assert ended.done["a"].gb == 3.0 and ended.done["a"].place == "local"
    assert list(ended.rest) == ["b", "c"]


def test_a_refused_place_is_left_out_for_its_time_and_is_told_as_the_cause() -> None:
    state = _running()
    state = fold(_end(state, HOUR, 1.0), [Event(Kind.READY, "b"), Event(Kind.NO_RESULT, "b")])
    token = {"token": "r/b/1"}
    wanted = Event(Kind.CLUSTER_WANTED, "b", HOUR, {**token, "offer": {"usd_h": 2.0}})
    data = {**token, "reason": "quota", "place": "aws x", "block_seconds": 7200.0}
    state = fold(state, [wanted, Event(Kind.REFUSED, "b", HOUR, data)])
    assert state.usd == 0.0 and state.tasks["b"].refusals == 1
    assert list(residual(state, 2.9 * HOUR).blocked) == ["aws x"]
    assert not residual(state, 3.1 * HOUR).blocked
    state, events = decide(state, HOUR, "r")
    (plan,) = [event for event in events if event.kind is Kind.PLAN_WANTED]
    assert plan.data["causes"] == [{"kind": "refused", "cluster": "b", "reason": "quota"}]
    assert residual(state, HOUR).is_forced


def test_a_refusal_that_no_other_place_mends_ends_the_task() -> None:
    state = _end(_running(), HOUR, 1.0)
    state = fold(state, [Event(Kind.READY, "b"), Event(Kind.NO_RESULT, "b")])
    token = {"token": "r/b/1"}
    refused = {**token, "reason": "too dear", "place": "aws x", "is_final": True}
    events = [
        Event(Kind.CLUSTER_WANTED, "b", HOUR, {**token, "offer": {}}),
        Event(Kind.REFUSED, "b", HOUR, refused),
    ]
    task = fold(state, events).tasks["b"]
    assert (str(task.phase), task.reason) == ("failed", "too dear")
