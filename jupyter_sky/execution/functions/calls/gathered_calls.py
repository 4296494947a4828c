"""Calls of one gather: their results, and those of them that travel many in one message.

A call whose arguments are numbers and short texts has no future and no task of its own. It gets
both when it needs them: if it fails, streams, is sent alone, or is sent again.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyTimeout
from jupyter_sky.base.requests.resources import format_elapsed
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.calls.tasks import (
    CallTask,
    PackedCall,
    RemoteFuture,
    StopReason,
)
from jupyter_sky.execution.serialization.payload import NUMBERS, Blobs, Payload, is_plain

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.lazy_calls import Function, PendingFunction
    from jupyter_sky.execution.functions.calls.output import OutputSink


class GatheredCalls:
    """Calls that are waited for together, and their results in order.

    Attributes
    ----------
    first_key : int
        Key of the first call; those of the others follow it.
    done, failed : int
        Numbers of calls that gave a result, and that raised or were cancelled.
    is_stopped : bool
        Whether nobody waits for them any more.
    """

    def __init__(self, calls: Sequence[PendingFunction[Any]], sink: OutputSink) -> None:
        self.calls, self.sink = calls, sink
        self.first_key = 0
        self.done = self.failed = 0
        self.is_stopped = False
        self._values: list[Any] = [None] * len(calls)
        self._futures: dict[int, RemoteFuture[Any]] = {}
        self._open: set[int] = set()
        self._lock = threading.Lock()
        self._over = threading.Event()
        if not calls:
            self._over.set()

    def __len__(self) -> int:
        return len(self.calls)

    def future(self, number: int) -> RemoteFuture[Any]:
        """Return a future for a call that needs one."""
        future: RemoteFuture[Any] = RemoteFuture()
        with self._lock:
            self._futures[number] = future
            self._open.add(id(future))
            is_stopped = self.is_stopped
        future.latch = self
        if is_stopped:
            future.cancel()
        return future

    def set_values(self, values: Iterable[tuple[int, Any]]) -> None:
        """Set results of calls without a future, by the numbers of the calls; each once."""
        with self._lock:
            for number, value in values:
                self._values[number] = value
                self.done += 1
            is_over = self.done == len(self.calls)
        if is_over:
            self._over.set()

    def note(self, future: RemoteFuture[Any]) -> None:
        """Note that a future has ended; all is over with the last call, and with a failure."""
        with self._lock:
            if id(future) in self._open:
                self._open.discard(id(future))
                self.done += future.has_value
                self.failed += not future.has_value
            is_over = self.failed or self.done == len(self.calls)
        if is_over:
            self._over.set()

    def stop(self, why: StopReason) -> None:
        """Stop the calls that have a future; the others are found by their batches."""
        with self._lock:
            self.is_stopped = True
            futures = list(self._futures.values())
        for future in futures:
            future.stop(why)

    def results(self, timeout: float | None = None) -> list[Any]:
        """Return all results, or raise the first error; wait for at most `timeout` seconds."""
        self._over.wait(timeout)
        with self._lock:
            unfinished = len(self.calls) - self.done - self.failed
            futures = sorted(self._futures.items())
        for number, future in futures:
            if future.done():
                self._values[number] = future.result()
        if unfinished:
            raise SkyTimeout(
                _(
                    "{unfinished} of {calls_count} calls had not ended after "
                    "{format_elapsed}, and were stopped"
                ).format(
                    unfinished=unfinished,
                    calls_count=len(self.calls),
                    format_elapsed=format_elapsed(timeout or 0),
                ),
                hint=_("allow more: timeout=SECONDS, or None to wait for all"),
            )
        return self._values


@dataclass(frozen=True, slots=True, eq=False)
class PlainCalls:
    """Calls of a gather to one function, whose arguments are numbers and short texts.

    Attributes
    ----------
    function : tuple
        Pickle of the function; `blobs` are its large segments.
    numbers : sequence of int
        Numbers of the calls in the gather.
    timeout : float, optional
        Time limit of each call (s).
    """

    gathered: GatheredCalls
    function: Payload
    blobs: Blobs
    numbers: Sequence[int]
    timeout: float | None

    isolated = False

    @property
    def count(self) -> int:
        """Number of the calls."""
        return len(self.numbers)

    @property
    def call(self) -> PendingFunction[Any]:
        """First of the calls."""
        return self.gathered.calls[self.numbers[0]]

    @property
    def sink(self) -> OutputSink:
        """Receiver of their outputs."""
        return self.gathered.sink

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for them any more."""
        return self.gathered.is_stopped

    @property
    def replayable(self) -> bool:
        """Whether they can be repeated."""
        return True

    @property
    def keys(self) -> Sequence[int]:
        """Keys of the calls."""
        first = self.gathered.first_key
        if isinstance(self.numbers, range):
            return range(first + self.numbers.start, first + self.numbers.stop)
        return [first + number for number in self.numbers]

    def arguments(self) -> list[tuple[tuple, dict]]:
        """Return the arguments of each call."""
        calls = self.gathered.calls
        return [((call := calls[number]).args, call.kwargs) for number in self.numbers]

    def split(self, count: int) -> tuple[PlainCalls, PlainCalls]:
        """Return the first `count` calls, and the others."""
        return self.part(self.numbers[:count]), self.part(self.numbers[count:])

    def part(self, numbers: Sequence[int]) -> PlainCalls:
        """Return some of these calls."""
        return replace(self, numbers=numbers)

    def task(self, number: int, attempts: int = 0) -> CallTask:
        """Return one of the calls as a task with a future."""
        call = self.gathered.calls[number]
        arguments = (pickle.dumps((call.args, call.kwargs), protocol=5),)
        return CallTask(
            call,
            PackedCall(self.function, arguments, (), [], self.blobs),
            self.gathered.future(number),
            self.sink,
            attempts=attempts,
            key=self.gathered.first_key + number,
            timeout=self.timeout,
            group=self.gathered,
        )

    def fail(self, error: BaseException) -> None:
        """Fail the first call: the whole gather fails with it."""
        self.task(self.numbers[0]).fail(error)


def find_plain_calls(
    calls: Sequence[PendingFunction[Any]], is_known: Callable[[Function], bool]
) -> Iterator[range]:
    """Find consecutive calls of one function whose arguments are numbers and short texts.

    Parameters
    ----------
    is_known
        Returns whether a function may be called with such arguments without analysis; it is asked
        after the range before has been taken.

    Returns
    -------
    iterator of range
        Numbers of calls; a range of one is a call for itself.
    """
    number, count = 0, len(calls)
    while number < count:
        first, start = calls[number], number
        number += 1
        if _is_plain(first) and is_known(first.function):
            function, timeout = first.function, first.timeout
            while number < count:
                call = calls[number]
                if call.function is not function or call.timeout != timeout or not _is_plain(call):
                    break
                number += 1
        yield range(start, number)


def _is_plain(call: PendingFunction[Any]) -> bool:
    # sent alone: it is known whether it has begun, or it has saves
    if call.retry.losses <= 1 or call.retry.recover:
        return False
    for value in call.args:
        if type(value) not in NUMBERS and not is_plain(value):
            return False
    return not call.kwargs or all(map(is_plain, call.kwargs.values()))
