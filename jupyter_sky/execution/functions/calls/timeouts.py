"""Timeouts of calls, enforced by the notebook where an engine cannot enforce them.

C code that keeps the interpreter to itself keeps an engine from hearing, and from stopping, a
call. Then the future gets its error here, and the controller kills the engine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyError
from jupyter_sky.execution.functions.images.specs import CANCEL_GRACE_SECONDS

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.sent_batch import SentBatch

TICK_SECONDS = 0.05
SLACK_SECONDS = 0.45
"""Delay after a call's limit within which its engine must report: half a second in all."""
STOP_TIMEOUT_SECONDS = {"timeout": 0.6, "cancel": 1.5, "close": 12.0}
"""Time that an engine may take to report that it has stopped a call, by reason."""


class TimeoutMonitor:
    """Monitor of calls that have a time limit or were asked to stop.

    Parameters
    ----------
    abandon
        Called with a batch whose engine does not end its calls, and why they should have ended.
    """

    def __init__(self, abandon: Callable[[SentBatch, str], None]) -> None:
        self._abandon = abandon
        self.cancel_grace = CANCEL_GRACE_SECONDS
        """Time that a call may take to stop when another call of its group has failed."""
        self._watched: dict[str, SentBatch] = {}
        self._lock = threading.Lock()
        self._is_running = False

    def watch(self, batch: SentBatch) -> None:
        """Monitor a batch until its end."""
        with self._lock:
            self._watched[batch.id] = batch
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="sky-timeouts", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(TICK_SECONDS)
            now = time.monotonic()
            with self._lock:
                open_ = {
                    name: b for name, b in self._watched.items() if b.open_count and not b.is_final
                }
                self._watched = open_
                if not open_:
                    self._is_running = False
                    return
                batches = list(open_.values())
            for batch in batches:
                self._check_batch(batch, now)

    def _check_batch(self, batch: SentBatch, now: float) -> None:
        request = batch.stop_request
        if request is not None and batch.has_any(request.keys):
            patience = STOP_TIMEOUT_SECONDS.get(request.why, self.cancel_grace + SLACK_SECONDS)
            if now - request.since > patience:
                self._abandon(batch, request.why)
            return
        times = batch.time_limits()
        if times and all(times) and now - batch.sent > sum(times) + SLACK_SECONDS:
            if self._has_started(batch):
                self._abandon(batch, "timeout")
            else:  # a cell is in its way
                batch.sent = now - sum(times)

    @staticmethod
    def _has_started(batch: SentBatch) -> bool:
        """Return whether its engine has started it, as reported by the controller."""
        node = batch.node
        if node.executor != "main":
            return True
        try:
            engines = node.connection.ask_controller("engines")["engines"]
        except SkyError:
            return False
        running = next((e["running"] for e in engines if e["rank"] == node.cluster_rank), None)
        return running == f"calls-{batch.id}"
