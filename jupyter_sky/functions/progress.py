"""How far the calls of a gather are: a line in the notebook, while it takes long enough to ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

FIRST_SECONDS = 1.0
PERIOD_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Progress:
    """How many of some calls are in which state.

    Examples
    --------
    >>> str(Progress(done=3, running=2, failed=1, left=4))
    '3 of 10 calls done, 2 running, 1 failed, 4 left'
    """

    done: int
    running: int
    failed: int
    left: int

    @classmethod
    def of(cls, futures: Sequence[Future[Any]]) -> Progress:
        """Count."""
        ended = [future for future in futures if future.done()]
        failed = sum(bool(f.cancelled() or f.exception()) for f in ended)
        running = sum(future.running() for future in futures)
        left = len(futures) - len(ended) - running
        return cls(len(ended) - failed, running, failed, left)

    def __str__(self) -> str:
        total = self.done + self.running + self.failed + self.left
        failed = f", {self.failed} failed" if self.failed else ""
        return (
            f"{self.done} of {total} calls done, {self.running} running{failed}, {self.left} left"
        )


@contextmanager
def watched(futures: list[Any]) -> Iterator[None]:
    """Show how far some calls are while they are waited for, in a notebook."""
    ended = threading.Event()
    if len(futures) > 1 and (show := _line()) is not None:
        threading.Thread(
            target=_show, args=(futures, show, ended), name="sky-progress", daemon=True
        ).start()
    try:
        yield
    finally:
        ended.set()


def _show(futures: list[Any], show: Any, ended: threading.Event) -> None:
    if ended.wait(FIRST_SECONDS):
        return
    begun = time.monotonic() - FIRST_SECONDS
    while True:
        over = ended.wait(PERIOD_SECONDS)
        show(f"{Progress.of(futures)} ({time.monotonic() - begun:.0f} s)")
        if over:
            return


def _line() -> Any:
    """Return what shows a line that changes, where there is a notebook."""
    from IPython import get_ipython  # type: ignore[attr-defined]

    shell = get_ipython()
    if shell is None or getattr(shell, "kernel", None) is None:
        return None
    from ..widgets.display import for_cell

    display, line = for_cell(shell), _Line()

    def show(text: str) -> None:
        kind = "update_display_data" if line.shown else "display_data"
        line.shown = True
        transient = {"display_id": line.id}
        display.send(kind, {"data": {"text/plain": text}, "metadata": {}, "transient": transient})

    return show


class _Line:
    def __init__(self) -> None:
        import uuid

        self.id, self.shown = uuid.uuid4().hex, False
