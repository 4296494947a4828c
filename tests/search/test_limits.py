"""Searches that rent machines: refusals, memory, what cannot win, what cannot be paid for."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyBudget, SkyUsageError
from jupyter_sky.decisions.search import (
    CloudBandit,
    Measurement,
    Point,
    RandomWithRepeats,
    SearchResult,
    Space,
)
from jupyter_sky.decisions.search.api import search
from jupyter_sky.decisions.search.limits import SearchLimits
from jupyter_sky.decisions.search.measurement import Trial

SPACE = Space.of(
    {cloud: {"vcpus": [2, 4], "memory": [4, 8, 16], "nodes": [1, 2]} for cloud in "AB"},
    price=lambda arm, values: 0.36 * values["nodes"] * values["vcpus"] * (1 + (arm == "B")),
)


def seconds(point: Point) -> float:
    """Seconds on a machine: more vCPUs help, memory does not."""
    return 100.0 / (point["vcpus"] * point.nodes) + point["memory"] / 10  # type: ignore[operator]


class Machines:
    """Runner whose runs take no time; `answer` says what becomes of each."""

    def __init__(self, answer: Callable[[Trial, int], Measurement], least: float = 0.0) -> None:
        self.answer, self.least = answer, least
        self.asked: Counter[str] = Counter()
        self.closed = False

    def least_usd(self, point: Point) -> float:
        return self.least

    def run(self, trial: Trial) -> Measurement:
        self.asked[str(trial.point)] += 1
        return self.answer(trial, self.asked[str(trial.point)])

    def close(self) -> None:
        self.closed = True


def good(trial: Trial, times: int) -> Measurement:
    """Run as long as the configuration takes."""
    return Measurement(seconds(trial.point)).priced(trial.point)


def find(runner: Machines, budget: int = 24, **options: Any) -> SearchResult:
    found = search("", options.pop("space", SPACE), budget, runner=runner, **options)
    assert runner.closed
    return found


REFUSED = Measurement(0.0, error="no capacity", failure="refused", wait=0.02)


@pytest.mark.parametrize("method", ["gp", "cloudbandit", "rising-bandits", "independent", "rbf"])
def test_a_refused_configuration_is_asked_for_again_and_not_judged(method: str) -> None:
    plain = find(Machines(good), 11, method=method)

    def refuse_first(trial: Trial, times: int) -> Measurement:
        return REFUSED if times == 1 and trial.number % 3 == 0 else good(trial, times)

    found = find(Machines(refuse_first), 11, method=method)
    assert len(found.refused) >= 3 and len(found.tries) == len(plain.tries)
    assert {one.value is None for one in found.tries} == {False}
    assert found.best and plain.best
    if method != "independent":  # its component sees another order, and is too small to be sure
        assert found.best.point == plain.best.point


def test_a_configuration_that_stays_refused_gives_its_try_to_another() -> None:
    def refuse_b(trial: Trial, times: int) -> Measurement:
        return REFUSED if trial.point.arm == "A" else good(trial, times)

    limits = SearchLimits(refusal_seconds=0.001)
    found = find(Machines(refuse_b), 6, limits=limits)
    assert len(found.tries) == 6 and {one.point.arm for one in found.tries} == {"B"}
    assert found.refused and "refused" in found.summary
    assert not any(one.error for one in found.tries)
    assert str(found).count("refused: no capacity") == len({one.index for one in found.refused})


def test_the_watcher_hears_of_what_waits() -> None:
    seen: list[SearchResult] = []
    refused = replace(REFUSED, wait=0.2)

    def refuse_first(trial: Trial, times: int) -> Measurement:
        return refused if times == 1 else good(trial, times)

    found = find(Machines(refuse_first), 2, watch=seen.append, parallel=2)
    assert len(found.tries) == 2 and not found.waiting and not found.running
    waiting = {str(point) for result in seen for point in result.waiting}
    assert waiting == {str(one.point) for one in found.refused}
    assert any(len(one.waiting) == 2 and not one.running for one in seen), "both, and nothing else"
    assert not seen[-1].waiting


def test_bandits_return_the_pulls_of_excluded_points() -> None:
    bandit = CloudBandit(SPACE, "random", b1=2)
    first = bandit.ask()
    assert first is not None
    bandit.exclude(first)
    seen = set()
    while (index := bandit.ask()) is not None:
        seen.add(index)
        bandit.tell(index, 1.0 + index)
    assert first not in seen and len(seen) == bandit.budget
    repeating = RandomWithRepeats(SPACE)
    for index in range(1, len(SPACE)):
        repeating.exclude(index)
    assert [repeating.ask() for _ in range(5)] == [0] * 5
    repeating.exclude(0)
    assert repeating.ask() is None and repeating.finished


def test_out_of_memory_rules_out_what_has_no_more_of_it() -> None:
    def needs_12(trial: Trial, times: int) -> Measurement:
        if trial.point["memory"] < 12:  # type: ignore[operator]
            return Measurement(1.0, 0.01, "MemoryError", "memory")
        return good(trial, times)

    found = find(Machines(needs_12), method="random", seed=5)
    failed = [one.point for one in found.tries if one.error]
    assert len(found.hopeless) == 24 - len(found.tries) and found.hopeless
    assert {point["memory"] for point in found.hopeless} <= {4, 8}
    assert found.best and found.best.point["memory"] == 16
    assert len(found.tries) == 8 + len(failed) < 24
    for number, later in enumerate(failed):
        for earlier in failed[:number]:
            amounts = [(later[name], earlier[name]) for name in ("memory", "nodes")]
            shares = (later["memory"] / later["vcpus"], earlier["memory"] / earlier["vcpus"])  # type: ignore[operator]
            assert any(mine > its for mine, its in [*amounts, shares])  # type: ignore[operator]


def test_a_crash_rules_out_nothing_else() -> None:
    crashed = Measurement(1.0, 0.01, "ZeroDivisionError", "crash")
    found = find(Machines(lambda trial, times: crashed))
    assert len(found.tries) == 24 and found.best is None


@pytest.mark.parametrize("minimize", ["cost", "time"])
def test_runs_that_cannot_win_are_stopped(minimize: Any) -> None:
    def stopping(trial: Trial, times: int) -> Measurement:
        limit, needed = trial.winning_seconds(), seconds(trial.point)
        if limit is not None and needed > limit:
            return Measurement(limit, error="cannot win", failure="stopped").priced(trial.point)
        return good(trial, times)

    found = find(Machines(stopping), minimize=minimize, method="random")
    plain = find(Machines(good), minimize=minimize, method="random")
    assert found.best and plain.best and found.best.point == plain.best.point
    assert found.best.value == plain.best.value
    stopped = [one for one in found.tries if one.error]
    assert not {str(one.point) for one in stopped} & set(found.history()), "they have not failed"
    assert stopped and found.seconds < 0.8 * plain.seconds
    for one in stopped:  # what was stopped could not have won
        whole = seconds(one.point) * (1 if minimize == "time" else (one.point.price or 0) / 3600)
        assert whole > (found.best.value or 0)


@pytest.mark.parametrize("minimize", ["cost", "time"])
def test_expected_recomputation_counts(minimize: Any) -> None:
    """The quick machine is lost so often that the slow one is better."""

    def lost(trial: Trial, times: int) -> Measurement:
        seconds, redone = (10.0, 1.5) if trial.point.arm == "A" else (12.0, 1.0)
        return Measurement(seconds, seconds * redone, redone=redone)

    space = Space.of({"A": {"nodes": [1]}, "B": {"nodes": [1]}}, price=lambda arm, values: 3600.0)
    found = find(Machines(lost), 2, space=space, minimize=minimize)
    assert found.best and found.best.point.arm == "B" and found.best.value == 12.0
    values = {one.point.arm: (one.value, one.seconds) for one in found.tries}
    assert values["A"] == (15.0, 10.0), "what it took is what it took"


def test_what_is_under_way_is_stopped_once_another_has_won() -> None:
    slow_began = threading.Event()

    def run(trial: Trial, times: int) -> Measurement:
        if trial.point.nodes == 1:
            slow_began.set()
            end = time.monotonic() + 60
            while trial.winning_seconds() is None:
                assert time.monotonic() < end
                time.sleep(0.01)
            return Measurement(trial.winning_seconds() or 0, error="no", failure="stopped")
        assert slow_began.wait(60)
        return Measurement(2.0)

    space = Space.of({"A": {"nodes": [1, 2]}})
    found = find(Machines(run), 2, space=space, minimize="time", parallel=2)
    assert found.best and found.best.point.nodes == 2
    assert [one.seconds for one in found.tries if one.error] == [2.0]


def test_the_budget_in_usd_is_kept() -> None:
    def spend(trial: Trial, times: int) -> Measurement:
        assert trial.usd is not None
        usd = min(0.3, trial.usd)
        if usd < 0.3:
            return Measurement(5.0, usd, "stopped", "stopped", billed=usd)
        return Measurement(5.0, 0.2, billed=0.3)

    for parallel in (1, 3):
        runner = Machines(spend, least=0.1)
        found = find(runner, limits=SearchLimits(usd=1.0), parallel=parallel)
        assert found.usd is not None and 0.9 <= found.usd <= 1.0 + 1e-9
        assert "1" in found.stopped and len(found.tries) < 24


def test_what_is_too_dear_for_the_rest_is_left_out() -> None:
    class Dear(Machines):
        def least_usd(self, point: Point) -> float:
            return 5.0 if point.arm == "B" else 0.01

    runner = Dear(lambda trial, times: Measurement(1.0, 0.01, billed=0.02))
    found = find(runner, limits=SearchLimits(usd=1.0))
    assert {one.point.arm for one in found.tries} == {"A"} and len(found.tries) == 12
    assert "not enough" in found.stopped


def test_nothing_begins_after_the_deadline() -> None:
    def run(trial: Trial, times: int) -> Measurement:
        assert trial.ends is not None
        time.sleep(max(0.0, trial.ends - time.monotonic()))
        return Measurement(1.0, 0.1, "stopped", "stopped")

    found = find(Machines(run), limits=SearchLimits(seconds=0.2), parallel=2)
    assert len(found.tries) == 2 and "deadline" in found.stopped


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_limits_without_sense_are_refused(value: float) -> None:
    with pytest.raises(SkyUsageError, match="budget"):
        SearchLimits(usd=value)
    with pytest.raises(SkyUsageError, match="deadline"):
        SearchLimits(seconds=value)


def test_a_log_keeps_refusals_and_what_they_cost(tmp_path: Path) -> None:
    lost = Measurement(0.0, None, "lost at its launch", "refused", 0.5, wait=5.0)

    def refuse_a(trial: Trial, times: int) -> Measurement:
        return lost if trial.point.arm == "A" else good(trial, times)

    log, limits = tmp_path / "search.jsonl", SearchLimits(refusal_seconds=0.001)
    first = find(Machines(refuse_a), 5, log=log, limits=limits)
    again = Machines(refuse_a)
    second = find(again, 5, log=log, limits=limits)
    assert second.tries == first.tries and not again.asked
    assert first.usd == second.usd and (first.usd or 0) >= 0.5
    assert second.refused == first.refused


@pytest.mark.parametrize("parallel", [1, 3])
def test_what_no_configuration_mends_ends_the_search(parallel: int) -> None:
    def forbidden(trial: Trial, times: int) -> Measurement:
        if trial.number > 5:
            raise SkyBudget("the month's budget is spent", hint="allow more")
        return good(trial, times)

    def never(trial: Trial, times: int) -> Measurement:
        raise SkyBudget("the month's budget is spent", hint="allow more")

    found = find(Machines(forbidden), parallel=parallel)
    assert found.best and "budget is spent" in found.stopped and len(found.tries) == 5
    assert {one.value is None for one in found.tries} == {False}, "no configuration is to blame"
    runner = Machines(never)
    with pytest.raises(SkyBudget, match="month"):
        find(runner, parallel=parallel)
    assert runner.closed and runner.asked.total() <= parallel


def test_an_interrupt_closes_the_runner() -> None:
    def interrupt(trial: Trial, times: int) -> Measurement:
        raise KeyboardInterrupt  # in a thread of its own it is a failed try

    runner = Machines(interrupt)
    find(runner, 2)

    def watch(result: SearchResult) -> None:
        raise KeyboardInterrupt

    stopped = Machines(good)
    with pytest.raises(KeyboardInterrupt):
        search("", SPACE, 3, runner=stopped, watch=watch)
    assert stopped.closed
