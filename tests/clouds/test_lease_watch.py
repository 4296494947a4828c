"""Ends of machines that a request alone ends, by the process that watches them."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from jupyter_sky.clouds import power_off_note
from jupyter_sky.clouds.launches import lease_watch
from jupyter_sky.clouds.lease_watcher import SILENT_SECONDS, LeaseWatch
from jupyter_sky.clouds.provider.values import Machine

NOW = 1000.0


def machine(port: int, lease_end: float | None = 2 * NOW) -> Machine:
    return Machine(
        "m", "lambda", "c", 0, "running", NOW, address="127.0.0.1", port=port, lease_end=lease_end
    )


def test_machine_that_no_longer_answers_is_over() -> None:
    watch = LeaseWatch()
    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = machine(server.getsockname()[1])
        assert not watch.is_over(answering, NOW)
    assert not watch.is_over(answering, NOW + SILENT_SECONDS)
    assert watch.is_over(answering, NOW + SILENT_SECONDS + 1)


def test_machine_that_has_never_answered_may_be_booting(free_port: int) -> None:
    watch = LeaseWatch()
    assert not watch.is_over(machine(free_port), NOW)
    assert not watch.is_over(machine(free_port), NOW + 5 * SILENT_SECONDS)
    assert watch.is_over(machine(free_port), 2 * NOW), "its lease is over"


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_only_clouds_that_bill_machines_that_are_off_are_watched() -> None:
    assert lease_watch.needs_watch("lambda") and not lease_watch.needs_watch("aws")
    assert "terminated by a request" in power_off_note("lambda") and power_off_note("aws") == ""


def test_watch_ends_where_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    assert LeaseWatch().check(time.time()) is None
