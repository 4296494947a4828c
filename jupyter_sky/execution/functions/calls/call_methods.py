"""Methods of pools that send calls: one, several, mapped, on every node, streamed."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.calls.active_pools import CallTarget
from jupyter_sky.execution.functions.calls.call_pickler import CallPickler
from jupyter_sky.execution.functions.calls.gathered_calls import GatheredCalls
from jupyter_sky.execution.functions.calls.lazy_calls import (
    Function,
    PendingFunction,
    PendingFunctionGroup,
)
from jupyter_sky.execution.functions.calls.output import OutputSink
from jupyter_sky.execution.functions.calls.progress import Counts
from jupyter_sky.execution.functions.calls.tasks import (
    Broadcast,
    RemoteFuture,
    StopReason,
    results_of,
)

T = TypeVar("T")
Calls = Sequence[PendingFunction[Any]]
Wanted = Sequence[tuple[PendingFunction[Any], int | None]]
"""Calls, each with the rank of the only node that may run it; None for any."""


class CallMethods(CallTarget):
    """Ways to send calls to nodes, and to wait for their results."""

    @property
    @abstractmethod
    def ranks(self) -> list[int]:
        """Ranks of the nodes that take calls."""

    @property
    @abstractmethod
    def stream_slots(self) -> int:
        """Calls of a streamed gather to send at least: for every slot, also those to come."""

    @abstractmethod
    def pickler(self) -> CallPickler:
        """Return a pickler for calls that are sent now."""

    @abstractmethod
    def _send(
        self,
        wanted: Wanted,
        futures: list[RemoteFuture[Any]] | None = None,
        pickler: CallPickler | None = None,
        group: object = None,
    ) -> list[RemoteFuture[Any]]:
        """Send calls; put their futures into `futures`, and return them."""

    @abstractmethod
    def _sink(self) -> OutputSink:
        """Return a receiver of the outputs of calls."""

    @abstractmethod
    def _send_gathered(self, gathered: GatheredCalls) -> None:
        """Send the calls of a gather."""

    @abstractmethod
    def _stop_gathered(self, gathered: GatheredCalls, why: StopReason) -> None:
        """Stop the calls of a gather that have not ended."""

    @abstractmethod
    def _progress(
        self, total: int, group: object, counts: Counts | None = None
    ) -> AbstractContextManager[Callable[[Sequence[Future[Any]]], None]]:
        """Show the progress of the calls of a gather while they are waited for."""

    def run(self, call: PendingFunction[T]) -> T:
        """Run a call on one node, and wait for it: ``call >> pool``."""
        with self._submitted([(call, None)]) as futures:
            return futures[0].result()

    def submit(self, call: PendingFunction[T]) -> Future[T]:
        """Send a call to one node; return the future of its result: ``call > pool``."""
        return self._send([(call, None)])[0]

    run_async = submit

    def broadcast(self, call: PendingFunction[T]) -> list[T]:
        """Run a call on every node; return the results by rank: ``call @ pool``."""
        group = Broadcast()
        try:
            with self._submitted([(call, rank) for rank in self.ranks], group) as futures:
                return results_of(futures)
        finally:
            group.tasks.clear()  # calls that have ended keep no arguments

    def run_all(self, calls: Calls) -> tuple[Any, ...]:
        """Run calls concurrently; return their results in the same order."""
        with self._gathered(calls) as gathered:
            return tuple(gathered.results())

    def run_parallel(self, group: PendingFunctionGroup) -> Any:
        """Run the calls of a group concurrently; return what ``group >> pool`` does."""
        return group >> self  # type: ignore[operator]

    def stream_all(self, calls: Calls, ordered: bool = True) -> Iterator[Any]:
        """Run calls concurrently; return an iterator over their results, which has a window."""
        pickler, group = self.pickler(), object()
        return ResultStream(
            calls,
            lambda portion: self._send([(call, None) for call in portion], [], pickler, group),
            lambda: self.stream_slots,
            ordered,
            self._progress(len(calls), group),
        )

    def map(
        self, function: Callable[..., T], /, *iterables: Iterable[Any], timeout: float | None = None
    ) -> list[T]:
        """Run a function on every item; return the results in the same order.

        Parameters
        ----------
        function
            Plain or lazy function; it takes one item of each iterable.
        iterables
            One or more; the shortest ends the call, as with the built-in `map`.
        timeout
            Most seconds to wait for all results; None for no limit.

        Raises
        ------
        SkyTimeout
            Not all results came in time; unfinished calls are stopped.

        Examples
        --------
        >>> pool.map(pow, [2, 3], [5, 6])  # doctest: +SKIP
        [32, 729]
        """
        if not iterables:
            raise SkyUsageError(_("pool.map: give at least one iterable after the function"))
        return self.starmap(function, zip(*iterables, strict=False), timeout=timeout)

    def starmap(
        self,
        function: Callable[..., T],
        items: Iterable[Iterable[Any]],
        /,
        *,
        timeout: float | None = None,
    ) -> list[T]:
        """Run a function on tuples of arguments; return the results in the same order.

        Parameters
        ----------
        function
            Plain or lazy function.
        items
            The arguments of each call.
        timeout
            Most seconds to wait for all results; None for no limit.

        Raises
        ------
        SkyTimeout
            Not all results came in time; unfinished calls are stopped.

        Examples
        --------
        >>> pool.starmap(pow, [(2, 5), (3, 6)])  # doctest: +SKIP
        [32, 729]
        """
        lazy = function if isinstance(function, Function) else Function(function)
        with self._gathered([lazy(*arguments) for arguments in items]) as gathered:
            return gathered.results(timeout)

    def call_on(
        self,
        rank: int,
        function: Callable[..., T],
        /,
        *args: Any,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Future[T]:
        """Run a plain or lazy function on a given node; return the future of its result."""
        lazy = function if isinstance(function, Function) else Function(function)
        call = lazy(*args, **kwargs)
        if timeout is not None:
            call = call.with_timeout(timeout)
        return self._send([(call, rank)])[0]

    @contextlib.contextmanager
    def _submitted(self, wanted: Wanted, group: object = None) -> Iterator[list[Any]]:
        """Send calls; stop unfinished ones when the block is left."""
        futures: list[RemoteFuture[Any]] = []
        why: StopReason = "group"
        try:
            self._send(wanted, futures, None, group)
            yield futures
        except KeyboardInterrupt:
            why = "cancel"
            raise
        finally:
            for future in futures:
                future.stop(why)

    @contextlib.contextmanager
    def _gathered(self, calls: Calls) -> Iterator[GatheredCalls]:
        """Send calls, show their progress, and stop unfinished ones when the block is left."""
        gathered = GatheredCalls(calls, self._sink())
        why: StopReason = "group"
        try:
            self._send_gathered(gathered)
            with self._progress(len(calls), gathered, gathered):
                yield gathered
        except KeyboardInterrupt:
            why = "cancel"
            raise
        finally:
            self._stop_gathered(gathered, why)


# -- Results of many calls as they arrive, with a window: memory stays bounded --------------------
#
# Calls are sent in portions. No more are in flight, or have a result that was not read, than the
# window has room for; the window grows while results are small.

Item = TypeVar("Item")
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


class ResultStream(Generic[Item]):
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
        calls: Sequence[PendingFunction[Item]],
        send: Callable[[list[PendingFunction[Item]]], Sequence[RemoteFuture[Item]]],
        count_slots: Callable[[], int],
        ordered: bool,
        progress: contextlib.AbstractContextManager[Callable[[Sequence[RemoteFuture]], None]],
    ) -> None:
        self._waiting = deque(calls)
        self._send, self._count_slots, self._ordered = send, count_slots, ordered
        self._unread: deque[RemoteFuture[Item]] = deque()
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

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
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

    def _read(self) -> Item:
        """Wait for the next result; forget its future."""
        future: RemoteFuture[Item] = self._unread[0] if self._ordered else self._ended.get()
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

    def __enter__(self) -> ResultStream[Item]:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()
