"""Running a search: budgets, failures, time limits, early ends, logs, and what is shown."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.decisions.search import Measurement, Point, SearchResult, Space, Stop
from jupyter_sky.decisions.search.api import search

SPACE = Space.of(
    {"A": {"nodes": [1, 2, 3, 4], "size": [1, 2]}, "B": {"nodes": [1, 2, 3, 4]}},
    price=lambda arm, values: 3.6 * values["nodes"],
)


def seconds(point: Point) -> float:
    """Best at A with 3 nodes of size 2: 10 s; costs 3.6 USD/h for each node."""
    extra = 4 * abs(point.nodes - 3) + (point.arm == "B") * 7
    return 10.0 + extra + 3 * (point.values.get("size") == 1)


def run(measure: Any = seconds, budget: int = 12, minimize: Any = "time", **options: Any):
    return search(measure, options.pop("space", SPACE), budget, minimize, **options)


def test_the_whole_budget_finds_the_best_and_counts_what_was_spent() -> None:
    found = run()
    assert found.best and str(found.best.point) == "A nodes=3 size=2" and found.best.value == 10
    assert len(found.tries) == 12 == found.budget and not found.stopped
    assert found.seconds == pytest.approx(sum(map(seconds, SPACE.points)))
    usd = sum(seconds(p) / 3600 * (p.price or 0) for p in SPACE.points)
    assert found.usd == pytest.approx(usd)
    assert (np.diff(found.curve) <= 0).all() and found.regret()[-1] == 0
    assert found.regret(8.0)[-1] == pytest.approx(25)


def test_cost_is_minimized_in_usd() -> None:
    found = run(minimize="cost")
    costs = [seconds(p) / 3600 * (p.price or 0) for p in SPACE.points]
    assert found.best and found.best.value == pytest.approx(min(costs))
    assert found.best.usd == found.best.value


def test_measured_cost_overrides_the_price() -> None:
    found = run(lambda p: Measurement(seconds(p), usd=5.0 - p.nodes), minimize="cost")
    assert found.best and found.best.point.nodes == 4 and found.best.value == 1.0


def test_without_prices_cost_cannot_be_minimized_and_time_can() -> None:
    space = Space(tuple(Point(p.arm, p.values) for p in SPACE.points))
    found = run(space=space, minimize="cost", budget=3)
    assert found.best is None and "no price" in found.tries[0].error
    timed = run(space=space, budget=3)
    assert timed.best is not None and timed.usd is None and "unknown" in timed.summary


@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("method", ["gp", "cloudbandit", "random-repeats"])
def test_budget_is_kept_with_parallel_runs(method: str, parallel: int) -> None:
    calls = []

    def counted(point: Point) -> float:
        calls.append(point)
        return seconds(point)

    found = run(counted, budget=7, method=method, parallel=parallel)
    assert len(found.tries) <= 7 and len(calls) == len(found.tries)
    assert sorted(one.number for one in found.tries) == list(range(1, len(calls) + 1))


def test_same_seed_same_tries() -> None:
    traces = [
        [one.index for one in run(budget=6, method="rbf", seed=seed).tries] for seed in (3, 3, 4)
    ]
    assert traces[0] == traces[1] != traces[2]


def test_parallel_runs_overlap() -> None:
    barrier = threading.Barrier(3, timeout=20)

    def together(point: Point) -> float:
        barrier.wait()  # only three that run at the same time get past it
        return seconds(point)

    found = run(together, budget=3, parallel=3)
    assert [one.error for one in found.tries] == ["", "", ""]


# -- measurements that go wrong ------------------------------------------------------------------


def test_failed_tries_count_towards_cost() -> None:
    def measure(point: Point) -> Any:
        if point.arm == "B":
            raise RuntimeError("out of memory")
        if point["size"] == 1:
            return Measurement(3.0, error="worker lost")
        return seconds(point)

    found = run(measure)
    errors = {one.error for one in found.tries if one.value is None}
    assert errors == {"RuntimeError: out of memory", "worker lost"}
    assert found.best and found.best.value == 10
    assert sum(one.seconds for one in found.tries if one.error == "worker lost") == 12
    assert found.usd is not None and "8 failed" in found.summary


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0, "fast", None, 1j])
def test_invalid_time_is_a_failure(wrong: object) -> None:
    found = run(lambda p: wrong if p.arm == "A" else seconds(p))
    assert found.best and found.best.point.arm == "B"
    assert all("measured" in one.error for one in found.tries if one.point.arm == "A")


def test_a_measurement_that_never_returns_is_given_up() -> None:
    never = threading.Event()

    def measure(point: Point) -> float:
        if point.nodes == 3:
            never.wait(60)
        return seconds(point)

    try:
        found = run(measure, timeout=0.15, parallel=4, seed=1)
    finally:
        never.set()
    late = [one for one in found.tries if one.point.nodes == 3]
    assert len(found.tries) == 12 and len(late) == 3
    assert all(one.error == "no result within 0.15 s" and one.seconds == 0.15 for one in late)
    assert found.best and found.best.point.nodes != 3


def test_no_best_where_every_trial_fails() -> None:
    found = run(lambda p: float("nan"), budget=5)
    assert found.best is None and np.isinf(found.curve).all()
    assert "nothing succeeded" in found.summary and "5 failed" in found.summary
    assert "<svg" not in found._repr_html_()


def test_system_exit_in_a_measurement_ends_the_search() -> None:
    def leave(point: Point) -> float:
        raise SystemExit(3)

    assert run(leave, budget=2, parallel=2).tries[0].error.startswith("SystemExit")


def test_interrupts_are_not_failures() -> None:
    def interrupted(point: Point) -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(interrupted)


# -- statistics ----------------------------------------------------------------------------------


def test_repeats_are_measured_and_amount_to_their_statistic() -> None:
    for name, expected in (("mean", 4.0), ("median", 2.0), ("p90", 7.6), ("max", 9.0)):
        runs = iter([1.0, 2.0, 9.0] * 20)
        found = run(lambda p, runs=runs: next(runs), budget=2, repeats=3, statistic=name)
        assert [one.value for one in found.tries] == [pytest.approx(expected)] * 2
        assert len(found.tries[0].runs) == 3 and found.seconds == 24.0


def test_a_failed_run_ends_the_repeats_of_its_configuration() -> None:
    found = run(lambda p: float("nan"), budget=1, repeats=5)
    assert len(found.tries[0].runs) == 1


# -- early ends ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "words"),
    [
        (Stop(target=17.0), "target of 17"),
        (Stop(patience=2), "2 tries without"),
        (Stop(gain=0.9), "improvement of"),
        (Stop(usd=0.04), "are spent"),
    ],
)
def test_a_search_ends_early(stop: Stop, words: str) -> None:
    found = run(stop=stop)
    assert len(found.tries) < 12 and words in found.stopped and words in found.summary


def test_nothing_is_left_to_try() -> None:
    found = run(budget=20)
    assert len(found.tries) == 12 and found.stopped == "nothing was left to try"


# -- logs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["gp", "cloudbandit", "random-repeats"])
def test_killed_search_resumes_from_its_log(method: str, tmp_path: Path) -> None:
    whole = run(budget=8, method=method, seed=9)
    log, calls = tmp_path / "search.jsonl", []

    def dies(point: Point) -> float:
        calls.append(str(point))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return seconds(point)

    options: dict[str, Any] = {"budget": 8, "method": method, "seed": 9, "log": log}
    with pytest.raises(KeyboardInterrupt):
        run(dies, **options)
    with log.open("a") as file:
        file.write('{"run": 4, "sec')  # the writer was killed in the middle of a line
    resumed = run(dies, **options)
    assert [one.index for one in resumed.tries] == [one.index for one in whole.tries]
    assert resumed.seconds == whole.seconds
    assert len(calls) == len(whole.tries) + 1, "only the try that was cut short ran again"
    again = run(dies, **options)
    assert len(calls) == len(whole.tries) + 1 and again.tries == resumed.tries


def test_a_larger_budget_goes_on_from_the_log_of_a_smaller_one(tmp_path: Path) -> None:
    log = tmp_path / "search.jsonl"
    first = run(budget=4, log=log)
    more = run(budget=7, log=log)
    assert [one.index for one in more.tries[:4]] == [one.index for one in first.tries]
    assert len(more.tries) == 7


def test_parallel_tries_are_in_the_log_too(tmp_path: Path) -> None:
    log = tmp_path / "search.jsonl"
    first = run(budget=6, log=log, parallel=3)
    more = run(budget=12, log=log, parallel=2)
    assert more.tries[:6] == first.tries and len(more.tries) == 12


def test_the_log_of_another_search_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "search.jsonl"
    run(budget=2, log=log)
    with pytest.raises(SkyUsageError, match="another search: seed 0, not 1"):
        run(budget=2, log=log, seed=1)
    with pytest.raises(SkyUsageError, match="minimize"):
        run(budget=2, log=log, minimize="cost")
    log.write_text("no log\n")
    with pytest.raises(SkyUsageError, match="line 1 is not of a search"):
        run(budget=2, log=log)
    with pytest.raises(SkyUsageError, match="log="):
        run(budget=2, log=tmp_path)


def test_a_log_whose_tries_do_not_follow_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "search.jsonl"
    run(budget=3, log=log)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    asked = next(line for line in lines if "ask" in line)
    asked["point"] = (asked["point"] + 1) % len(SPACE)
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(SkyUsageError, match="is asked for"):
        run(budget=3, log=log)
    log.write_text(json.dumps(lines[0]) + '\n{"what": 1}\n{"what": 2}\n')
    with pytest.raises(SkyUsageError, match="no event"):
        run(budget=3, log=log)


# -- the call ------------------------------------------------------------------------------------


def test_a_cell_is_measured_by_a_function() -> None:
    def measure(cell: str, point: Point) -> float:
        assert cell == "train(x)"
        return seconds(point)

    found = sky.search("train(x)", SPACE, 5, "time", measure=measure, progress=False)
    assert len(found.tries) == 5
    with pytest.raises(SkyUsageError, match="give measure=f"):
        sky.search("train(x)", SPACE, 5)
    with pytest.raises(SkyUsageError, match="cannot be called"):
        sky.search("train(x)", SPACE, 5, measure=3)


def test_a_space_is_built_from_labels_of_the_catalog() -> None:
    labels = {"cpus": "4", "cloud": "aws,gcp", "nodes": [1, 2], "types": 4}
    found = sky.search(lambda p: 60.0 / p.nodes, labels, 4, progress=False)
    assert found.space.arms and found.best and found.best.usd
    assert found.best.point.offer and found.best.point.offer.cloud == found.best.point.arm


def test_progress_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("IPython.get_ipython", lambda: None)  # another test may have made one
    sky.search(seconds, SPACE, 3, "time")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and "best: " in lines[0] and "3 of 3 tries" in lines[-1]


def test_the_history_of_a_result_teaches_the_next_search() -> None:
    first = run()
    second = run(lambda p: 3 * seconds(p), budget=2, history=[first])
    assert second.tries[0].value == 30.0
    assert first.history()["A nodes=3 size=2"] == 10.0


def test_bad_numbers_are_refused_before_anything_runs() -> None:
    def never(point: Point) -> float:
        raise AssertionError("measured")

    for bad in (0, -3, 2.5, "ten", None):
        with pytest.raises(SkyUsageError, match="budget"):
            run(never, budget=bad)  # type: ignore[arg-type]
    for options in ({"parallel": 0}, {"timeout": 0}, {"repeats": 0}, {"minimize": "power"}):
        with pytest.raises(SkyUsageError, match=next(iter(options))):
            run(never, **options)
    for limits in ({"patience": 0}, {"target": -1}, {"usd": float("nan")}):
        with pytest.raises(SkyUsageError, match="stop"):
            Stop(**limits)


def test_a_result_shows_every_try_and_its_cost() -> None:
    found = run(budget=4)
    text = str(found)
    assert text.count("A ") + text.count("B ") >= 4 and "best" in text and "$0.0" in text
    html = found._repr_html_()
    assert "<svg" in html and 'role="img"' in html and html.count("<tr") == 5
    caption = html[html.index("</svg>") :].partition("</div>")[0]
    # two prices in a line are mathematics to JupyterLab unless it is told otherwise
    assert "in 4 tries" in caption and "tex2jax_ignore" in caption
    frame = found.to_pandas()
    assert list(frame["best"]) == found.curve.tolist() and frame.usd_h.notna().all()
    assert {"arm", "nodes", "size", "seconds", "usd", "error"} <= set(frame.columns)
    assert "nothing tried yet" in str(SearchResult(SPACE, "time", 3))


def test_the_best_of_each_arm_is_known() -> None:
    found = run()
    second = found.best_in("B")
    assert second and second.value == 17.0
