"""Streams over a connection that is away: how much of them is kept, and for how long."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

from jupyter_sky.machines.engines.controller.tunnel_server import AWAY_SECONDS, TunnelServer
from jupyter_sky.machines.engines.wire.multiplexer import WINDOW_BYTES, Multiplexer, Stream

BACKLOG = 2**20
SOCKET_BYTES = 2**20
"""More than the buffers of a pair of sockets hold."""


async def attach(multiplexer: Multiplexer, number: int) -> socket.socket:
    """Attach one end of a pair of sockets to a stream; return the other."""
    inner, outer = socket.socketpair()
    outer.setblocking(False)
    multiplexer.expect_stream(number)
    multiplexer.attach_stream(number, *await asyncio.open_connection(sock=inner))
    return outer


async def fill(sender: socket.socket, data: memoryview) -> int:
    """Send until nobody takes more; return how many bytes were taken."""
    sent = idle = 0
    while sent < len(data) and idle < 20:
        try:
            sent += sender.send(data[sent : sent + 2**18])
            idle = 0
        except BlockingIOError:
            idle += 1
        await asyncio.sleep(0.001 if idle else 0)
    return sent


async def join(one: Multiplexer, other: Multiplexer) -> asyncio.Future:
    """Connect two ends; return what ends with their connection."""
    pairs = [await asyncio.open_connection(sock=end) for end in socket.socketpair()]
    ends = zip((one, other), pairs, strict=True)
    return asyncio.gather(*(end.run(*pair, 0) for end, pair in ends))


def test_stream_is_kept_up_to_its_backlog_and_arrives_whole() -> None:
    data = bytes(range(256)) * (10 * 2**20 // 256)

    async def run() -> None:
        here, there = Multiplexer(), Multiplexer(backlog_bytes=BACKLOG)
        sender, receiver = await attach(there, 1), await attach(here, 1)
        begun = await fill(sender, memoryview(data))
        assert there.is_held_up
        assert WINDOW_BYTES + BACKLOG <= begun < WINDOW_BYTES + BACKLOG + SOCKET_BYTES
        connection = await join(here, there)
        loop, received = asyncio.get_running_loop(), bytearray()
        rest = asyncio.ensure_future(loop.sock_sendall(sender, memoryview(data)[begun:]))
        while len(received) < len(data):
            received += await loop.sock_recv(receiver, 2**18)
        await rest
        assert received == data and not there.is_held_up
        for end in (here, there):
            end.close_all()
            end.detach()
        sender.close()
        receiver.close()
        await connection

    asyncio.run(asyncio.wait_for(run(), 20))


def test_what_was_kept_arrives_although_its_writer_has_closed() -> None:
    data = bytes(WINDOW_BYTES + BACKLOG // 2)

    async def run() -> None:
        here, there = Multiplexer(), Multiplexer(backlog_bytes=BACKLOG)
        sender, receiver = await attach(there, 1), await attach(here, 1)
        assert await fill(sender, memoryview(data)) == len(data)
        sender.close()
        connection = await join(here, there)
        loop, count = asyncio.get_running_loop(), 0
        while piece := await loop.sock_recv(receiver, 2**18):
            count += len(piece)
        assert count == len(data)
        for end in (here, there):
            end.detach()
        receiver.close()
        await connection

    asyncio.run(asyncio.wait_for(run(), 20))


def test_session_that_is_silent_and_holds_up_outputs_is_forgotten(tmp_path: Path) -> None:
    server, now = TunnelServer(tmp_path), time.monotonic()
    for name in (b"waits", b"has room", b"reads slowly"):
        server._session(name).streams[1] = Stream(is_held_up=name != b"has room")
    silent = now + AWAY_SECONDS + 1
    server.sessions[b"reads slowly"] = (server.sessions[b"reads slowly"][0], silent)
    multiplexer = server.sessions[b"waits"][0]
    server.forget_away(now + AWAY_SECONDS / 2)
    assert len(server.sessions) == 3
    server.forget_away(silent)
    assert set(server.sessions) == {b"has room", b"reads slowly"}
    assert not multiplexer.streams, "its sockets are closed, and whoever writes goes on"
