"""The bill that a cloud itself keeps: for each machine when it, its disk and its address cost.

It is written by what happens in the cloud, whatever its interface says of it later or forgets, and
shares no code with the ledger that is compared with it.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field
from typing import Any

UNITS: dict[str, tuple[float, float]] = {
    "aws": (1.0, 60.0),
    "azure": (1.0, 0.0),
    "gcp": (1.0, 60.0),
}
"""Seconds in steps of which a cloud bills a machine, and the least that it bills."""
PARTS = ("machine", "disk", "address")


@dataclass
class Stretch:
    """A time in which something costs, unix seconds; `ended` is None while it goes on."""

    began: float
    ended: float | None = None


@dataclass
class Entry:
    """The bill of one machine.

    Attributes
    ----------
    facts : dict
        Of the machine: ``tags``, ``instance_type``, ``region``, ``zone``, ``spot``, ``disk_gib``.
    stretches : dict
        For each of `PARTS` when it cost; the last may be open.
    waived : bool
        Whether the cloud charges nothing for it: it took a spot machine back right away.
    """

    facts: dict[str, Any]
    stretches: dict[str, list[Stretch]] = field(default_factory=dict)
    waived: bool = False

    def is_open(self, part: str) -> bool:
        """Whether a part costs now."""
        stretches = self.stretches.get(part)
        return bool(stretches) and stretches[-1].ended is None


class Bills:
    """The bills of one account, by the ids that the emulator's ``machines`` has.

    Parameters
    ----------
    cloud
        Whose units and least times are applied.

    Examples
    --------
    >>> bills = Bills("aws")
    >>> bills.begin("us-east-1/i-1", at=100.0, tags={})
    >>> bills.end("us-east-1/i-1", at=112.5)
    >>> [(one["seconds"], one["billed"]) for one in bills.listed()]
    [(12.5, 60.0)]
    """

    def __init__(self, cloud: str) -> None:
        self.cloud = cloud
        self._entries: dict[str, Entry] = {}
        self._lock = threading.Lock()

    def begin(self, id: str, *parts: str, at: float | None = None, **facts: Any) -> None:
        """Let parts of a machine cost from now on; the machine itself where none is named."""
        at = time.time() if at is None else at
        with self._lock:
            entry = self._entries.setdefault(id, Entry({}))
            entry.facts |= facts
            for part in parts or ("machine",):
                if not entry.is_open(part):
                    entry.stretches.setdefault(part, []).append(Stretch(at))

    def end(self, id: str, *parts: str, at: float | None = None, waived: bool = False) -> None:
        """Let parts of a machine cost no more; all of them where none is named."""
        at = time.time() if at is None else at
        with self._lock:
            entry = self._entries.get(id)
            if entry is None:
                return
            entry.waived |= waived
            for part in parts or PARTS:
                if entry.is_open(part):
                    entry.stretches[part][-1].ended = at

    def open(self, part: str = "machine") -> list[str]:
        """Ids of the machines of which a part costs now."""
        with self._lock:
            return [id for id, entry in self._entries.items() if entry.is_open(part)]

    def listed(self, now: float | None = None) -> list[dict[str, Any]]:
        """List the bills of all machines that ever were.

        Returns
        -------
        list of dict
            ``id``, what is known of the machine, ``began`` and ``ended`` (unix seconds; None while
            it costs), ``seconds`` that the machine itself cost, ``billed`` seconds by the cloud's
            units, ``disk_seconds``, ``address_seconds``, ``waived``. A machine that never ran has
            ``began`` None and 0 seconds.
        """
        now = time.time() if now is None else now
        with self._lock:
            return [self._listed(id, entry, now) for id, entry in self._entries.items()]

    def _listed(self, id: str, entry: Entry, now: float) -> dict[str, Any]:
        lasted = {
            part: [(now if one.ended is None else one.ended) - one.began for one in stretches]
            for part, stretches in entry.stretches.items()
        }
        machine = entry.stretches.get("machine", [])
        each = lasted.get("machine", [])
        return {
            **entry.facts,
            "id": id,
            "began": machine[0].began if machine else None,
            "ended": machine[-1].ended if machine else None,
            "seconds": sum(each),
            # each start is billed the least time anew
            "billed": sum(billed(self.cloud, seconds) for seconds in each),
            "disk_seconds": sum(lasted.get("disk", [])),
            "address_seconds": sum(lasted.get("address", [])),
            "waived": entry.waived,
        }


def billed(cloud: str, seconds: float) -> float:
    """Seconds that a cloud charges for a machine that ran for some.

    Examples
    --------
    >>> billed("gcp", 3.2), billed("azure", 3.2), billed("aws", 60.5)
    (60.0, 4.0, 61.0)
    """
    unit, least = UNITS[cloud]
    return max(math.ceil(round(seconds / unit, 6)) * unit, least)


def units_apart(bill: dict[str, Any], seconds: float, minute: float = 60.0) -> float:
    """By how many billing units a ledger differs from a cloud's bill of a machine.

    A unit is a minute: the least time of AWS and GCP, and less than what a cloud takes to say that
    a machine has ended. Where machines live in a time that is faster (`minute` seconds a minute,
    their leases too), real delays of seconds are not, so that a unit stays a real minute unless
    `minute` says otherwise.

    Parameters
    ----------
    bill
        One of `Bills.listed`.
    seconds
        What the ledger has for the machine, before any rounding to units.
    minute
        Seconds that count as one unit.

    Returns
    -------
    float
        Above 0 where the ledger has more than the cloud charges.

    Examples
    --------
    >>> units_apart({"seconds": 30.0}, 90.0), units_apart({"seconds": 30.0}, 28.5, minute=1.0)
    (1.0, -1.5)
    """
    return (seconds - bill["seconds"]) / minute
