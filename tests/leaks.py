"""Leaks of a test file: processes, threads, sockets and temporary folders.

Other workers of the same run work beside this one, so only what this process has started counts:
its descendants, processes elsewhere that know its temporary folder, its own threads and sockets,
and the folders that it made.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

LEAK_SECONDS = 8.0
"""Within this time things that were told to end have ended."""
PACKING, PACKING_SECONDS = "sky-packing", 120.0
"""The thread that packs what engines elsewhere need, and the longest wait for its end."""
FOLDERS = ("sky-", "jupyter-sky-", "ec2-", "emulated-clouds-")
LASTING = ("resource_tracker", "forkserver", "playwright", "chrom", " [mux]", "ssh: /", "jedi")
"""In command lines of what is there for the whole run, or ends by itself when it is not used."""

_made: list[str] = []


def _note_folder(event: str, args: tuple[Any, ...]) -> None:
    if event == "tempfile.mkdtemp":
        _made.append(str(args[0]))


sys.addaudithook(_note_folder)


@dataclass
class Remains:
    """Return the resources of this process at one moment, each with a name."""

    processes: dict[int, str] = field(default_factory=dict)
    threads: dict[int, str] = field(default_factory=dict)
    sockets: dict[str, str] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)

    @classmethod
    def now(cls, base: Path) -> Remains:
        """Look; `base` is the temporary folder of this worker."""
        return cls(_processes(base), _threads(), _sockets(), _folders())

    def without(self, before: Remains, started: Callable[[float], str]) -> list[str]:
        """Return in words what was not there before.

        Parameters
        ----------
        started
            Returns in words which test ran at a time (unix seconds).
        """
        found = [
            f"thread {name}" for key, name in self.threads.items() if key not in before.threads
        ]
        found += [
            f"socket {name}" for key, name in self.sockets.items() if key not in before.sockets
        ]
        found += [
            f"folder {name}" for key, name in self.folders.items() if key not in before.folders
        ]
        for pid, line in self.processes.items():
            if pid not in before.processes:
                try:
                    born = started(psutil.Process(pid).create_time())
                except psutil.Error:
                    continue
                found.append(f"process {pid} of {born}: {line}")
        return sorted(found)


@contextmanager
def nothing_left(base: Path, started: Callable[[float], str]) -> Iterator[None]:
    """Fail when what runs inside leaves anything behind."""
    before = Remains.now(base)
    yield
    for thread in threading.enumerate():
        if thread.name == PACKING:  # it ends by itself, and takes long on a busy machine
            thread.join(PACKING_SECONDS)
    deadline, collected = time.monotonic() + LEAK_SECONDS, False
    while left := Remains.now(base).without(before, started):
        if time.monotonic() > deadline:
            raise AssertionError("left behind: " + "; ".join(left))
        if not collected:
            gc.collect()
            collected = True
        time.sleep(0.05)


def _processes(base: Path) -> dict[int, str]:
    own = {child.pid for child in psutil.Process().children(recursive=True)}
    mark, found = os.fsencode(base), dict[int, str]()
    for name in os.listdir("/proc") if sys.platform == "linux" else map(str, own):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        line, born = _read(name, "cmdline"), b""
        if int(name) not in own and mark not in line:
            born = _read(name, "environ")
        if (int(name) in own or mark in line or mark in born) and line:
            words = line.replace(b"\0", b" ").decode(errors="replace").strip()
            if not any(word in words for word in LASTING):
                found[int(name)] = words[:300]
    return found


def _read(pid: str, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _threads() -> dict[int, str]:
    return {
        id(thread): thread.name
        for thread in threading.enumerate()
        if thread is not threading.main_thread()
        and (not thread.daemon or thread.name.startswith("sky"))
    }


def _sockets() -> dict[str, str]:
    try:
        connections = psutil.Process().net_connections("inet")
    except psutil.Error:
        return {}
    listening = (one.laddr for one in connections if one.status == psutil.CONN_LISTEN)
    return {str(address): str(address) for address in listening}


def _folders() -> dict[str, str]:
    made = [path for path in _made if os.path.isdir(path)]
    _made[:] = made
    return {path: path for path in made if Path(path).name.startswith(FOLDERS)}
