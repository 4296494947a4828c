"""Rendezvous of process groups: on the address that the nodes know, and on no other."""

from __future__ import annotations

import socket

import pytest

from jupyter_sky.execution.functions.plugins.process_groups import listen


def test_nodes_meet_at_one_address_only() -> None:
    with listen("127.0.0.2", 0) as listener:
        host, port = listener.getsockname()
        assert host == "127.0.0.2"
        with socket.create_connection((host, port), 5):
            pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.3", port), 5)


def test_taken_port_is_replaced_by_a_free_one() -> None:
    with listen("127.0.0.2", 0) as first, listen("127.0.0.2", first.getsockname()[1]) as second:
        assert second.getsockname()[1] not in (0, first.getsockname()[1])
