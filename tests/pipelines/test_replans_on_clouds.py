"""Runs whose rest is planned anew while they go on, on machines of emulated clouds."""

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
import jupyter_sky as sky, time
with sky.Dag("two") as dag:
    here = sky.Task("here", run=lambda: [1, 2]).set_resources(cloud="local")
    there = sky.Task("there", run=lambda found: sum(found))
    there.set_resources(cloud="aws", cpus="2")
    here >> there
"""


def test_a_refused_task_goes_elsewhere_and_the_status_says_why(
    book: Notebook, cloud: Loopback
) -> None:
    cloud.api.refuse("InsufficientInstanceCapacity", times=1)
    ran = book.run(f"{GRAPH}\nrun = sky.run(dag, name='two').wait(150)\nrun.result('there')", 180)
    assert ran.result == "3", ran.traceback
    planned = book.run("run.plan['there'].offer.place").result
    used = book.run("[row[6] for row in run.table().rows][1]").result
    assert planned != used and "aws" in used
    texts = book.run("print(*[one.text for one in run.replans()])").stdout
    assert planned.strip("'") in texts and "refused" in texts and "goes to" in texts
    assert used.strip("'") in texts
    shown = book.run("print(run.table())").stdout
    assert "planned anew" in shown and "there goes to aws" in shown
    assert book.run("list(run.state.clusters)").result == "['here', 'there', 'there-plan1']"
    assert book.run("run.state.tasks['here'].attempts").result == "1"
    wait_until(lambda: not cloud.machines(), "the machine is given back")


LATE = """
import jupyter_sky as sky, time
with sky.Dag("late") as dag:
    slow = sky.Task("slow", run=lambda: time.sleep(16)).set_time_estimator("5s")
    last = sky.Task("last", run=lambda one: one).set_time_estimator("5s")
    for task in (slow, last):
        task.set_resources(cloud="local")
    slow >> last
run = sky.run(dag, name="late", deadline="14s")
"""


def test_tasks_that_no_plan_brings_to_the_deadline_fail_and_name_it(book: Notebook) -> None:
    assert book.run(LATE, 60).status == "ok"
    ran = book.run("run.wait(120)", 150)
    assert ran.ename == "SkyError" and "task last has failed" in ran.evalue, ran.traceback
    assert "deadline" in ran.evalue
    phases = book.run("run.status()").result
    assert phases == "{'slow': 'succeeded', 'last': 'failed'}"


DEAR = """
from jupyter_sky.workflows.pipelines.run.placing import place_graph
there.run = lambda found: time.sleep(600)
there.set_time_estimator("1s").set_spin_up(0.005)
run = sky.run(dag, name="dear", budget=1.1 * place_graph(dag).usd)  # 66 s of its machine
"""


@pytest.mark.timeout(400)
def test_a_budget_that_is_used_up_stops_what_runs(book: Notebook, cloud: Loopback) -> None:
    ran = book.run(f"{GRAPH}{DEAR}", 60)
    assert ran.status == "ok", ran.traceback
    ran = book.run("run.wait(240)", 260)
    assert ran.ename == "SkyError" and "is used up" in ran.evalue, ran.traceback
    assert book.run("run.status()").result == "{'here': 'succeeded', 'there': 'failed'}"
    wait_until(lambda: not cloud.machines(), "the machine is given back")
