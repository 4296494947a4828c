"""Dispatcher: assigns calls to nodes and handles their loss.

Calls wait here, not on nodes: each node has as many as it has slots. Quick calls travel together,
as many as take `BATCH_SECONDS`; what has not begun soon comes back and goes elsewhere.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyClusterLost, SkyError, SkyTaskLost
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.calls.call_durations import CallDurations
from jupyter_sky.execution.functions.calls.call_logs import journal_name
from jupyter_sky.execution.functions.calls.call_queue import CallQueue, Waiting
from jupyter_sky.execution.functions.calls.engine_restart import restart_engine
from jupyter_sky.execution.functions.calls.gathered_calls import GatheredCalls, PlainCalls
from jupyter_sky.execution.functions.calls.group_restart import GroupRestarts
from jupyter_sky.execution.functions.calls.nodes import PoolNode, idle_node, next_node
from jupyter_sky.execution.functions.calls.notices import restart_notice
from jupyter_sky.execution.functions.calls.results import ResultHandler
from jupyter_sky.execution.functions.calls.sent_batch import BatchedCall, SentBatch, StopRequest
from jupyter_sky.execution.functions.calls.tasks import (
    CallTask,
    StopReason,
    loss_error,
    remote_exception,
)
from jupyter_sky.execution.functions.calls.timeouts import TimeoutMonitor
from jupyter_sky.execution.functions.calls.unread_streams import UnreadStreams
from jupyter_sky.execution.serialization.payload import wrap

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
        commands: list[tuple] = []
        if node.sent_context != (node.engine, context):
            node.sent_context = (node.engine, context)
            commands.append(("open", context))
        commands.append(batch.command(context["pool"]))
        tasks = list(batch.tasks.values())
        for task in tasks:
            task.attempts += 1
            task.future.sent = BatchedCall(self, batch, task.key)
        client = node.connection.client
        batch.id = client.send_command(
            node.engine,
            wrap(commands),
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

    def send_command(self, node: PoolNode, engine: str, command: tuple) -> None:
        """Send a command to a node, unless its engine is another by now."""
        if engine and engine == node.engine:
            node.connection.client.send_command(engine, wrap([command]))

    def _feed(
        self, batch: SentBatch, task: CallTask, number: int
    ) -> Callable[[tuple[str, Any]], None]:
        """Return a function that sends items to a call; items that arrive meanwhile are batched."""
        unsent: deque[tuple[str, Any]] = deque()
        engine, client = batch.node.engine, batch.node.connection.client

        def send() -> None:
            items = [unsent.popleft() for __ in range(len(unsent))]
            if items:
                self.send_command(batch.node, engine, ("feed", batch.id, task.key, number, items))

        def feed(item: tuple[str, Any]) -> None:
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
        self.send_command(node, node.engine, ("stop", batch.id, keys, why))
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
