"""Bags on spot machines of a cloud that takes some of them away."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jupyter_sky as sky
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.execution.sessions import session as sessions
from tests.conftest import clean, wait_until
from tests.emulators.hosts import USABLE, SshHost
from tests.emulators.loopback import Loopback, loopback

if TYPE_CHECKING:  # machines import this module, too, and have no numpy
    from jupyter_sky.workflows.bags.bag_run import BagRun

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


def test_bag_takes_own_machines_first_and_rents_within_its_policy(cloud: Loopback) -> None:
    host, path = SshHost(58), Path(Sky.load().data_dir)
    (path / "hosts.toml").write_text(host.toml("box"))
    resources = "--cloud ssh --cpus 2 --memory 4 --burst spot<=5/h"
    bag = sky.bag(work, range(60), resources=resources, machines=3, name="burst", budget=5)
    try:
        wait_until(lambda: len(bag.events()) >= 3 or bag.done(), "all machines are up")
        rented = cloud.machines()
        bag.wait(170)
        assert bag.results() == {n: {"square": n * n, "attempt": 1} for n in range(60)}
        frame = bag.frame()
        own = frame.machine.str.startswith("ssh")
        assert own.any() and frame.machine[~own].str.startswith("aws").all()
        assert (~own).any() and frame.machine[~own].str.endswith("spot").all()
        assert len(rented) == 2, "the host has one slot"
        assert (frame.usd[own] == 0).all() and (frame.usd[~own] > 0).all()
        wait_until(lambda: not cloud.machines() and not host.taken(), "all were given back")
    finally:
        bag.cancel()
        (path / "hosts.toml").unlink()
        host.close()


def simulate(n: int, hours: float) -> int:
    """Work; what it needs does not depend on the machine, so that the smallest costs least."""
    time.sleep(0.5)
    return n


def test_types_are_measured_and_the_cheapest_runs_the_rest(cloud: Loopback) -> None:
    def run(name: str, jobs: int) -> BagRun:
        return sky.bag(
            simulate,
            [{"n": n, "hours": 0.001} for n in range(jobs)],  # one of an hour takes 500 s
            resources="--cloud aws --spot --cpus 2",
            machines=1,
            name=name,
            explore=True,
            size="hours",
        ).wait(170)

    bag = run("explored", 40)
    assert bag.results() == {n: n for n in range(40)}
    launched = sorted(cloud.api.bills(), key=lambda bill: bill["began"])
    launched = [bill for bill in launched if "bag-explored" in bill["tags"]["Name"]]
    types = [bill["instance_type"] for bill in launched]
    vcpus = [vcpus_of(each) for each in types]
    assert len(vcpus) == 3 and vcpus == sorted(vcpus, reverse=True), "in descending size"
    (told,) = [text for __, text in bag.events() if "measured on 3 types" in text]
    assert f"{types[2]} spot runs the rest" in told
    assert bag.frame().machine.iloc[-1].endswith(f"{types[2]} spot")

    again = run("known", 4)
    assert set(again.frame().machine.str.split().str[-2]) == {types[2]}, "what was learned is kept"
    wait_until(lambda: not cloud.machines(), "every machine was given back")


def vcpus_of(instance_type: str) -> float:
    """Return the vCPUs of a type of AWS, from the catalog."""
    (offer, *_others) = sky.offers(cloud="aws", instance_type=instance_type)
    return offer.vcpus
