"""Use of a cluster: the last one, those that go on, and how long it stays up without another.

A cluster is used by cells, by calls of functions, by values that are sent or fetched, by widgets
and by logins on its head node. A notebook that is merely connected does not use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

WARN_SECONDS = 120.0
WARN_PART = 0.2
HEARD_SECONDS = 10.0
"""Time after its last heartbeat for which a notebook counts as connected."""


def warn_seconds(idle: float) -> float:
    """Return how long before its end the users of an idle cluster are warned, in seconds.

    Examples
    --------
    >>> warn_seconds(600.0), warn_seconds(20.0), warn_seconds(86400.0)
    (120.0, 4.0, 120.0)
    """
    return min(WARN_SECONDS, idle * WARN_PART)


def notebook_name(path: str) -> str:
    """Return the name of a notebook, as people call it, from its path.

    Examples
    --------
    >>> notebook_name("/home/ada/train.ipynb")
    'train.ipynb'
    """
    return PurePath(path).name


@dataclass(frozen=True, slots=True)
class Notebook:
    """A notebook that is connected, as of its last heartbeat.

    Attributes
    ----------
    heard
        When that was, by the monotonic clock.
    uses
        The use that went on then, such as ``2 calls``; empty when there was none.
    """

    heard: float
    uses: str


class Activity:
    """The uses of one cluster. Times are seconds of the monotonic clock.

    Parameters
    ----------
    idle
        Seconds without use after which the cluster ends.
    now
        The time of its start, which counts as a use.
    """

    def __init__(self, idle: float, now: float) -> None:
        self.idle = idle
        self.last, self.last_what = now, "its start"
        self.kept = 0.0
        self._notebooks: dict[str, Notebook] = {}

    def note(self, what: str, at: float) -> None:
        """Note a use; an earlier one than the last known changes nothing."""
        if at >= self.last:
            self.last, self.last_what = at, what

    def beat(self, notebook: str, now: float, ago: float | None, what: str, uses: str) -> None:
        """Note the heartbeat of a notebook.

        Parameters
        ----------
        ago
            Seconds since it last used the cluster; None if it never did.
        what
            That use.
        uses
            The use that goes on; empty when none does.
        """
        self._notebooks[notebook] = Notebook(now, uses)
        if uses:
            self.note(f"{uses} of {notebook_name(notebook)}", now)
        elif ago is not None:
            self.note(f"{what} of {notebook_name(notebook)}", now - max(0.0, ago))

    def keep(self, until: float) -> None:
        """Let the cluster not end for idleness before a time."""
        self.kept = until

    def left(self, now: float) -> float:
        """Return the seconds after which the cluster ends without another use."""
        return max(self.last + self.idle, self.kept) - now

    def report(self, now: float, cells: list[str], logins: list[str]) -> dict[str, Any]:
        """Return what keeps the cluster up, what used it last, and how long it stays without."""
        connected = self.connected(now)
        calls = [f"{uses} of {notebook_name(key)}" for key, uses in connected.items() if uses]
        return {
            "idle_left": self.left(now),
            "idle": self.idle,
            "users": [*cells, *calls, *logins],
            "last_use": {"what": self.last_what, "ago": now - self.last},
            "connected": list(connected),
        }

    def connected(self, now: float) -> dict[str, str]:
        """Return the connected notebooks, each with the use that goes on, and forget the others."""
        self._notebooks = {
            name: one for name, one in self._notebooks.items() if now - one.heard < HEARD_SECONDS
        }
        return {name: one.uses for name, one in self._notebooks.items()}
