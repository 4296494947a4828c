"""Bags on spot machines of a cloud that takes some of them away."""

from __future__ import annotations

import os
import time
from collections import Counter
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


def work(n: int, folder: str) -> int:
    """Note that the job has begun, work, and return its square."""
    with open(os.path.join(folder, f"{n}.txt"), "a") as file:
        file.write("begun\n")
    time.sleep(0.7)
    return n * n


def test_jobs_of_a_machine_that_is_taken_run_elsewhere(cloud: Loopback, tmp_path: Path) -> None:
    jobs = [{"n": n, "folder": str(tmp_path)} for n in range(40)]
    resources = "--cloud aws --spot --cpus 2"
    bag = sky.bag(work, jobs, resources=resources, machines=3, name="spot", budget=5)
    wait_until(lambda: bag.counts().succeeded >= 3, "the first have ended")
    wait_until(lambda: len(cloud.machines()) >= 3, "all machines are there")
    wait_until(lambda: len({row["machine"] for row in bag.records()}) > 1 or bag.done())
    cloud.api.preempt(cloud.machines()[-1]["id"], 0.0)
    bag.wait(170)
    assert bag.results() == {n: n * n for n in range(40)}
    begun = Counter({n: len((tmp_path / f"{n}.txt").read_text().split()) for n in range(40)})
    again = {n for n, count in begun.items() if count > 1}
    assert len(again) <= 4, "only what the lost machine had runs again"
    frame = bag.frame()
    assert (frame.machine.str.contains("aws")).all()
    assert (frame.usd > 0).all()
    assert 0 < bag.report().usd < 5
    assert any("is gone" in text for _, text in bag.events())
    wait_until(lambda: not cloud.machines(), "every machine was given back")
