"""Faults of a run's surroundings: a full store, two kernels, hash seeds, secrets, lost machines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from jupyter_sky.base.errors import SkyStoreError
from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask
from jupyter_sky.workflows.pipelines.run.actions import Action, Follow
from jupyter_sky.workflows.pipelines.run.controller import Controller
from jupyter_sky.workflows.pipelines.run.journal import RunJournal
from jupyter_sky.workflows.pipelines.run.state import Event, Kind
from tests.conftest import Notebook, wait_until
from tests.runs.pretended_world import Clock, PretendedWorld


def test_nothing_is_launched_where_the_disk_is_full(tmp_path: Path) -> None:
    journal = RunJournal(tmp_path / "runs.db")
    world = PretendedWorld(tmp_path / "world.db", clusters={"a": "pool" * 50_000})
    journal.add("r", RunGraph([RunTask("a")]), {}, 0.0)
    connection = journal._db._db  # a limit of pages holds for one connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 4}")
    with pytest.raises(SkyStoreError, match="full"):
        asyncio.run(Controller(journal, "r", world, Clock()).run())
    assert world.plans == [0] and world.launches() == 0
    connection.execute("PRAGMA max_page_count = 100000")
    asyncio.run(Controller(journal, "r", world, Clock()).run())
    assert world.attempts() == {"a": 1} and world.clusters_up() == []


class LostAfterwards(PretendedWorld):
    """A world whose cluster is lost once the result of a task is stored, before that is told."""

    async def perform(self, action: Action, task: RunTask | None) -> Sequence[Event]:
        events = await super().perform(action, task)
        if isinstance(action, Follow) and action.task == "a":
            self.db.execute("UPDATE cluster SET is_up = 0 WHERE token = ?", (action.token,))
            return [Event(Kind.CLUSTER_LOST, action.cluster, data={"reason": "preempted"})]
        return events


def test_a_machine_lost_behind_its_result_costs_no_attempt(tmp_path: Path) -> None:
    journal, world = RunJournal(tmp_path / "runs.db"), LostAfterwards(tmp_path / "world.db")
    journal.add("r", RunGraph([RunTask("a"), RunTask("b", ("a",))]), {}, 0.0)
    state = asyncio.run(Controller(journal, "r", world, Clock()).run())
    assert [str(task.phase) for task in state.tasks.values()] == ["succeeded", "succeeded"]
    assert world.attempts() == {"a": 1, "b": 1} and world.launches() == 2


@pytest.fixture
def book(fresh: Any) -> Iterator[Notebook]:
    made = fresh()
    assert made.run("import jupyter_sky as sky, os, resource").status == "ok"
    yield made
    made.run("%sky down --all --yes")


@pytest.mark.slow
def test_a_value_that_the_store_cannot_take_fails_its_task(book: Notebook) -> None:
    ran = book.run("""
with sky.Dag() as dag:
    large, small = sky.Task("large", run=lambda: os.urandom(60_000_000)), sky.Task("small", run=int)
    large >> sky.Task("after", run=len)
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000_000, limits[1]))
try:
    run = sky.run(dag)
    run.wait(100)
finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
""")
    assert "task large has failed" in ran.evalue and "File too large" in ran.evalue, ran.evalue
    phases = book.run("[run.status()[name] for name in ('large', 'small', 'after')]").result
    assert phases == "['failed', 'succeeded', 'skipped']"
    assert book.run("sky.status().rows").result == "()", "its machine is given back"


KILLED = """
import jupyter_sky as sky, os, signal
from jupyter_sky.workflows.pipelines.model.kept_results import KeptResults

def work():
    with open({notes!r}, "a") as file:
        file.write("ran ")
    return bytes(10_000)

write = KeptResults.write_files
def write_and_die(kept, contents):
    write(kept, contents)
    if any(len(each) > 10_000 for each in contents):
        os.kill(os.getpid(), signal.SIGKILL)

KeptResults.write_files = write_and_die
with sky.Dag() as dag:
    sky.Task("work", run=work) >> sky.Task("size", run=len)
run = sky.run(dag, name="cut")
"""


@pytest.mark.slow
def test_a_value_whose_process_is_killed_before_it_is_noted_is_made_once(
    fresh: Any, tmp_path: Path
) -> None:
    notes, book = tmp_path / "notes", fresh()
    book.run(KILLED.format(notes=str(notes)))
    kernel = psutil.Process(book.manager.provisioner.pid)
    wait_until(lambda: not kernel.is_running() or kernel.status() == psutil.STATUS_ZOMBIE)
    assert any((fresh.data / "kept-results" / "files").glob("*/*")), "the value is stored"
    book.crash()
    book.start()
    ran = book.run("import jupyter_sky as sky\nsky.resume('cut').wait(100).result('size')", 120)
    assert ran.result == "10000", ran.traceback
    assert notes.read_text() == "ran "
    assert book.run("sky.status().rows").result == "()", "its machine is given back"


@pytest.mark.slow
def test_values_of_a_secret_are_stored_nowhere(fresh: Any) -> None:
    book = fresh(SKY_TEST_TOKEN="hidden-as-Nz7wq1")
    ran = book.run("""
import jupyter_sky as sky
with sky.Dag() as dag:
    one = sky.Task("one", run="test ${#SKY_TEST_TOKEN} = 16")
    one.set_environment(secrets=["SKY_TEST_TOKEN"])
run = sky.run(dag).wait(100)
""")
    assert ran.status == "ok", ran.traceback
    data: Path = fresh.data
    files = [path for path in data.rglob("*") if path.is_file() and "packages" not in path.parts]
    assert any(path.name == "runs.db" for path in files)
    found = [path for path in files if b"hidden-as-Nz7wq1" in path.read_bytes()]
    assert found == []


SETS = """
import jupyter_sky as sky
with sky.Dag("sets") as dag:
    words = sky.Task("words", run=lambda: {"fig", "date", "cherry", "banana", "apple"})
    words >> sky.Task("joined", run=lambda found: " ".join(sorted(found)))
run = sky.run(dag).wait(100)
"""


@pytest.mark.slow
def test_a_set_is_the_same_value_under_each_hash_seed(fresh: Any) -> None:
    for seed in ("1", "2", "3"):
        book = fresh(f"seed{seed}.ipynb", PYTHONHASHSEED=seed)
        ran = book.run(f"{SETS}run.result('joined')")
        assert ran.result == "'apple banana cherry date fig'", ran.traceback
        if seed != "1":
            assert book.run("run.why('words')").result == "'its result was kept'"
        book.stop()
