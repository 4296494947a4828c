# pyright: strict
"""Resumable multiplexer: byte streams over a connection that may be cut and reopened.

Both ends number what they send and say what they have received. When the connection is made anew,
each sends what the other lacks, and those who hold the streams never notice. ZeroMQ, which drops
what is on its way when a connection breaks, so keeps its connections for as long as both ends live.

Each stream has its own window: one that is not read does not block the others. An end that may be
left alone for long keeps some more of each stream; then it reads no further, and whoever writes to
the socket waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

OPEN, DATA, CREDIT, CLOSE, ACK, PING, PONG, GOODBYE = range(8)
_NUMBERED_KINDS = (OPEN, DATA, CREDIT, CLOSE)
_FRAME_HEADER = struct.Struct("!BII")
_NUMBER = struct.Struct("!Q")
HELLO = struct.Struct("!4s16sQB")
MAGIC = b"sky1"

WINDOW_BYTES = 4 * 2**20
"""Bytes of one stream that may be on their way."""
PIECE_BYTES = 2**16
ACK_FRAMES = 16
ACK_SECONDS = 0.05


@dataclass(slots=True)
class Stream:
    """Local end of one stream."""

    writer: asyncio.StreamWriter | None = None
    credit: int = WINDOW_BYTES
    arrived: deque[bytes] = field(default_factory=deque[bytes])
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    open_credit: asyncio.Event = field(default_factory=asyncio.Event)
    backlog: deque[bytes] = field(default_factory=deque[bytes])
    backlog_bytes: int = 0
    is_held_up: bool = False
    ended: bool = False


class Multiplexer:
    """Local end of the streams between two processes.

    Parameters
    ----------
    on_open
        Called with the number and the target of a stream that the other end opens.
    backlog_bytes
        Bytes of each stream that are kept beyond its window.
    """

    def __init__(
        self,
        on_open: Callable[[int, int], None] = lambda number, target: None,
        backlog_bytes: int = 0,
    ) -> None:
        self.on_open, self.backlog_bytes = on_open, backlog_bytes
        self.streams: dict[int, Stream] = {}
        self.received = 0
        self.on_receive: Callable[[], None] = lambda: None
        self.has_peer_left = False
        """Whether the other end has said that it will not come back."""
        self._unacked: deque[bytes] = deque()
        self._acked = 0
        self._acknowledged = 0
        self._connection: asyncio.StreamWriter | None = None
        self._ack_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # -- the connection ----------------------------------------------------------------------

    async def run(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, other_received: int
    ) -> None:
        """Carry the streams over a connection until it is cut.

        Parameters
        ----------
        other_received
            How many frames the other end says that it has.
        """
        self._forget(other_received)
        self._connection = writer
        for frame in self._unacked:
            writer.write(frame)
        try:
            while True:
                kind, number, size = _FRAME_HEADER.unpack(
                    await reader.readexactly(_FRAME_HEADER.size)
                )
                body = await reader.readexactly(size) if size else b""
                if self._connection is not writer:  # another has taken over
                    return
                self.on_receive()
                self._handle_frame(kind, number, body)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            if self._connection is writer:
                self._connection = None
            writer.close()

    def detach(self) -> None:
        """Leave the current connection: another replaces it."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send_ping(self) -> None:
        """Request a reply from the other end."""
        self._write(_FRAME_HEADER.pack(PING, 0, 0))

    def send_goodbye(self) -> None:
        """Tell the other end that this one will not reconnect."""
        self._write(_FRAME_HEADER.pack(GOODBYE, 0, 0))

    def _write(self, frame: bytes) -> None:
        if self._connection is not None and not self._connection.is_closing():
            self._connection.write(frame)

    def _send(self, kind: int, number: int, body: bytes = b"") -> None:
        frame = _FRAME_HEADER.pack(kind, number, len(body)) + body
        self._unacked.append(frame)
        self._write(frame)

    def _forget(self, count: int) -> None:
        """Drop frames that the other end has acknowledged."""
        while self._acked < count and self._unacked:
            self._unacked.popleft()
            self._acked += 1

    def _acknowledge(self) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        if self._acknowledged != self.received:
            self._acknowledged = self.received
            self._write(_FRAME_HEADER.pack(ACK, 0, _NUMBER.size) + _NUMBER.pack(self.received))

    def _handle_frame(self, kind: int, number: int, body: bytes) -> None:
        if kind in _NUMBERED_KINDS:
            self.received += 1
            if self.received - self._acknowledged >= ACK_FRAMES:
                self._acknowledge()
            elif self._ack_timer is None:
                loop = asyncio.get_running_loop()
                self._ack_timer = loop.call_later(ACK_SECONDS, self._acknowledge)
        stream = self.streams.get(number)
        if kind == ACK:
            self._forget(_NUMBER.unpack(body)[0])
        elif kind == PING:
            self._write(_FRAME_HEADER.pack(PONG, 0, 0))
        elif kind == GOODBYE:
            self.has_peer_left = True
        elif kind == OPEN:
            self.on_open(number, _NUMBER.unpack(body)[0])
        elif stream is None:
            return
        elif kind == DATA:
            stream.arrived.append(body)
            stream.wake.set()
        elif kind == CREDIT:
            stream.credit += _NUMBER.unpack(body)[0]
            self._send_backlog(number, stream)
            stream.open_credit.set()
        elif kind == CLOSE:
            stream.ended = True
            stream.wake.set()

    # -- the streams -------------------------------------------------------------------------

    def open(
        self, number: int, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Open a stream to a target at the other end."""
        self.streams[number] = Stream()
        self._send(OPEN, number, _NUMBER.pack(target))
        self.attach_stream(number, reader, writer)

    def expect_stream(self, number: int) -> None:
        """Buffer data of a stream until a socket is attached."""
        self.streams[number] = Stream()

    def attach_stream(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Attach a socket to a stream."""
        stream = self.streams[number]
        stream.writer = writer
        for work in (self._read_socket(number, stream, reader), self._write_socket(number, stream)):
            task = asyncio.get_running_loop().create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def close(self, number: int) -> None:
        """Close a stream at both ends."""
        stream = self.streams.pop(number, None)
        if stream is None:
            return
        if not stream.ended:
            self._send(CLOSE, number)
        stream.ended = True
        stream.wake.set()
        stream.open_credit.set()
        if stream.writer is not None:
            stream.writer.close()

    def close_all(self) -> None:
        """Close every stream."""
        for number in list(self.streams):
            self.close(number)

    @property
    def is_held_up(self) -> bool:
        """Whether some stream takes no more data, because the other end takes none."""
        return any(stream.is_held_up for stream in self.streams.values())

    async def _read_socket(self, number: int, stream: Stream, reader: asyncio.StreamReader) -> None:
        """Send data from the socket, as far as the window allows; keep what the backlog holds."""
        with contextlib.suppress(OSError):
            while not stream.ended:
                room = stream.credit + self.backlog_bytes - stream.backlog_bytes
                stream.is_held_up = room <= 0
                if stream.is_held_up:
                    stream.open_credit.clear()
                    await stream.open_credit.wait()
                    continue
                data = await reader.read(min(PIECE_BYTES, room))
                if not data:
                    break
                stream.backlog.append(data)
                stream.backlog_bytes += len(data)
                self._send_backlog(number, stream)
        while stream.backlog and not stream.ended:  # the socket has closed, and all of it is wanted
            stream.open_credit.clear()
            await stream.open_credit.wait()
        self.close(number)

    def _send_backlog(self, number: int, stream: Stream) -> None:
        """Send what has been read of a stream, as far as its window allows."""
        while stream.backlog and stream.credit > 0:
            data = stream.backlog.popleft()
            stream.backlog_bytes -= len(data)
            stream.credit -= len(data)
            self._send(DATA, number, data)

    async def _write_socket(self, number: int, stream: Stream) -> None:
        """Write arrived data to the socket, and grant more window."""
        writer = stream.writer
        assert writer is not None
        with contextlib.suppress(OSError):
            while True:
                while stream.arrived:
                    data = stream.arrived.popleft()
                    writer.write(data)
                    await writer.drain()
                    if not stream.ended:
                        self._send(CREDIT, number, _NUMBER.pack(len(data)))
                if stream.ended:
                    break
                stream.wake.clear()
                await stream.wake.wait()
        self.close(number)


def set_nodelay(writer: asyncio.StreamWriter) -> None:
    """Disable Nagle's algorithm, so that small messages are sent at once."""
    import socket

    raw = writer.get_extra_info("socket")
    if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
