"""Tunnel to a remote cluster, held by the notebook: its client process and its state."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.remote.ssh_address import runtime_dir
from jupyter_sky.machines.engines.wire.connection_file import PORTS, validate

CONNECT_SECONDS = 30.0


class Tunnel:
    """SSH connection that reconnects by itself; opened at once, usable after `connect_to`.

    Parameters
    ----------
    cluster
        Its name, for messages.
    command
        What makes the connection: an SSH command line that ends in the tunnel server's ``attach``.
    """

    def __init__(self, cluster: str, command: list[str]) -> None:
        self.cluster = cluster
        self.connection: dict[str, Any] = {}
        self.down_reason = "connecting"
        self.lost_reason = ""
        self.disconnect_count = 0
        self._ready, self._up = threading.Event(), threading.Event()
        self._ports: dict[int, Future[int]] = {}
        self.folder = Path(tempfile.mkdtemp(prefix="t-", dir=runtime_dir()))
        self._process = self._start(command)
        self._listener = threading.Thread(
            target=self._listen, name=f"sky-tunnel-{cluster}", daemon=True
        )
        self._listener.start()

    def connect_to(self, controller: dict[str, Any], explain: Callable[[str], SkyError]) -> None:
        """Connect to a controller, and wait until the connection is up.

        Parameters
        ----------
        controller
            The controller's client file, as read there; only its key and ports are used.
        explain
            Turns what the SSH client says into an error.

        Raises
        ------
        SkyUnreachable
            The connection cannot be made; says why.
        SkyClusterLost
            The file has no key or no valid ports.
        """
        connection = validate(controller, self.cluster, f"ipc://{self.folder}/s")
        self._send_command("sockets", *(connection[name] for name in PORTS))
        self._wait(explain)
        self.connection = connection

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        package = str(Path(__file__).parents[4])
        paths = [path for path in (package, os.environ.get("PYTHONPATH")) if path]
        process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "jupyter_sky.machines.engines.client.tunnel_client",
                str(self.folder),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(command).encode() + b"\n")
        process.stdin.flush()
        return process

    def _send_command(self, *words: object) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended, which waiting callers notice
            self._process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
            self._process.stdin.flush()

    def _wait(self, explain: Callable[[str], SkyError]) -> None:
        deadline, tries = time.monotonic() + CONNECT_SECONDS, self.disconnect_count
        while not (self._ready.is_set() and self._up.wait(0.02)):
            if self.has_ended or self.disconnect_count > tries + 2 or time.monotonic() > deadline:
                self.close()
                raise explain(self.lost_reason or self.down_reason)
            self._ready.wait(0.02)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.decode(errors="replace").strip().partition(" ")
            if word == "ready":
                self._ready.set()
            elif word == "up":
                self.down_reason = ""
                self._up.set()
            elif word == "down":
                self._up.clear()
                self.down_reason, self.disconnect_count = rest, self.disconnect_count + 1
            elif word == "lost":
                self.lost_reason = rest
            elif word == "port":
                there, here = map(int, rest.split())
                self._ports[there].set_result(here)
        self.lost_reason = self.lost_reason or "the process that holds it has ended"
        self._up.clear()

    @property
    def has_ended(self) -> bool:
        """Whether it will not come back."""
        return bool(self.lost_reason) or self._process.poll() is not None

    @property
    def is_up(self) -> bool:
        """Whether it is connected now."""
        return self._up.is_set()

    def forward(self, port: int) -> int:
        """Return the local port that is forwarded to a port of the head node.

        Any user of this machine can connect to it: the server there must authenticate clients.
        """
        if port not in self._ports:
            self._ports[port] = Future()
            self._send_command("port", port)
        return self._ports[port].result(CONNECT_SECONDS)

    def close(self) -> None:
        """End the connection; the cluster goes on."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        if threading.current_thread() is not self._listener:
            self._listener.join(1.0)
        if not self._listener.is_alive():  # closing what is being read would wait for ever
            self._process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)
