"""What survives a death, and that nothing is left behind."""

from __future__ import annotations

import json
import os
import queue
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from jupyter_sky.engines.client.observer import Observer
from jupyter_sky.executor.replay import ALL_SHOWN
from jupyter_sky.store.store import Store
from tests.conftest import Notebook, nothing_left, part, processes_of, statuses, wait_until

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


def ended(data: Path) -> list[dict[str, Any]]:
    """What clusters that have ended say of it, the latest last."""
    found = [json.loads(path.read_text()) for path in data.glob("local/*/ended.json")]
    return sorted(found, key=lambda record: record["time"])


# -- the notebook's kernel dies -------------------------------------------------------------


def test_what_a_cell_printed_while_no_kernel_lived_is_shown_once(fresh: Any) -> None:
    book: Notebook = fresh()
    book.send(COUNT.format(14))
    before = lines(book.wait_output("line 7") + book.crash())
    wait_until(lambda: "over" in journals(fresh.data))
    finished = time.time()
    book.start()
    ran = book.run("%%sky\nkept + 1")
    assert ran.result == "42", ran
    assert "reconnected to analysis-" in ran.status_line and "2 variables" in ran.status_line
    assert ran.seconds < 5
    after = lines(ran.stdout)
    assert after == list(range(after[0], 14)) and ran.stdout.endswith("over\n")
    assert before == list(range(len(before)))
    assert 0 <= len(before) - after[0] <= 3, "nothing lost, a line or two repeated at most"
    with_store = Store.open(fresh.data)
    replayed, *_ = sorted(with_store.runs(), key=lambda run: run.started)
    assert replayed.status == "ok" and replayed.ended is not None
    assert abs(replayed.ended - finished) < 1.0, "closed at its end, not at the reconnection"
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


def test_what_a_page_shows_below_its_own_cell_is_not_shown_again(fresh: Any) -> None:
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


def test_a_cell_that_keeps_the_interpreter_keeps_its_cluster(fresh: Any) -> None:
    """It lets its engine say nothing, and nobody is there to ask."""
    book: Notebook = fresh()
    book.send("%%sky --idle 2s\nsum(range(10**12))")
    wait_until(lambda: any(p.stat().st_size > 1 for p in fresh.data.glob("local/*/*.cell")))
    book.crash()
    time.sleep(4)
    assert ended(fresh.data) == []
    (engine,) = (
        p for p in processes_of(fresh.data) if "jupyter_sky.engines.node.engine" in p.cmdline()
    )
    engine.kill()
    wait_until(lambda: ended(fresh.data) != [], 8, "then the lease runs out")
    nothing_left(fresh.data)


def test_an_interrupt_while_following_stops_what_is_followed(fresh: Any) -> None:
    book: Notebook = fresh()
    book.send(COUNT.format(600))
    book.wait_output("line 3")
    book.crash()
    book.start()
    sent = book.send("%%sky\nprint('new')")
    book.wait_output("line 20")
    book.interrupt()
    ran = book.collect(sent, 10)
    assert ran.ename == "KeyboardInterrupt" and "new" not in ran.stdout
    after = book.run("%%sky\nkept", 10)
    assert after.result == "41" and not lines(after.stdout)
    # the latest first; the one that waited never began
    wait_until(lambda: statuses(fresh.data) == ["ok", "interrupted"], 5)


def test_a_restart_keeps_the_cluster_and_its_background_cells(fresh: Any) -> None:
    book: Notebook = fresh()
    assert book.run("%%sky\nkept = 41").status == "ok"
    assert book.run(COUNT.format(15).replace("%%sky", "%%sky --bg job")).status == "ok"
    time.sleep(1.0)
    book.restart()
    ran = book.run("%%sky\nkept + 1")
    assert ran.result == "42" and "reconnected" in ran.status_line
    assert lines(ran.stdout)[-1] == 14 and ran.stdout.endswith("over\n")
    wait_until(lambda: statuses(fresh.data) == ["ok"] * 3, 5)


# -- the lease ------------------------------------------------------------------------------


def test_a_cluster_whose_notebook_is_gone_ends_by_itself(fresh: Any) -> None:
    book: Notebook = fresh()
    line = "%%sky --idle 2s\n"
    assert book.run(
        f"{line}kept = 41; import subprocess; subprocess.Popen(['sleep', '600'])"
    ).status
    sent = time.time()
    assert book.run(f"{line}kept").result == "41"
    book.crash()
    killed = time.time()
    nothing_left(fresh.data, 8)
    # of a kernel that is killed the last use known is that of its last heartbeat, a quarter earlier
    assert time.time() - sent > 1.4
    (end,) = ended(fresh.data)
    assert end["reason"] == "idle" and end["time"] - killed < 6
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
    assert nothing_left(fresh.data, 12) > 3.0
    (end,) = ended(fresh.data)
    assert end["reason"] == "idle" and 4.0 < end["time"] - last < 9.0
    warned: list[str] = []

    def told() -> bool:
        warned.extend(status_lines(book))
        return bool(warned) and "ended at" in warned[-1]

    wait_until(told, 20, "the status line does not say that the cluster has ended")
    assert any("nobody uses analysis-" in line and "it ends at" in line for line in warned), warned
    assert "the next cell starts another" in warned[-1]
    after = book.run("%%sky\nkept")
    assert after.ename == "NameError", "it is another cluster"
    assert "has ended (idle); its variables are gone" in after.status_line


def status_lines(book: Notebook) -> list[str]:
    """What the status line of cells that have ended says now, by messages that come late."""
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
    assert book.run("pool = sky.up(cpus=1, idle='3s')").status == "ok"
    assert book.run("@sky.function\ndef nap(s):\n    time.sleep(s)\n    return s").status == "ok"
    sent = book.send("import time; (nap(8) >> pool)")
    time.sleep(5.0)
    row = Store.open(fresh.data).clusters()[0]
    observer = Observer(row.name, json.loads(Path(row.connection["file"]).read_text()))
    assert observer.ask("use")["users"] == ["1 call of analysis.ipynb"]
    observer.close()
    assert book.collect(sent, 20).result == "8"
    left = nothing_left(fresh.data, 9)
    assert left > 1.5
    time.sleep(3.0)  # until this kernel has heard of it
    gone = book.run("nap(0) >> pool")
    assert gone.ename == "SkyClusterLost" and "nobody used it for" in gone.evalue, gone


def test_the_next_cell_says_that_the_old_cluster_has_ended(fresh: Any) -> None:
    book: Notebook = fresh()
    assert book.run("%%sky --idle 2s\nkept = 41").status == "ok"
    book.crash()
    nothing_left(fresh.data, 8)
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


# -- parts of the cluster die ---------------------------------------------------------------


def test_an_engine_that_dies_fails_its_cell_and_is_replaced(fresh: Any) -> None:
    book: Notebook = fresh()
    sent = book.send(
        "%%sky\nimport subprocess, time\nsubprocess.Popen(['sleep', '613'])\n"
        "subprocess.Popen(['sleep', '613'], start_new_session=True)\n"
        "print('begun', flush=True)\ntime.sleep(60)"
    )
    book.wait_output("begun")
    part(fresh.data, "engine")[0].kill()
    ran = book.collect(sent, 5)
    assert (ran.status, ran.ename) == ("error", "SkyEngineLost")
    assert "SIGKILL" in ran.evalue and "new engine" in ran.evalue
    assert ran.status_line.startswith("☁ failed")
    assert book.run("%%sky\n1 + 1").result == "2"
    assert not [p for p in processes_of(fresh.data) if p.name() == "sleep"]
    # while idle, and a crash of its own
    part(fresh.data, "engine")[0].kill()
    time.sleep(0.2)
    again = book.run("%%sky\n2 + 2")
    assert again.result == "4", again.evalue
    ran = book.run("%%sky\nimport os; os._exit(7)", 8)
    assert ran.ename == "SkyEngineLost" and "exit code 7" in ran.evalue
    # one that is frozen is as good as dead
    sent = book.send("%%sky\nimport time\nprint('begun', flush=True)\ntime.sleep(60)")
    book.wait_output("begun")
    part(fresh.data, "engine")[0].suspend()
    ran = book.collect(sent, 15)
    assert ran.ename == "SkyEngineLost" and "has not answered" in ran.evalue
    assert book.run("%%sky\n3 + 3").result == "6"


def test_one_of_two_engines_dies(fresh: Any) -> None:
    book: Notebook = fresh()
    sent = book.send(
        "%%sky --nodes 2\nimport os, subprocess, time\n"
        "subprocess.Popen(['sleep', '613'], start_new_session=True)\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(613)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "print('begun', flush=True)\ntime.sleep(60)"
    )
    wait_until(lambda: len(part(fresh.data, "engine")) == 4, 30, "two, and a copy of each")
    time.sleep(1.0)
    first = [process for process in part(fresh.data, "engine") if "0" in process.cmdline()]
    born = min(first, key=psutil.Process.create_time)
    assert born.parent() in part(fresh.data, "controller")
    born.kill()
    begun = time.monotonic()
    ran = book.collect(sent, 12)
    assert ran.ename == "SkyEngineLost", ran
    assert not psutil.wait_procs(first, 3)[1], "a mere copy of it is gone, too"
    sleeping = [p for p in processes_of(fresh.data) if p.name() == "sleep"]
    assert len(sleeping) == 1, "what the other one has started goes on"
    assert time.monotonic() - begun < 5
    assert book.run("%%sky\n1 + 1").ename == ""


def test_a_head_that_dies_takes_all_with_it_and_the_next_cell_gets_another(fresh: Any) -> None:
    book: Notebook = fresh()
    sent = book.send("%%sky\nimport time\nprint('begun', flush=True)\ntime.sleep(60)")
    book.wait_output("begun")
    part(fresh.data, "controller")[0].kill()
    ran = book.collect(sent, 12)
    assert (ran.status, ran.ename) == ("error", "SkyClusterLost")
    assert "SIGKILL" in ran.evalue
    nothing_left(fresh.data)
    again = book.run("%%sky\n1 + 1")
    assert again.result == "2" and "its variables are gone" in again.status_line


def test_death_of_the_supervisor_ends_the_cluster(fresh: Any) -> None:
    book: Notebook = fresh()
    assert (
        book.run(
            "%%sky\nimport subprocess\n"
            "subprocess.Popen(['setsid', '-f', 'sleep', '614']); import time; time.sleep(0.5)"
        ).status
        == "ok"
    )
    assert [p for p in processes_of(fresh.data) if p.name() == "sleep"]
    part(fresh.data, "supervisor")[0].kill()
    nothing_left(fresh.data)
    shown = book.run("%sky status")
    assert "no cluster is up" in shown.result + shown.stdout
    (interval,) = Store.open(fresh.data).intervals()
    assert interval.ended is not None and time.time() - interval.ended < 10
    assert "supervisor" in ended(fresh.data)[0]["reason"]


def test_a_frozen_head_is_lost_in_time_and_can_be_cleaned_up(fresh: Any) -> None:
    book: Notebook = fresh()
    sent = book.send("%%sky\nimport time\nprint('begun', flush=True)\ntime.sleep(100)")
    book.wait_output("begun")
    part(fresh.data, "controller")[0].suspend()
    ran = book.collect(sent, 30)
    assert (ran.status, ran.ename) == ("error", "SkyClusterLost")
    assert "said nothing" in ran.evalue and "%sky down" in ran.evalue
    down = book.run("%sky down all")
    assert "ended: analysis-" in down.stdout
    nothing_left(fresh.data, 1)


def test_a_cell_in_the_background_learns_that_its_cluster_was_ended(fresh: Any) -> None:
    book: Notebook = fresh()
    assert book.run("%%sky --bg job\nimport time\ntime.sleep(60)").status == "ok"
    time.sleep(3.0)
    assert "ended" in book.run("%sky down all").stdout
    assert book.run("job.result(5)").ename == "SkyClusterLost"
    assert book.run("job.status").result == "'failed'"


# -- starting -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broken", "nodes"), [("node.engine", 1), ("node.engine", 2), ("controller.controller", 1)]
)
def test_what_cannot_start_says_what_its_log_says(
    fresh: Any, tmp_path: Path, broken: str, nodes: int
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "def broken(*_):\n"
        "    print('ImportError: libbroken.so.3 is not here', file=sys.stderr, flush=True)\n"
        "    os._exit(7)\n"
        f"if 'jupyter_sky.engines.{broken}' in sys.orig_argv:\n"
        "    broken()\n"
        "from jupyter_sky.engines.node import engine_process\n"
        # engines that are forked
        f"engine_process._set_process_title = broken if {broken == 'node.engine'} else None\n"
    )
    paths = f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"
    book: Notebook = fresh(PYTHONPATH=paths)
    ran = book.run(f"%%sky --nodes {nodes}\n1", 20)
    assert ran.ename == "SkyClusterLost"
    assert "exit code 7" in ran.evalue and "libbroken.so.3 is not here" in ran.evalue
    nothing_left(fresh.data)
    assert Store.open(fresh.data).clusters() == []


def test_an_interrupted_start_leaves_nothing(fresh: Any) -> None:
    book: Notebook = fresh()
    for delay in (0.2, 0.3, 0.4, 0.45, 0.5, 0.6, 0.8, 1.1):
        sent = book.send("%%sky\n1 + 1")
        time.sleep(delay)
        book.interrupt()
        ran = book.collect(sent, 15)
        if ran.status == "ok":
            break  # it was up before
        assert ran.ename == "KeyboardInterrupt", ran
        nothing_left(fresh.data, 3)
        assert Store.open(fresh.data).clusters() == []
    assert book.run("%%sky\n1 + 1").result == "2"
    assert [row.state for row in Store.open(fresh.data).clusters()] == ["up"]


# -- several notebooks, several names ---------------------------------------------------------


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
    assert "shared is up with 1 vCPUs" in more.evalue and "%sky down shared" in more.evalue
    one.stop()
    assert two.run("%%sky -c shared\nx + y").result == "3"
    assert two.run("%sky down shared").status == "ok"
    nothing_left(fresh.data, 1)
    # what was too small is in nobody's way once it is gone
    assert two.run("%%sky -c shared --cpus 2\n1 + 1").result == "2"
    part(fresh.data, "supervisor")[0].kill()
    nothing_left(fresh.data)
    time.sleep(0.5)  # until the kernel has seen it
    last = two.run("%%sky -c shared --cpus 1 --nodes 2\n1 + 1")
    assert last.status == "ok", last.evalue


# -- growth ---------------------------------------------------------------------------------


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
