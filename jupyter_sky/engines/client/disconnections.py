"""Monitor of the cuts of a connection to a controller."""

from __future__ import annotations

from typing import Any

import zmq

from .client import DirectClient


class DisconnectionMonitor:
    """Monitor of the socket by which a client asks its controller.

    Parameters
    ----------
    client
        Client whose connection is watched.
    """

    def __init__(self, client: DirectClient) -> None:
        self._client, self._socket = client, client.query_socket
        self._events: Any = client.run_in_loop(
            lambda: self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        )

    def was_cut(self) -> bool:
        """Return whether the connection was cut since the last call; for one thread only."""
        was_cut = False
        while self._events.poll(0):
            self._events.recv_multipart()
            was_cut = True
        return was_cut

    def close(self) -> None:
        """End the monitor."""
        if self._client.is_closed:
            self._end()
        else:
            self._client.call_soon(self._end)

    def _end(self) -> None:
        # first: ZeroMQ's own thread, which all connections of this process share, would wait for
        # ever for the next cut to be read
        if not self._socket.closed:
            self._socket.disable_monitor()
        self._events.close(linger=0)
