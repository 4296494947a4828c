"""The first process of a machine of the `local` cloud; when it ends, nothing of it is left.

    python -I -S guardian.py DIRECTORY COMMAND...

It runs COMMAND, adopts whatever COMMAND and its descendants abandon, and when COMMAND ends (or
this process is told to) kills what is left and writes ``ended.json`` with the time and the
reason. It imports the standard library only, so that it stays small and cannot break with the
user's environment.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
GRACE_SECONDS = 3.0


def prctl(option: int, value: int) -> None:
    """Call Linux's prctl; elsewhere do nothing (the head then watches its parent itself)."""
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
    found, queue = [], [pid]
    while queue:
        for child in children.get(queue.pop(), ()):
            found.append(child)
            queue.append(child)
    return found


def kill_all(pids: list[int]) -> None:
    """SIGKILL each of `pids` that is still there."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def main(argv: list[str]) -> int:
    """Run the command, wait for it, leave nothing behind."""
    directory, command = Path(argv[0]), argv[1:]
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    asked: list[int] = []
    child = subprocess.Popen(command, start_new_session=True)

    def stop(signum: int, _frame: object) -> None:
        asked.append(signum)
        child.terminate()
        signal.alarm(int(GRACE_SECONDS))

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, lambda *_: child.kill())

    while child.returncode is None:
        try:
            pid, status = os.wait()  # also reaps what was adopted
        except ChildProcessError:
            break
        if pid == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)
    for _ in range(50):  # an adopted process may fork while it is being killed
        left = descendants(os.getpid())
        if not left:
            break
        kill_all(left)
        time.sleep(0.02)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
    reason = "stopped" if asked else f"head ended with {child.returncode}"
    record = {"time": time.time(), "reason": reason}
    partial = directory / "ended.json.partial"
    if not (directory / "ended.json").exists():  # the head may have said why already
        partial.write_text(json.dumps(record))
        partial.replace(directory / "ended.json")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
