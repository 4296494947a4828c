"""Tunnel client (``python -m``): forwards local sockets over SSH to the controller's ports.

    python -m jupyter_sky.machines.engines.client.tunnel_client FOLDER < COMMANDS

A process of its own, so that a busy notebook does not hold up what passes. The first line of
COMMANDS, a list in JSON, is the command that makes the connection. Others may follow:
``sockets PORT...`` for ports of the head node, to which sockets ``s:PORT`` in FOLDER lead, and
``port PORT`` for one to which a port of this machine leads. It says on its standard output, a line
each: ``ready`` (there are sockets), ``up``, ``down REASON``, ``lost REASON`` and
``port THERE HERE``; and it ends with its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from functools import partial
from itertools import count
from pathlib import Path

from jupyter_sky.machines.engines.wire.multiplexer import HELLO, MAGIC, Multiplexer, set_nodelay

PING_SECONDS = 2.0
SILENCE_SECONDS = 8.0
"""A connection over which nothing comes for so long is made anew."""
HELLO_TIMEOUT_SECONDS = 15.0
END_SECONDS = 2.0
"""Longest wait for the end of a connection that was cut, and for its last words."""
BACKOFF = (0.1, 0.3, 0.5, 1.0, 2.0, 4.0)
UNUSED_SECONDS = 150.0
"""A connection that was begun for a cluster that never came is not tried for longer."""
MAX_ERROR_BYTES = 4000


class TunnelClient:
    """Local sockets and the SSH connection behind them."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self.folder, self.command = folder, command
        self.multiplexer = Multiplexer()
        self.session_id = os.urandom(16)
        self._numbers = count(1)
        self._heard = 0.0
        self._servers: list[asyncio.Server] = []
        self.multiplexer.on_receive = self._mark_heard
        self._process: asyncio.subprocess.Process | None = None

    def _mark_heard(self) -> None:
        self._heard = time.monotonic()

    async def run(self) -> None:
        """Keep connected and serve local sockets until a command ends this process."""
        os.chdir(self.folder)  # the path of a socket must be short
        connecting = asyncio.ensure_future(self._keep_connected())
        await self._read_commands()
        self.multiplexer.send_goodbye()
        await asyncio.sleep(0.05)  # for it to leave
        for server in self._servers:
            server.close()
        self.multiplexer.close_all()
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        if self._process is not None:
            await self._process.wait()
            self._process._transport.close()  # type: ignore[attr-defined]
        shutil.rmtree(self.folder, ignore_errors=True)  # the notebook may be gone

    def _open_stream(
        self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        set_nodelay(writer)
        self.multiplexer.open(next(self._numbers), port, reader, writer)

    async def _read_commands(self) -> None:
        """Carry out commands until the notebook closes the pipe."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(reader)
        await loop.connect_read_pipe(
            lambda: protocol, os.fdopen(0, "rb", buffering=0, closefd=False)
        )
        while line := await reader.readline():
            command, *ports = line.decode().split()
            for port in map(int, ports):
                opened = partial(self._open_stream, port)
                if command == "sockets":
                    server = await asyncio.start_unix_server(opened, f"s:{port}")
                else:
                    server = await asyncio.start_server(opened, "127.0.0.1")
                    report(f"port {port} {server.sockets[0].getsockname()[1]}")
                self._servers.append(server)
            if command == "sockets":
                report("ready")

    async def _keep_connected(self) -> None:
        failures, first = 0, time.monotonic()
        while True:
            begun = time.monotonic()
            if not self._servers and begun - first > UNUSED_SECONDS:
                report("lost no cluster was ever connected to")
                return
            reason = await self._connect()
            if reason is None:
                return
            failures = 0 if time.monotonic() - begun > 5 and self._heard > begun else failures + 1
            report(f"down {reason}")
            await asyncio.sleep(BACKOFF[min(failures, len(BACKOFF) - 1)])

    async def _connect(self) -> str | None:
        """Carry streams until the connection is cut; return why, or None if it is final."""
        pipe = asyncio.subprocess.PIPE
        process = self._process = await asyncio.create_subprocess_exec(
            *self.command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
        assert process.stdin and process.stdout and process.stderr
        errors = asyncio.ensure_future(process.stderr.read(MAX_ERROR_BYTES))
        watch: asyncio.Future | None = None
        try:
            process.stdin.write(HELLO.pack(MAGIC, self.session_id, self.multiplexer.received, 0))
            hello = process.stdout.readexactly(HELLO.size)
            answer = HELLO.unpack(await asyncio.wait_for(hello, HELLO_TIMEOUT_SECONDS))
            if answer[0] != MAGIC:
                return "something else answers there"
            if answer[3]:
                report("lost the cluster's end has forgotten this notebook")
                return None
            self._mark_heard()
            report("up")
            watch = asyncio.ensure_future(self._watch(process))
            await self.multiplexer.run(process.stdout, process.stdin, answer[2])
        except (TimeoutError, asyncio.IncompleteReadError, OSError):
            pass
        finally:
            if watch is not None:
                watch.cancel()
            self._kill()
        # a process that it has started may hold its pipes for longer than it lives
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), END_SECONDS)
        await asyncio.wait([errors], timeout=END_SECONDS)
        message = errors.result().decode(errors="replace").strip() if errors.done() else ""
        errors.cancel()
        return message.replace("\n", " | ") or "the connection was cut"

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """End a connection that has been silent for too long."""
        while time.monotonic() - self._heard < SILENCE_SECONDS:
            self.multiplexer.send_ping()
            await asyncio.sleep(PING_SECONDS)
        self._kill()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                # not its own `kill`: that reaps, and the loop would ask in vain how it ended
                os.kill(self._process.pid, signal.SIGKILL)


def report(line: str) -> None:
    """Send a report to the notebook."""
    with contextlib.suppress(OSError):
        print(line, flush=True)


def main(argv: list[str]) -> None:
    """Read the first command and carry it out."""
    line = b""
    while not line.endswith(b"\n"):  # no more than it: the rest belongs to the loop
        byte = os.read(0, 1)
        if not byte:
            return
        line += byte
    asyncio.run(TunnelClient(Path(argv[0]), json.loads(line)).run())


if __name__ == "__main__":
    main(sys.argv[1:])
