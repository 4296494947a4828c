"""Monitor of the cuts of a connection to a controller."""

from __future__ import annotations

import threading
from typing import Any

import zmq

from jupyter_sky.machines.engines.client.client import DirectClient


class DisconnectionMonitor:
    """Monitor of the socket by which a client asks its controller.

    Parameters
    ----------
    client
        Client whose connection is watched.
    """

    def __init__(self, client: DirectClient) -> None:
        self._client, self._socket = client, client.query_socket
        self._lock = threading.Lock()
        self._events: Any = client.run_in_loop(
            lambda: self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        )

    def was_cut(self) -> bool:
        """Return whether the connection was cut since the last call."""
        was_cut = False
        with self._lock:
            while not self._events.closed and self._events.poll(0):
                self._events.recv_multipart()
                was_cut = True
        return was_cut

    def close(self) -> None:
        """End the monitor; before its client is closed, whose loop would not do it any more."""
        if self._client.is_closed:
            self._end()
        else:
            self._client.call_soon(self._end)

    def _end(self) -> None:
        with self._lock:
            if self._events.closed:
                return
            # first: ZeroMQ's own thread, which all connections of this process share, would wait
            # for ever for the next cut to be read
            if not self._socket.closed:
                self._socket.disable_monitor()
            self._events.close(linger=0)
