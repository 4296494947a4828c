"""Snapshot of state that is not in the store, as plain values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from jupyter_sky.base.translation import _

USE_VALID_SECONDS = 60.0
"""Time for which a cluster is taken to be in use after a report that it was."""


@dataclass(frozen=True, slots=True)
class IdleReport:
    """Latest report of a controller about the use of its cluster.

    Attributes
    ----------
    idle_left : float
        Seconds after which the cluster ended if nobody used it.
    at : float
        Time of the report, unix seconds.
    users : tuple of str
        Work that kept it up then.
    """

    idle_left: float
    at: float
    users: tuple[str, ...] = ()

    def seconds_left(self, now: float) -> float | None:
        """Return the seconds until its end; None when that is no longer known.

        A cluster that has outlived what its controller said was used meanwhile.
        """
        left = self.at + self.idle_left - now
        return left if left > 0 and (not self.users or now - self.at < USE_VALID_SECONDS) else None


IdleReports = dict[tuple[str, float], IdleReport]
"""Latest report of each controller, by name and creation time of its cluster."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of clusters and runs that is not in the store.

    Attributes
    ----------
    ending : frozenset of str
        Clusters that are being ended here.
    starts : dict
        Stages of the starts of stopped clusters that go on here, by name.
    failed_starts : dict
        Reasons why the last start of a stopped cluster failed, by name.
    orphans : tuple of dict
        Machines of this user that no cluster has, as clusters.
    ends : dict
        Outcomes and times of ends of runs that no kernel follows, by id.
    unwatched : frozenset of str
        Runs whose kernel is gone.
    notices : tuple of str
        Sentences for the user.
    """

    ending: frozenset[str] = frozenset()
    starts: dict[str, str] = field(default_factory=dict)
    failed_starts: dict[str, str] = field(default_factory=dict)
    orphans: tuple[dict[str, Any], ...] = ()
    ends: dict[str, tuple[str, float]] = field(default_factory=dict)
    unwatched: frozenset[str] = frozenset()
    notices: tuple[str, ...] = ()


def midnight(now: float) -> float:
    """Return the local midnight before a time.

    Examples
    --------
    >>> midnight(1_700_000_000.0) <= 1_700_000_000.0
    True
    """
    return datetime.combine(datetime.fromtimestamp(now).date(), datetime.min.time()).timestamp()


def describe_orphan(name: str, machines: Iterable[Any]) -> dict[str, Any]:
    """Describe machines that no cluster has, as a cluster of unknown price."""
    found = list(machines)
    cloud = found[0].cloud
    return {
        "name": name,
        "state": "up",
        "where": cloud,
        "cloud": cloud,
        "region": "",
        "instance_type": "",
        "spot": False,
        "nodes": len(found),
        "price": None,
        "price_source": "",
        "price_date": "",
        "price_origin": "",
        "price_detail": "",
        "notebook": "",
        "created": min(machine.started for machine in found),
        "idle": 0.0,
        "idle_left": None,
        "users": [],
        "lease_end": min((m.lease_end for m in found if m.lease_end is not None), default=None),
        "running": 0,
        "usd": None,
        "resources": "",
        "note": _("no notebook knows of it, and it may cost money: end it"),
        "stopped": None,
        "orphan": True,
    }
