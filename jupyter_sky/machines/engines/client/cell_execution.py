"""Execution of one cell on one engine, as its notebook sees it."""

from __future__ import annotations

import math
from concurrent.futures import Future

from jupyter_sky.machines.engines.client.client import Sink
from jupyter_sky.machines.engines.wire.messages import COUNTED_TYPES, JupyterMessage


class CellExecution:
    """One cell on one engine.

    Attributes
    ----------
    reply : Future
        The message with its outcome.
    output : Future
        Done when everything that it has printed has been shown: as soon as as many messages have
        come as its reply counts, at the latest when the engine says that it is idle.
    """

    def __init__(self, rank: int, msg_id: str, sink: Sink) -> None:
        self.rank, self.msg_id = rank, msg_id
        self.reply: Future = Future()
        self.output: Future = Future()
        self._sink, self._received = sink, 0

    def set_futures(self, reply: Future) -> None:
        """Set the futures of the cell, before it is sent: it may end before `execute` returns."""
        self.reply, self.output = reply, reply.output  # type: ignore[attr-defined]
        reply.add_done_callback(lambda _: self._check_complete())

    def receive(self, message: JupyterMessage) -> None:
        """Process one message of the cell."""
        self._sink(message)
        if message["header"]["msg_type"] in COUNTED_TYPES:
            self._received += 1
            self._check_complete()

    def _check_complete(self) -> None:
        if self.reply.done() and not self.output.done() and not self.reply.exception():
            reply = self.reply.result()
            content = reply["content"] if isinstance(reply, dict) else {}
            printed = (content.get("sky") or {}).get("printed", math.inf)
            if self._received >= printed or content.get("status") == "aborted":
                self.output.set_result(None)

    def on_aborted(self, answer: Future) -> None:
        """Record the engine's reply to an abort request."""
        message = answer.result()
        waiting = message["content"].get("waiting", ()) if isinstance(message, dict) else ()
        if self.msg_id in waiting:
            for future, result in (
                (self.reply, {"content": {"status": "aborted"}}),
                (self.output, None),
            ):
                if not future.done():
                    future.set_result(result)
