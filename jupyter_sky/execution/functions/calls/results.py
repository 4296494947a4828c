"""Handling of results, errors and stream items that nodes send, in the order of the prints."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any, Protocol

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.calls.call_queue import Waiting
from jupyter_sky.execution.functions.calls.group_restart import GroupRestarts
from jupyter_sky.execution.functions.calls.nodes import PoolNode
from jupyter_sky.execution.functions.calls.sent_batch import SentBatch
from jupyter_sky.execution.functions.calls.streams import ItemBuffer, ItemStream
from jupyter_sky.execution.functions.calls.tasks import (
    CallTask,
    RemoteFuture,
    StopReason,
    remote_exception,
)
from jupyter_sky.execution.serialization.memory_files import read_file
from jupyter_sky.execution.serialization.payload import Blob, Payload, has_blobs, join, unwrap
from jupyter_sky.machines.engines.wire.messages import COUNTED_TYPES, Message

OUTPUT_SECONDS = 0.5
"""Time that a result waits for outputs printed before it, which come by another route."""

LEAVING = "SkyLeaving"
"""Error of a call that was interrupted because its machine is taken away."""
MOVED = "SkySharedMoved"
"""Error of a call on a machine that others have taken the place of, with what it shared."""

_log = logging.getLogger(__name__)


class TaskOwner(Protocol):
    """Operations of the dispatcher that results cause."""

    lock: threading.RLock
    groups: GroupRestarts

    def dispatch(self) -> None:
        """Send as many tasks as there is room for."""

    def requeue(self, entries: Sequence[Waiting], /) -> None:
        """Put calls back at the head of the queue."""

    def finish_task(
        self, batch: SentBatch, key: int, seconds: float | None = None
    ) -> CallTask | None:
        """Take a task out of its batch; return None if it was taken out before."""

    def finish_values(
        self, batch: SentBatch, keys: list[int], values: list[Any], seconds: list[float]
    ) -> None:
        """Set results that are numbers and short texts."""

    def finish_batch(self, batch: SentBatch) -> None:
        """Free the slot of a batch."""

    def stop(self, batch: SentBatch, keys: list[int], why: StopReason) -> None:
        """Request that calls stop on their nodes."""

    def kill_engine(self, batch: SentBatch, task: CallTask | None, why: str) -> None:
        """Say what is lost, and ask the controller to kill the unresponsive engine of a batch."""

    def note_unread(self, task: CallTask) -> None:
        """Note a stream whose node waits for its reader; say so if calls wait for a node."""

    def send_command(self, node: PoolNode, engine: str, command: tuple) -> None:
        """Send a command to a node, unless its engine is another by now."""

    def fetch_blob(self, node: PoolNode, task: CallTask, name: str, /) -> None:
        """Upload a blob that a node lacks, and send the task again."""

    def on_task_lost(self, task: CallTask, node: PoolNode, why: str, at_fault: bool) -> None:
        """Handle the loss of a task: requeue it if it can be replayed, else fail it."""

    def on_engine_lost(self, batch: SentBatch, error: Exception) -> None:
        """Handle the loss of an engine: requeue its replayable tasks, fail the others."""


class ResultHandler:
    """Handler of the messages of nodes, in the thread of the client.

    Parameters
    ----------
    dispatcher
        Owner of the calls.
    """

    def __init__(self, dispatcher: TaskOwner) -> None:
        self.dispatcher = dispatcher

    def handle(self, batch: SentBatch, reply: Message | Exception) -> None:
        """Handle a reply to a batch, or the loss of its engine."""
        with self.dispatcher.lock:  # until the batch has been sent as a whole
            pass
        if isinstance(reply, Exception):
            self.dispatcher.on_engine_lost(batch, reply)
            return
        content = reply["content"]
        batch.is_final = batch.is_final or content["final"]
        reports = unwrap(reply["buffers"])
        if batch.held_results or batch.printed < content["printed"]:
            batch.held_results.append((content["printed"], reports))
            if len(batch.held_results) == 1:
                self._release_later(batch)
        else:
            self._process(batch, reports)

    def _release_later(self, batch: SentBatch) -> None:
        """Release results after a moment, even if outputs are missing."""
        client = batch.node.connection.client
        timer = threading.Timer(
            OUTPUT_SECONDS, lambda: client.call_soon(lambda: self.release_held(batch, 1 << 62))
        )
        timer.daemon = True
        timer.start()

    def release_held(self, batch: SentBatch, printed: int) -> None:
        """Process held results that come after at most `printed` outputs."""
        while batch.held_results and batch.held_results[0][0] <= printed:
            __, reports = batch.held_results.popleft()
            self._process(batch, reports)

    def show_output(self, batch: SentBatch, message: Message) -> None:
        """Show an output of a batch, and process the results that have waited for it."""
        kind, content = message["header"]["msg_type"], message["content"]
        sink = batch.sink
        if kind == "stream" and sink is not None:
            sink.write(batch.node.rank, content["name"], content["text"])
        elif kind == "display_data" and sink is not None:
            sink.display(batch.node.rank, content)
        if kind not in COUNTED_TYPES:
            return
        batch.printed += 1
        self.release_held(batch, batch.printed)

    def _process(self, batch: SentBatch, reports: list[tuple]) -> None:
        for kind, *arguments in reports:
            try:
                getattr(self, f"_on_{kind}")(batch, *arguments)
            except Exception:  # one result must not hold up the others
                _log.exception("a report of a node could not be processed")
        if batch.is_final and not batch.held_results:
            with self.dispatcher.lock:
                self.dispatcher.finish_batch(batch)
                self.dispatcher.dispatch()

    def _on_values(
        self, batch: SentBatch, keys: list[int], values: list[Any], seconds: list[float]
    ) -> None:
        """Take results that are numbers and short texts."""
        self.dispatcher.finish_values(batch, keys, values, seconds)

    def _on_value(self, batch: SentBatch, key: int, payload: Payload, seconds: float) -> None:
        if not self._set_value(batch, key, payload, seconds):
            task = self.dispatcher.finish_task(batch, key, seconds)
            if task is not None:
                self._resolve(task, batch, payload)
        if has_blobs(payload):
            files = [part.file for part in payload if isinstance(part, Blob) and part.file]
            node, descriptors = batch.node, [file.descriptor for file in files]
            self.dispatcher.send_command(node, node.engine, ("release", descriptors))

    def _set_value(self, batch: SentBatch, key: int, payload: Payload, seconds: float) -> bool:
        """Set the result of a call without a task; return False if it needs one."""
        if key not in batch.open_plain:
            return False
        try:
            value = join(payload, _read_blob)
        except Exception:  # the task gets the error
            return False
        self.dispatcher.finish_values(batch, [key], [value], [seconds])
        return True

    def _resolve(self, task: CallTask, batch: SentBatch, payload: Payload) -> None:
        try:
            task.future.nbytes = sum(map(_nbytes, payload))
            task.future.resolve(join(payload, _read_blob))
        except _LostFile:
            why = _("its process ended before its result was read")
            self.dispatcher.on_task_lost(task, batch.node, why, at_fault=False)
        except Exception as error:
            text = _("the result of {call!r} cannot be opened here: {error}").format(
                call=task.call, error=error
            )
            task.future.fail(_chained(SkyError(text), error))

    def _on_error(
        self, batch: SentBatch, key: int, failure: dict[str, Any], seconds: float
    ) -> None:
        task = self.dispatcher.finish_task(batch, key, seconds)
        if failure.get("stuck"):
            self.dispatcher.kill_engine(batch, task, failure["stopped"])
        if task is None or (failure["stopped"] and task.future.done() and task.stream is None):
            return
        if failure["name"] in (LEAVING, MOVED) and not failure["stopped"]:
            why = _("its machine is taken away")
            self.dispatcher.on_task_lost(task, batch.node, why, at_fault=False)
            return
        error = remote_exception(task, failure, batch.node.rank)

        def settle() -> None:
            self._settle_error(task, failure, error)

        if failure["stopped"] or not self.dispatcher.groups.take_error(batch, task, error, settle):
            settle()

    def _settle_error(self, task: CallTask, failure: dict[str, Any], error: BaseException) -> None:
        """Make a call again that has failed, or let it fail."""
        retry = task.call.retry
        if (
            task.attempts <= retry.times
            and isinstance(error, retry.on)
            and task.replayable
            and not failure["stopped"]
        ):
            self.dispatcher.requeue([task])
        elif task.stream is not None:
            task.stream.finish("error", error)
        else:
            task.future.fail(error)

    def _on_stream(self, batch: SentBatch, key: int) -> None:
        task = batch.task(key)
        assert task is not None
        node, engine = batch.node, batch.node.engine
        is_first = task.stream is None
        buffer = task.stream = task.stream or ItemBuffer()
        buffer.on_consumed = lambda count: self.dispatcher.send_command(
            node, engine, ("consumed", batch.id, key, count)
        )
        buffer.on_close = lambda: self.dispatcher.stop(batch, [key], "close")
        if not is_first:  # it goes on, from another node
            if task.future.done():
                buffer.on_close()
            task.future.resolve(None)
            return
        # the stream and its future are not referenced here: it ends when its user drops it
        stream = ItemStream(buffer)
        future, task.future = task.future, RemoteFuture()
        task.future.resolve(None)
        if future.done():
            stream.close()
        future.resolve(stream)

    def _on_item(self, batch: SentBatch, key: int, data: bytes) -> None:
        task = batch.tasks.get(key)
        if task is None or task.stream is None:
            return
        if task.stream.is_repeated():
            task.stream.on_consumed(1)
        else:
            task.stream.add([join((data,), _no_blob)])

    def _on_unread(self, batch: SentBatch, key: int) -> None:
        task = batch.tasks.get(key)
        if task is not None and task.stream is not None and not task.stream.empty():
            task.stream.unread_on = batch.node.rank
            self.dispatcher.note_unread(task)

    def _on_saved(self, batch: SentBatch, key: int, state: str, name: str, data: bytes) -> None:
        """Keep a save of a call; one of a node that was given up comes too late."""
        task = batch.tasks.get(key)
        if task is not None and task.recovery is not None:
            task.recovery.take(state, name, data)
            task.losses.clear()
            if batch.node.recalls_saved and task.is_saved:
                self.dispatcher.groups.recall(batch, key)

    def _on_end(self, batch: SentBatch, key: int, seconds: float) -> None:
        task = self.dispatcher.finish_task(batch, key)
        if task is not None and task.stream is not None:
            task.stream.finish("end")

    def _on_input_consumed(self, batch: SentBatch, key: int, number: int, count: int) -> None:
        if task := batch.tasks.get(key):
            for stream_sender in task.packed.stream_senders:
                if stream_sender.number == number:
                    stream_sender.acknowledge((batch.id, key), count)

    def _on_returned(self, batch: SentBatch, keys: list[int]) -> None:
        with self.dispatcher.lock:
            plain = batch.take_unstarted(keys)
        tasks = [task for key in keys if (task := self.dispatcher.finish_task(batch, key))]
        for task in tasks:
            task.attempts -= 1
        self.dispatcher.requeue(tasks if plain is None else [plain, *tasks])

    def _on_missing(self, batch: SentBatch, key: int, name: str) -> None:
        if task := self.dispatcher.finish_task(batch, key):
            task.attempts -= 1
            self.dispatcher.fetch_blob(batch.node, task, name)

    def _on_lost(self, batch: SentBatch, key: int, why: str) -> None:
        """Handle the death of the process of a single call."""
        if task := self.dispatcher.finish_task(batch, key):
            self.dispatcher.on_task_lost(task, batch.node, why, at_fault=True)


def _nbytes(segment: Any) -> int:
    return segment.size if isinstance(segment, Blob) else len(segment)


class _LostFile(Exception):
    """Memory file of a result that ended with its process."""


def _read_blob(blob: Blob) -> memoryview:
    if blob.file is None:
        return _no_blob(blob)
    try:
        return read_file(blob.file)
    except OSError as error:
        raise _LostFile from error


def _no_blob(blob: Blob) -> memoryview:
    raise SkyError(
        _("the result has a part that was not sent ({size} bytes)").format(size=blob.size)
    )


def _chained(error: SkyError, cause: BaseException) -> SkyError:
    error.__cause__ = cause
    return error
