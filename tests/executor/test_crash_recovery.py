"""Recovery from killed processes, of which nothing is left behind."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from jupyter_sky.base.store.store import Store
from jupyter_sky.execution.cells.replay import ALL_SHOWN
from tests.conftest import Notebook, nothing_left, part, processes_of, statuses, wait_until
from tests.executor.ended_clusters import recorded_ends

pytestmark = pytest.mark.slow

COUNT = """%%sky
import time
kept = 41
for number in range({}):
    print('line', number, flush=True)
    time.sleep(0.2)
print('over')
"""


def lines(text: str) -> list[int]:
    """Numbers of the lines that `COUNT` printed."""
    return [int(line.split()[1]) for line in text.splitlines() if line.startswith("line ")]


def journals(data: Path) -> str:
    return "".join(path.read_text() for path in data.glob("local/*/journal/*.jsonl"))


def test_output_of_a_cell_without_kernel_is_shown_once(fresh: Any) -> None:
    book: Notebook = fresh()
    book.send(COUNT.format(14))
    before = lines(book.wait_output("line 7") + book.crash())
    wait_until(lambda: "over" in journals(fresh.data))
    book.start()
    reconnecting = time.time()
    ran = book.run("%%sky\nkept + 1")
    assert ran.result == "42", ran
    assert "reconnected to analysis-" in ran.status_line and "2 variables" in ran.status_line
    after = lines(ran.stdout)
    assert after == list(range(after[0], 14)) and ran.stdout.endswith("over\n")
    assert before == list(range(len(before)))
    assert 0 <= len(before) - after[0] <= 3, "nothing lost, a line or two repeated at most"
    with_store = Store.open(fresh.data)
    replayed, *_ = sorted(with_store.runs(), key=lambda run: run.started)
    assert replayed.status == "ok" and replayed.ended is not None
    assert replayed.ended < reconnecting, "closed at its end, not at the reconnection"
    assert book.run("%%sky\nprint('once')").stdout == "once\n"


def test_a_cell_that_still_runs_is_followed_to_its_end(fresh: Any) -> None:
    book: Notebook = fresh()
    book.send(COUNT.format(25) + "raise ValueError('of old')")
    before = lines(book.wait_output("line 3") + book.crash())
    book.start()
    ran = book.run("%%sky\nprint('new', kept)")
    after = lines(ran.stdout)
    assert after == list(range(after[0], 25)), ran
    assert 0 <= len(before) - after[0] <= 3
    assert ran.status == "ok" and ran.stdout.endswith("over\nnew 41\n")
    assert "ValueError" in ran.stderr and "of old" in ran.stderr
    assert "error" in ran.status_line
    old, *_ = sorted(Store.open(fresh.data).runs(), key=lambda run: run.started)
    assert old.status == "error"


def test_output_below_its_own_cell_is_not_shown_again(fresh: Any) -> None:
    book: Notebook = fresh()
    book.send(COUNT.format(20))
    book.wait_output("line 3")
    book.crash()
    store = Store.open(fresh.data)
    (run,) = store.runs()
    store.record_run_heartbeat(run.run_id, 0.0, ALL_SHOWN)  # as the server does for a page
    book.start()
    ran = book.run("%%sky\nprint('new', kept)")
    assert ran.status == "ok" and ran.stdout == "new 41\n"
    assert "shown at its own place; ended: ok" in ran.status_line
    assert [row.status for row in sorted(store.runs(), key=lambda row: row.started)] == ["ok", "ok"]


def test_cell_that_holds_the_gil_keeps_its_cluster(fresh: Any) -> None:
    """It lets its engine say nothing, and nobody is there to ask."""
    book: Notebook = fresh()
    book.send("%%sky --idle 5s\nsum(range(10**12))")
    wait_until(lambda: any(p.stat().st_size > 1 for p in fresh.data.glob("local/*/*.cell")))
    book.crash()
    time.sleep(7)
    assert recorded_ends(fresh.data) == []
    (engine,) = (
        p
        for p in processes_of(fresh.data)
        if "jupyter_sky.machines.engines.node.engine" in p.cmdline()
    )
    engine.kill()
    wait_until(lambda: recorded_ends(fresh.data) != [], "then the lease runs out")
    nothing_left(fresh.data)


def test_interrupt_while_following_stops_the_followed_cell(fresh: Any) -> None:
    book: Notebook = fresh()
    book.send(COUNT.format(600))
    book.wait_output("line 3")
    book.crash()
    book.start()
    sent = book.send("%%sky\nprint('new')")
    book.wait_output("line 20")
    book.interrupt()
    ran = book.collect(sent)
    assert ran.ename == "KeyboardInterrupt" and "new" not in ran.stdout
    after = book.run("%%sky\nkept")
    assert after.result == "41" and not lines(after.stdout)
    # the latest first; the one that waited never began
    wait_until(lambda: statuses(fresh.data) == ["ok", "interrupted"])


def test_a_restart_keeps_the_cluster_and_its_background_cells(fresh: Any) -> None:
    book: Notebook = fresh()
    assert book.run("%%sky\nkept = 41").status == "ok"
    assert book.run(COUNT.format(15).replace("%%sky", "%%sky --bg job")).status == "ok"
    time.sleep(1.0)
    book.restart()
    ran = book.run("%%sky\nkept + 1")
    assert ran.result == "42" and "reconnected" in ran.status_line
    assert lines(ran.stdout)[-1] == 14 and ran.stdout.endswith("over\n")
    wait_until(lambda: statuses(fresh.data) == ["ok"] * 3)


def test_two_notebooks_share_a_cluster(fresh: Any) -> None:
    one: Notebook = fresh("one.ipynb")
    two: Notebook = fresh("two.ipynb")
    assert one.run("%%sky -c shared --cpus 1\nx = 1; print('of one')").stdout == "of one\n"
    joined = two.run("%%sky -c shared\ny = x + 1; print('of two')")
    assert joined.stdout == "of two\n" and joined.status == "ok"
    assert len(part(fresh.data, "controller")) == 1
    sent = one.send("%%sky -c shared\nfor i in range(300): print('one', i)\ny")
    other = two.run("%%sky -c shared\nfor i in range(300): print('two', i)")
    mine = one.collect(sent)
    assert mine.result == "2" and "two" not in mine.stdout and mine.stdout.count("one") == 300
    assert "one" not in other.stdout and other.stdout.count("two") == 300
    assert not [
        m for m in [*one.other_messages, *two.other_messages] if m["header"]["msg_type"] == "stream"
    ]
    more = two.run("%%sky -c shared --cpus 2\n1")
    assert more.ename == "SkyUsageError"
    assert "shared is up with 1 vCPU " in more.evalue and "%sky down shared" in more.evalue
    one.stop()
    assert two.run("%%sky -c shared\nx + y").result == "3"
    assert two.run("%sky down shared").status == "ok"
    nothing_left(fresh.data)
    # what was too small is in nobody's way once it is gone
    assert two.run("%%sky -c shared --cpus 2\n1 + 1").result == "2"
    part(fresh.data, "supervisor")[0].kill()
    nothing_left(fresh.data)
    time.sleep(0.5)  # until the kernel has seen it
    last = two.run("%%sky -c shared --cpus 1 --nodes 2\n1 + 1")
    assert last.status == "ok", last.evalue


def test_a_cluster_is_few_processes_and_does_not_grow_with_its_cells(fresh: Any) -> None:
    book: Notebook = fresh()
    assert book.run("%%sky --nodes 2 --cpus 1\nprint(1)").status == "ok"
    found = processes_of(fresh.data)
    assert len(found) == 4, [process.cmdline() for process in found]
    (head,) = part(fresh.data, "controller")

    def size() -> tuple[int, int]:
        return head.num_threads(), head.num_fds()

    def kernel_size() -> tuple[int, int]:
        kernel = psutil.Process(book.manager.provisioner.pid)  # type: ignore[union-attr]
        return kernel.num_threads(), kernel.num_fds()

    book.run("%%sky\nprint(1)")
    time.sleep(1.5)  # a journal is closed a second after its cell
    before, kernel_before = size(), kernel_size()
    for number in range(20):
        assert book.run(f"%%sky\nprint({number})").status == "ok"
    time.sleep(1.5)
    assert size() <= before
    assert all(b - a <= 2 for a, b in zip(kernel_before, kernel_size(), strict=True))
    for _ in range(2):  # engines that die leave nothing in the head either
        part(fresh.data, "engine")[0].kill()
        time.sleep(0.2)
        ran = book.run("%%sky\nprint(1)")
        assert ran.status == "ok", ran.evalue
    wait_until(lambda: size() <= before, what="the journal is closed a second after its cell")
    assert len(processes_of(fresh.data)) == 4
