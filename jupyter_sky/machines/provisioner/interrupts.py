"""Interrupts (SIGINT) that wait while something is done that must be whole.

An interrupt in the middle of a launch would lose track of what has been launched. Only the main
thread gets interrupts: in other threads nothing here has an effect.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from types import FrameType
from typing import Any

TICK_SECONDS = 0.1

_active: _Handler | None = None
"""Handler of the outermost `HeldInterrupts` of the main thread."""


class _Handler:
    """Handler of SIGINT that notes interrupts while they are held."""

    def __init__(self, previous: Callable[[int, FrameType | None], Any]) -> None:
        self.is_held, self.is_pending = True, False
        self._previous = previous

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Note an interrupt, or pass it on."""
        if self.is_held:
            self.is_pending = True
        else:
            self._previous(signum, frame)

    def deliver(self) -> None:
        """Pass on an interrupt that was noted."""
        if self.is_pending:
            self.is_pending = False
            self._previous(signal.SIGINT, None)


class HeldInterrupts:
    """Block of code at whose end an interrupt is raised that has come meanwhile.

    Blocks may be nested: it is raised at the end of the outermost one, or in a block of
    `AllowedInterrupts`. Both are classes and no generators, whose end could be interrupted itself.

    Examples
    --------
    >>> with HeldInterrupts() as interrupts:
    ...     interrupts.is_pending
    False
    """

    def __enter__(self) -> HeldInterrupts:
        global _active
        self._handler: _Handler | None = None
        self._outer, self._previous, self._was_held = _active, None, False
        if threading.current_thread() is not threading.main_thread():
            return self
        current = signal.getsignal(signal.SIGINT)
        if _active is not None and current == _active.handle:
            self._handler, self._was_held = _active, _active.is_held
            _active.is_held = True
        elif callable(current):  # else interrupts are ignored, or end this process
            self._handler, self._previous = _Handler(current), current
            signal.signal(signal.SIGINT, self._handler.handle)
            _active = self._handler
        return self

    @property
    def is_pending(self) -> bool:
        """Whether an interrupt has come."""
        return self._handler is not None and self._handler.is_pending

    def __exit__(self, *__: object) -> None:
        global _active
        if self._handler is None:
            return
        if self._previous is not None:
            _active = self._outer
            signal.signal(signal.SIGINT, self._previous)
            self._handler.deliver()
        elif not self._was_held:
            self._handler.is_held = False
            self._handler.deliver()


class AllowedInterrupts:
    """Block of code in `HeldInterrupts` that can be interrupted, also by what has come before.

    Code around it undoes what an interrupt leaves half done.

    Examples
    --------
    >>> with HeldInterrupts(), AllowedInterrupts():
    ...     pass
    """

    def __enter__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        self._handler = _active if is_main else None
        if self._handler is not None:
            self._was_held = self._handler.is_held
            self._handler.deliver()
            self._handler.is_held = False

    def __exit__(self, *__: object) -> None:
        if self._handler is not None:
            self._handler.is_held = self._was_held


def uninterruptible(
    work: Callable[[], object],
    meanwhile: Callable[[], object] | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Run a function to its end in a thread, and let an interrupt through only then.

    Parameters
    ----------
    meanwhile
        Called about ten times a second; what it raises counts as an interrupt.
    stop
        Set when an interrupt has come: work that looks at it may undo what it did and end early.

    Examples
    --------
    >>> uninterruptible(lambda: print("launched"))
    launched
    """
    outcome: Future[object] = Future()

    def go() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    refusal: BaseException | None = None
    with HeldInterrupts() as interrupts:
        threading.Thread(target=go, name="sky-uninterruptible", daemon=True).start()
        while not wait([outcome], timeout=TICK_SECONDS).done:
            try:
                if meanwhile is not None and refusal is None and not interrupts.is_pending:
                    meanwhile()
            except BaseException as error:
                refusal = error
            if stop is not None and (refusal is not None or interrupts.is_pending):
                stop.set()
    if refusal is not None:
        raise refusal
    outcome.result()
