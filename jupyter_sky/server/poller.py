"""Poll for state changes while at least one front end is connected."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from ..errors import SkyError

_log = logging.getLogger(__name__)

SCHEMA: dict[str, Any] = {
    "$id": "https://jupyter-sky.dev/events/changed",
    "version": "1",
    "title": "Clusters or runs of jupyter_sky have changed",
    "description": "Ask the state anew; the cursor is the ETag that it has now.",
    "personal-data": False,
    "type": "object",
    "required": ["cursor"],
    "properties": {"cursor": {"type": "string", "description": "ETag of the state."}},
}

VIEWER_SECONDS = 60.0
TICK_SECONDS = 0.5
RECONCILE_SECONDS = 30.0


class ChangePoller:
    """Thread that polls for changes and reconciles while front ends are connected.

    Parameters
    ----------
    change_marker
        Returns another marker after a change; called every tick.
    notify
        Called after a change.
    reconcile
        Takes its time: it asks clouds. It has a thread of its own.
    on_tick
        Called every tick.
    """

    def __init__(
        self,
        change_marker: Callable[[], str],
        notify: Callable[[], None],
        reconcile: Callable[[], None],
        on_tick: Callable[[], None],
    ) -> None:
        self._change_marker, self._notify, self._reconcile, self._on_tick = (
            change_marker,
            notify,
            reconcile,
            on_tick,
        )
        self._lock = threading.Lock()
        self._touched_at = 0.0
        self._thread: threading.Thread | None = None
        self._reconciler: threading.Thread | None = None
        self._reconciled_at = 0.0
        self._closed = threading.Event()

    def touch(self) -> None:
        """Note that a front end is connected; start the thread if needed."""
        self._touched_at = time.monotonic()
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._poll, name="sky-poller", daemon=True)
                self._thread.start()

    def reconcile_soon(self) -> None:
        """Reconcile at the next tick."""
        self._reconciled_at = 0.0

    def close(self) -> None:
        """End, and wait until it has ended."""
        self._closed.set()
        for thread in (self._thread, self._reconciler):
            if thread is not None and thread is not threading.current_thread():
                thread.join(10.0)

    def _poll(self) -> None:
        known = ""
        while not self._closed.wait(TICK_SECONDS):
            if self._stop_if_unwatched():
                return
            with self._log_errors():
                marker = self._change_marker()
                if known and marker != known:
                    self._notify()
                known = marker
            with self._log_errors():
                self._on_tick()
            if time.monotonic() - self._reconciled_at > RECONCILE_SECONDS:
                self._start_reconciliation()

    def _stop_if_unwatched(self) -> bool:
        """Return whether no front end is left; this thread then polls no more."""
        with self._lock:
            left = time.monotonic() - self._touched_at > VIEWER_SECONDS
            if left:
                self._thread = None
            return left

    def _start_reconciliation(self) -> None:
        if self._reconciler is not None and self._reconciler.is_alive():
            return
        self._reconciled_at = time.monotonic()

        def go() -> None:
            with self._log_errors():
                self._reconcile()

        self._reconciler = threading.Thread(target=go, name="sky-reconcile", daemon=True)
        self._reconciler.start()

    @staticmethod
    @contextlib.contextmanager
    def _log_errors() -> Any:
        try:
            yield
        except SkyError:  # whoever asks for the state is told; the next tick may do better
            pass
        except Exception:
            _log.exception("jupyter_sky could not poll for changes")
