"""RBFOpt without its solver: in a thread that waits for values, over what exists alone."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.decisions.search import CloudBandit, Space, component
from tests.conftest import wait_until
from tests.search.conftest import trace

pytestmark = pytest.mark.slow
pytest.importorskip("rbfopt")

SPACE = Space.of(
    {
        "A": {"family": ["x", "y", "z"], "nodes": [2, 3, 4]},
        "B": {"kind": ["p", "q"], "nodes": [2, 3]},
    }
)
VALUES = np.array([5.0, 4.0, 3.0, 6.0, 5.0, 2.0, 9.0, 8.0, 7.0, 20.0, 19.0, 21.0, 22.0])


def test_it_searches_over_arms_and_leaves_no_thread() -> None:
    traces = [trace(component("rbfopt", SPACE, seed=5), VALUES, 8) for __ in range(2)]
    assert len(set(traces[0])) == 8 and traces[0] == traces[1]
    gc.collect()
    wait_until(lambda: not any(t.name == "sky-rbfopt" for t in threading.enumerate()), "it ends")


def test_inside_cloudbandit_it_goes_on_or_starts_anew() -> None:
    for mode, repeats in (("continuous", False), ("intermittent", True)):
        bandit = CloudBandit(SPACE, "rbfopt", b1=2, mode=mode, seed=2)  # type: ignore[arg-type]
        asked = trace(bandit, VALUES, 20)
        assert len(asked) == 8 and bandit.arm == "A", mode
        assert repeats or len(set(asked)) == 8, asked


def test_tries_side_by_side_and_failures_do_not_stop_it() -> None:
    optimizer = component("rbfopt", SPACE, seed=1, algorithm="Gutmann", rbf="linear")
    asked = list[int]()
    for __ in range(4):
        first, second = optimizer.ask(), optimizer.ask()
        assert first is not None and second is not None
        for index in (second, first):
            asked.append(index)
            optimizer.tell(index, None if index == 0 else float(VALUES[index]))
    assert len(set(asked)) == 8


def test_settings_that_rbfopt_does_not_have_are_refused() -> None:
    for wrong in ({"rbf": "round"}, {"shape": 3}):
        with pytest.raises(SkyUsageError, match="rbfopt"):
            component("rbfopt", SPACE, **wrong)
