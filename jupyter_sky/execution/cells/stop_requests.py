"""Requests to stop a run: by its notebook, by other processes, and with its kernel."""

from __future__ import annotations

import threading

from jupyter_sky.base.errors import SkyCancelled
from jupyter_sky.base.translation import N_, _
from jupyter_sky.execution.cells.run_record import RunRecord

ENDED_WITH_KERNEL = N_("with its kernel, which was restarted or shut down; cells with --bg go on")


class StopRequests:
    """Requests to stop one run, other than interrupts of its kernel.

    Parameters
    ----------
    record
        Record of the run, in which other processes request its stop.
    """

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._cancelled = threading.Event()
        self._cancels, self._requester = 0, ""

    @property
    def is_cancelled(self) -> bool:
        """Whether the run is to stop."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Request a stop in this process."""
        self._cancels += 1
        self._cancelled.set()

    def count(self) -> int:
        """Return how many requests there were."""
        return self._cancels + self._record.stop_requests()[1]

    def check(self) -> str:
        """Take note of a request of another process; return a note on the first one."""
        requester = self._record.stop_requests()[0]
        if not requester or self.is_cancelled:
            return ""
        self._requester = requester
        self._cancelled.set()
        return _("stopped {who}").format(who=requester)

    def end_with_kernel(self) -> str:
        """Record that the run stops because its kernel ends; return a note on that."""
        self._record.note_stop(ENDED_WITH_KERNEL)
        return _("stopped {who}").format(who=_(ENDED_WITH_KERNEL))

    def error(self, label: str) -> SkyCancelled | None:
        """Return the error of a run that is to stop, with the author; None otherwise."""
        if not self.is_cancelled:
            return None
        how = f"stopped {self._requester}" if self._requester else "cancelled"
        return SkyCancelled(_("{label} was {how}").format(label=label, how=how))
