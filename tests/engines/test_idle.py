"""Idle clusters: which uses keep one up, who is named, how long is left."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from jupyter_sky.machines.engines.client.connection import ClusterUse
from jupyter_sky.machines.engines.controller import controller, logins
from jupyter_sky.machines.engines.controller.activity import Activity, warn_seconds
from jupyter_sky.machines.engines.controller.logins import Login
from jupyter_sky.machines.engines.wire.controller_requests import Extend
from tests.conftest import wait_until
from tests.engines.scripted_controller import ScriptedController, Start


def beat(cluster: ScriptedController, **more: Any) -> dict[str, Any]:
    return cluster.controller.handle_request({"op": "beat", "notebook": "a.ipynb", **more}).encode()


def test_connected_notebook_keeps_nothing(start: Start) -> None:
    cluster = start(idle=0.5)
    begun = time.monotonic()
    cluster.tick_until(lambda: beat(cluster) and cluster.ended)
    assert time.monotonic() - begun > 0.4
    assert cluster.reason() == "idle"


def test_start_of_engines_is_a_use(start: Start) -> None:
    cluster = start(idle=0.2)
    cluster.up = False
    time.sleep(0.3)
    cluster.controller.tick()
    time.sleep(0.3)
    cluster.controller.tick()
    assert not cluster.ended
    cluster.up = True
    cluster.tick_until(lambda: cluster.ended)
    assert cluster.reason() == "idle"


def test_engines_that_never_come_do_not_keep_their_cluster(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "START_SECONDS", 0.1)
    cluster = start(idle=0.2)
    cluster.up = False
    cluster.tick_until(lambda: cluster.ended)
    assert cluster.reason() == "idle"


def test_use_that_goes_on_is_reported_until_it_ends() -> None:
    use = ClusterUse()
    with use.going_on("cell 3"):
        assert use.describe("a.ipynb").uses == "cell 3"
    after = use.describe("a.ipynb")
    assert after.uses == "" and after.what == "cell 3" and after.ago is not None


def test_use_reported_by_a_notebook_keeps_the_cluster(start: Start) -> None:
    cluster = start(idle=0.6)
    until = time.monotonic() + 1.2
    while time.monotonic() < until:
        beat(cluster, ago=None, what="", uses="2 calls")
        cluster.controller.tick()
        time.sleep(0.02)
    assert not cluster.ended
    reply = cluster.controller.handle_request({"op": "metrics"}).encode()
    assert reply["users"] == ["2 calls of a.ipynb"]
    beat(cluster, ago=0.4, what="cell 3", uses="")
    reply = cluster.controller.handle_request({"op": "metrics"}).encode()
    assert reply["users"] == [] and reply["last_use"]["what"] == "2 calls of a.ipynb"
    beat(cluster, ago=0.0, what="cell 3", uses="")
    reply = cluster.controller.handle_request({"op": "metrics"}).encode()
    assert reply["last_use"]["what"] == "cell 3 of a.ipynb" and reply["last_use"]["ago"] < 0.1
    assert 0.5 < reply["idle_left"] <= 0.6
    cluster.tick_until(lambda: cluster.ended)


def test_running_cell_is_named_as_the_user(start: Start) -> None:
    cluster = start(idle=0.3)
    cluster.begin("r", cell=7, notebook="/home/ada/train.ipynb", name=None)
    time.sleep(0.5)
    cluster.controller.tick()
    assert not cluster.ended
    reply = beat(cluster)
    assert reply["users"] == ["cell 7 of train.ipynb"]
    assert reply["idle_left"] == pytest.approx(0.3, abs=0.05)


def test_heartbeat_sets_idle_limit_and_returns_time_left(
    start: Start,
) -> None:
    cluster = start(idle=60)
    assert 59 < beat(cluster)["idle_left"] <= 60
    assert beat(cluster, idle=5.0)["idle_left"] <= 5
    assert cluster.ask(Extend(100.0)).idle_left > 99
    assert cluster.ask(Extend(1.0)).idle_left <= 5, "the last one counts"


def test_login_keeps_the_cluster_as_long_as_it_is_used(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logins, "LOGIN_POLL_SECONDS", 0.0)
    shells = [Login("ada", "pts/3", 0.0, "vim")]
    monkeypatch.setattr(logins, "find_logins", lambda directory: shells)
    cluster = start(idle=0.4)
    cluster.controller._logins.enabled = True  # as on a machine that can be logged in to
    until = time.monotonic() + 0.8
    while time.monotonic() < until:
        cluster.controller.tick()
        time.sleep(0.02)
    assert not cluster.ended
    assert beat(cluster)["users"] == ["login of ada (vim)"]
    shells[:] = [Login("ada", "pts/3", 3600.0, "")]
    cluster.tick_until(lambda: cluster.ended)


def test_last_use_is_the_latest_whatever_the_order() -> None:
    uses = Activity(100.0, 1000.0)
    uses.record_use("a cell", 1050.0)
    uses.record_use("a login", 1020.0)
    assert (uses.last_use, uses.last_use_label, uses.seconds_left(1060.0)) == (
        1050.0,
        "a cell",
        90.0,
    )
    uses.keep_until(1300.0)
    assert uses.seconds_left(1060.0) == 240.0
    uses.keep_until(1070.0)
    assert uses.seconds_left(1060.0) == 90.0
    uses.record_heartbeat("b.ipynb", 1060.0, None, "", "")
    assert uses.last_use_label == "a cell" and uses.connected_notebooks(1061.0) == {"b.ipynb": ""}
    assert uses.connected_notebooks(1080.0) == {}, "it has not been heard of"


def test_warning_comes_in_the_last_fifth_but_not_before_two_minutes() -> None:
    assert (warn_seconds(10.0), warn_seconds(600.0), warn_seconds(36_000.0)) == (2.0, 120.0, 120.0)


@pytest.mark.skipif(sys.platform != "linux", reason="terminals are looked up on Linux only")
def test_shell_at_a_terminal_is_found_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real terminal and a real shell; only the name of its parent is not an SSH server's."""
    monkeypatch.setattr(logins, "_is_sshd", lambda pid: pid == os.getpid())
    pid, fd = pty.fork()
    if pid == 0:
        os.environ[logins.LOGIN_VARIABLE] = str(tmp_path)
        os.execvp("sh", ["sh", "-i"])
    try:
        monkeypatch.setattr(logins, "_TERMINALS", Path(os.path.dirname(_terminal(pid))))
        wait_until(lambda: len(logins.find_logins(str(tmp_path))) == 1)
        (login,) = logins.find_logins(str(tmp_path))
        assert login.command == "" and login.idle < 30
        assert logins.find_logins(str(tmp_path / "another")) == []
        os.write(fd, b"sleep 30\n")
        wait_until(lambda: logins.find_logins(str(tmp_path))[0].command == "sleep")
        assert logins.find_logins(str(tmp_path))[0].idle == 0.0
    finally:
        # a command that the shell has not brought to the foreground yet hears no hang-up
        for process in [*psutil.Process(pid).children(), psutil.Process(pid)]:
            process.kill()
        os.close(fd)
        os.waitpid(pid, 0)
    assert logins.find_logins(str(tmp_path)) == []


def _terminal(pid: int) -> str:
    return wait_for(lambda: os.readlink(f"/proc/{pid}/fd/0"))


def wait_for(value: Callable[[], str]) -> str:
    values: list[str] = []
    wait_until(lambda: values.append(value()) or "/pts/" in values[-1])
    return values[-1]


def test_processes_without_a_terminal_are_no_logins() -> None:
    with subprocess.Popen(["sleep", "5"], start_new_session=True) as process:
        assert all(login.terminal.startswith("pts/") for login in logins.find_logins())
        process.kill()
