"""Objects in the cache of one machine, read by the other machines of its cluster.

Connections are encrypted and authenticated by CURVE, as are all between the machines of a cluster:
a client must know the public key of the server, which the notebook tells to those machines only.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.connections import Bytes, Connections
from jupyter_sky.machines.storage.stores.errors import SkyPeerLost
from jupyter_sky.machines.storage.stores.file_parts import file_url, read_file_part
from jupyter_sky.machines.storage.stores.store import MIB, PartRequest, Span

if TYPE_CHECKING:
    from jupyter_sky.machines.storage.stores.cache import DatasetCache
    from jupyter_sky.machines.storage.stores.dataset import CachedObject

SCHEME = "peer://"
KEY_HEADER = "Sky-Peer-Key"
"""Public key of the server, which a request for a part carries to its machine."""
PIECE_BYTES = 2 * MIB
"""Most bytes of one answer: a server holds one for each thread that reads from it."""
ANSWER_SECONDS = 15.0
"""Time without an answer after which a machine counts as not reachable from here."""
UNUSED_SECONDS = 300.0
"""Time after which a server ends of which neither its notebook nor a machine has asked anything."""
_POLL_MS = 200


class PeerServer:
    """Server for the objects of one dataset, in a thread of its own.

    Parameters
    ----------
    cache
        Cache of this machine; objects are served once they are complete there.
    objects
        Objects of the dataset: nothing else is served.
    interface
        Address of this machine to listen on.
    address
        Address at which the other machines reach it.

    Attributes
    ----------
    origin : str
        Beginning of the addresses of its objects.
    key : str
        Its public key.
    """

    def __init__(
        self, cache: DatasetCache, objects: Iterable[CachedObject], interface: str, address: str
    ) -> None:
        import zmq

        public, secret = zmq.curve_keypair()
        self._cache = cache
        self._objects = {each.identity: each for each in objects}
        self._socket: Any = zmq.Context.instance().socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.curve_server = True
        self._socket.curve_publickey, self._socket.curve_secretkey = public, secret
        port = self._socket.bind_to_random_port(f"tcp://{interface}")
        self.origin, self.key = f"{SCHEME}{address}:{port}", public.decode()
        self._is_closed = threading.Event()
        self._used = time.monotonic()
        self._thread = threading.Thread(target=self._serve, name="sky-peer-server", daemon=True)
        self._thread.start()

    def held(self, identities: Iterable[str]) -> list[str]:
        """Return those objects, of some, that can be read here."""
        self._used = time.monotonic()
        return [
            name
            for name in identities
            if name in self._objects and self._cache.holds(self._objects[name])
        ]

    def close(self) -> None:
        """End it; what is being read breaks off."""
        self._is_closed.set()
        self._thread.join()

    def _serve(self) -> None:
        with self._socket as connection:
            while not self._is_closed.is_set():
                if connection.poll(_POLL_MS):
                    client, *frames = connection.recv_multipart()
                    self._used = time.monotonic()
                    connection.send_multipart([client, *self._answer(frames)], copy=False)
                elif time.monotonic() - self._used > UNUSED_SECONDS:
                    return

    def _answer(self, frames: list[bytes]) -> tuple[bytes, Bytes]:
        """Return an error, empty for none, and the bytes that a request asks for."""
        try:
            identity, start, stop = json.loads(frames[0])
            span = Span(start, min(stop, start + PIECE_BYTES))
            path = self._cache.object_path(self._objects[identity])
            return b"", read_file_part(PartRequest("GET", file_url(path), {}, span))
        except Exception as error:  # another machine's request must not end the server
            return f"{type(error).__name__}: {error}".encode(), b""


class PeerChannel:
    """Connection of one thread to a server.

    Parameters
    ----------
    origin, key
        Those of the server.
    """

    def __init__(self, origin: str, key: str) -> None:
        import zmq

        self._origin = origin
        self._socket: Any = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.curve_publickey, self._socket.curve_secretkey = zmq.curve_keypair()
        self._socket.curve_serverkey = key.encode()
        self._socket.connect(origin.replace(SCHEME, "tcp://"))

    def read(self, identity: str, span: Span, into: memoryview) -> None:
        """Read bytes of an object into a buffer of their size.

        Raises
        ------
        SkyPeerLost
            The machine does not answer, or does not have them.
        """
        done = 0
        while done < span.size:
            start = span.start + done
            self._socket.send(json.dumps([identity, start, span.stop]).encode())
            if not self._socket.poll(ANSWER_SECONDS * 1000):
                raise SkyPeerLost(
                    _("{origin} has not answered for {seconds:g} s").format(
                        origin=self._origin, seconds=ANSWER_SECONDS
                    )
                )
            error, piece = self._socket.recv_multipart(copy=False)
            data = piece.buffer
            if error.bytes or not 0 < len(data) <= span.size - done:
                reason = error.bytes.decode() or f"{len(data)} bytes"
                raise SkyPeerLost(f"{self._origin}: {reason}")
            into[done : done + len(data)] = data
            done += len(data)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def peer_request(origin: str, key: str, identity: str, span: Span) -> PartRequest:
    """Return a request that reads bytes of an object on another machine."""
    return PartRequest("GET", f"{origin}/{identity}", {KEY_HEADER: key}, span)


def is_of_peer(request: PartRequest) -> bool:
    """Return whether a request is for another machine, and not for a store."""
    return request.url.startswith(SCHEME)


def read_peer_part(
    request: PartRequest, connections: Connections, into: bytearray | None = None
) -> Bytes:
    """Return the bytes that a request of `peer_request` reads, in a buffer if they fit.

    Raises
    ------
    SkyPeerLost
        The machine does not answer, or does not have them.
    """
    origin, __, identity = request.url.rpartition("/")
    if into is None or request.span.size > len(into):
        into = bytearray(request.span.size)
    view = memoryview(into)[: request.span.size]
    channel = connections.keep(origin, lambda: PeerChannel(origin, request.headers[KEY_HEADER]))
    try:
        channel.read(identity, request.span, view)
    except SkyPeerLost:
        connections.drop(origin)
        raise
    return view
