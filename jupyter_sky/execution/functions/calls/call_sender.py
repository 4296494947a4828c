"""Preparation of calls for the dispatcher: pickles, large segments, tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jupyter_sky.execution.functions.calls.blob_transfer import BlobTransfer
from jupyter_sky.execution.functions.calls.call_methods import Wanted
from jupyter_sky.execution.functions.calls.call_pickler import CallPickler
from jupyter_sky.execution.functions.calls.call_queue import Waiting
from jupyter_sky.execution.functions.calls.gathered_calls import (
    GatheredCalls,
    PlainCalls,
    find_plain_calls,
)
from jupyter_sky.execution.functions.calls.output import OutputSink
from jupyter_sky.execution.functions.calls.tasks import (
    Broadcast,
    CallTask,
    PackedCall,
    RemoteFuture,
    paused_collection,
)
from jupyter_sky.execution.serialization.payload import ArgumentBlobs, Blobs

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.dispatch import Dispatcher
    from jupyter_sky.execution.functions.calls.lazy_calls import PendingFunction


class CallSender:
    """Sender of the calls of a pool.

    Parameters
    ----------
    dispatcher
        Dispatcher of the pool.
    pickler
        Returns a pickler for calls that are sent now.
    limit
        Returns the time limit of calls that have none of their own (s).
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        pickler: Callable[[], CallPickler],
        limit: Callable[[], float | None],
    ) -> None:
        self._dispatcher, self._pickler, self._limit = dispatcher, pickler, limit
        self._blobs = BlobTransfer(dispatcher.nodes, dispatcher.requeue)
        dispatcher.fetch_blob = self._blobs.fetch_missing

    def sink(self) -> OutputSink:
        """Return a receiver of the outputs of calls that are sent together."""
        return OutputSink(many=len(self._dispatcher.nodes) > 1)

    def send(
        self,
        wanted: Wanted,
        futures: list[RemoteFuture[Any]],
        pickler: CallPickler | None = None,
        group: object = None,
    ) -> list[RemoteFuture[Any]]:
        """Pickle calls and hand them to the dispatcher; put their futures into `futures`."""
        packing = CallPacking(pickler or self._pickler(), self._blobs.collect())
        sink, tasks = self.sink(), list[CallTask]()
        with paused_collection():
            for call, rank in wanted:
                task = self._task(call, packing.pack(call), RemoteFuture(), sink)
                task.rank, task.group = rank, group
                tasks.append(task)
        if isinstance(group, Broadcast):
            group.tasks += tasks
        self._blobs.upload(packing.blobs)
        futures += [task.future for task in tasks]
        self._dispatcher.submit(tasks)
        return futures

    def send_gathered(self, gathered: GatheredCalls) -> None:
        """Pickle the calls of a gather and hand them to the dispatcher."""
        pickler = self._pickler()
        packing, entries = CallPacking(pickler, self._blobs.collect()), list[Waiting]()
        with paused_collection():
            for numbers in find_plain_calls(gathered.calls, pickler.is_plain):
                call = gathered.calls[numbers[0]]
                if len(numbers) > 1:
                    function, blobs = pickler.plain_function(call.function)
                    limit = self._time_limit(call)
                    entries.append(PlainCalls(gathered, function, blobs, numbers, limit))
                    continue
                future = gathered.future(numbers[0])
                task = self._task(call, packing.pack(call), future, gathered.sink)
                task.group = gathered
                entries.append(task)
        self._blobs.upload(packing.blobs)
        self._dispatcher.submit(entries)

    def _time_limit(self, call: PendingFunction[Any]) -> float | None:
        return call.timeout if call.timeout is not None else self._limit()

    def _task(
        self,
        call: PendingFunction[Any],
        packed: PackedCall,
        future: RemoteFuture[Any],
        sink: OutputSink,
    ) -> CallTask:
        for stream_sender in packed.stream_senders:
            stream_sender.expected += 1
        return CallTask(call, packed, future, sink, timeout=self._time_limit(call))


class CallPacking:
    """Pickles of calls that are sent together; a call that is sent twice is pickled once.

    Attributes
    ----------
    blobs : dict
        Large segments of all of them.
    """

    def __init__(self, pickler: CallPickler, collected: ArgumentBlobs) -> None:
        self._pickler, self._collected = pickler, collected
        self._packed: dict[int, PackedCall] = {}
        self.blobs: Blobs = {}

    def pack(self, call: PendingFunction[Any]) -> PackedCall:
        """Pickle a call."""
        packed = self._packed.get(id(call))
        if packed is None:
            packed = self._packed[id(call)] = self._pickler.pack(call, self._collected)
            self.blobs |= packed.blobs
        return packed
