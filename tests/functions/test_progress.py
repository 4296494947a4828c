"""Progress of calls: counted as they end, shown as a card, a line, or not at all."""

from __future__ import annotations

import io
import re
import sys
import threading
import time
from typing import Any

import pytest
from bs4 import BeautifulSoup

from jupyter_sky.execution.functions.calls import progress as module
from jupyter_sky.execution.functions.calls.progress import (
    CallCounter,
    GatherProgress,
    ProgressLine,
    ProgressOutput,
    show_progress,
    to_text,
)
from jupyter_sky.execution.functions.calls.tasks import RemoteFuture
from jupyter_sky.interfaces.widgets.progress import to_html


def futures_of(count: int) -> list[RemoteFuture[int]]:
    return [RemoteFuture() for _ in range(count)]


class Nodes:
    """Two nodes that have some calls."""

    def __init__(self, running: int = 0) -> None:
        self.running = running

    def count_running(self) -> tuple[int, int]:
        return self.running, 2


def test_calls_are_counted_as_they_end() -> None:
    futures = futures_of(6)
    futures[0].resolve(1)  # before anybody counts
    tally = CallCounter(futures, lambda: (1, 2), time.monotonic() - 4)
    futures[1].resolve(2)
    futures[2].fail(ValueError())
    futures[3].cancel()
    seen = tally.snapshot()
    assert (seen.done, seen.running, seen.failed, seen.left) == (2, 1, 2, 1)
    assert (seen.total, seen.ended, seen.nodes) == (6, 4, 2)
    assert seen.rate == pytest.approx(1.0, rel=0.1)
    assert seen.seconds_left == pytest.approx(2.0, rel=0.1)
    for future in futures[4:]:
        future.resolve(0)
    last = tally.snapshot("done")
    assert (last.done, last.running, last.left) == (4, 0, 0), "nodes have not told yet"


def test_snapshot_takes_constant_time(monkeypatch) -> None:
    futures = futures_of(10_000)
    tally = CallCounter(futures, lambda: (0, 1), time.monotonic())
    for future in futures[:9_000]:
        future.resolve(0)
    asked: list[str] = []
    for name in ("done", "running", "exception", "cancelled"):
        monkeypatch.setattr(RemoteFuture, name, lambda self, name=name: asked.append(name))
    assert tally.snapshot().done == 9_000 and asked == []


def test_rate_uses_recent_window() -> None:
    futures = futures_of(100)
    tally = CallCounter(futures, lambda: (0, 1), time.monotonic() - 1000)
    futures[0].resolve(0)
    assert tally.snapshot().rate == pytest.approx(1 / 1000, rel=0.1)
    tally._seen.clear()
    tally._seen.append((time.monotonic() - 1, 1))
    for future in futures[1:51]:
        future.resolve(0)
    assert tally.snapshot().rate == pytest.approx(50, rel=0.2)
    assert tally.snapshot("failed").rate == pytest.approx(51 / 1000, rel=0.1), "of the whole"


def test_progress_card_has_bar_then_final_line() -> None:
    now = GatherProgress(3, 2, 1, 4, nodes=2, seconds=8, rate=0.5)
    soup = BeautifulSoup(to_html(now), "html.parser")
    bar = soup.find(role="progressbar")
    assert bar is not None
    values = [bar[f"aria-value{name}"] for name in ("min", "max", "now")]
    assert values == ["0", "10", "4"] and "3 of 10 calls done, 1 failed" in bar["aria-valuetext"]
    assert bar["aria-label"] == "calls"
    widths = [re.search(r"width: ([\d.]+)%", part["style"])[1] for part in bar("span")]  # type: ignore[index]
    assert widths == ["30.00", "10.00", "20.00"]
    fills = {part["style"].partition("background: ")[2] for part in bar("span")}
    assert sum("gradient" in fill for fill in fills) == 2, "told apart by stripes as well"
    for fact in ("2 running on 2 nodes", "4 left", "30 calls/min", "about 0:12 left (est.)"):
        assert fact in soup.text and fact in to_text(now)
    over = GatherProgress(9, 0, 1, 0, nodes=2, seconds=20, rate=0.5, stage="failed")
    end = BeautifulSoup(to_html(over), "html.parser")
    assert end.find(role="progressbar") is None and end.find(role="status") is not None
    assert "9 of 10 calls done, 1 failed" in end.text
    assert "<script" not in to_html(now) + to_html(over)


def test_unknown_rate_gives_no_estimate() -> None:
    text = to_text(GatherProgress(0, 2, 0, 8, nodes=2, seconds=3))
    assert "est." not in text and "calls/" not in text


def gathered(show: list[GatherProgress], monkeypatch, work: Any, count: int = 4) -> None:
    monkeypatch.setattr(module, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(module, "PERIOD_SECONDS", 0.01)
    monkeypatch.setattr(module, "_find_display", lambda: show.append)
    futures = futures_of(count)
    with show_progress(count, Nodes(1).count_running) as sent:
        sent(futures)
        work(futures, show)


def wait_for(show: list[GatherProgress], done: int) -> None:
    until = time.monotonic() + 10
    while not (show and show[-1].done >= done) and time.monotonic() < until:
        time.sleep(0.005)
    assert show and show[-1].done >= done


def test_progress_is_shown_periodically_and_at_the_end(monkeypatch) -> None:
    def work(futures: list[RemoteFuture[int]], show: list[GatherProgress]) -> None:
        for number, future in enumerate(futures):
            future.resolve(number)
            wait_for(show, number + 1)

    show: list[GatherProgress] = []
    gathered(show, monkeypatch, work)
    assert [one.stage for one in show[-2:]] == ["running", "done"]
    assert show[-1].done == 4 and show[-1].running == 0
    count = len(show)
    time.sleep(0.05)
    assert len(show) == count, "after the end nothing is shown any more"
    assert not any(thread.name == "sky-progress" for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("error", "stage"), [(ValueError, "failed"), (KeyboardInterrupt, "interrupted")]
)
def test_final_progress_names_outcome(monkeypatch, error: type[BaseException], stage: str) -> None:
    def work(futures: list[RemoteFuture[int]], show: list[GatherProgress]) -> None:
        futures[0].resolve(0)
        wait_for(show, 1)
        raise error

    show: list[GatherProgress] = []
    with pytest.raises(error):
        gathered(show, monkeypatch, work)
    assert show[-1].stage == stage and show[-1].done == 1
    assert "3 stopped" in to_text(show[-1])


def test_quick_gather_shows_no_progress(monkeypatch) -> None:
    show: list[GatherProgress] = []
    monkeypatch.setattr(module, "_find_display", lambda: show.append)
    with show_progress(3, Nodes().count_running):
        pass
    assert show == []


def test_terminal_progress_overwrites_one_line(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    out = io.StringIO()
    line = ProgressLine(out)
    for done in (1, 2):
        line(GatherProgress(done, 1, 0, 3, nodes=1, seconds=done, rate=1.0))
    line(GatherProgress(5, 0, 0, 0, nodes=1, seconds=5, rate=1.0, stage="done"))
    said = out.getvalue()
    assert said.count("\n") == 1 and said.endswith("\n") and said.count("\r\x1b[K") == 3
    rows = said.split("\r\x1b[K")[1:]
    assert all(len(row.rstrip("\n")) <= 59 for row in rows) and rows[0].endswith("…")


def test_without_a_terminal_or_a_notebook_nothing_is_shown(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert module._find_display() is None


def test_a_kernel_without_the_extension_updates_one_text(monkeypatch) -> None:
    sent: list[tuple[Any, Any, bool]] = []

    def display(data: Any, raw: bool, display_id: str, update: bool) -> None:
        sent.append((data, display_id, update))

    monkeypatch.setattr("IPython.display.display", display)
    output = ProgressOutput()
    running, done = (
        GatherProgress(1, 1, 0, 1, nodes=1, seconds=1),
        GatherProgress(3, 0, 0, 0, nodes=1, seconds=2, stage="done"),
    )
    for progress in (running, running, done):
        output(progress)
    assert [update for _, _, update in sent] == [False, True], "the same text is sent once"
    assert sent[1][0]["text/plain"] == to_text(done) and sent[0][1] == sent[1][1]
