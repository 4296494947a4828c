"""Progress of a refresh: tqdm's bar where tqdm is installed, else a line now and then."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

_EVERY = 2.0  # seconds between plain lines


class RefreshProgress:
    """A bar whose length grows as more to do is found.

    Parameters
    ----------
    label
        What is under way.
    quiet
        Show nothing.

    Examples
    --------
    >>> with Progress("aws") as bar:  # doctest: +SKIP
    ...     bar.more(2)
    ...     bar.step("us-east-1")
    """

    def __init__(self, label: str, *, quiet: bool = False) -> None:
        self.label, self.quiet = label, quiet
        self.total = self.done = 0
        self._bar: Any = None
        self._shown = 0.0
        self._lock = threading.Lock()

    def __enter__(self) -> RefreshProgress:
        if not self.quiet:
            self._bar = _bar(self.label)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def more(self, count: int) -> None:
        """Add to the number of tasks."""
        with self._lock:
            self.total += count
            if self._bar is not None:
                self._bar.total = self.total
                self._bar.refresh()

    def step(self, what: str) -> None:
        """Count one task as done."""
        with self._lock:
            self.done += 1
            if self._bar is not None:
                self._bar.set_postfix_str(what, refresh=False)
                self._bar.update()
            elif not self.quiet and time.monotonic() - self._shown > _EVERY:
                self._shown = time.monotonic()
                line = f"{self.label}: {self.done} of {self.total} ({what})"
                print(line, file=sys.stderr, flush=True)


def _bar(label: str) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(desc=label, total=0, unit="list", leave=False)
