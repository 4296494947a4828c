"""Methods of pools that send calls: one, several, mapped, on every node, streamed."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, TypeVar

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
from jupyter_sky.execution.functions.calls.result_stream import ResultStream
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
