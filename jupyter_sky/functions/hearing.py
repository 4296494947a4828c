"""What nodes say of their calls, taken in: results, errors, items, in the order of the prints."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from ..errors import SkyError
from .nodes import Batch
from .payload import Blob, Payload, join, unwrap
from .streaming import Buffer, ItemStream
from .tasks import RemoteFuture, failure

if TYPE_CHECKING:
    from .dispatch import Dispatcher

OUTPUT_SECONDS = 0.5
"""How long a result waits for what was printed before it: that takes another way."""

_log = logging.getLogger(__name__)


class Hearing:
    """Takes in what nodes say, in the thread of the client.

    Parameters
    ----------
    to
        Whose calls they are.
    """

    def __init__(self, to: Dispatcher) -> None:
        self.to = to

    def hear(self, batch: Batch, said: Any) -> None:
        with self.to.lock:  # until it is sent altogether
            pass
        if isinstance(said, Exception):
            self.to.lost(batch, said)
            return
        content = said["content"]
        batch.final = batch.final or content["final"]
        told = unwrap(said["buffers"])
        if batch.held or batch.printed < content["printed"]:
            batch.held.append((content["printed"], told))
            if len(batch.held) == 1:
                self._release_later(batch)
        else:
            self._take_in(batch, told)

    def _release_later(self, batch: Batch) -> None:
        """Wait no longer than a moment for what was printed."""
        loop = batch.node.link.client._io_loop
        timer = threading.Timer(
            OUTPUT_SECONDS, lambda: loop.add_callback(lambda: self.release(batch, 1 << 62))
        )
        timer.daemon = True
        timer.start()

    def release(self, batch: Batch, printed: int) -> None:
        while batch.held and batch.held[0][0] <= printed:
            _, told = batch.held.popleft()
            self._take_in(batch, told)

    def show(self, batch: Batch, message: dict[str, Any]) -> None:
        kind, content = message["header"]["msg_type"], message["content"]
        sink = next(iter(batch.tasks.values())).sink if batch.tasks else None
        if kind == "stream" and sink is not None:
            sink.write(batch.node.rank, content["name"], content["text"])
        elif kind == "display_data" and sink is not None:
            sink.display(batch.node.rank, content)
        elif kind not in _COUNTED:
            return
        batch.printed += 1
        self.release(batch, batch.printed)

    def _take_in(self, batch: Batch, told: list[tuple]) -> None:
        for kind, *rest in told:
            try:
                getattr(self, f"_on_{kind}")(batch, *rest)
            except Exception:  # one result must not hold up the others
                _log.exception("what a node has said could not be taken in")
        if batch.final and not batch.held:
            with self.to.lock:
                self.to.end(batch)
                self.to.pump()

    def _on_value(self, batch: Batch, key: int, payload: Payload, seconds: float) -> None:
        if task := self.to.done(batch, key, seconds):
            try:
                task.future.settle(join(payload, _no_blob))
            except Exception as error:
                text = f"the result of {task.call!r} cannot be opened here: {error}"
                task.future.fail(_chained(SkyError(text), error))

    def _on_error(self, batch: Batch, key: int, said: dict[str, Any], seconds: float) -> None:
        task = self.to.done(batch, key, seconds)
        if said.get("stuck"):
            self.to.kill(batch, "a call did not stop")
        if task is None or (said["stopped"] and task.future.done() and task.stream is None):
            return
        error = failure(task, said, batch.node.rank)
        retry = task.call.retry
        if (
            task.attempts <= retry.times
            and isinstance(error, retry.on)
            and task.replayable
            and not said["stopped"]
        ):
            self.to.again([task])
        elif task.stream is not None:
            task.stream.finish("error", error)
        else:
            task.future.fail(error)

    def _on_stream(self, batch: Batch, key: int) -> None:
        task = batch.tasks[key]
        node, engine = batch.node, batch.node.engine
        # of the stream and its future nothing is kept here: it ends when its user lets go of it
        task.stream = Buffer()
        stream = ItemStream(
            task.stream,
            lambda count: self.to.order(node, engine, ("took", batch.id, key, count)),
            lambda: self.to.stop(batch, [key], "close"),
        )
        future, task.future = task.future, RemoteFuture()
        task.future.settle(None)
        if future.done():
            stream.close()
        future.settle(stream)

    def _on_item(self, batch: Batch, key: int, data: bytes) -> None:
        task = batch.tasks.get(key)
        if task is not None and task.stream is not None:
            task.stream.add([join((data,), _no_blob)])

    def _on_end(self, batch: Batch, key: int, seconds: float) -> None:
        task = self.to.done(batch, key)
        if task is not None and task.stream is not None:
            task.stream.finish("end")

    def _on_drawn(self, batch: Batch, key: int, number: int, count: int) -> None:
        if task := batch.tasks.get(key):
            for feeder in task.feeders:
                if feeder.number == number:
                    feeder.drawn((batch.id, key), count)

    def _on_back(self, batch: Batch, keys: list[int]) -> None:
        back = [task for key in keys if (task := self.to.done(batch, key))]
        for task in back:
            task.attempts -= 1
        self.to.again(back)

    def _on_missing(self, batch: Batch, key: int, name: str) -> None:
        if task := self.to.done(batch, key):
            task.attempts -= 1
            self.to.hold(batch.node, task, name)

    def _on_lost(self, batch: Batch, key: int, why: str) -> None:
        """Take in that the process of a single call has died."""
        if task := self.to.done(batch, key):
            self.to.lose(task, batch.node, why, guilty=True)


_COUNTED = {"stream", "display_data", "update_display_data", "execute_result", "clear_output"}


def _no_blob(blob: Blob) -> memoryview:
    raise SkyError(f"the result has a part that was not sent ({blob.size} bytes)")


def _chained(error: SkyError, cause: BaseException) -> SkyError:
    error.__cause__ = cause
    return error
