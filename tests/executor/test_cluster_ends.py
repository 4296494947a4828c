"""Ends of clusters: idle ones, those of closed notebooks and of runs without a browser."""

from __future__ import annotations

import json
import queue
import time
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.store.store import Store
from jupyter_sky.machines.engines.client.observer import Observer
from jupyter_sky.machines.engines.wire.controller_requests import Use
from tests.conftest import Notebook, nothing_left, part, statuses, wait_until
from tests.executor.ended_clusters import recorded_ends

pytestmark = pytest.mark.slow


def test_a_cluster_whose_notebook_is_gone_ends_by_itself(fresh: Any) -> None:
    book: Notebook = fresh()
    line = "%%sky --idle 4s\n"
    assert book.run(
        f"{line}kept = 41; import subprocess; subprocess.Popen(['sleep', '600'])"
    ).status
    sent = time.time()
    assert book.run(f"{line}kept").result == "41"
    book.crash()
    killed = time.time()
    nothing_left(fresh.data)
    assert time.time() - sent > 4.0, "the cell was a use"
    (end,) = recorded_ends(fresh.data)
    assert end["reason"] == "idle" and end["time"] - killed < 40
    time.sleep(1.0)
    book.start()
    shown = book.run("%sky status")
    assert "no cluster is up" in shown.result + shown.stdout
    (interval,) = Store.open(fresh.data).intervals()
    assert interval.ended == pytest.approx(end["time"], abs=0.01), "billed to its end, not to now"
    again = book.run(f"{line}kept")
    assert again.ename == "NameError"


def test_an_open_notebook_does_not_keep_an_idle_cluster(fresh: Any) -> None:
    book: Notebook = fresh()
    assert book.run("%%sky --idle 5s\nkept = 41").status == "ok"
    used = time.time()
    while time.time() - used < 3.0:  # small cells that print nothing, and values, are uses
        assert book.run("%%sky\nkept += 0").status == "ok"
        book.run("x = 1")
        assert book.run("%sky put x").status == "ok"
        time.sleep(0.3)
    last = time.time()
    nothing_left(fresh.data)
    (end,) = recorded_ends(fresh.data)
    assert end["reason"] == "idle" and 4.0 < end["time"] - last < 40.0
    warned: list[str] = []

    def told() -> bool:
        warned.extend(status_lines(book))
        return bool(warned) and "ended at" in warned[-1]

    wait_until(told, "the status line does not say that the cluster has ended")
    assert any("nobody uses analysis-" in line and "it ends at" in line for line in warned), warned
    assert "the next cell starts another" in warned[-1]
    after = book.run("%%sky\nkept")
    assert after.ename == "NameError", "it is another cluster"
    assert "has ended (idle); its variables are gone" in after.status_line


def status_lines(book: Notebook) -> list[str]:
    """Return the status lines of ended cells, as messages that come late have changed them."""
    late, book.other_messages = book.other_messages, []
    while True:
        try:
            late.append(book.client.get_iopub_msg(timeout=0.5))
        except queue.Empty:
            break
    kinds = [m for m in late if m["header"]["msg_type"] == "update_display_data"]
    return [m["content"]["data"].get("text/plain", "") for m in kinds]


def test_a_kernel_that_calls_keeps_the_cluster_and_one_that_waits_does_not(fresh: Any) -> None:
    book: Notebook = fresh()
    book.run("import time\nimport jupyter_sky as sky")
    assert book.run("@sky.function\ndef nap(s):\n    time.sleep(s)\n    return s").status == "ok"
    up = "pool = sky.up(cpus=1, idle='3s')\nprint('up', flush=True)"
    sent = book.send(f"{up}\nnap(8) >> pool")  # in one cell: nothing else takes of its idle time
    book.wait_output("up")
    time.sleep(5.0)
    row = Store.open(fresh.data).clusters()[0]
    observer = Observer(row.name, json.loads(Path(row.connection["file"]).read_text()))
    assert observer.ask(Use()).users == ["1 call of analysis.ipynb"]
    observer.close()
    assert book.collect(sent).result == "8"
    left = nothing_left(fresh.data)
    assert left > 1.5
    time.sleep(3.0)  # until this kernel has heard of it
    gone = book.run("nap(0) >> pool")
    assert gone.ename == "SkyClusterLost" and "nobody used it for" in gone.evalue, gone


def test_the_next_cell_says_that_the_old_cluster_has_ended(fresh: Any) -> None:
    book: Notebook = fresh()
    assert book.run("%%sky --idle 5s\nkept = 41").status == "ok"
    book.crash()
    nothing_left(fresh.data)
    book.start()
    ran = book.run("%%sky\n1 + 1")
    assert ran.result == "2"
    assert "has ended (idle); its variables are gone" in ran.status_line
    first, second = Store.open(fresh.data).intervals()
    assert first.ended is not None and second.ended is None


def test_a_headless_run_takes_its_clusters_with_it(fresh: Any) -> None:
    book: Notebook = fresh(None)
    assert book.run("%%sky\n1").status == "ok"
    assert part(fresh.data, "engine")
    book.stop()
    nothing_left(fresh.data)
    (interval,) = Store.open(fresh.data).intervals()
    assert interval.ended is not None and statuses(fresh.data) == ["ok"]


def test_a_headless_run_keeps_its_clusters_when_told_to(fresh: Any) -> None:
    book: Notebook = fresh(None, SKY_KEEP_CLUSTERS="1")
    assert book.run("%%sky\n1").status == "ok"
    book.stop()
    assert statuses(fresh.data) == ["ok"]
    time.sleep(1.0)
    assert part(fresh.data, "engine")
