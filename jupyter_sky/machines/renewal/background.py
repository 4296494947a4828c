"""Start of the renewal while a session lives, and what a session tells of it."""

from __future__ import annotations

import logging
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from jupyter_sky.base.settings.background_process import start_background_process
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.machines.renewal.log import read_log
from jupyter_sky.machines.renewal.schedule import CATALOG, Reading, Subject, find_due

FIRST_SECONDS = 20.0
"""Time after a session's start: its first cells have the machine for themselves."""
CHECK_SECONDS = 300.0
"""Period at which ages are compared."""
_log = logging.getLogger(__name__)


class BackgroundRenewal:
    """Thread of a session that looks at ages, and starts the worker when something is due.

    Parameters
    ----------
    tell
        Called with a sentence about each refresh of the catalog.
    """

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self._opened = time.time()
        self._worker: subprocess.Popen[bytes] | None = None
        self._closed = threading.Event()
        self._told: set[tuple[Subject, float]] = set()

    def start(self) -> None:
        """Look at ages from now on, in a thread of its own, until `close`."""
        threading.Thread(target=self._watch, name="sky-renewal", daemon=True).start()

    def close(self) -> None:
        """Stop looking; a worker that runs goes on to its end."""
        self._closed.set()
        if self._worker is not None:
            self._worker.poll()

    def check(self) -> bool:
        """Tell what has been refreshed, and start the worker if something is due.

        Returns
        -------
        bool
            Whether a worker was started.
        """
        settings = Sky.load()
        folder = Path(settings.data_dir)
        self._tell_refreshes(read_log(folder))
        if not settings.renew or (self._worker is not None and self._worker.poll() is None):
            return False
        from jupyter_sky.machines.renewal.subjects import add_catalog_ages, find_subjects

        readings = add_catalog_ages(read_log(folder), folder)
        if not find_due(find_subjects(), readings, time.time()):
            return False
        self._worker = start_background_process(
            ["-P", "-m", f"{__package__}.worker"], settings, folder=folder
        )
        return True

    def _tell_refreshes(self, readings: dict[Subject, Reading]) -> None:
        for subject, reading in readings.items():
            key = (subject, reading.done)
            is_new = reading.done > self._opened and not reading.failures
            if subject.kind == CATALOG and is_new and key not in self._told:
                self._told.add(key)
                self._tell(reading.text)

    def _watch(self) -> None:
        wait = FIRST_SECONDS
        while not self._closed.wait(wait):
            wait = CHECK_SECONDS
            try:
                self.check()
            except Exception:  # a cell must not hear of it
                _log.debug("what is known of the clouds could not be renewed", exc_info=True)
