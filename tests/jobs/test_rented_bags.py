"""Bags on spot machines of a cloud that takes some of them away."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky.config.settings import Sky
from jupyter_sky.executor import session as sessions
from tests.conftest import clean, wait_until
from tests.emulators.hosts import USABLE
from tests.emulators.loopback import Loopback, loopback

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    path = tmp_path_factory.mktemp("sky")
    with pytest.MonkeyPatch.context() as patch, loopback("aws") as made:
        patch.setenv("SKY_DATA_DIR", str(path))
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        for name, value in made.env.items():
            patch.setenv(name, value)
        sessions.close()
        Sky.clear_instance()
        yield made
        sessions.close()
    Sky.clear_instance()
    clean(path)


def work(n: int) -> dict[str, int]:
    """Work; return the square, and which attempt it is."""
    time.sleep(1)
    return {"square": n * n, "attempt": int(os.environ["SKY_ATTEMPT"])}


def test_jobs_of_a_machine_that_is_taken_run_elsewhere(cloud: Loopback) -> None:
    resources = "--cloud aws --spot --cpus 2"
    bag = sky.bag(work, range(60), resources=resources, machines=2, name="spot", budget=5)
    wait_until(lambda: len(bag.events()) >= 2 or bag.done(), "both machines are up")
    ended = bag.counts().succeeded
    wait_until(lambda: bag.counts().succeeded >= ended + 2 or bag.done(), "they work")
    cloud.api.preempt(cloud.machines()[-1]["id"], 0.0)
    bag.wait(170)
    assert {n: found["square"] for n, found in bag.results().items()} == {
        n: n * n for n in range(60)
    }
    frame = bag.frame()
    assert frame.attempt.sum() <= 62, "only what the lost machine had runs again"
    assert frame.machine.str.contains("aws").all()
    assert (frame.usd > 0).all()
    assert 0 < bag.report().usd < 5
    assert bag.report().losses >= 1
    wait_until(lambda: not cloud.machines(), "every machine was given back")
