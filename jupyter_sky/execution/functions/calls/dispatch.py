"""Dispatcher: assigns calls to nodes and handles their loss.

Calls wait here, not on nodes: each node has as many as it has slots. Quick calls travel together,
as many as take `BATCH_SECONDS`; what has not begun soon comes back and goes elsewhere.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from jupyter_sky.base.errors import SkyClusterLost, SkyError, SkyTaskLost, SkyWorldChanged
from jupyter_sky.base.messages import Receiver, handles
from jupyter_sky.base.requests.resources import format_elapsed
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.calls.call_durations import CallDurations
from jupyter_sky.execution.functions.calls.call_logs import journal_name
from jupyter_sky.execution.functions.calls.call_queue import CallQueue, Waiting
from jupyter_sky.execution.functions.calls.call_recovery import align_saves
from jupyter_sky.execution.functions.calls.gathered_calls import GatheredCalls, PlainCalls
from jupyter_sky.execution.functions.calls.group_restart import GroupKind
from jupyter_sky.execution.functions.calls.nodes import (
    PoolNode,
    SentBatch,
    StopRequest,
    idle_node,
    next_node,
)
from jupyter_sky.execution.functions.calls.retry import AT_MOST_ONCE
from jupyter_sky.execution.functions.calls.streams import ItemBuffer, ItemStream
from jupyter_sky.execution.functions.calls.tasks import (
    Broadcast,
    CallTask,
    RemoteFuture,
    SentCall,
    StopReason,
    loss_error,
    remote_exception,
)
from jupyter_sky.execution.functions.images.specs import CANCEL_GRACE_SECONDS
from jupyter_sky.execution.functions.node.messages import (
    Command,
    Consumed,
    Failed,
    Feed,
    InputConsumed,
    Item,
    MissingPart,
    OpenPool,
    ProcessLost,
    ReleaseFiles,
    Returned,
    Saved,
    StopCalls,
    StreamBegun,
    StreamEnded,
    StreamItem,
    StreamUnread,
    Value,
    Values,
)
from jupyter_sky.execution.serialization.memory_files import read_file
from jupyter_sky.execution.serialization.payload import (
    Blob,
    Payload,
    Segment,
    has_blobs,
    join,
    unwrap,
    wrap,
)
from jupyter_sky.machines.engines.wire.controller_requests import Kill, ListEngines
from jupyter_sky.machines.engines.wire.messages import COUNTED_TYPES, JupyterMessage

if TYPE_CHECKING:
    from jupyter_sky.machines.engines.client.connection import ClusterConnection


class Dispatcher:
    """Sends the calls of one pool to its nodes.

    Parameters
    ----------
    describe
        Returns the context of a node, sent before its first call and whenever it has changed.
    on_loss
        Called with a node whose engine has died, to bring it back.
    """

    def __init__(
        self, describe: Callable[[PoolNode], dict[str, Any]], on_loss: Callable[[PoolNode], None]
    ) -> None:
        self.describe, self.on_loss = describe, on_loss
        self.nodes: dict[int, PoolNode] = {}
        self.closed = ""
        self.lock = threading.RLock()
        self._durations = CallDurations()
        self._queue = CallQueue(self._durations)
        self._next_key = 1
        self._last = -1
        self._recent: deque[tuple[ClusterConnection, str]] = deque()
        self.timeouts = TimeoutMonitor(self.abandon_batch)
        self.results = ResultHandler(self)
        self.fetch_blob: Callable[[PoolNode, CallTask, str], None] = lambda node, task, name: None
        """Brings a blob that a node lacks, and sends the task again."""
        self.on_use: Callable[[], None] = lambda: None
        """Called when calls come, and when some have ended."""
        self.uses: Callable[[], str] = lambda: ""
        """Names what else runs below the engines, such as tasks of Dask."""
        self.is_replaceable: Callable[[Exception], bool] = lambda error: False
        """Returns whether the machines of a cluster that was lost by an error are replaced."""
        self._unread = UnreadStreams()
        self.groups = GroupRestarts(self)

    # -- queueing ----------------------------------------------------------------------------------

    def submit(self, entries: Iterable[Waiting]) -> None:
        """Queue calls, and send as many as there is room for."""
        self.on_use()
        with self.lock:
            if self.closed:
                raise SkyError(self.closed)
            for entry in entries:
                if isinstance(entry, CallTask):
                    entry.key = self._reserve_keys(1)
                elif not entry.gathered.first_key:
                    entry.gathered.first_key = self._reserve_keys(len(entry.gathered))
                if isinstance(entry, PlainCalls) or entry.rank is None:
                    self._queue.append(entry)
                elif (pinned := self._pinned(entry, entry.rank)) is not None:
                    pinned.append(entry)
            self._dispatch()

    def _reserve_keys(self, count: int) -> int:
        first, self._next_key = self._next_key, self._next_key + count
        return first

    def requeue(self, entries: Iterable[Waiting]) -> None:
        """Put calls back at the head of the queue."""
        with self.lock:
            for entry in reversed(list(entries)):
                if entry.is_over:
                    continue
                if self.closed:
                    entry.fail(SkyClusterLost(self.closed))
                elif isinstance(entry, PlainCalls) or entry.rank is None:
                    self._queue.appendleft(entry)
                elif (pinned := self._pinned(entry, entry.rank)) is not None:
                    pinned.appendleft(entry)
            self._dispatch()

    def _pinned(self, task: CallTask, rank: int) -> deque[CallTask] | None:
        """Return the queue of a node; fail the task and return None if it has left."""
        node = self.nodes.get(rank)
        if node is None:
            text = _("{call!r}: node {rank} has left the pool").format(call=task.call, rank=rank)
            task.future.fail(SkyTaskLost(text))
            return None
        return node.pinned

    def waiting_count(self) -> int:
        """Return the number of tasks that wait for a node."""
        return len(self._queue)

    def call_count(self) -> int:
        """Return the number of unfinished tasks, waiting or sent."""
        with self.lock:
            pinned = sum(len(node.pinned) for node in self.nodes.values())
        return len(self._queue) + pinned + self.running_count()

    def running_count(self) -> int:
        """Return the number of tasks that nodes have."""
        with self.lock:
            return sum(b.open_count for n in self.nodes.values() for b in n.batches.values())

    def count_running(self, group: object) -> tuple[int, int]:
        """Return how many calls of a gather nodes have, and the number of nodes."""
        with self.lock:
            nodes = [node for node in self.nodes.values() if node.engine]
            batches = [batch for node in nodes for batch in node.batches.values()]
            return sum(batch.count_of(group) for batch in batches), len(nodes)

    # -- sending -----------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Send as many tasks as there is room for."""
        with self.lock:
            self._dispatch()

    def _dispatch(self) -> None:
        for node in self.nodes.values():
            if node.engine and not node.is_alive and not node.batches:
                self._mark_gone(node)  # it died while idle, so no batch reported it
            while node.pinned and node.free_slots > 0:
                task = node.pinned.popleft()
                if not task.future.done():
                    self._send(node, [task])
            if node.pinned:
                self._unread.report(node.pinned[0])
        while (head := self._queue.head()) is not None:
            node = next_node(self.nodes, self._last, self._queue.is_quick(head))
            if node is None:
                self._unread.report(head)
                return
            if head.isolated:
                if node.batches and not (node := idle_node(self.nodes)):
                    return
                node.reserved = True
            self._last = node.rank
            slots = sum(node.slots for node in self.nodes.values() if node.engine)
            self._send(node, self._queue.take(slots))

    def note_unread(self, task: CallTask) -> None:
        """Note a stream whose node waits for its reader; say so if calls wait for a node."""
        with self.lock:
            self._unread.add(task)
            self._dispatch()

    def _send(self, node: PoolNode, calls: list[CallTask] | PlainCalls) -> None:
        """Send calls to a node; an error on the way is their result."""
        try:
            self._send_batch(SentBatch.of(node, calls))
        except Exception as error:
            node.reserved = False
            for entry in [calls] if isinstance(calls, PlainCalls) else calls:
                entry.fail(error)

    def _send_batch(self, batch: SentBatch) -> None:
        node, context = batch.node, self.describe(batch.node)
        commands: list[Command] = []
        if node.sent_context != (node.engine, context):
            node.sent_context = (node.engine, context)
            commands.append(OpenPool(context))
        commands.append(batch.command(context["pool"]))
        tasks = list(batch.tasks.values())
        for task in tasks:
            task.attempts += 1
            task.future.sent = SentCall(task.key, batch.tasks, partial(self.stop, batch))
        client = node.connection.client
        batch.id = client.send_command(
            node.engine,
            wrap([command.to_tuple() for command in commands]),
            lambda reply: self.results.handle(batch, reply),
            lambda message: self.results.show_output(batch, message),
            {"run": journal_name(context["pool"]), "rank": node.rank},
        )
        node.batches[batch.id] = batch
        if any(batch.time_limits()):
            self.timeouts.watch(batch)
        for task in tasks:
            for stream_sender in task.packed.stream_senders:
                feed = self._feed(batch, task, stream_sender.number)
                stream_sender.join((batch.id, task.key), feed)

    def send_command(self, node: PoolNode, engine: str, command: Command) -> None:
        """Send a command to a node, unless its engine is another by now."""
        if engine and engine == node.engine:
            node.connection.client.send_command(engine, wrap([command.to_tuple()]))

    def _feed(self, batch: SentBatch, task: CallTask, number: int) -> Callable[[StreamItem], None]:
        """Return a function that sends items to a call; items that arrive meanwhile are batched."""
        unsent: deque[StreamItem] = deque()
        engine, client = batch.node.engine, batch.node.connection.client

        def send() -> None:
            items = [unsent.popleft() for __ in range(len(unsent))]
            if items:
                self.send_command(batch.node, engine, Feed(batch.id, task.key, number, items))

        def feed(item: StreamItem) -> None:
            unsent.append(item)
            client.call_soon(send)

        return feed

    def finish_batch(self, batch: SentBatch) -> None:
        """Free the slot of a batch."""
        self.on_use()
        batch.node.batches.pop(batch.id, None)
        batch.node.reserved = False
        self._recent.append((batch.node.connection, batch.id))
        while len(self._recent) > 100:  # what a call's threads print later is shown, too
            connection, old = self._recent.popleft()
            connection.client.sinks.pop(old, None)

    def finish_task(
        self, batch: SentBatch, key: int, seconds: float | None = None
    ) -> CallTask | None:
        """Take a task out of its batch; return None if it was taken out before."""
        with self.lock:
            task = batch.take(key)
        if task is None:
            return None
        for stream_sender in task.packed.stream_senders:
            stream_sender.leave((batch.id, key))
        if seconds is not None:
            self._durations.record(task.call.function.name, seconds)
        task.future.sent = None
        return task

    def finish_values(
        self, batch: SentBatch, keys: list[int], values: list[Any], seconds: list[float]
    ) -> None:
        """Set results that are numbers and short texts."""
        with self.lock:
            count = batch.take_values(keys, values)
        if count and batch.plain is not None:
            name = batch.plain.call.function.name
            self._durations.record(name, sum(seconds) / len(seconds), count)
        if count == len(keys):
            return
        for key, value, duration in zip(keys, values, seconds, strict=True):
            if (task := self.finish_task(batch, key, duration)) is not None:
                task.future.resolve(value)

    # -- losses and ends ---------------------------------------------------------------------------

    def on_engine_lost(self, batch: SentBatch, error: Exception) -> None:
        """Handle the loss of an engine: requeue its replayable tasks, fail the others."""
        node = batch.node
        with self.lock:
            if node.engine:
                for each in node.batches.values():
                    each.ran_concurrently = len(node.batches) > 1
                self._mark_gone(node)
            self.results.release_held(batch, 1 << 62)
            self.finish_batch(batch)
            tasks = batch.take_all()
        at_fault = len(tasks) == 1 and not batch.ran_concurrently
        cluster_lost = isinstance(error, SkyClusterLost)
        others_remain = any(n.connection is not node.connection for n in self.nodes.values())
        for task in reversed(tasks):
            for stream_sender in task.packed.stream_senders:
                stream_sender.leave((batch.id, task.key))
            if cluster_lost and not others_remain and not self.is_replaceable(error):
                task.fail(error)
            else:
                self.on_task_lost(task, node, _("its engine died"), at_fault and not cluster_lost)

    def remove_cluster(self, connection: ClusterConnection) -> None:
        """Remove the nodes of a cluster; fail the tasks that wait for one of them."""
        with self.lock:
            for node in list(self.nodes.values()):
                if node.connection is connection:
                    self.remove_node(node)
            self._dispatch()

    def remove_node(self, node: PoolNode) -> None:
        """Remove one node; fail the tasks that wait for it."""
        with self.lock:
            if self.nodes.get(node.rank) is node:
                del self.nodes[node.rank]
            for task in node.pinned:
                text = _("{call!r}: node {rank} has left the pool").format(
                    call=task.call, rank=node.rank
                )
                task.fail(SkyTaskLost(text, hint=_("send it again")))
            self._dispatch()

    def _mark_gone(self, node: PoolNode) -> None:
        node.engine, node.sent_context = "", None
        self.on_loss(node)

    def on_task_lost(self, task: CallTask, node: PoolNode, why: str, at_fault: bool) -> None:
        """Handle the loss of a task: requeue it if it can be replayed, else fail it."""
        if task.future.done() if task.stream is None else task.stream.end is not None:
            return
        task.isolated = True
        task.attempts -= 1  # losses are not among the failures that `retry` counts
        if at_fault:
            task.losses.append(f"node {node.rank}: {why}")
        error = loss_error(task, node.rank, why)
        if error is not None:
            error.is_at_fault = at_fault
            task.fail(error)
        elif not self.groups.restart(task, node.rank):
            task.rewind()
            self.requeue([task])

    def stop_gathered(self, gathered: GatheredCalls, why: StopReason) -> None:
        """Stop the calls of a gather that have not ended."""
        with self.lock:
            gathered.stop(why)
            batches = [batch for node in self.nodes.values() for batch in node.batches.values()]
            mine = [b for b in batches if b.plain is not None and b.plain.gathered is gathered]
        for batch in mine:
            if keys := sorted(batch.open_plain):
                self.stop(batch, keys, why)

    def find_batch(self, task: CallTask) -> SentBatch | None:
        """Return the batch in which a node has a call; None while it waits."""
        batches = (batch for node in self.nodes.values() for batch in node.batches.values())
        return next((batch for batch in batches if batch.tasks.get(task.key) is task), None)

    def stop(self, batch: SentBatch, keys: list[int], why: StopReason) -> None:
        """Request that calls stop on their nodes."""
        node = batch.node
        if why == "group" and node.executor != "main":
            why = "cancel"  # patience is for engines: a thread or process ends without them
        earlier = batch.stop_request
        if earlier is None or earlier.why == "group" or not batch.has_any(earlier.keys):
            batch.stop_request = StopRequest(why, time.monotonic(), frozenset(keys))
        else:
            batch.stop_request = replace(earlier, keys=earlier.keys.union(keys))
        self.send_command(node, node.engine, StopCalls(batch.id, keys, why))
        self.timeouts.watch(batch)

    def abandon_batch(self, batch: SentBatch, why: str) -> None:
        """Fail the calls that a silent engine does not stop, kill it, and requeue the others."""
        keys = batch.stop_request.keys if batch.stop_request is not None else frozenset()
        with self.lock:
            tasks = batch.take_all()
            late = [task for task in tasks if task.key in keys]
            late = late or tasks[:1]  # the first of them is over its time
        self.kill_engine(batch, late[0] if late else None, why)
        with self.lock:
            self.finish_batch(batch)
            batch.node.connection.client.forget_command(batch.id, "")
        failure = {"stopped": why, "name": "KeyboardInterrupt", "text": "", "traceback": ""}
        for task in tasks:
            if task in late:
                task.fail(remote_exception(task, failure, batch.node.rank))
            else:
                self.requeue([task])

    def kill_engine(self, batch: SentBatch, task: CallTask | None, why: str) -> None:
        """Say what is lost, and ask the controller to kill the unresponsive engine of a batch."""
        node = batch.node

        def notify() -> None:
            if task is not None:
                seconds = self.timeouts.cancel_grace
                text = restart_notice(repr(task.call), node.rank, why, seconds, self.uses())
                task.sink.write(node.rank, "stderr", text)

        self.renew_engine(node, notify, _("a call did not stop"))

    def renew_engine(self, node: PoolNode, notify: Callable[[], None], why: str) -> None:
        """Have the engine of a node end, and another take its place."""
        with self.lock:
            engine, node.engine, node.sent_context = node.engine, "", None
        if engine:  # else it is gone already
            restart_engine(node, engine, notify, self.on_loss, why)

    def close(self, why: str) -> None:
        """Accept no more tasks; fail those that wait."""
        with self.lock:
            self.closed = why
            entries = self._queue.take_all()
            for node in self.nodes.values():
                entries += node.pinned
                for batch in node.batches.values():
                    entries += batch.take_all()
                    node.connection.client.reply_handlers.pop(batch.id, None)
                node.batches.clear()
                node.pinned.clear()
        error = SkyClusterLost(why)
        for entry in entries:
            entry.fail(error)


# -- Restart of an engine whose call does not stop ------------------------------------------------

KILL_SECONDS = 5.0
"""Time for the controller to report that a killed engine is gone."""


def restart_engine(
    node: PoolNode,
    engine: str,
    notify: Callable[[], None],
    on_loss: Callable[[PoolNode], None],
    why: str,
) -> None:
    """Ask the controller to kill an engine, in a thread; call `notify` before, `on_loss` after."""

    def ask() -> None:
        with contextlib.suppress(Exception):  # such as a stderr that is closed
            notify()
        with contextlib.suppress(SkyError):  # a lost cluster is reported elsewhere
            client = node.connection.client
            if client.engines_by_rank.get(node.cluster_rank) == engine:  # and not the next one
                ranks = [node.cluster_rank]
                node.connection.ask_controller(Kill(None, ranks, why))
            until = time.monotonic() + KILL_SECONDS
            while (
                client.engines_by_rank.get(node.cluster_rank) == engine and time.monotonic() < until
            ):
                time.sleep(0.02)
            on_loss(node)

    threading.Thread(target=ask, name="sky-kill", daemon=True).start()


# -- Handling of results, errors and stream items that nodes send, in the order of the prints -----

OUTPUT_SECONDS = 0.5
"""Time that a result waits for outputs printed before it, which come by another route."""

LEAVING = "SkyLeaving"
"""Error of a call that was interrupted because its machine is taken away."""
MOVED = "SkySharedMoved"
"""Error of a call on a machine that others have taken the place of, with what it shared."""

_log = logging.getLogger(__name__)


class ResultHandler(Receiver):
    """Handler of the messages of nodes, in the thread of the client.

    Parameters
    ----------
    dispatcher
        Owner of the calls.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher

    def handle(self, batch: SentBatch, reply: JupyterMessage | Exception) -> None:
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

    def show_output(self, batch: SentBatch, message: JupyterMessage) -> None:
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
        for values in reports:
            try:
                self.handle_tuple(values, batch)
            except Exception:  # one result must not hold up the others
                _log.exception("a report of a node could not be processed")
        if batch.is_final and not batch.held_results:
            with self.dispatcher.lock:
                self.dispatcher.finish_batch(batch)
                self.dispatcher.dispatch()

    @handles(Values)
    def _take_values(self, report: Values, batch: SentBatch) -> None:
        """Take results that are numbers and short texts."""
        self.dispatcher.finish_values(batch, report.keys, report.values, report.seconds)

    @handles(Value)
    def _take_value(self, report: Value, batch: SentBatch) -> None:
        key, payload, seconds = report.key, report.payload, report.seconds
        if not self._set_value(batch, key, payload, seconds):
            task = self.dispatcher.finish_task(batch, key, seconds)
            if task is not None:
                self._resolve(task, batch, payload)
        if has_blobs(payload):
            files = [part.file for part in payload if isinstance(part, Blob) and part.file]
            node, descriptors = batch.node, [file.descriptor for file in files]
            self.dispatcher.send_command(node, node.engine, ReleaseFiles(descriptors))

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

    @handles(Failed)
    def _take_error(self, report: Failed, batch: SentBatch) -> None:
        failure = report.failure
        task = self.dispatcher.finish_task(batch, report.key, report.seconds)
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

    @handles(StreamBegun)
    def _open_stream(self, report: StreamBegun, batch: SentBatch) -> None:
        key = report.key
        task = batch.task(key)
        assert task is not None
        node, engine = batch.node, batch.node.engine
        is_first = task.stream is None
        buffer = task.stream = task.stream or ItemBuffer()
        buffer.on_consumed = lambda count: self.dispatcher.send_command(
            node, engine, Consumed(batch.id, key, count)
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

    @handles(Item)
    def _take_item(self, report: Item, batch: SentBatch) -> None:
        task = batch.tasks.get(report.key)
        if task is None or task.stream is None:
            return
        if task.stream.is_repeated():
            task.stream.on_consumed(1)
        else:
            task.stream.add([join((report.data,), _no_blob)])

    @handles(StreamUnread)
    def _note_unread(self, report: StreamUnread, batch: SentBatch) -> None:
        task = batch.tasks.get(report.key)
        if task is not None and task.stream is not None and not task.stream.empty():
            task.stream.unread_on = batch.node.rank
            self.dispatcher.note_unread(task)

    @handles(Saved)
    def _keep_save(self, report: Saved, batch: SentBatch) -> None:
        """Keep a save of a call; one of a node that was given up comes too late."""
        task = batch.tasks.get(report.key)
        if task is not None and task.recovery is not None:
            task.recovery.take(report.state, report.name, report.data)
            task.losses.clear()
            if batch.node.recalls_saved and task.is_saved:
                self.dispatcher.groups.recall(batch, report.key)

    @handles(StreamEnded)
    def _end_stream(self, report: StreamEnded, batch: SentBatch) -> None:
        task = self.dispatcher.finish_task(batch, report.key)
        if task is not None and task.stream is not None:
            task.stream.finish("end")

    @handles(InputConsumed)
    def _acknowledge(self, report: InputConsumed, batch: SentBatch) -> None:
        if task := batch.tasks.get(report.key):
            for stream_sender in task.packed.stream_senders:
                if stream_sender.number == report.number:
                    stream_sender.acknowledge((batch.id, report.key), report.count)

    @handles(Returned)
    def _requeue(self, report: Returned, batch: SentBatch) -> None:
        keys = report.keys
        with self.dispatcher.lock:
            plain = batch.take_unstarted(keys)
        tasks = [task for key in keys if (task := self.dispatcher.finish_task(batch, key))]
        for task in tasks:
            task.attempts -= 1
        self.dispatcher.requeue(tasks if plain is None else [plain, *tasks])

    @handles(MissingPart)
    def _send_missing(self, report: MissingPart, batch: SentBatch) -> None:
        if task := self.dispatcher.finish_task(batch, report.key):
            task.attempts -= 1
            self.dispatcher.fetch_blob(batch.node, task, report.name)

    @handles(ProcessLost)
    def _take_loss(self, report: ProcessLost, batch: SentBatch) -> None:
        """Handle the death of the process of a single call."""
        if task := self.dispatcher.finish_task(batch, report.key):
            self.dispatcher.on_task_lost(task, batch.node, report.why, at_fault=True)


def _nbytes(segment: Segment) -> int:
    return segment.size if isinstance(segment, Blob) else memoryview(segment).nbytes


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


# -- Timeouts of calls, enforced by the notebook where an engine cannot enforce them --------------
#
# C code that keeps the interpreter to itself keeps an engine from hearing, and from stopping, a
# call. Then the future gets its error here, and the controller kills the engine.

TICK_SECONDS = 0.05
SLACK_SECONDS = 0.45
"""Delay after a call's limit within which its engine must report: half a second in all."""
STOP_TIMEOUT_SECONDS = {"timeout": 0.6, "cancel": 1.5, "close": 12.0}
"""Time that an engine may take to report that it has stopped a call, by reason."""


class TimeoutMonitor:
    """Monitor of calls that have a time limit or were asked to stop.

    Parameters
    ----------
    abandon
        Called with a batch whose engine does not end its calls, and why they should have ended.
    """

    def __init__(self, abandon: Callable[[SentBatch, str], None]) -> None:
        self._abandon = abandon
        self.cancel_grace = CANCEL_GRACE_SECONDS
        """Time that a call may take to stop when another call of its group has failed."""
        self._watched: dict[str, SentBatch] = {}
        self._lock = threading.Lock()
        self._is_running = False

    def watch(self, batch: SentBatch) -> None:
        """Monitor a batch until its end."""
        with self._lock:
            self._watched[batch.id] = batch
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="sky-timeouts", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(TICK_SECONDS)
            now = time.monotonic()
            with self._lock:
                open_ = {
                    name: b for name, b in self._watched.items() if b.open_count and not b.is_final
                }
                self._watched = open_
                if not open_:
                    self._is_running = False
                    return
                batches = list(open_.values())
            for batch in batches:
                self._check_batch(batch, now)

    def _check_batch(self, batch: SentBatch, now: float) -> None:
        request = batch.stop_request
        if request is not None and batch.has_any(request.keys):
            patience = STOP_TIMEOUT_SECONDS.get(request.why, self.cancel_grace + SLACK_SECONDS)
            if now - request.since > patience:
                self._abandon(batch, request.why)
            return
        times = batch.time_limits()
        if times and all(times) and now - batch.sent > sum(times) + SLACK_SECONDS:
            if self._has_started(batch):
                self._abandon(batch, "timeout")
            else:  # a cell is in its way
                batch.sent = now - sum(times)

    @staticmethod
    def _has_started(batch: SentBatch) -> bool:
        """Return whether its engine has started it, as reported by the controller."""
        node = batch.node
        if node.executor != "main":
            return True
        try:
            engines = node.connection.ask_controller(ListEngines()).engines
        except SkyError:
            return False
        running = next((e["running"] for e in engines if e["rank"] == node.cluster_rank), None)
        return running == f"calls-{batch.id}"


# -- Streams that nobody reads while their nodes wait, and calls that wait for these nodes --------


class UnreadStreams:
    """Calls whose generators wait on their nodes until items are read; each is reported once."""

    def __init__(self) -> None:
        self._tasks: list[CallTask] = []
        self._noted: WeakSet[ItemBuffer] = WeakSet()

    def add(self, task: CallTask) -> None:
        """Add a call whose node has reported that its stream is not read."""
        if task.stream is not None and task.stream not in self._noted:
            self._noted.add(task.stream)
            self._tasks.append(task)

    def report(self, waiting: Waiting) -> None:
        """Say, in the output of a call that waits for a node, which streams keep nodes busy."""
        if not self._tasks:
            return
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            assert task.stream is not None
            rank = task.stream.unread_on
            if rank is None:  # it has been read since
                self._noted.discard(task.stream)
                continue
            text = unread_notice(repr(task.call), rank, repr(waiting.call))
            # in a thread: the caller holds a lock, and sys.stderr may be the user's own
            arguments = rank, "stderr", text
            threading.Thread(target=waiting.sink.write, args=arguments, daemon=True).start()


# -- Notices of pools: lines that are shown in the output of a call -------------------------------


def restart_notice(call: str, rank: int, why: str, seconds: float, uses: str) -> str:
    """Return the line that is shown before an engine is restarted because of a call.

    Parameters
    ----------
    call
        The call that does not stop.
    rank
        Its node.
    why
        Reason for which it should have stopped, as of `StopReason`.
    seconds
        Time it had to stop after the failure of its group.
    uses
        What else is known to run below the engines; empty if nothing is.

    Examples
    --------
    >>> print(restart_notice("svd(a)", 1, "timeout", 60.0, ""), end="")  # doctest: +ELLIPSIS
    jupyter_sky: svd(a) did not stop at its time limit; the engine of node 1 is restarted...
    """
    late = {
        "group": f"did not stop within {format_elapsed(seconds)} after its group had ended",
        "timeout": "did not stop at its time limit",
        "close": "did not stop after its stream was closed",
    }.get(why, "did not stop when it was cancelled")
    known = _(", and {uses} may be").format(uses=uses) if uses else ""
    return _(
        "jupyter_sky: {call} {late}; the engine of node {rank} is restarted. "
        "The variables of its cells, what calls have kept there and its child "
        "processes are lost{known}\n"
    ).format(call=call, late=late, rank=rank, known=known)


def unread_notice(stream: str, rank: int, waiting: str) -> str:
    """Return the line that is shown when a call waits for a node that a stream blocks.

    Examples
    --------
    >>> print(unread_notice("numbers(9)", 0, "add(1)"), end="")
    jupyter_sky: add(1) waits for a node, and node 0 waits until items of numbers(9) are read: \
read the stream, or close() it
    """
    return _(
        "jupyter_sky: {waiting} waits for a node, and node {rank} waits until "
        "items of {stream} are read: read the stream, or close() it\n"
    ).format(waiting=waiting, rank=rank, stream=stream)


# -- Restart of the calls of an ``@`` whose nodes form a process group, when one of them is lost --
#
# The processes of PyTorch, JAX and MPI wait for each other: a call that is sent again alone would
# wait for ever, and so would those that have lost it. As with ``torchrun``, all begin again
# together, under a name of their own at the rendezvous.

LOSS_SECONDS = 5.0
"""Time in which the loss of a node is known, after the others have failed because of it."""
MAX_WORLDS = 3
"""Times that processes begin again because they are not of one world."""


class GroupRestarts:
    """Restarts of the broadcasts of a pool.

    Parameters
    ----------
    owner
        Dispatcher of the pool.

    Attributes
    ----------
    kind : GroupKind, optional
        What begins again after a loss; None if calls do not depend on each other.
    """

    def __init__(self, owner: Dispatcher) -> None:
        self.kind: GroupKind | None = None
        self._owner = owner
        self._held: dict[CallTask, Callable[[], None]] = {}

    def restart(self, lost: CallTask, rank: int) -> bool:
        """Send all calls of a broadcast again; return False if it is none that has to be.

        Parameters
        ----------
        lost
            The call that was lost; no node has it.
        rank
            Its node.
        """
        broadcast = lost.group
        if self.kind is None or not isinstance(broadcast, Broadcast):
            return False
        with self._owner.lock:
            others = [task for task in broadcast.tasks if task is not lost]
            if any(not task.replayable or _has_failed(task) for task in broadcast.tasks):
                return False
            self._report(lost, rank)
            broadcast.generation += 1
            waiting = [lost]
            for task in others:
                waiting += self._recall(broadcast, task)
            if self.kind == "processes":
                for task in broadcast.tasks:
                    self._renew(task)
            align_saves([task.recovery for task in broadcast.tasks if task.recovery is not None])
        self._owner.requeue(waiting)
        return True

    def _report(self, lost: CallTask, rank: int) -> None:
        text = _("jupyter_sky: node {rank} has left {call!r}: all nodes begin it again").format(
            rank=rank, call=lost.call
        )
        if self.kind == "processes":
            text += _(", in new processes. The variables of cells there are lost")
        lost.sink.write(rank, "stderr", text + "\n")

    def _recall(self, broadcast: Broadcast, task: CallTask) -> list[CallTask]:
        """Take a call back from its node; return what is to be sent again at once."""
        if self._held.pop(task, None) is not None:
            return [task]
        if task.future.done():  # the others need it once more, and nobody its result
            again = replace(task, future=RemoteFuture())
            broadcast.tasks[broadcast.tasks.index(task)] = again
            return [again]
        if (batch := self._owner.find_batch(task)) is not None:
            self._replace_sent(batch, task)
        return []  # it waits for its node

    def recall(self, batch: SentBatch, key: int) -> None:
        """Stop a call on its node, and let it go on elsewhere from its newest save."""
        with self._owner.lock:
            if (task := batch.tasks.get(key)) is not None:
                self._stand_in(batch, key, task)
                self._owner.stop(batch, [key], "cancel")

    def _replace_sent(self, batch: SentBatch, task: CallTask) -> None:
        """Stop a call on its node, and send it again when it has ended, however it does."""
        self._stand_in(batch, task.key, task)
        if self.kind == "calls":
            self._owner.stop(batch, [task.key], "cancel")
        else:  # those that wait in a library for a lost process do not hear
            self._owner.renew_engine(batch.node, _say_nothing, _("its group begins again"))

    def _stand_in(self, batch: SentBatch, key: int, task: CallTask) -> None:
        """Let another take the end of a call on its node, and send the call again then."""
        stand_in = replace(
            task, call=replace(task.call, retry=AT_MOST_ONCE), future=RemoteFuture(), group=None
        )
        stand_in.future.add_done_callback(lambda _: self._owner.requeue([task]))
        stand_in.recovery = None
        batch.tasks[key] = stand_in
        task.future.sent = None

    def _renew(self, task: CallTask) -> None:
        node = self._owner.nodes.get(-1 if task.rank is None else task.rank)
        if node is not None:
            self._owner.renew_engine(node, _say_nothing, _("its group begins again"))

    # -- errors that a loss may have caused --------------------------------------------------------

    def take_error(
        self, batch: SentBatch, task: CallTask, error: BaseException, settle: Callable[[], None]
    ) -> bool:
        """Take the error of a call that may be due to the loss of another node.

        Parameters
        ----------
        settle
            Handles the error, should none be lost.

        Returns
        -------
        bool
            Whether the error is not to be handled now.
        """
        broadcast = task.group
        if self.kind is None or not isinstance(broadcast, Broadcast):
            return False
        if isinstance(error, SkyWorldChanged):
            return broadcast.generation < MAX_WORLDS and self.restart(task, batch.node.rank)
        if not isinstance(error, RuntimeError):  # what these libraries raise
            return False
        with self._owner.lock:
            self._held[task] = settle
            if all(each in self._held or each.future.done() for each in broadcast.tasks):
                due = [each for each in broadcast.tasks if each in self._held]
            else:
                due = []
                timer = threading.Timer(LOSS_SECONDS, lambda: self._settle(task, settle))
                timer.daemon = True
                timer.start()
        for each in due:
            self._settle(each, self._held[each])
        return True

    def _settle(self, task: CallTask, settle: Callable[[], None]) -> None:
        with self._owner.lock:
            if self._held.get(task) is settle:
                del self._held[task]
                settle()


def _has_failed(task: CallTask) -> bool:
    return task.future.done() and not task.future.has_value


def _say_nothing() -> None:
    """Say nothing: all that is lost was said before."""
