"""Functions in a real notebook: whose output what they print is, errors, progress, the end."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Notebook, processes_of, wait_until

pytestmark = pytest.mark.slow

SETUP = """
import time
import jupyter_sky as sky

class Odd(ValueError):
    pass

@sky.function
def speak(n, wait=0.0):
    for i in range(n):
        print("line", i)
        time.sleep(wait)
    return n

@sky.function
def fail():
    raise Odd("on the node")

pool = sky.up("lab", nodes=2)
"""


@pytest.fixture(scope="module")
def lab(notebook: Notebook) -> Iterator[Notebook]:
    """A notebook with a pool and some functions."""
    assert notebook.run(SETUP).status == "ok"
    yield notebook
    notebook.run("pool.down()")


def test_output_lands_in_the_cell_that_has_sent_the_call(lab: Notebook) -> None:
    first = lab.send("future = speak(5, 0.2) > pool")
    lab.collect(first)
    second = lab.run("time.sleep(1.5); future.result()")
    assert second.result == "5" and "line" not in second.stdout
    late = [m for m in lab.other_messages if m["parent_header"].get("msg_id") == first]
    text = "".join(m["content"]["text"] for m in late if m["header"]["msg_type"] == "stream")
    assert [line[4:] for line in text.splitlines()] == [f"line {i}" for i in range(5)]


def test_a_call_and_a_cell_see_each_other(lab: Notebook) -> None:
    assert lab.run("%%sky -c lab\nimport os; os.environ['MARK'] = 'cell'").status == "ok"
    code = "sky.function(lambda: __import__('os').environ['MARK'])() @ pool"
    assert lab.run(code).result == "['cell', 'cell']"


def test_an_error_shows_the_lines_of_the_node(lab: Notebook) -> None:
    ran = lab.run("fail() >> pool")
    assert (ran.status, ran.ename, ran.evalue.splitlines()[0]) == ("error", "Odd", "on the node")
    assert 'raise Odd("on the node")' in ran.traceback
    assert "in fail() on node" in ran.traceback
    assert "jupyter_sky" not in ran.traceback
    caught = "try:\n    fail() >> pool\nexcept Odd as error:\n    print('caught', error.rank)"
    assert lab.run(caught).stdout.startswith("caught")


def test_errors_hide_internal_traceback(lab: Notebook) -> None:
    ran = lab.run("speak(open('/etc/hostname')) >> pool")
    assert ran.ename == "SkyTransferError" and "argument n of speak" in ran.traceback
    assert "File" not in ran.traceback


def test_progress_of_a_gather_that_lasts(lab: Notebook) -> None:
    code = "_ = sky.gather(*(sky.function(time.sleep)(0.5) for _ in range(10))) >> pool"
    ran = lab.run(code)
    shown = [c["data"]["text/plain"] for c in ran.of("display_data")]
    shown += [c["data"]["text/plain"] for c in ran.of("update_display_data")]
    assert len(ran.of("display_data")) == 1
    assert any("2 running" in text and "of 10 calls done" in text for text in shown)
    assert re.fullmatch(r"☁ done \d\.\d s · 10 calls done · [\d.]+ calls/\w+ on 2 nodes", shown[-1])
    cards = [c["data"]["text/html"] for c in ran.of("update_display_data")]
    assert 'role="progressbar"' in cards[0] and 'role="progressbar"' not in cards[-1]
    stream = "sum(1 for _ in sky.gather(*(sky.function(time.sleep)(0.5) for _ in range(6)), "
    ran = lab.run(stream + "stream=True) >> pool)")
    assert ran.result == "6" and len(ran.of("display_data")) == 1
    assert "☁ done" in ran.of("update_display_data")[-1]["data"]["text/plain"]
    assert not lab.run("_ = sky.gather(*(speak(0) for _ in range(10))) >> pool").of("display_data")


def test_an_interrupt_stops_what_runs(lab: Notebook, tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = (
        "@sky.function\ndef tick(path):\n    for i in range(500):\n"
        "        open(path, 'a').write('x'); time.sleep(0.02)\n"
        f"tick({str(log)!r}) >> pool"
    )
    sent = lab.send(code)
    wait_until(log.exists)
    lab.interrupt()
    ran = lab.collect(sent)
    assert ran.ename == "KeyboardInterrupt"
    time.sleep(0.8)
    size = log.stat().st_size
    time.sleep(0.3)
    assert log.stat().st_size == size


def test_top_level_await(lab: Notebook) -> None:
    code = "import asyncio\nawait asyncio.gather(*(speak(i) > pool for i in range(3)))"
    assert lab.run(code).result == "[0, 1, 2]"


def test_a_pool_of_a_dead_kernel_ends_by_its_lease(fresh: Any) -> None:
    book = fresh()
    assert book.run(SETUP.replace("nodes=2", "nodes=1, ttl=2")).status == "ok"
    assert book.run("future = speak(3, 300) > pool").status == "ok"
    assert processes_of(fresh.data)
    book.kill()
    wait_until(lambda: not processes_of(fresh.data), "the lease has ended the machines")
    book.start()
