"""Which call goes to which node, and what becomes of it.

Calls wait here, not on nodes: each node has as many as it has slots. Quick calls travel together,
as many as take `BATCH_SECONDS`; what has not begun soon comes back and goes elsewhere.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Any

from ..errors import SkyClusterLost, SkyError, SkyTaskLost
from .clock import Clock
from .hearing import Hearing
from .nodes import Batch, Node
from .payload import wrap
from .tasks import Task, failure

if TYPE_CHECKING:
    from ..engines.link import Link

BATCH_SECONDS = 0.05
BATCH_CALLS = 1000
QUICKEST = 2e-5
"""What a call takes at least, in seconds, with all that is done about it."""
MOST_LOSSES = 3
KILL_SECONDS = 5.0


class Dispatcher:
    """Sends the calls of one pool to its nodes.

    Parameters
    ----------
    describe
        Gives what a node is told before its first call, and again when that has changed.
    on_loss
        Called with a node whose engine has died, to bring it back.
    """

    def __init__(
        self, describe: Callable[[Node], dict[str, Any]], on_loss: Callable[[Node], None]
    ) -> None:
        self.describe, self.on_loss = describe, on_loss
        self.nodes: dict[int, Node] = {}
        self.closed = ""
        self.lock = threading.RLock()
        self._queue: deque[Task] = deque()
        self._keys = itertools.count(1)
        self._last = -1
        self._pace: dict[str, float] = {}
        self._recent: deque[tuple[Link, str]] = deque()
        self.clock = Clock(self)
        self.hearing = Hearing(self)
        self.hold: Callable[[Node, Task, str], None] = lambda node, task, name: None
        """Brings a blob that a node lacks, and sends the task again."""
        self.on_use: Callable[[], None] = lambda: None
        """Called when calls come, and when some have ended."""

    # -- tasks come ------------------------------------------------------------------------------

    def submit(self, tasks: Iterable[Task]) -> None:
        """Take tasks, and send what there is room for."""
        self.on_use()
        with self.lock:
            if self.closed:
                raise SkyError(self.closed)
            for task in tasks:
                task.key = next(self._keys)
                self._line(task).append(task)
            self._pump()

    def again(self, tasks: Iterable[Task]) -> None:
        """Put tasks back at the head of the line."""
        with self.lock:
            for task in reversed(list(tasks)):
                if task.future.done():
                    continue
                if self.closed:
                    task.future.fail(SkyClusterLost(self.closed))
                else:
                    self._line(task).appendleft(task)
            self._pump()

    def _line(self, task: Task) -> deque[Task]:
        if task.rank is None:
            return self._queue
        node = self.nodes.get(task.rank)
        if node is None:
            lost = deque[Task]()
            task.future.fail(SkyTaskLost(f"{task.call!r}: node {task.rank} has left the pool"))
            return lost
        return node.pinned

    def waiting(self) -> int:
        """Return how many tasks wait for a node."""
        return len(self._queue)

    def calls(self) -> int:
        """Return how many tasks there are, those that wait and those that nodes have."""
        with self.lock:
            pinned = sum(len(node.pinned) for node in self.nodes.values())
        return len(self._queue) + pinned + self.load()

    def load(self) -> int:
        """Return how many tasks nodes have now."""
        with self.lock:
            nodes = list(self.nodes.values())
            return sum(len(batch.tasks) for node in nodes for batch in node.batches.values())

    def at_work(self, futures: Container[int]) -> tuple[int, int]:
        """Return how many of some calls, by the ids of their futures, nodes have; and the nodes."""
        with self.lock:
            nodes = [node for node in self.nodes.values() if node.engine]
            batches = [batch for node in nodes for batch in node.batches.values()]
            sent = [task for batch in batches for task in batch.tasks.values()]
        return sum(id(task.future) in futures for task in sent), len(nodes)

    # -- and go ----------------------------------------------------------------------------------

    def pump(self) -> None:
        """Send what there is room for."""
        with self.lock:
            self._pump()

    def _pump(self) -> None:
        for node in self.nodes.values():
            if node.engine and not node.alive and not node.batches:
                self._gone(node)  # it died with nothing to do, so nobody was told
            while node.pinned and node.free > 0:
                task = node.pinned.popleft()
                if not task.future.done():
                    self._send(node, [task])
        while self._queue:
            if self._queue[0].future.done():
                self._queue.popleft()
                continue
            node = self._next_node()
            if node is None:
                return
            if self._queue[0].alone:
                if node.batches and not (node := self._idle_node()):
                    return
                node.reserved = True
            self._last = node.rank
            self._send(node, self._take())

    def _next_node(self) -> Node | None:
        """Return the free node that has least to do; among equals, the one whose turn it is."""
        free = [node for node in self.nodes.values() if node.free > 0 and not node.aside]
        if not free:
            return None
        count = max(self.nodes) + 1
        return min(free, key=lambda n: (len(n.batches), (n.rank - self._last - 1) % count))

    def _idle_node(self) -> Node | None:
        idle = (n for n in self.nodes.values() if n.free == n.slots and not n.aside)
        return next(idle, None)

    def _take(self) -> list[Task]:
        """Take as many quick tasks from the line as one message should have."""
        first = self._queue.popleft()
        if first.alone or not self._is_quick(first):
            return [first]
        slots = sum(node.slots for node in self.nodes.values() if node.engine)
        most = min(BATCH_CALLS, -(-len(self._queue) // (2 * max(slots, 1))))
        taken, seconds = [first], self._seconds(first)
        while len(taken) < most and self._queue:
            task = self._queue[0]
            if task.alone or not self._is_quick(task):
                break
            seconds += self._seconds(task)
            if seconds > BATCH_SECONDS:
                break
            self._queue.popleft()
            if not task.future.done():
                taken.append(task)
        return taken

    def _is_quick(self, task: Task) -> bool:
        return task.replayable and task.call.function.name in self._pace

    def _seconds(self, task: Task) -> float:
        return max(self._pace.get(task.call.function.name, 1.0), QUICKEST)

    def _send(self, node: Node, tasks: list[Task]) -> None:
        """Send tasks to a node; what keeps them from going is their result."""
        try:
            self._go(node, tasks)
        except Exception as error:
            node.reserved = False
            for task in tasks:
                self._fail(task, error)

    def _go(self, node: Node, tasks: list[Task]) -> None:
        batch = Batch(node, {task.key: task for task in tasks})
        told = self.describe(node)
        orders: list[tuple] = []
        if node.told != (node.engine, told):
            node.told = (node.engine, told)
            orders.append(("open", told))
        calls = [(t.key, t.function, t.arguments, t.timeout, t.inlets, t.broadcast) for t in tasks]
        orders.append(("calls", told["pool"], calls))
        for task in tasks:
            task.attempts += 1
            self._watch(task, batch)
        client = node.link.client
        batch.id = client.order(
            node.engine,
            wrap(orders),
            lambda said: self.hearing.hear(batch, said),
            lambda message: self.hearing.show(batch, message),
        )
        node.batches[batch.id] = batch
        if any(task.timeout is not None for task in tasks):
            self.clock.watch(batch)
        for task in tasks:
            for feeder in task.feeders:
                feeder.join((batch.id, task.key), self._feed(batch, task, feeder.number))

    def _watch(self, task: Task, batch: Batch) -> None:
        """Let a task's future stop it where it runs."""
        task.future.at_work = lambda: task.key in batch.tasks and bool(batch.id)
        task.future.stop = lambda: self.stop(batch, [task.key], "cancel")

    def order(self, node: Node, engine: str, order: tuple) -> None:
        if engine and engine == node.engine:
            node.link.client.order(engine, wrap([order]))

    def _feed(self, batch: Batch, task: Task, number: int) -> Callable[[tuple[str, Any]], None]:
        """Return what sends an item to a call; items that come meanwhile go together."""
        out: deque[tuple[str, Any]] = deque()
        engine, loop = batch.node.engine, batch.node.link.client._io_loop

        def send() -> None:
            items = [out.popleft() for _ in range(len(out))]
            if items:
                self.order(batch.node, engine, ("feed", batch.id, task.key, number, items))

        def feed(item: tuple[str, Any]) -> None:
            out.append(item)
            loop.add_callback(send)

        return feed

    def end(self, batch: Batch) -> None:
        self.on_use()
        batch.node.batches.pop(batch.id, None)
        batch.node.reserved = False
        self._recent.append((batch.node.link, batch.id))
        while len(self._recent) > 100:  # what a call's threads print later is shown, too
            link, old = self._recent.popleft()
            link.client.sinks.pop(old, None)

    def done(self, batch: Batch, key: int, seconds: float | None = None) -> Task | None:
        with self.lock:
            task = batch.tasks.pop(key, None)
        if task is None:
            return None
        for feeder in task.feeders:
            feeder.leave((batch.id, key))
        if seconds is not None:
            name = task.call.function.name
            before = self._pace.get(name, seconds)
            self._pace[name] = 0.8 * before + 0.2 * seconds
        task.future.stop = None
        return task

    # -- nodes go ----------------------------------------------------------------------------------

    def lost(self, batch: Batch, error: Exception) -> None:
        """Take in that an engine is gone, with all that it had."""
        node = batch.node
        with self.lock:
            if node.engine:
                for each in node.batches.values():
                    each.crowded = len(node.batches) > 1
                self._gone(node)
            self.hearing.release(batch, 1 << 62)
            self.end(batch)
            tasks = list(batch.tasks.values())
            batch.tasks.clear()
        guilty = len(tasks) == 1 and not batch.crowded
        gone = isinstance(error, SkyClusterLost)
        elsewhere = any(other.link is not node.link for other in self.nodes.values())
        for task in reversed(tasks):
            for feeder in task.feeders:
                feeder.leave((batch.id, task.key))
            if gone and not elsewhere:
                self._fail(task, error)
            else:
                self.lose(task, node, "its engine died", guilty and not gone)

    def dismiss(self, link: Link) -> None:
        """Forget the nodes of a cluster; what waits for one of them waits in vain."""
        with self.lock:
            for node in list(self.nodes.values()):
                if node.link is link:
                    self.drop(node)
            self._pump()

    def drop(self, node: Node) -> None:
        """Forget one node; what waits for it waits in vain."""
        with self.lock:
            self.nodes.pop(node.rank, None)
            for task in node.pinned:
                text = f"{task.call!r}: node {node.rank} has left the pool"
                self._fail(task, SkyTaskLost(text, hint="send it again"))
            self._pump()

    def _gone(self, node: Node) -> None:
        node.engine, node.told = "", None
        self.on_loss(node)

    def lose(self, task: Task, node: Node, why: str, guilty: bool) -> None:
        if task.future.done() and task.stream is None:
            return
        task.alone = True
        if guilty:
            task.losses.append(f"node {node.rank}: {why}")
        if not task.replayable or task.rank is not None:
            what = "it streams" if not task.replayable else "it was for this very node"
            text = f"{task.call!r} was lost with node {node.rank} ({why}); {what}"
            self._fail(task, SkyTaskLost(text, hint="send it again"))
        elif len(task.losses) >= MOST_LOSSES:
            text = f"{task.call!r} was lost {len(task.losses)} times ({'; '.join(task.losses)})"
            hint = "it seems to end the process that runs it, and is not sent again"
            self._fail(task, SkyTaskLost(text, hint=hint))
        else:
            self.again([task])

    @staticmethod
    def _fail(task: Task, error: BaseException) -> None:
        if task.stream is not None:
            task.stream.finish("error", error)
        task.future.fail(error)

    def stop(self, batch: Batch, keys: list[int], why: str) -> None:
        """Stop calls where they run."""
        node = batch.node
        batch.stopped = batch.stopped or (why, time.monotonic())
        self.order(node, node.engine, ("stop", batch.id, keys, why))
        self.clock.watch(batch)

    def give_up(self, batch: Batch, why: str) -> None:
        """End the calls of an engine that says nothing, and the engine."""
        self.kill(batch, "a call did not stop")
        with self.lock:
            self.end(batch)
            tasks = list(batch.tasks.values())
            batch.tasks.clear()
            batch.node.link.client.forget_order(batch.id, "")
        said = {"stopped": why, "name": "KeyboardInterrupt", "text": "", "traceback": ""}
        for number, task in enumerate(tasks):
            if number == 0:
                self._fail(task, failure(task, said, batch.node.rank))
            else:
                self.again([task])

    def kill(self, batch: Batch, why: str) -> None:
        """Let the head kill the engine of a batch, which does not listen."""
        node = batch.node
        with self.lock:
            engine, node.engine, node.told = node.engine, "", None
        if not engine:  # it is gone already
            return

        def ask() -> None:
            with contextlib.suppress(SkyError):  # where the cluster is gone, others are told
                node.link.head("kill", run=None, ranks=[node.place], why=why)
                until = time.monotonic() + KILL_SECONDS
                client = node.link.client
                while client._engines.get(node.place) == engine and time.monotonic() < until:
                    time.sleep(0.02)
                self.on_loss(node)

        threading.Thread(target=ask, name="sky-kill", daemon=True).start()

    def close(self, why: str) -> None:
        """Take no more; fail what waits."""
        with self.lock:
            self.closed = why
            tasks = [*self._queue, *(t for node in self.nodes.values() for t in node.pinned)]
            for node in self.nodes.values():
                for batch in node.batches.values():
                    tasks += batch.tasks.values()
                    node.link.client.hearers.pop(batch.id, None)
                node.batches.clear()
                node.pinned.clear()
            self._queue.clear()
        error = SkyClusterLost(why)
        for task in tasks:
            self._fail(task, error)
