"""Handle of the process that serves a pool's shared state.

The controller listens, and starts the server at the first connection, which it inherits: unused it
costs nothing.
"""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
from pathlib import Path

from jupyter_sky.machines.engines.node.ports import free_port
from jupyter_sky.machines.engines.wire.agent_link import listen_addresses

MODULE = "jupyter_sky.execution.functions.shared.shared_state_server"
"""Server, of a hall above this one: it is started by name."""


class SharedStateProcess:
    """Handle of the server process in the controller.

    Parameters
    ----------
    private
        Where the other nodes reach this one; empty where there are none.
    folder
        Folder for the file from which the next process goes on if one dies; None for no file.
    """

    def __init__(self, private: str = "", folder: Path | None = None) -> None:
        import zmq

        self._copy = str(folder / "shared_state.copy") if folder is not None else ""

        self._public, self._secret = zmq.curve_keypair()
        self._sockets: dict[str, socket.socket] = {}
        self._process: subprocess.Popen | None = None
        addresses = listen_addresses(private or "127.0.0.1")
        for address in addresses:
            listener = socket.create_server((address, 0), backlog=512)
            self._sockets[f"tcp://{address}:{listener.getsockname()[1]}"] = listener
        ports = [url.rpartition(":")[2] for url in self._sockets]
        self.endpoint = {
            "key": self._public.decode(),
            "local_url": f"tcp://127.0.0.1:{ports[-1]}",
            "remote_url": f"tcp://{private or '127.0.0.1'}:{ports[0]}",
            "head_addr": private or "127.0.0.1",
            "head_port": free_port(addresses[0]),
        }

    @property
    def is_used(self) -> bool:
        """Whether a client has connected."""
        return self._process is not None

    def tick(self) -> None:
        """Start the process when a client connects and it is not running."""
        if self._process is not None and self._process.poll() is None:
            return
        if select.select(list(self._sockets.values()), [], [], 0)[0]:
            self._start()

    def _start(self) -> None:
        numbers = {url: listener.fileno() for url, listener in self._sockets.items()}
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            start_new_session=True,
            pass_fds=list(numbers.values()),
        )
        assert self._process.stdin is not None
        order = {
            "sockets": numbers,
            "secret": self._secret.decode(),
            "public": self.endpoint["key"],
            "copy": self._copy,
        }
        with self._process.stdin as stdin:
            stdin.write(json.dumps(order).encode())
