"""Results of many calls as they arrive, with a window: memory stays bounded.

Calls are sent in portions. No more are in flight, or have a result that was not read, than the
window has room for; the window grows while results are small.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.lazy_calls import PendingFunction
    from jupyter_sky.execution.functions.calls.tasks import RemoteFuture, StopReason

T = TypeVar("T")
WINDOW_CALLS = 1000
WINDOW_BYTES = 64 * 2**20
"""Most calls, and estimated bytes of results, that are in flight or were not read."""


def window_calls(slots: int, before: int, result_bytes: float | None) -> int:
    """Return the number of calls that may be in flight or have an unread result.

    Parameters
    ----------
    slots
        Calls that the pool runs at once: always as many, for no slot to be idle.
    before
        The window so far; it doubles at most.
    result_bytes
        Size of a result, measured on those that have arrived; None while none has.

    Examples
    --------
    >>> window_calls(2, 2, None), window_calls(2, 2, 100.0), window_calls(2, 4, 5e7)
    (2, 4, 2)
    """
    if result_bytes is None:
        return slots
    fitting = min(WINDOW_CALLS, int(WINDOW_BYTES / max(result_bytes, 1.0)))
    return max(slots, min(2 * before, fitting))


class ResultStream(Generic[T]):
    """Results of a streamed gather; an iterator.

    Closing it, or letting go of it, stops the calls that have not ended.

    Parameters
    ----------
    calls
        All calls.
    send
        Sends calls; returns their futures.
    count_slots
        Returns how many calls the pool runs at once, at its largest.
    ordered
        Whether results come in the order of the calls, or as they arrive.
    progress
        Context of the display of progress, entered now and left at the end.

    Examples
    --------
    >>> for score in sky.gather(*calls, stream=True) >> pool:  # doctest: +SKIP
    ...     print(score)
    """

    def __init__(
        self,
        calls: Sequence[PendingFunction[T]],
        send: Callable[[list[PendingFunction[T]]], Sequence[RemoteFuture[T]]],
        count_slots: Callable[[], int],
        ordered: bool,
        progress: contextlib.AbstractContextManager[Callable[[Sequence[RemoteFuture]], None]],
    ) -> None:
        self._waiting = deque(calls)
        self._send, self._count_slots, self._ordered = send, count_slots, ordered
        self._unread: deque[RemoteFuture[T]] = deque()
        self._ended: SimpleQueue[Any] = SimpleQueue()
        self._window = 0
        self._result_bytes: float | None = None
        self._failure: Exception | None = None
        self._stack = ExitStack()
        self._count = self._stack.enter_context(progress)
        try:
            self._refill()
        except BaseException:
            self._finish("group")
            raise

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            if not self._unread:
                self._refill()
            if not self._unread:
                raise self._failure or StopIteration
            value = self._read()
            self._refill_later()
        except StopIteration:
            self._finish("group")
            raise
        except KeyboardInterrupt as error:
            self._finish("cancel", error)
            raise
        except BaseException as error:
            self._finish("group", error)
            raise
        return value

    def _read(self) -> T:
        """Wait for the next result; forget its future."""
        future: RemoteFuture[T] = self._unread[0] if self._ordered else self._ended.get()
        value = future.result()
        self._unread.remove(future)
        known = self._result_bytes
        # the larger of the last and the average: one large result narrows the window at once
        average = future.nbytes if known is None else 0.9 * known + 0.1 * future.nbytes
        self._result_bytes = max(average, float(future.nbytes))
        return value

    def _refill(self) -> None:
        """Send calls once there is room for a portion of the window."""
        self._window = window_calls(self._count_slots(), self._window, self._result_bytes)
        room = min(self._window - len(self._unread), len(self._waiting))
        if room < min(max(self._window // 4, 1), len(self._waiting) or 1):
            return
        calls = [self._waiting.popleft() for _ in range(room)]
        futures = self._send(calls)
        self._unread.extend(futures)
        self._count(futures)
        if not self._ordered:
            for future in futures:
                future.add_done_callback(self._ended.put)

    def _refill_later(self) -> None:
        """Refill; an error is raised after the results of the calls before it."""
        try:
            self._refill()
        except Exception as error:
            self._waiting.clear()
            self._failure = error

    def close(self) -> None:
        """Stop the calls that have not ended; drop their results."""
        self._finish("group", GeneratorExit())

    def _finish(self, why: StopReason, error: BaseException | None = None) -> None:
        self._waiting.clear()
        self._failure = None
        while self._unread:
            self._unread.popleft().stop(why)
        kind = type(error) if error is not None else None
        self._stack.__exit__(kind, error, None)

    def __enter__(self) -> ResultStream[T]:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()
