"""The judgement of the chaos: clouds' bills against ledgers, leaks, what was launched twice."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import ClusterId
    from tests.emulators.multi_cloud import EmulatedClouds

UNIT_SECONDS = 60.0
"""A billing unit: the least that AWS and Google bill."""
OVERLAP_SECONDS = 5.0
"""Two clusters of one name are two when both cost for longer than this."""
_TOKEN = re.compile(r"'jupyter-sky-token': '([^']+)'")


@dataclass(frozen=True, slots=True)
class Bill:
    """Costs of one machine as the cloud itself knows them; times in unix seconds."""

    id: str
    words: str  # all that the cloud says of it, tags included
    began: float
    ended: float
    seconds: float
    kept: bool = True  # by the cloud itself; else somebody has looked now and then

    @property
    def token(self) -> str:
        """The order that it was launched for; empty if it has none."""
        found = _TOKEN.search(self.words)
        return found[1] if found else ""

    @property
    def cluster(self) -> str:
        """The name of its cluster."""
        return self.token.rpartition("-")[0]


class Witness:
    """Record of every machine that is ever up, for clouds that keep no bills."""

    def __init__(self, world: EmulatedClouds) -> None:
        self.world, self.seen = world, dict[tuple[str, str], Bill]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.1 * len(self.world.clouds)):
            with contextlib.suppress(OSError):
                for machine in self.world.machines():
                    key = (machine["cloud"], machine["id"])
                    now, old = time.time(), self.seen.get(key)
                    if machine["state"] == "PROVISIONING":  # may be refused yet, costs nothing
                        continue
                    began = old.began if old else now
                    name, words = machine["id"], str(machine)
                    self.seen[key] = Bill(name, words, began, now, now - began, kept=False)

    def bills(self) -> list[Bill]:
        """Return what the clouds charge, by their own bills if they keep any.

        AWS waives spot machines that it takes back in their first hour. The ledger does not.
        """
        kept = self.world.bills()
        keepers = {one["cloud"] for one in kept}
        return [bill for (cloud, _), bill in self.seen.items() if cloud not in keepers] + [
            Bill(
                one["id"],
                str(one),
                one["began"],
                one["ended"] or time.time(),
                one["seconds"],
            )
            for one in kept
            if one["began"] is not None
        ]

    def close(self) -> None:
        """Stop watching."""
        self._over.set()
        self._thread.join()


@dataclass
class Ledgers:
    """Machines as the stores of all users have them.

    Attributes
    ----------
    seconds : dict
        Of each machine that was billed, for how long; only bills that are over count. Where nobody
        could learn an order's machines, as with credentials that were revoked, of the order.
    bounded : set
        Machines of which nobody saw the end: the ledger says so, and has the latest time.
    known : dict
        Of each machine that is noted anywhere, in words, what of it.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    bounded: set[str] = field(default_factory=set)
    known: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, stores: Iterable[Path]) -> Ledgers:
        """Read the stores, and the notes of orders beside them."""
        self = cls()
        for data in stores:
            self._read(data)
            for note in data.glob("machines/*/machines.json"):
                with contextlib.suppress(ValueError):
                    self._note(json.loads(note.read_text()))
        return self

    def _read(self, data: Path) -> None:
        from jupyter_sky.base.store.store import Store

        store = Store.open(data)
        lasted, bounded = defaultdict[Any, float](float), set[Any]()
        for one in store.intervals():
            key: ClusterId = one.cluster_id
            if one.ended is not None:
                lasted[key] += one.ended - one.started
                bounded |= {key} if one.bounded else set()
        for row in store.clusters(live_only=False):
            token = row.connection.get("token", "")
            if token and not row.machines and row.id in lasted and row.id in bounded:
                self.seconds[token] = lasted[row.id]
                self.bounded.add(token)
            for machine in row.machines:
                self.known[machine["id"]] = f"its cluster is {row.state} ({row.note})"
                if row.id in lasted:
                    self.seconds[machine["id"]] = lasted[row.id]
                    self.bounded |= {machine["id"]} if row.id in bounded else set()
        store.close()

    def _note(self, record: dict[str, Any]) -> None:
        for machine in record["machines"]:
            words = f"note: ended {record.get('ended')}"
            self.known[machine["id"]] = f"{self.known.get(machine['id'], 'in no store')}; {words}"

    def unbilled(self, bills: Sequence[Bill]) -> list[str]:
        """Return the machines of which no ledger has an interval that is over."""
        return [
            f"{bill.id} ({bill.token}): {self.known.get(bill.id, 'not noted')}"
            for bill in bills
            if self._entry(bill) not in self.seconds
        ]

    def _entry(self, bill: Bill) -> str:
        """Return under which name a machine stands in the ledger, if it does."""
        return bill.id if bill.id in self.seconds else bill.token

    def differences(self, bills: Sequence[Bill]) -> list[tuple[float, str]]:
        """Return by how many billing units each machine's two bills differ, the worst first.

        A bill that is marked as the most that it can be may be higher, and not lower.
        """
        found = []
        for bill in bills:
            entry = self._entry(bill)
            if entry not in self.seconds:
                continue
            units = (self.seconds[entry] - bill.seconds) / UNIT_SECONDS
            if entry in self.bounded:
                units = min(units, 0.0)
            words = f"{bill.id} ({bill.token}): {bill.seconds:.1f} s, billed "
            found.append((abs(units), f"{words}{self.seconds[entry]:.1f} s"))
        return sorted(found, reverse=True)


def doubles(bills: Sequence[Bill], nodes: dict[str, int]) -> list[str]:
    """Return what was launched twice: machines of one order, clusters of one name.

    Parameters
    ----------
    nodes
        For each name of a cluster how many machines it has; 1 unless given.
    """
    orders, names = defaultdict[str, list[Bill]](list), defaultdict[str, dict](dict)
    for bill in bills:
        if bill.token:
            orders[bill.token].append(bill)
    found = [
        f"{token}: {len(each)} machines"
        for token, each in orders.items()
        if len(each) > nodes.get(each[0].cluster, 1)
    ]
    for token, each in orders.items():
        span = (min(bill.began for bill in each), max(bill.ended for bill in each))
        names[each[0].cluster][token] = span
    for name, spans in names.items():
        ordered = sorted(spans.items(), key=lambda item: item[1])
        for (one, (_, ended)), (other, (began, _)) in pairwise(ordered):
            if ended - began > OVERLAP_SECONDS:
                found.append(f"{name}: {other} began {ended - began:.1f} s before {one} ended")
    return found


def leaked(world: EmulatedClouds, seconds: float) -> list[dict[str, Any]]:
    """Wait until every lease has ended; return what is up all the same."""
    deadline = time.monotonic() + seconds
    while machines := world.machines():
        if time.monotonic() > deadline:
            return machines
        time.sleep(0.5)
    return []
