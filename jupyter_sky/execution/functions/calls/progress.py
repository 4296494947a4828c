"""Progress of gathers: counts of calls, shown while they are waited for."""

from __future__ import annotations

import shutil
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TextIO

from jupyter_sky.base.requests.quantities import format_elapsed
from jupyter_sky.base.translation import _

FIRST_SECONDS = 1.0
"""Delay before progress is shown: shorter waits show none."""
PERIOD_SECONDS = 0.5
_WINDOW = 40  # looks back, of which the newest rate is made: 20 s

Stage = Literal["running", "done", "failed", "interrupted"]
Show = Callable[["GatherProgress"], None]


@dataclass(frozen=True, slots=True)
class GatherProgress:
    """Numbers of calls by state.

    Attributes
    ----------
    done, running, failed, left : int
        Calls that gave a result, that nodes have now, that raised or were cancelled, that wait.
    nodes : int
        Nodes that take calls.
    seconds : float
        Since they were sent.
    rate : float, optional
        Calls that end in a second, lately; None before any has.
    stage : str
        ``running`` while they are waited for, then how that ended.

    Examples
    --------
    >>> now = GatherProgress(done=3, running=2, failed=1, left=4, nodes=2, seconds=8, rate=0.5)
    >>> now.total, now.ended, now.seconds_left
    (10, 4, 12.0)
    """

    done: int
    running: int
    failed: int
    left: int
    nodes: int = 0
    seconds: float = 0.0
    rate: float | None = None
    stage: Stage = "running"

    @property
    def total(self) -> int:
        """Number of all calls."""
        return self.done + self.running + self.failed + self.left

    @property
    def ended(self) -> int:
        """Number of ended calls."""
        return self.done + self.failed

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until all have ended; None if unknown."""
        return (self.total - self.ended) / self.rate if self.rate else None


class Counts(Protocol):
    """Numbers of calls that gave a result, and that raised or were cancelled."""

    done: int
    failed: int


class CallCounter:
    """Counter of calls by state, with snapshots in constant time.

    Parameters
    ----------
    futures
        Those that were sent; others are added.
    at_work
        How many of them nodes have now, and how many nodes there are.
    begun
        When they were sent, by `time.monotonic`.
    total
        Number of all calls, if more will be sent.
    counts
        Calls that count themselves.
    """

    def __init__(
        self,
        futures: Sequence[Future[Any]],
        at_work: Callable[[], tuple[int, int]],
        begun: float,
        total: int | None = None,
        counts: Counts | None = None,
    ) -> None:
        self._counts = counts
        self.total, self.begun = len(futures) if total is None else total, begun
        self._at_work = at_work
        self._done = self._failed = 0
        self._lock = threading.Lock()
        self._seen: deque[tuple[float, int]] = deque([(begun, 0)], maxlen=_WINDOW)
        self.add(futures)

    def add(self, futures: Sequence[Future[Any]]) -> None:
        """Count calls that have been sent; their futures are not kept."""
        for future in futures:
            future.add_done_callback(self._count)

    def _count(self, future: Future[Any]) -> None:
        failed = future.cancelled() or future.exception() is not None
        with self._lock:
            self._failed += failed
            self._done += not failed

    def snapshot(self, stage: Stage = "running") -> GatherProgress:
        """Return the current progress."""
        running, nodes = self._at_work()
        now = time.monotonic()
        with self._lock:
            done, failed = self._done, self._failed
        if self._counts is not None:
            done, failed = done + self._counts.done, failed + self._counts.failed
        ended = done + failed
        running = min(running, self.total - ended)
        (before, had), seconds = self._seen[0], now - self.begun
        if stage != "running":  # at the end it is the rate of the whole
            before, had = self.begun, 0
        rate = (ended - had) / (now - before) if ended > had and now > before else None
        if rate is None and ended:
            rate = ended / seconds
        self._seen.append((now, ended))
        left = self.total - ended - running
        return GatherProgress(done, running, failed, left, nodes, seconds, rate, stage)


@contextmanager
def show_progress(
    total: int, at_work: Callable[[], tuple[int, int]], counts: Counts | None = None
) -> Iterator[Callable[[Sequence[Future[Any]]], None]]:
    """Show the progress of a gather; yield a function that takes the futures that are sent.

    `at_work` returns how many of the calls nodes have, and the number of nodes. Calls that count
    themselves are given as `counts` instead.
    """
    show = _find_display() if total > 1 else None
    if show is None:
        yield lambda futures: None
        return
    counter = CallCounter((), at_work, time.monotonic(), total, counts)
    watch = _ProgressThread(counter, show)
    try:
        yield counter.add
    except (KeyboardInterrupt, GeneratorExit):
        watch.end("interrupted")
        raise
    except BaseException:
        watch.end("failed")
        raise
    else:
        watch.end("done")


class _ProgressThread:
    """Thread that shows the progress periodically."""

    def __init__(self, counter: CallCounter, show: Show) -> None:
        self._counter, self._show = counter, show
        self._stopped = threading.Event()
        self._stage: Stage = "running"
        self._thread = threading.Thread(target=self._run, name="sky-progress", daemon=True)
        self._thread.start()

    def end(self, stage: Stage) -> None:
        """Show the final state, if anything was shown."""
        self._stage = stage
        self._stopped.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        if self._stopped.wait(FIRST_SECONDS):
            return
        while True:
            is_over = self._stopped.wait(PERIOD_SECONDS)
            self._show(self._counter.snapshot(self._stage))
            if is_over:
                return


def show_in_notebook(card: Callable[[Any], Show]) -> None:
    """Let a front end draw progress in notebooks.

    Parameters
    ----------
    card
        Returns the display for a cell of the IPython shell.
    """
    global _card
    _card = card


_card: Callable[[Any], Show] | None = None


def _find_display() -> Show | None:
    """Return a display of progress in a notebook or a terminal, None elsewhere."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and getattr(shell, "kernel", None) is not None:
        return _card(shell) if _card is not None else ProgressOutput()
    return ProgressLine(sys.stderr) if sys.stderr is not None and sys.stderr.isatty() else None


# -- Progress of calls as text: one line, rewritten in a terminal, updated in a notebook ----------


def to_text(progress: GatherProgress) -> str:
    """Return the progress in a line.

    Examples
    --------
    >>> from jupyter_sky.execution.functions.calls.progress import GatherProgress
    >>> to_text(GatherProgress(3, 2, 1, 4, nodes=2, seconds=8, rate=0.5))
    '☁ running 8.0 s · 3 of 10 calls done, 1 failed · 2 running on 2 nodes · 4 left · 30 calls/min \
· about 0:12 left (est.)'
    >>> to_text(GatherProgress(10, 0, 0, 0, nodes=2, seconds=20, rate=0.5, stage="done"))
    '☁ done 0:20 · 10 calls done · 30 calls/min on 2 nodes'
    """
    return " · ".join(
        [f"☁ {progress.stage} {format_elapsed(progress.seconds)}", *progress_parts(progress)]
    )


def progress_parts(progress: GatherProgress) -> list[str]:
    """Return the parts after stage and time."""
    total, whole = f"{progress.total:,}", progress.done == progress.total
    failed = _(", {failed:,} failed").format(failed=progress.failed) if progress.failed else ""
    counted = (
        _("{total} calls").format(total=total)
        if whole
        else _("{done:,} of {total} calls").format(done=progress.done, total=total)
    )
    parts = [_("{counted} done{failed}").format(counted=counted, failed=failed)]
    if progress.stage != "running":
        left = progress.running + progress.left
        parts += [_("{left:,} stopped").format(left=left)] if left else []
        pace = format_pace(progress.rate)
        return parts + ([f"{pace}{_on(progress.nodes)}"] if pace and progress.done else [])
    parts.append(
        _("{running:,} running{nodes}").format(running=progress.running, nodes=_on(progress.nodes))
    )
    parts += [_("{left:,} left").format(left=progress.left)] if progress.left else []
    parts += [format_pace(progress.rate)] if progress.rate else []
    if progress.seconds_left is not None:
        parts.append(f"about {format_elapsed(max(1.0, progress.seconds_left))} left (est.)")
    return parts


def format_pace(rate: float | None) -> str:
    """Format a rate [calls/s] per second, or per minute or hour if it is slow.

    Examples
    --------
    >>> [format_pace(rate) for rate in (1234.5, 2.5, 0.5, 0.005, None)]
    ['1,234 calls/s', '2.5 calls/s', '30 calls/min', '18 calls/h', '']
    """
    if not rate:
        return ""
    units = (("s", rate), ("min", 60 * rate), ("h", 3600 * rate))
    unit, pace = next((pair for pair in units if pair[1] >= 1), units[-1])
    return (
        _("{pace:,.0f} calls/{unit}").format(pace=pace, unit=unit)
        if pace >= 10
        else _("{pace:.2g} calls/{unit}").format(pace=pace, unit=unit)
    )


def _on(nodes: int) -> str:
    return f" on {nodes} node{'s' if nodes > 1 else ''}" if nodes else ""


class ProgressLine:
    """Progress in one line of a terminal, rewritten until the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, progress: GatherProgress) -> None:
        """Rewrite the line; end it after the last progress."""
        text, width = to_text(progress), shutil.get_terminal_size().columns - 1
        text = text if len(text) <= width else f"{text[: width - 1]}…"
        end = "" if progress.stage == "running" else "\n"
        self._stream.write(f"\r\x1b[K{text}{end}")
        self._stream.flush()


class ProgressOutput:
    """Progress as text in the outputs of a cell, for kernels without the extension."""

    def __init__(self) -> None:
        self._id, self._shown = uuid.uuid4().hex, ""

    def __call__(self, progress: GatherProgress) -> None:
        """Show or replace the line."""
        from IPython.display import display

        text = to_text(progress)
        if text != self._shown:
            data, update = {"text/plain": text}, bool(self._shown)
            self._shown = text
            display(data, raw=True, display_id=self._id, update=update)
