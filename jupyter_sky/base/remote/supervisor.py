"""Supervisor process (``python -m`` or as a script): kills every descendant when its command ends.

    python -I -S supervisor.py DIRECTORY COMMAND...

It runs COMMAND, adopts whatever COMMAND and its descendants abandon, and when COMMAND ends (or
this process is told to) kills what is left and writes ``ended.json`` with the time and the
reason. It imports the standard library only, so that it stays small and cannot break with the
user's environment.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MNT_DETACH = 2
GRACE_SECONDS = 3.0
SUPERVISOR_VARIABLE = "JUPYTER_SKY_SUPERVISOR"
"""Environment variable with the PID of the supervisor, for its command alone."""
ENGINE_VARIABLE = "JUPYTER_SKY_ENGINE"
"""Environment variable of an engine and its descendants: the folder of its cluster, and a number.

It marks the processes that are killed with the engine.
"""


def prctl(option: int, value: int) -> None:
    """Call Linux's prctl; elsewhere do nothing (the controller then watches its parent itself)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """Return every live process below `pid`, by one pass over the process table."""
    children: dict[int, list[int]] = {}
    if sys.platform == "linux":
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if fields[0] != "Z":
                    children.setdefault(int(fields[1]), []).append(int(entry.name))
    else:
        listing = subprocess.run(["ps", "-axo", "ppid=,pid="], capture_output=True, text=True)
        for line in listing.stdout.splitlines():
            parent, child = map(int, line.split())
            children.setdefault(parent, []).append(child)
    pids, queue = [], [pid]
    while queue:
        for child in children.get(queue.pop(), ()):
            pids.append(child)
            queue.append(child)
    return pids


def processes_with_env(text: str, title: str) -> list[int]:
    """Return the PIDs of all processes whose environment has `text`.

    A process that has left its session and its parent is recognized by the environment that it was
    started with; a forked copy of an engine, by the engine's `title`.
    """
    pids, wanted, named = [], os.fsencode(text), os.fsencode(title)
    for entry in Path("/proc").iterdir() if text and sys.platform == "linux" else ():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().rstrip(b"\0")
                if (named and command == named) or (
                    wanted in (entry / "environ").read_bytes().split(b"\0")
                ):
                    pids.append(int(entry.name))
            except OSError:
                continue
    return pids


def write_private(path: Path, record: Mapping[str, object] | Sequence[object]) -> None:
    """Write a small JSON file atomically, readable by this user only."""
    partial = path.with_suffix(".partial")
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(record, file)
    partial.replace(path)


def describe_exit(returncode: int) -> str:
    """Return a description of the end of a process."""
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    return f"was killed by {signal.Signals(-returncode).name}"


def tail_log(path: Path, start: int = 0, lines: int = 8) -> str:
    """Return the last lines of a log, on lines of their own; nothing when it is empty."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            text = file.read()[-8192:].decode(errors="replace").strip()
    except OSError:
        return ""
    return "".join(f"\n    {line}" for line in text.splitlines()[-lines:])


def kill_all(pids: list[int]) -> None:
    """Send SIGKILL to each of `pids` that still runs."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def unmount_below(directory: Path) -> None:
    """Unmount file systems of FUSE at or below a folder, also those whose process is gone."""
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:  # not Linux
        return
    folder = os.fsencode(os.path.realpath(directory))
    for line in lines:
        fields, __, source = line.partition(b" - ")
        point = re.sub(rb"\\(\d{3})", lambda code: bytes([int(code[1], 8)]), fields.split(b" ")[4])
        if source.startswith(b"fuse") and (point == folder or point.startswith(folder + b"/")):
            _unmount(point)


def _unmount(point: bytes) -> None:
    """Detach a file system; files that are open there can be read until they are closed."""
    command = ["fusermount3", "-u", "-z", os.fsdecode(point)]
    try:
        if subprocess.run(command, capture_output=True, timeout=GRACE_SECONDS).returncode == 0:
            return
    except (OSError, subprocess.TimeoutExpired):
        pass
    ctypes.CDLL(None, use_errno=True).umount2(point, MNT_DETACH)


def main(argv: list[str]) -> int:
    """Run the command, wait for it, kill all descendants."""
    directory, command = Path(argv[0]), argv[1:]
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    stop_signals: list[int] = []
    child: subprocess.Popen | None = None

    def stop(signum: int, _frame: object) -> None:
        stop_signals.append(signum)
        signal.alarm(int(GRACE_SECONDS))
        signal_child(signal.SIGTERM)

    def signal_child(signum: int) -> None:
        # not child.send_signal: it reaps, and the wait below would then wait for the adopted
        if child is not None and child.returncode is None:
            os.kill(child.pid, signum)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, lambda *_: signal_child(signal.SIGKILL))
    env = os.environ | {SUPERVISOR_VARIABLE: str(os.getpid())}
    child = subprocess.Popen(command, start_new_session=True, env=env)
    if stop_signals:
        signal_child(signal.SIGTERM)

    while child.returncode is None:
        pid, status = os.wait()  # also reaps what was adopted
        if pid == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)
    signal.alarm(0)
    _kill_descendants()
    unmount_below(directory)
    _record_end(directory, stop_signals, child.returncode)
    clean_up(directory)
    return 0


def _kill_descendants() -> None:
    """Kill and reap all descendants of this process."""
    for _ in range(50):  # an adopted process may fork while it is being killed
        pids = descendants(os.getpid())
        if not pids:
            return
        kill_all(pids)
        time.sleep(0.02)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


def _record_end(directory: Path, stop_signals: list[int], returncode: int) -> None:
    """Write the reason of the end, unless the controller has written it already."""
    if not (directory / "ended.json").exists():
        reason = "stopped" if stop_signals else f"its controller {describe_exit(returncode)}"
        if not stop_signals and returncode > 0:
            reason += tail_log(directory / "controller.log")
        write_private(directory / "ended.json", {"time": time.time(), "reason": reason})


def clean_up(directory: Path) -> None:
    """Remove all files except the record of the end; a rented machine ends too."""
    import shutil

    try:
        cleanup = json.loads((directory / "cleanup.json").read_text())
    except (OSError, ValueError):
        return
    try:
        shutil.copyfile(directory / "ended.json", cleanup["record"])
    except OSError:
        pass
    for path in map(Path, cleanup["remove"]):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            try:
                path.unlink()
            except OSError:  # another user's
                pass
    if cleanup.get("end"):
        try:
            Path(cleanup["end"]).touch()
        except OSError:
            pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
