"""Pace of displays and widget messages."""

from __future__ import annotations

import time

import pytest

from jupyter_sky.machines.engines.node.output_pacer import (
    MESSAGE_BURST,
    MESSAGES_PER_SECOND,
    OutputPacer,
)
from tests.conftest import Notebook


def seconds(pacer: OutputPacer, count: int) -> float:
    """Return the time that some messages take."""
    begun = time.monotonic()
    for _ in range(count):
        pacer.wait()
    return time.monotonic() - begun


def test_burst_goes_out_at_once_and_the_rest_at_the_rate() -> None:
    pacer = OutputPacer(rate=1000, burst=100)
    assert seconds(pacer, 100) < 0.05
    assert seconds(pacer, 200) > 0.15


def test_burst_is_available_again_after_a_pause() -> None:
    pacer = OutputPacer(rate=1000, burst=100)
    seconds(pacer, 100)
    time.sleep(0.12)
    assert seconds(pacer, 100) < 0.05


def test_large_amount_takes_as_long_as_many_small_ones() -> None:
    pacer, begun = OutputPacer(rate=10_000, burst=1000), time.monotonic()
    pacer.wait(2000)
    assert time.monotonic() - begun > 0.09


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "from IPython.display import display\nwhile True: display(1)",
        "from ipywidgets import IntText\nbox = IntText()\nwhile True: box.value += 1",
    ],
)
def test_interrupt_of_endless_displays_is_not_behind_a_backlog(
    notebook: Notebook, code: str
) -> None:
    assert notebook.run("%%sky\npass").status == "ok"
    begun = time.monotonic()
    sent = notebook.send(f"%%sky\n{code}")
    time.sleep(4.0)
    notebook.interrupt()
    ran = notebook.collect(sent)
    assert ran.ename == "KeyboardInterrupt"
    assert (
        len(ran.messages) < MESSAGE_BURST + MESSAGES_PER_SECOND * (time.monotonic() - begun) * 1.05
    )
    assert notebook.run("%%sky\n1 + 1").result == "2"


@pytest.mark.slow
def test_process_that_floods_and_outlives_its_cell_leaves_the_cluster_usable(
    notebook: Notebook,
) -> None:
    started = "import subprocess\nflood = subprocess.Popen(['yes'])\nprint('begun')"
    assert notebook.run(f"%%sky\n{started}").status == "ok"
    time.sleep(6.0)
    asked = notebook.run("%%sky\nimport os, psutil\npsutil.Process().memory_info().rss / 1e6")
    assert asked.status == "ok"
    assert float(asked.result) < 300
    assert notebook.run("%%sky\nflood.kill()\nflood.wait()").status == "ok"
    ran = notebook.run("%%sky\n1 + 1")
    assert ran.result == "2"
