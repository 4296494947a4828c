"""Interrupts at chosen steps of code, as a user presses them at any moment."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def interrupt_at(
    step: int,
    is_traced: Callable[[FrameType], bool],
    is_counted: Callable[[], bool] = lambda: True,
) -> Iterator[None]:
    """Send SIGINT to this process at a step of the traced functions, counted from 0.

    A step is a line that is about to run, or the return of a function, while `is_counted`.
    """
    left = step

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if not is_traced(frame):
            return None
        if event in ("line", "return") and is_counted():
            left -= 1
            if left == -1:
                signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
