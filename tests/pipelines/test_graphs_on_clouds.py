"""Graphs whose plan rents machines: launched, used, given back, and moved when they are lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import Notebook, wait_until
from tests.emulators.hosts import USABLE
from tests.emulators.loopback import Loopback, loopback

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]


@pytest.fixture(scope="module")
def cloud() -> Iterator[Loopback]:
    with loopback("aws", minute=1.0) as opened:
        yield opened


@pytest.fixture
def book(fresh: Any, cloud: Loopback) -> Iterator[Notebook]:
    yield fresh("graph.ipynb", **cloud.env)
    for machine in cloud.machines():
        cloud.api.power_off(machine["id"])


GRAPH = """
import jupyter_sky as sky
with sky.Dag("two") as dag:
    here = sky.Task("here", run=lambda: [1, 2]).set_resources(cloud="local")
    there = sky.Task("there", run=lambda found: sum(found) + SECONDS)
    there.set_resources(cloud="aws", cpus="2")
    here >> there
"""


def test_a_task_runs_on_the_machine_of_its_plan(book: Notebook, cloud: Loopback) -> None:
    code = GRAPH.replace("SECONDS", "0")
    ran = book.run(f"{code}\nrun = sky.run(dag, name='two').wait(120)\nrun.result('there')", 150)
    assert ran.result == "3", ran.traceback
    planned = book.run("[(t.offer.cloud, t.offer.instance_type) for t in run.plan.tasks]").result
    rows = book.run("[(c.offer['resources']) for c in run.state.clusters.values()]").result
    assert "'aws'" in planned and "--cloud local" in rows and "--cloud aws" in rows
    assert planned.split("'")[7] in rows, "the machine is the planned one"
    wait_until(lambda: not cloud.machines(), "the machine is given back")
    assert book.run("run.state.tasks['there'].usd > 0").result == "True"


def test_a_lost_machine_is_replaced_and_its_task_runs_again(
    book: Notebook, cloud: Loopback
) -> None:
    code = GRAPH.replace("SECONDS", "(__import__('time').sleep(8) or 0)")
    assert book.run(f"{code}\nrun = sky.run(dag, name='lost')").status == "ok"
    wait_until(lambda: "running" in book.run("run.status()['there']").result)
    (machine,) = cloud.machines()
    cloud.api.power_off(machine["id"])
    ran = book.run("run.wait(150).result('there')", 170)
    assert ran.result == "3", ran.traceback
    assert book.run("run.state.tasks['there'].attempts").result == "2"
    assert book.run("run.state.tasks['here'].attempts").result == "1"
    wait_until(lambda: not cloud.machines(), "the machine is given back")
