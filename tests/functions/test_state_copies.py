"""Copies of shared state, which a server in place of a lost one goes on from."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkySharedLost
from jupyter_sky.execution.functions.shared import collections
from jupyter_sky.execution.functions.shared.shared_state import SharedState
from jupyter_sky.execution.functions.shared.state_copy import load_state, read_copy, write_copy
from jupyter_sky.machines.engines.controller.controller import SharedStateProcess
from jupyter_sky.machines.engines.node import instance
from tests.conftest import wait_until
from tests.functions.shared_state_tasks import topology

pytestmark = pytest.mark.usefixtures("no_task_yet")


@pytest.fixture
def copied_state(tmp_path: Path) -> Iterator[SharedStateProcess]:
    """Server of shared state that writes copies, as on the head of a cluster."""
    server, ended = SharedStateProcess("", tmp_path), threading.Event()

    def tick() -> None:
        while not ended.wait(0.02):
            server.tick()

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    yield server
    ended.set()
    thread.join()
    for listener in server._sockets.values():
        listener.close()
    kill(server)


def kill(server: SharedStateProcess) -> None:
    assert server._process is not None
    server._process.kill()
    server._process.wait()


def test_a_killed_server_goes_on_from_its_copy(
    copied_state: SharedStateProcess, tmp_path: Path
) -> None:
    with instance.running_task(topology(copied_state)):
        collections.dict("d")["a"] = [1, 2]
        collections.set("s").add("x")
        collections.queue("q").put("first")
        with collections.lock("l") as held:
            fence = held.fence
        assert collections.counter("c").add(5) == 5
        path = tmp_path / "shared_state.copy"
        wait_until(lambda: path.exists() and read_revision(path) == 6, "all changes are copied")
        assert path.stat().st_mode & 0o077 == 0, "it may hold anything"
        kill(copied_state)
        assert collections.counter("c").add(5) == 10
        assert collections.dict("d").snapshot() == {"a": [1, 2]}
        assert collections.set("s").snapshot() == {"x"}
        assert collections.queue("q").get(timeout=5) == "first"
        with collections.lock("l") as held:
            assert held.fence > fence


def test_changes_after_the_copy_are_reported_once(
    copied_state: SharedStateProcess, tmp_path: Path
) -> None:
    with instance.running_task(topology(copied_state)):
        collections.counter("c").add(1)
        path = tmp_path / "shared_state.copy"
        wait_until(path.exists, "a copy is written")
        copied = read_revision(path)
        for _ in range(3):
            collections.counter("c").add(1)
        copied_state._process.send_signal(signal.SIGSTOP)  # no other copy comes in between
        lost = 4 - read_revision(path)
        kill(copied_state)
        assert lost and copied == 1
        with pytest.raises(SkySharedLost, match=f"last {lost} changes"):
            _ = collections.counter("c").value
        assert collections.counter("c").value == 4 - lost


def test_a_copy_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "copy"
    assert read_copy(path) == []
    write_copy(path, [b"head", b"", b"value"])
    assert read_copy(path) == [b"head", b"", b"value"]
    path.write_bytes(path.read_bytes()[:-1])
    assert read_copy(path) == []
    with pytest.raises(ValueError, match="version 99"):
        load_state(SharedState(), [b'{"version": 99}'])


def read_revision(path: Path) -> int:
    return json.loads(read_copy(path)[0])["revision"]
