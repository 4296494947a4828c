"""Server process of the shared state (``python -m``), and the controller's handle of it.

    python -m jupyter_sky.execution.functions.shared.shared_state_server < SPEC

The controller listens, and starts the server at the first connection, which it inherits: unused it
costs nothing. Traffic is encrypted; clients without the server's key are refused.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyVersionError
from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.messages import Receiver, handles
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.shared.messages import Cancel, CopyState, LoadState

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.shared.shared_objects import Responses

PING_SECONDS = 1.0
MISSED_PINGS = 2
TICK_MS = 200


class SharedStateServer(Receiver):
    """Server in its own process: sockets and timeouts around `SharedState`."""

    def __init__(self, order: dict[str, Any]) -> None:
        import zmq

        from jupyter_sky.execution.functions.shared.shared_state import SharedState
        from jupyter_sky.execution.functions.shared.state_copy import load_state, read_copy

        self.state, self.incarnation = SharedState(), uuid.uuid4().hex
        self._copy = Path(order["copy"]) if order["copy"] else None
        self._copied = time.monotonic()
        self._first_revision = self._copied_revision = 0
        self._has_moved = False
        if self._copy is not None and (copy := read_copy(self._copy)):
            load_state(self.state, copy)
            self._first_revision = self._copied_revision = self.state.revision
        self._missed: dict[bytes, int] = {}
        self._pinged = 0.0
        self._socket = zmq.Context.instance().socket(zmq.ROUTER)
        for option, value in {
            zmq.CURVE_SERVER: 1,
            zmq.CURVE_PUBLICKEY: order["public"].encode(),
            zmq.CURVE_SECRETKEY: order["secret"].encode(),
            zmq.ROUTER_MANDATORY: 1,  # raises for clients that are gone
            zmq.ROUTER_HANDOVER: 1,
            zmq.SNDHWM: 0,
            zmq.RCVHWM: 0,
            zmq.HEARTBEAT_IVL: 2000,
            zmq.HEARTBEAT_TIMEOUT: 8000,
            zmq.LINGER: 0,
        }.items():
            self._socket.setsockopt(option, value)
        for url, number in order["sockets"].items():
            self._socket.setsockopt(zmq.USE_FD, number)
            self._socket.bind(url)

    def run(self) -> None:
        """Serve until this process is ended."""
        while True:
            if self._socket.poll(TICK_MS):
                client, head, *frames = self._socket.recv_multipart()
                self._missed.setdefault(client, 0)
                number, content = json.loads(head)
                try:
                    self._handle(client, number, content, frames)
                except (KeyError, AttributeError, TypeError, ValueError, SkyVersionError) as error:
                    text = _("not understood: {error!r}").format(error=error)
                    self._reply(client, number, error=text)
            now = time.monotonic()
            self._send(self.state.expire(now))
            self._write_copy(now)
            if now - self._pinged > PING_SECONDS:
                self._pinged = now
                self._ping()

    def _handle(
        self, client: bytes, number: int, content: JsonObject, frames: Sequence[bytes]
    ) -> None:
        if content["kind"] == "pool":
            self.dispatch(self.decode(content), client, number, frames)
        elif self._has_moved:
            self._reply(client, number, moved=True)
        else:
            now, request = time.monotonic(), self.state.decode(content)
            self._send(self.state.handle_request(client, number, request, frames, now))

    @handles(CopyState)
    def _copy_state(
        self, request: CopyState, client: bytes, number: int, __: Sequence[bytes]
    ) -> None:
        """Send a copy of the state if it has changed; with ``move``, serve it no longer."""
        from jupyter_sky.execution.functions.shared.state_copy import dump_state

        changed = self.state.revision != request.since
        self._reply(client, number, dump_state(self.state) if changed else ())
        if request.move:
            self._has_moved = True
            for waiting in self.state.waiting_requests():
                self._reply(waiting.client, waiting.number, moved=True)

    @handles(LoadState)
    def _load_state(
        self, request: LoadState, client: bytes, number: int, frames: Sequence[bytes]
    ) -> None:
        """Go on from a copy of another server's state."""
        from jupyter_sky.execution.functions.shared.state_copy import load_state

        load_state(self.state, frames)
        self._first_revision = self.state.revision
        self._reply(client, number)

    @handles(Cancel)
    def _cancel(self, request: Cancel, client: bytes, number: int, frames: Sequence[bytes]) -> None:
        """Do nothing: these requests are answered at once."""

    def _write_copy(self, now: float) -> None:
        from jupyter_sky.execution.functions.shared.state_copy import (
            COPY_SECONDS,
            MAX_COPY_BYTES,
            dump_state,
            write_copy,
        )

        if self._copy is None or now - self._copied < COPY_SECONDS:
            return
        self._copied = now
        if self.state.revision == self._copied_revision:
            return
        self._copied_revision = self.state.revision
        copy = dump_state(self.state)
        if sum(map(len, copy)) <= MAX_COPY_BYTES:
            with suppress(OSError):  # a full disk must not end what it would save
                write_copy(self._copy, copy)

    def _reply(
        self,
        client: bytes,
        number: int,
        frames: Sequence[bytes] = (),
        error: str = "",
        moved: bool = False,
    ) -> None:
        life = "" if moved else self.incarnation
        revisions = [self._first_revision, self.state.revision]
        self._send_message(client, [number, life, error, None, *revisions], frames)

    def _send(self, answers: Responses) -> None:
        queue = list(answers)
        while queue:
            answer = queue.pop(0)
            head = [answer.request.number, self.incarnation, answer.error, answer.value]
            head += [self._first_revision, self.state.revision]
            if not self._send_message(answer.request.client, head, answer.frames):
                queue += self.state.revert_response(answer)

    def _send_message(self, client: bytes, head: list[Any], frames: Sequence[bytes] = ()) -> bool:
        import zmq

        try:
            self._socket.send_multipart([client, json.dumps(head).encode(), *frames])
        except zmq.ZMQError:
            return False
        return True

    def _ping(self) -> None:
        """Ping clients; remove those that are gone."""
        for client in list(self._missed):
            missed = 0 if self._send_message(client, [0]) else self._missed[client] + 1
            self._missed[client] = missed
            if missed >= MISSED_PINGS:
                del self._missed[client]
                self._send(self.state.remove_client(client))


def main() -> None:
    """Run the server until the controller ends."""
    from jupyter_sky.machines.engines.node.engine import exit_with_parent

    exit_with_parent(os.getppid())
    SharedStateServer(json.load(sys.stdin)).run()


if __name__ == "__main__":
    main()
