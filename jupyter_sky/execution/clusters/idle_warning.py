"""Warnings, in the status line of a cluster's last cell, that the idle cluster is about to end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from jupyter_sky.base.translation import _
from jupyter_sky.execution.display import Display, RunStatus
from jupyter_sky.machines.engines.controller.activity import warn_seconds

MIN_CHANGE_SECONDS = 3.0
"""Least change of the end that is shown."""

Show = Callable[[RunStatus], None]


class IdleWarning:
    """The end of one cluster for idleness, as its controller says, and what was said of it here.

    Parameters
    ----------
    cluster
        Its name.
    """

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._ends: float | None = None
        self._idle = 0.0
        self._warned: float | None = None
        self._last: tuple[Display, RunStatus] | None = None
        self._lock = threading.Lock()

    def remember(self, display: Display, status: RunStatus) -> None:
        """Use the status line of a cell that has ended for warnings from now on."""
        with self._lock:
            if self._last is not None and self._warned is not None:
                self._restore(*self._last)
            self._last, self._warned = (display, status), None

    def update(self, left: float, idle: float, now: float) -> None:
        """Note the seconds that the controller gives the cluster, and its idle limit."""
        self._ends, self._idle = now + left, idle

    def ends_soon(self, now: float) -> bool:
        """Return whether the cluster ends so soon that its users are to be warned."""
        return self._ends is not None and self._ends - now < warn_seconds(self._idle)

    def show(self, now: float) -> None:
        """Show a warning that is due, or remove one that is no longer."""
        with self._lock:
            if self._last is None:
                return
            if not self.ends_soon(now):
                if self._warned is not None:
                    self._warned = None
                    self._restore(*self._last)
                return
            assert self._ends is not None
            if self._warned is None or abs(self._ends - self._warned) > MIN_CHANGE_SECONDS:
                self._warned = self._ends
                self._show_note(
                    _(
                        "nobody uses {cluster}: it ends at {ends}, with its variables; %sky "
                        "extend {cluster} 1h keeps it"
                    ).format(cluster=self._cluster, ends=_clock(self._ends))
                )

    def mark_ended(self, now: float) -> None:
        """Show that the cluster has ended."""
        with self._lock:
            if self._last is not None:
                self._show_note(
                    _(
                        "{cluster} ended at {now}: nobody used it; its variables are gone, and "
                        "the next cell starts another"
                    ).format(cluster=self._cluster, now=_clock(now))
                )
                self._last = None

    def _show_note(self, note: str) -> None:
        assert self._last is not None
        display, status = self._last
        display.update_status(replace(status, notes=(*status.notes, note)))

    @staticmethod
    def _restore(display: Display, status: RunStatus) -> None:
        display.update_status(status)


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
