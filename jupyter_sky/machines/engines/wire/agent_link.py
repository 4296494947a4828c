# pyright: strict
"""Connection between a controller and its node agents: addresses, heartbeats, patience."""

from __future__ import annotations

import socket
from typing import Any

REJOIN_SECONDS = 300.0
"""Time within which a lost node may return; it gets a new engine."""
HEARTBEAT_MS, HEARTBEAT_TIMEOUT_MS = 2000, 8000
"""ZeroMQ heartbeats of the connections: a dead one is made anew."""
ALL_ADDRESSES = "0.0.0.0"


def enable_heartbeats(socket: Any) -> None:
    """Set ZeroMQ heartbeats, so that dead connections are noticed within seconds."""
    socket.heartbeat_ivl = HEARTBEAT_MS
    socket.heartbeat_timeout = HEARTBEAT_TIMEOUT_MS


def listen_address(address: str) -> str:
    """Return the interface to listen on for clients that connect to `address`.

    An address that this machine does not have itself leads to it by way of others.
    """
    try:
        number = socket.gethostbyname(address)
        with socket.socket() as probe:
            probe.bind((number, 0))
    except OSError:
        return ALL_ADDRESSES
    return number


def listen_addresses(address: str) -> tuple[str, ...]:
    """Return the interfaces to listen on for clients that connect to `address`, and for those here.

    It is one where that includes this machine's own.

    Examples
    --------
    >>> listen_addresses("127.0.0.1")
    ('127.0.0.1',)
    """
    there = listen_address(address)
    return (there,) if there == ALL_ADDRESSES else tuple(dict.fromkeys((there, "127.0.0.1")))
