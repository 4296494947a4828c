"""Calls of several tasks in one cell: values of their own, errors, outputs, time."""

from __future__ import annotations

import sys
import time
from typing import Any

import cloudpickle
import pytest

from jupyter_sky.workflows.pipelines.run.batch_node import run_calls


def _append(found: list[int]) -> list[int]:
    found.append(1)
    return found


def _value(outcome: dict[str, Any]) -> Any:
    return cloudpickle.loads(outcome["value"])


def test_no_task_finds_what_another_has_left_in_a_function() -> None:
    space: dict[str, Any] = {}  # of a notebook: functions are pickled by value
    exec("def count(calls=[]):\n    calls.append(1)\n    return len(calls)", space)
    outcomes = run_calls([space["count"]], [("a", 0, []), ("b", 0, [])], 60)
    assert [_value(outcome) for outcome in outcomes.values()] == [1, 1]


def test_an_error_ends_its_own_task() -> None:
    calls = [("good", 0, [[2]]), ("bad", 0, [None]), ("last", 0, [[3]])]
    outcomes = run_calls([_append], calls, 60)
    assert list(outcomes) == ["good", "bad", "last"]
    assert _value(outcomes["good"]) == [2, 1] and _value(outcomes["last"]) == [3, 1]
    bad = outcomes["bad"]
    assert bad["value"] is None
    assert bad["error"] == "AttributeError: 'NoneType' object has no attribute 'append'"
    (shown,) = bad["outputs"]
    assert shown["content"]["ename"] == "AttributeError"
    assert "_append" in "".join(shown["content"]["traceback"])


@pytest.mark.parametrize("function", [sys.exit, lambda code: (_ for _ in ())])
def test_an_exit_and_a_value_that_cannot_be_pickled_are_errors(function: Any) -> None:
    outcomes = run_calls([function, len], [("a", 0, [3]), ("b", 1, ["xy"])], 60)
    assert outcomes["a"]["error"].startswith(("SystemExit: 3", "TypeError: cannot pickle"))
    assert _value(outcomes["b"]) == 2


def test_an_interrupt_ends_all() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_calls([interrupt, len], [("a", 0, []), ("b", 1, ["x"])], 60)


def test_nothing_begins_after_the_time_is_over() -> None:
    calls = [("first", 0, [0.02]), ("second", 0, [0.0]), ("third", 0, [0.0])]
    assert list(run_calls([time.sleep], calls, 0.01)) == ["first"]
    assert list(run_calls([time.sleep], calls, 60)) == ["first", "second", "third"]
    assert run_calls([time.sleep], calls, 60)["first"]["seconds"] >= 0.02
