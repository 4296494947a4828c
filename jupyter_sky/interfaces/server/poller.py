"""Poll for state changes while at least one front end is connected."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from jupyter_sky.base.errors import SkyError

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
UNWATCHED_RUNS_SECONDS = 1.0
"""Period at which the runs of kernels that are gone are looked at."""


class PeriodicJob:
    """Work in a thread of its own, begun once its period has passed and the last one is over."""

    def __init__(self, name: str, seconds: float, work: Callable[[], None]) -> None:
        self._name, self._seconds, self._work = name, seconds, work
        self._begun_at = -seconds
        self._thread: threading.Thread | None = None

    def start_if_due(self) -> None:
        """Begin it if its time has come."""
        is_due = time.monotonic() - self._begun_at > self._seconds
        if not is_due or (self._thread is not None and self._thread.is_alive()):
            return
        self._begun_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def make_due(self) -> None:
        """Let it begin at the next tick."""
        self._begun_at = -self._seconds

    def join(self, seconds: float) -> None:
        """Wait until the present work is over."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _run(self) -> None:
        with log_errors():
            self._work()


class ChangePoller:
    """Thread that polls for changes and reconciles while front ends are connected.

    Parameters
    ----------
    change_marker
        Returns another marker after a change; called every tick.
    notify
        Called after a change.
    reconcile
        Asks clouds and clusters, every `RECONCILE_SECONDS`.
    check_runs
        Looks at runs that no kernel watches, every `UNWATCHED_RUNS_SECONDS`.
    on_tick
        Called every tick.
    """

    def __init__(
        self,
        change_marker: Callable[[], str],
        notify: Callable[[], None],
        reconcile: Callable[[], None],
        check_runs: Callable[[], None],
        on_tick: Callable[[], None],
    ) -> None:
        self._change_marker, self._notify, self._on_tick = change_marker, notify, on_tick
        self._reconciliation = PeriodicJob("sky-reconcile", RECONCILE_SECONDS, reconcile)
        self._run_check = PeriodicJob("sky-runs", UNWATCHED_RUNS_SECONDS, check_runs)
        self._lock = threading.Lock()
        self._touched_at = 0.0
        self._thread: threading.Thread | None = None
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
        self._reconciliation.make_due()

    def close(self) -> None:
        """End, and wait until it has ended."""
        self._closed.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(10.0)
        for job in (self._reconciliation, self._run_check):
            job.join(10.0)

    def _poll(self) -> None:
        known = ""
        while not self._closed.wait(TICK_SECONDS):
            if self._stop_if_unwatched():
                return
            with log_errors():
                marker = self._change_marker()
                if known and marker != known:
                    self._notify()
                known = marker
            with log_errors():
                self._on_tick()
            self._reconciliation.start_if_due()
            self._run_check.start_if_due()

    def _stop_if_unwatched(self) -> bool:
        """Return whether no front end is left; this thread then polls no more."""
        with self._lock:
            left = time.monotonic() - self._touched_at > VIEWER_SECONDS
            if left:
                self._thread = None
            return left


@contextlib.contextmanager
def log_errors() -> Iterator[None]:
    """Log unexpected errors of periodic work, which goes on."""
    try:
        yield
    except SkyError:  # a front end is told when it asks for the state; the next tick may do better
        pass
    except Exception:
        _log.exception("jupyter_sky could not poll for changes")
