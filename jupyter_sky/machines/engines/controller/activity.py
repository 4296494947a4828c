"""Use of a cluster: last use, current uses and idle time left.

A cluster is used by cells, by calls of functions, by values that are sent or fetched, by widgets
and by logins on its controller node. A notebook that is merely connected does not use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from jupyter_sky.base.json_types import JsonObject

WARN_SECONDS = 120.0
WARN_FRACTION = 0.2
NOTEBOOK_TIMEOUT_SECONDS = 10.0
"""Time after its last heartbeat for which a notebook counts as connected."""


def warn_seconds(idle: float) -> float:
    """Return how long before its end the users of an idle cluster are warned, in seconds.

    Examples
    --------
    >>> warn_seconds(600.0), warn_seconds(20.0), warn_seconds(86400.0)
    (120.0, 4.0, 120.0)
    """
    return min(WARN_SECONDS, idle * WARN_FRACTION)


def notebook_name(path: str) -> str:
    """Return the display name of a notebook from its path.

    Examples
    --------
    >>> notebook_name("/home/ada/train.ipynb")
    'train.ipynb'
    """
    return PurePath(path).name


@dataclass(frozen=True, slots=True)
class ConnectedNotebook:
    """Connected notebook, as of its last heartbeat.

    Attributes
    ----------
    last_heartbeat
        Time of its last heartbeat, by the monotonic clock.
    uses
        Use that went on then, such as ``2 calls``; empty when there was none.
    """

    last_heartbeat: float
    uses: str


class Activity:
    """Uses of one cluster. Times are seconds of the monotonic clock.

    Parameters
    ----------
    idle
        Seconds without use after which the cluster ends.
    now
        The time of its start, which counts as a use.
    """

    def __init__(self, idle: float, now: float) -> None:
        self.idle = idle
        self.last_use, self.last_use_label = now, "its start"
        self.kept_until = 0.0
        self._notebooks: dict[str, ConnectedNotebook] = {}

    def record_use(self, label: str, at: float) -> None:
        """Record a use; one that is earlier than the last use changes nothing."""
        if at >= self.last_use:
            self.last_use, self.last_use_label = at, label

    def record_heartbeat(
        self, notebook: str, now: float, ago: float | None, label: str, uses: str
    ) -> None:
        """Record the heartbeat of a notebook.

        Parameters
        ----------
        ago
            Seconds since it last used the cluster; None if it never did.
        label
            Name of that use.
        uses
            The use that goes on; empty when none does.
        """
        self._notebooks[notebook] = ConnectedNotebook(now, uses)
        if uses:
            self.record_use(f"{uses} of {notebook_name(notebook)}", now)
        elif ago is not None:
            self.record_use(f"{label} of {notebook_name(notebook)}", now - max(0.0, ago))

    def keep_until(self, until: float) -> None:
        """Keep the cluster up until a time, even if idle."""
        self.kept_until = until

    def seconds_left(self, now: float) -> float:
        """Return the seconds until an idle cluster ends."""
        return max(self.last_use + self.idle, self.kept_until) - now

    def report(self, now: float, cells: list[str], logins: list[str]) -> JsonObject:
        """Return current uses, last use and idle time left."""
        connected = self.connected_notebooks(now)
        calls = [f"{uses} of {notebook_name(key)}" for key, uses in connected.items() if uses]
        return {
            "idle_left": self.seconds_left(now),
            "idle": self.idle,
            "users": [*cells, *calls, *logins],
            "last_use": {"what": self.last_use_label, "ago": now - self.last_use},
            "connected": list(connected),
        }

    def connected_notebooks(self, now: float) -> dict[str, str]:
        """Return the connected notebooks with their current uses; drop those that timed out."""
        self._notebooks = {
            name: notebook
            for name, notebook in self._notebooks.items()
            if now - notebook.last_heartbeat < NOTEBOOK_TIMEOUT_SECONDS
        }
        return {name: notebook.uses for name, notebook in self._notebooks.items()}
