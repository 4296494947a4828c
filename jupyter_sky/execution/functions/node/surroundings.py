"""Surroundings of calls: working directory, instance information and event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from typing import Any

from jupyter_sky.machines.engines.node import instance


class WorkingDirectory:
    """Working directory of the process, restored when the last of concurrent calls has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls, self._path = 0, ""

    def __enter__(self) -> None:
        with self._lock:
            if not self._calls:
                self._path = _current_directory()
            self._calls += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._calls -= 1
            if not self._calls and self._path and self._path != _current_directory():
                with contextlib.suppress(OSError):
                    os.chdir(self._path)


_working_directory = WorkingDirectory()


def _current_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return ""


class CallSurroundings:
    """Context of one call, written as a class: it is entered for every quick call.

    It restores the working directory, sets the instance information, and hides the engine's
    running event loop, so that a function can run its own.

    Parameters
    ----------
    topology
        Topology of the node, as `instance.running_task` takes it.
    """

    __slots__ = ("_loop", "_task")

    def __init__(self, topology: dict[str, Any]) -> None:
        self._task = instance.running_task(topology)

    def __enter__(self) -> None:
        _working_directory.__enter__()
        try:
            self._task.__enter__()
        except BaseException:  # the call was stopped at its beginning
            _working_directory.__exit__()
            raise
        self._loop = asyncio._get_running_loop()
        asyncio._set_running_loop(None)

    def __exit__(self, *_: object) -> None:
        asyncio._set_running_loop(self._loop)
        self._task.__exit__()
        _working_directory.__exit__()
