"""Server process of the shared state (``python -m``), and the controller's handle of it.

    python -m jupyter_sky.functions.shared.shared_state_server < SPEC

The controller listens, and starts the server at the first connection, which it inherits: unused it
costs nothing. Traffic is encrypted; clients without the server's key are refused.
"""

from __future__ import annotations

import json
import os
import random
import select
import socket
import subprocess
import sys
import time
import uuid
from typing import TYPE_CHECKING, Any

from ...engines.controller.agent_server import listen_address
from ...engines.node.instance import RENDEZVOUS_PORTS
from ...translation import _

if TYPE_CHECKING:
    from .shared_state import Responses

PING_SECONDS = 1.0
MISSED_PINGS = 2
TICK_MS = 200


class SharedStateProcess:
    """Handle of the server process in the controller.

    Parameters
    ----------
    private
        Where the other nodes reach this one; empty where there are none.
    """

    def __init__(self, private: str = "") -> None:
        import zmq

        self._public, self._secret = zmq.curve_keypair()
        self._sockets: dict[str, socket.socket] = {}
        self._process: subprocess.Popen | None = None
        there = listen_address(private) if private else "127.0.0.1"
        for address in (there,) if there == "0.0.0.0" else dict.fromkeys((there, "127.0.0.1")):
            listener = socket.create_server((address, 0), backlog=512)
            self._sockets[f"tcp://{address}:{listener.getsockname()[1]}"] = listener
        ports = [url.rpartition(":")[2] for url in self._sockets]
        self.endpoint = {
            "key": self._public.decode(),
            "local_url": f"tcp://127.0.0.1:{ports[-1]}",
            "remote_url": f"tcp://{private or '127.0.0.1'}:{ports[0]}",
            "head_addr": private or "127.0.0.1",
            "head_port": free_port(there),
        }

    def tick(self) -> None:
        """Start the process when a client connects and it is not running."""
        if self._process is not None and self._process.poll() is None:
            return
        if select.select(list(self._sockets.values()), [], [], 0)[0]:
            self._start()

    def _start(self) -> None:
        numbers = {url: listener.fileno() for url, listener in self._sockets.items()}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_sky.functions.shared.shared_state_server"],
            stdin=subprocess.PIPE,
            start_new_session=True,
            pass_fds=list(numbers.values()),
        )
        assert self._process.stdin is not None
        order = {
            "sockets": numbers,
            "secret": self._secret.decode(),
            "public": self.endpoint["key"],
        }
        with self._process.stdin as stdin:
            stdin.write(json.dumps(order).encode())


def free_port(address: str) -> int:
    """Return a free port."""
    for __ in range(100):
        port = random.randrange(*RENDEZVOUS_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise OSError("no port is free")


class SharedStateServer:
    """Server in its own process: sockets and timeouts around `SharedState`."""

    def __init__(self, order: dict[str, Any]) -> None:
        import zmq

        from .shared_state import SharedState

        self.state, self.incarnation = SharedState(), uuid.uuid4().hex
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
                number, arguments = json.loads(head)
                try:
                    now = time.monotonic()
                    self._send(self.state.handle_request(client, number, arguments, frames, now))
                except (KeyError, AttributeError, TypeError, ValueError) as error:
                    self._send_message(
                        client,
                        [
                            number,
                            self.incarnation,
                            _("not understood: {error!r}").format(error=error),
                            None,
                        ],
                    )
            now = time.monotonic()
            self._send(self.state.expire(now))
            if now - self._pinged > PING_SECONDS:
                self._pinged = now
                self._ping()

    def _send(self, answers: Responses) -> None:
        queue = list(answers)
        while queue:
            answer = queue.pop(0)
            head = [answer.request.number, self.incarnation, answer.error, answer.value]
            if not self._send_message(answer.request.client, head, answer.frames):
                queue += self.state.revert_response(answer)

    def _send_message(self, client: bytes, head: list[Any], frames: tuple[bytes, ...] = ()) -> bool:
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
    from ...engines.node.engine import exit_with_parent

    exit_with_parent(os.getppid())
    SharedStateServer(json.load(sys.stdin)).run()


if __name__ == "__main__":
    main()
