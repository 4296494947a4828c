"""Tunnel server (``python -m``): connects streams of SSH sessions to the controller's ports.

    python -m jupyter_sky.machines.engines.controller.tunnel_server serve DIRECTORY
    python -m jupyter_sky.machines.engines.controller.tunnel_server attach DIRECTORY

``serve`` is a child of the controller and lives as long as the cluster. An SSH session runs
``attach``, which passes its standard input and output to the server and waits for their end. The
streams of a notebook that reconnects after a cut are resumed, unless its cells have printed so much
meanwhile that they would have to wait for it: then it connects anew, and reads the journal.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import select
import socket
import sys
import time
from pathlib import Path

from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.wire.multiplexer import HELLO, MAGIC, Multiplexer, set_nodelay
from jupyter_sky.machines.engines.wire.private_sockets import output_socket_name

SESSION_SECONDS = 7200.0
"""Time for which the streams of a disconnected notebook are kept."""
BACKLOG_BYTES = 64 * 2**20
"""Bytes of each stream that are kept for a notebook that is away or slow."""
AWAY_SECONDS = 20.0
"""Time without a word from a notebook after which its cells do not wait for it any longer."""
CHECK_SECONDS = 5.0
SOCKET_NAME = "tunnel"


class TunnelServer:
    """Sessions that are attached to a cluster, or may return.

    Parameters
    ----------
    directory
        The cluster's folder.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.sessions: dict[bytes, tuple[Multiplexer, float]] = {}

    async def serve(self) -> None:
        """Accept sessions until this process is ended."""
        path = self.directory / SOCKET_NAME
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        os.chdir(self.directory)  # the path of a socket must be short
        listener.bind(SOCKET_NAME)
        listener.listen(16)
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task] = {loop.create_task(self._keep_flowing())}
        while True:
            conn, __ = await loop.sock_accept(listener)
            task = loop.create_task(self._serve_session(conn))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _serve_session(self, conn: socket.socket) -> None:
        """Carry the streams of one session over the pipes that it passes."""
        with conn, contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await _receive_pipes(conn)
            magic, name, received, __ = HELLO.unpack(await reader.readexactly(HELLO.size))
            if magic != MAGIC:
                return
            is_known = name in self.sessions
            if not is_known and received:  # this server has lost the state of the session
                writer.write(HELLO.pack(MAGIC, name, 0, 1))
                await writer.drain()
                return
            multiplexer = self._session(name)
            multiplexer.detach()
            writer.write(HELLO.pack(MAGIC, name, multiplexer.received, 0))
            await multiplexer.run(reader, writer, received)
            if multiplexer.has_peer_left:
                self.sessions.pop(name, None)
                multiplexer.close_all()

    async def _keep_flowing(self) -> None:
        """Look from time to time whether cells wait for notebooks that are away."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.forget_away(time.monotonic())

    def forget_away(self, now: float) -> None:
        """Forget sessions that hold up outputs and have been silent for too long."""
        for name, (multiplexer, heard) in list(self.sessions.items()):
            if multiplexer.is_held_up and now - heard > AWAY_SECONDS:
                self._forget(name)

    def _forget(self, name: bytes) -> None:
        multiplexer, _heard = self.sessions.pop(name)
        multiplexer.detach()
        multiplexer.close_all()

    def _session(self, name: bytes) -> Multiplexer:
        now = time.monotonic()
        for other, (_multiplexer, seen) in list(self.sessions.items()):
            if now - seen > SESSION_SECONDS and other != name:
                self._forget(other)
        if name not in self.sessions:
            multiplexer = Multiplexer(backlog_bytes=BACKLOG_BYTES)
            multiplexer.on_open = lambda number, port: self._open_stream(multiplexer, number, port)
            multiplexer.on_receive = lambda: self.sessions.__setitem__(
                name, (multiplexer, time.monotonic())
            )
            self.sessions[name] = (multiplexer, now)
        return self.sessions[name][0]

    def _open_stream(self, multiplexer: Multiplexer, number: int, port: int) -> None:
        multiplexer.expect_stream(number)

        async def connect() -> None:
            try:
                reader, writer = await _connect(port)
            except OSError:
                multiplexer.close(number)
                return
            set_nodelay(writer)
            multiplexer.attach_stream(number, reader, writer)

        task = asyncio.get_running_loop().create_task(connect())
        multiplexer._tasks.add(task)
        task.add_done_callback(multiplexer._tasks.discard)


async def _connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a local port, or to the Unix socket that stands for it."""
    path = f"security/{output_socket_name(port)}"  # below the working folder of this process
    if os.path.exists(path):
        return await asyncio.open_unix_connection(path)
    return await asyncio.open_connection("127.0.0.1", port)


async def _receive_pipes(conn: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Receive the pipes of an SSH session from its ``attach`` process."""
    loop = asyncio.get_running_loop()
    conn.setblocking(False)
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(conn, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(conn)
    __, fds, __, __ = socket.recv_fds(conn, 1, 2)
    if len(fds) != 2:
        raise OSError("no pipes were received")
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await loop.connect_read_pipe(lambda: protocol, os.fdopen(fds[0], "rb", buffering=0))
    transport, flow = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(), os.fdopen(fds[1], "wb", buffering=0)
    )
    return reader, asyncio.StreamWriter(transport, flow, reader, loop)


def attach(directory: Path) -> int:
    """Pass standard input and output to the tunnel server; wait until it closes them."""
    os.chdir(directory)
    with socket.socket(socket.AF_UNIX) as conn:
        deadline, closed = time.monotonic() + 10, select.poll()
        closed.register(0, 0)  # reports when the other end has closed
        while True:
            try:
                conn.connect(SOCKET_NAME)
                break
            except OSError:
                if time.monotonic() > deadline:
                    print(_("the cluster has no tunnel server"), file=sys.stderr)
                    return 1
                if closed.poll(20):
                    return 1
        ends = array.array("i", [0, 1])
        conn.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, ends)])
        null = os.open(os.devnull, os.O_RDWR)
        # only the tunnel server holds the pipes now: they close when it closes them
        for end in (0, 1):
            os.dup2(null, end)
        with contextlib.suppress(OSError):
            conn.recv(1)
    return 0


def main(argv: list[str]) -> int:
    """Run ``serve`` or ``attach``."""
    command, directory = argv[0], Path(argv[1])
    if command == "attach":
        return attach(directory)
    from jupyter_sky.machines.engines.node.engine import exit_with_parent

    exit_with_parent(os.getppid())
    asyncio.run(TunnelServer(directory).serve())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
