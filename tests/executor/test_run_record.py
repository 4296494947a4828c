"""Cells in the store, as other processes see and stop them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_sky.base.remote import processes
from jupyter_sky.base.store.store import RunRow, Store
from jupyter_sky.execution.clusters.clusters import ClusterRegistry
from jupyter_sky.knowledge.ledger.ledger import Ledger
from tests.conftest import Notebook, wait_until
from tests.store.rows import CLUSTER, GONE, MINE, RUN


@pytest.fixture
def store(data_dir: Path) -> Iterator[Store]:
    opened = Store.open(data_dir)
    yield opened
    opened.close()


def only(store: Store, name: str) -> RunRow:
    (row,) = [run for run in store.runs(unsent=True, limit=None) if run.name == name]
    return row


@pytest.mark.slow
def test_a_cell_that_waits_for_its_cluster_is_seen_stopped_and_not_billed(
    notebook: Notebook, store: Store
) -> None:
    # for this kernel another process launches the cluster, and takes its time over it
    launcher = {"launcher": processes.identity()}
    store.save_cluster(replace(CLUSTER, name="slow", state="starting", connection=launcher))
    content = {"code": "%%sky -c slow --bg held\n1", "silent": False, "allow_stdin": False}
    message = notebook.client.session.msg("execute_request", content)
    message["metadata"]["cellId"] = "cell-1"
    notebook.client.shell_channel.send(message)
    assert notebook.collect(message["header"]["msg_id"]).status == "ok"
    wait_until(lambda: store.runs(status="waiting", unsent=True) != [])
    row = only(store, "held")
    assert (row.stage, row.nodes, row.cell_id, row.cluster) == ("placing", 0, "cell-1", "")
    assert Ledger(store).summary("cell") == Ledger(store).summary("notebook") == []
    store.request_stop(row.run_id, "in the browser")
    wait_until(lambda: only(store, "held").ended is not None)
    assert (only(store, "held").status, only(store, "held").stage) == ("cancelled", "cancelled")
    ran = notebook.run("held.result()")
    assert ran.ename == "SkyCancelled" and ran.evalue == "held was stopped in the browser"
    store.delete_cluster(store.cluster("slow").id)
    assert store.runs() == [] and Ledger(store).summary("cell") == []


@pytest.mark.slow
def test_a_cell_that_runs_is_stopped_by_another_process(notebook: Notebook, store: Store) -> None:
    assert notebook.run("%%sky\nimport time").status == "ok"
    body = "try:\n    time.sleep(60)\nfinally:\n    print('tidied up')"
    sent = notebook.send("%%sky --name long\n" + body)
    wait_until(lambda: bool(store.runs(status="running")))
    store.request_stop(only(store, "long").run_id, "in the browser")
    ran = notebook.collect(sent)
    assert ran.ename == "SkyCancelled" and ran.evalue == "long was stopped in the browser", ran
    assert "tidied up" in ran.stdout
    assert "cancelled" in ran.status_line and "stopped in the browser" in ran.status_line
    row = only(store, "long")
    assert (row.status, row.stage, row.nodes) == ("cancelled", "cancelled", 1)


@pytest.mark.slow
def test_a_cell_that_is_over_at_once_is_written_when_it_is_over(
    notebook: Notebook, store: Store
) -> None:
    assert notebook.run("%%sky\n1").status == "ok"
    seen = "from jupyter_sky.execution.cells import run_monitor\n"
    seen += "from jupyter_sky.execution.sessions import session\n"
    seen += "run_monitor.RECORD_SECONDS = 10.0\n"  # on a busy machine a cell takes its time
    seen += "store, said = session.current().store, []\n"
    seen += "for name in ('begin_run', 'update_run', 'insert_ended_run'):\n"
    seen += "    put = getattr(store, name)\n"
    seen += "    put = lambda row, put=put, name=name: (said.append((name, row.stage)), put(row))\n"
    seen += "    setattr(store, name, put)"
    assert notebook.run(seen).status == "ok"
    notebook.run("%%sky\n1")
    assert notebook.run("print(said)").stdout == "[('insert_ended_run', 'done')]\n"


def test_a_kernel_that_was_killed_while_its_cell_waited_leaves_it_lost(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    waiting = replace(RUN, status="waiting", nodes=0, started=time.time())
    mine = processes.identity()
    store.begin_run(replace(waiting, run_id="here", owner=MINE))
    store.begin_run(replace(waiting, run_id="gone", owner=GONE))
    reused = json.dumps(mine | {"born": mine["born"] - 1000.0})
    store.begin_run(replace(waiting, run_id="another", owner=reused))
    foreign = json.dumps(mine | {"boot": "of another machine"})
    now = time.time()
    store.begin_run(replace(waiting, run_id="far", owner=foreign, last_beat=now))
    store.begin_run(replace(waiting, run_id="silent", owner=foreign, last_beat=now - 600.0))
    ClusterRegistry(store, "a.ipynb", "s").records.close_unsent_runs()
    assert {run.run_id: run.status for run in store.runs(unsent=True)} == {
        "here": "waiting",
        "gone": "lost",
        "another": "lost",  # its PID was given to another process since
        "far": "waiting",
        "silent": "lost",  # nothing has been heard of its kernel on the other machine
    }
    store.close()
