"""Interruption of work that does not come to a safe point before its machine is taken away."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

from jupyter_sky.base.translation import _
from jupyter_sky.execution.checkpoints.leaving import leaving

LEAVING_SECONDS = 8.0
"""Seconds before the end of a machine at which work on it is interrupted."""
LOOK_SECONDS = 0.25


class SkyLeaving(BaseException):
    """The machine is taken away in a few seconds, and the work has not come to a safe point.

    It is no `Exception`, so that ``except Exception`` in the work does not hold it up.
    """

    def __init__(self) -> None:
        super().__init__(_("this machine is taken away, and no safe point was reached in time"))


class LeaveWatch(threading.Thread):
    """Thread that raises `SkyLeaving` in the thread that has made it, at its next step in Python.

    Parameters
    ----------
    may_go_on : callable
        Whether the work has saved since the notice, or is saving now.
    """

    def __init__(self, may_go_on: Callable[[], bool]) -> None:
        super().__init__(name="sky-leaving", daemon=True)
        self._may_go_on, self._worker = may_go_on, threading.get_ident()
        self._ended, self._lock = threading.Event(), threading.Lock()

    def run(self) -> None:
        """Look for the end of the machine until the work has ended."""
        while not self._ended.wait(LOOK_SECONDS):
            left = leaving()
            if left is None or left > LEAVING_SECONDS or self._may_go_on():
                continue
            with self._lock:
                if not self._ended.is_set():
                    _raise_in(self._worker)
            return

    def stop(self) -> None:
        """Interrupt the work no more."""
        with self._lock:
            self._ended.set()


def _raise_in(thread: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(SkyLeaving))
