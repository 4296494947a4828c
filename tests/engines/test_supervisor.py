"""The supervisor: when its command ends, or it is told to end, nothing is left."""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from jupyter_sky.base.remote import supervisor
from tests.conftest import WAIT, clean, processes_of, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

Start = Callable[[str], psutil.Popen]

DAEMONS = """
    import os, sys, time
    for _ in range(3):
        if os.fork() == 0:  # twice, in a session of its own, as a daemon starts
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
    time.sleep(0.2)
"""


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Start]:
    """Start a supervisor around a Python script."""
    started = []

    def start(code: str) -> psutil.Popen:
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(code))
        command = [sys.executable, "-I", "-S", supervisor.__file__, str(tmp_path)]
        process = psutil.Popen(
            [*command, sys.executable, str(script)], cwd=tmp_path, start_new_session=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.is_running():
            process.kill()
        process.wait()
    clean(tmp_path)


def ended(directory: Path) -> dict:
    return json.loads((directory / "ended.json").read_text())


def test_daemons_end_with_the_command(guard: Start, tmp_path: Path) -> None:
    before = time.time()
    assert guard(DAEMONS).wait(10) == 0
    assert processes_of(tmp_path) == []
    assert ended(tmp_path)["reason"] == "its controller ended with exit code 0"
    assert before < ended(tmp_path)["time"] < time.time()
    assert (tmp_path / "ended.json").stat().st_mode & 0o777 == 0o600


def test_daemons_end_when_the_command_is_killed(guard: Start, tmp_path: Path) -> None:
    process = guard(DAEMONS + "    open('ready', 'w').close(); time.sleep(600)")
    wait_until((tmp_path / "ready").exists)
    # a command leads its process group; a daemon has left the group that it was born into
    (child,) = (p for p in process.children() if os.getpgid(p.pid) == p.pid)
    assert len(process.children()) == 4
    child.kill()
    process.wait(10)
    assert processes_of(tmp_path) == []
    assert "SIGKILL" in ended(tmp_path)["reason"]


def test_a_child_that_ignores_sigterm_is_killed(guard: Start, tmp_path: Path) -> None:
    process = guard(
        """
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("ready", "w").close()
        time.sleep(600)
        """
    )
    wait_until((tmp_path / "ready").exists)
    process.send_signal(signal.SIGTERM)
    process.wait(WAIT)
    assert processes_of(tmp_path) == []
    assert ended(tmp_path)["reason"] == "stopped"


def test_sigterm_as_the_command_ends_does_not_hang(guard: Start, tmp_path: Path) -> None:
    """A daemon lives on, the command is a zombie, the signal comes: all within one wait."""
    process = guard(DAEMONS)
    for _ in range(200):
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGTERM)
        time.sleep(0.002)
    process.wait(10)
    assert processes_of(tmp_path) == []


def test_end_reason_is_kept_and_crash_shows_log(guard: Start, tmp_path: Path) -> None:
    (tmp_path / "controller.log").write_text("early\nImportError: no module named zmq\n")
    guard("raise SystemExit(3)").wait(10)
    reason = ended(tmp_path)["reason"]
    assert "exit code 3" in reason and "no module named zmq" in reason
    (tmp_path / "ended.json").write_text('{"time": 1, "reason": "idle"}')
    guard("pass").wait(10)
    assert ended(tmp_path)["reason"] == "idle"


def test_command_ends_whose_supervisor_was_killed_meanwhile(guard: Start, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"directory": str(tmp_path)}))
    process = guard(
        """
        import os, time
        from pathlib import Path
        from jupyter_sky.machines.engines.node.engine_process import load_config
        Path("ready").touch()
        while not os.path.exists("go"):
            time.sleep(0.01)
        load_config(Path("config.json"))
        time.sleep(600)
        """
    )
    wait_until((tmp_path / "ready").exists)
    (command,) = process.children()
    process.kill()
    process.wait()
    (tmp_path / "go").touch()
    command.wait(WAIT)


def test_supervisor_ignores_sigint_and_sighup(guard: Start, tmp_path: Path) -> None:
    process = guard("import time; time.sleep(600)")
    wait_until(lambda: len(processes_of(tmp_path)) == 2)
    for signum in (signal.SIGINT, signal.SIGHUP):
        process.send_signal(signum)
    time.sleep(0.3)
    assert process.poll() is None
    process.terminate()
    process.wait(10)
