"""Clusters as a notebook sees them: found, started, given back."""

from __future__ import annotations

import hashlib
import math
import re
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from .. import clouds, tracker
from ..clouds import Machine
from ..engines.activity import notebook_name
from ..errors import SkyClusterLost, SkyError, SkyNameTaken, SkyUsageError
from ..offers import Offer
from ..provisioner import Report, observe
from ..resources import Resources
from ..store import ClusterId, ClusterRow, RunRow, Store
from ..together import at_once
from ..tracker.ends import observed_ends
from .cluster import ANOTHER, ENDED, Cluster
from .guard import Guard
from .launching import abandon, await_other, is_under_way, launcher, start

EXPECTED = ("idle", "stopped", "the day's budget is spent")
"""Reasons for an end that somebody wanted, as machines say them."""


class Clusters:
    """The clusters of this user, by name, and the connections of this process to them.

    Parameters
    ----------
    store
        Where they are remembered between kernels.
    notebook
        Path of this notebook; clusters that it started without a name are found by it.
    session
        Id of this kernel's session; runs of others are those of kernels that are gone.
    """

    def __init__(self, store: Store, notebook: str, session: str) -> None:
        self.store, self.notebook, self.session = store, notebook, session
        self.ender = f"by {notebook_name(notebook)}"
        """Who ends clusters through this object, as others are told."""
        self.connected: dict[str, Cluster] = {}
        self.started: list[str] = []
        self.guard = Guard(self)
        self._lock = threading.RLock()

    # -- finding ---------------------------------------------------------------------------

    def obtain(
        self,
        resources: Resources,
        name: str | None,
        idle: float | None,
        report: Report,
        until_up: bool = False,
        allocation: str | None = None,
    ) -> tuple[Cluster, list[str]]:
        """Return a cluster for a request, live or new, and what the user should know about it.

        With a `name`, that cluster; else any live cluster of this notebook that satisfies the
        request; else a new one. With `until_up`, a new one is asked for until there is one.

        Raises
        ------
        SkyUsageError
            The named cluster is up and does not satisfy the request.
        SkyNoOffer
            Nothing on sale can meet the request.
        """
        with self._lock:
            notes: list[str] = []
            live = self._live(resources, name, notes)
            if live is None:
                live = self._started(resources, name, idle, report, until_up, notes, allocation)
            if idle is not None and idle != live.row.idle:
                live.beat(idle=idle)
                live.row = replace(live.row, idle=idle)
                self.store.put_cluster(live.row)
            return live, notes

    def _live(self, resources: Resources, name: str | None, notes: list[str]) -> Cluster | None:
        """Return a live cluster that satisfies a request, if there is one."""
        for row in self._found(resources, name):
            live, note = self._connect(row)
            if note:
                notes.append(note)
            if live is not None:
                return live
        notes += self._ended_meanwhile(name)
        return None

    def _ended_meanwhile(self, name: str | None) -> list[str]:
        """Forget clusters that others have ended; return what this notebook's user should know."""
        notes = []
        for live in list(self.connected.values()):
            mine = live.row.name == name if name else self._is_own(live.row)
            row = self.store.find_cluster(live.row.id) if mine and live.link.lost else None
            if row is not None and row.state not in ("starting", "up"):
                self.forget(row.id)
                notes.append(_has_ended(row.name, row.note))
        return notes

    def at_hand(self, resources: Resources, name: str | None) -> Cluster | None:
        """Return a cluster for a request that this process is connected to, if there is one."""
        for live in self.connected.values():
            mine = live.row.name == name if name else self._is_own(live.row)
            if mine and not live.link.lost and not lacking(resources, live.row):
                return live
        return None

    def _found(self, resources: Resources, name: str | None) -> list[ClusterRow]:
        if live := self.at_hand(resources, name):  # as a rule: no look into the store
            return [live.row]
        if name:
            row = self.store.cluster(name)
            rows = [row] if row and row.state == "up" else []
        else:
            rows = [row for row in self.store.clusters() if self._is_own(row)]
        fitting = []
        for row in rows:
            missing = lacking(resources, row)
            if not missing or (name and self._gone(row)):
                fitting.append(row)
            elif name:
                raise SkyUsageError(
                    f"cluster {name} is up with {_described(row)}; "
                    f"{' and '.join(missing)} cannot be met by it",
                    hint=f"take another name, or end it first: %sky down {name}",
                )
        return sorted(fitting, key=lambda row: (row.name not in self.connected, -row.created))

    def _is_own(self, row: ClusterRow) -> bool:
        """Whether this notebook started a cluster for itself, without giving it a name."""
        return row.notebook == self.notebook and not row.connection.get("named")

    def _connect(self, row: ClusterRow) -> tuple[Cluster | None, str]:
        """Connect to a remembered cluster; say what is new about it."""
        live = self.connected.get(row.name)
        if live is not None and not live.link.lost and live.row.created == row.created:
            return live, ""
        if gone := self._gone(row):
            self.bury(row, gone[0])
            ended = self.store.find_cluster(row.id)
            return None, _has_ended(row.name, ended.note if ended else "")
        self.forget(row.name)
        try:
            live = self.connected[row.name] = self.connect(row)
        except SkyClusterLost as error:
            error.hint = f"wait, or end it: %sky down {row.name}"
            raise
        try:
            live.heal(range(row.nodes))
            live.beat()
            busy = live.link.hello["running"]
            count = len(live.link.ask(0, "names")["names"]) if not busy else None
        except BaseException:
            self.forget(row.name)
            raise
        kept = f", {count} variable{'' if count == 1 else 's'}" if count is not None else ""
        return live, f"reconnected to {row.name}{kept}"

    def connect(self, row: ClusterRow) -> Cluster:
        """Return a new connection to a cluster, which tells it how long the day's money lasts."""
        live = Cluster(row, self.store, self.notebook)
        live.money_left = self.guard.money_left
        return live

    @staticmethod
    def _gone(row: ClusterRow) -> list[Machine | None]:
        """Return the machines of a cluster that have ended; empty while it is up."""
        machines = clouds.get(row.cloud).describe([machine["id"] for machine in row.machines])
        return _ended_ones(machines)

    # -- starting --------------------------------------------------------------------------

    def _started(
        self,
        resources: Resources,
        name: str | None,
        idle: float | None,
        report: Report,
        until_up: bool,
        notes: list[str],
        allocation: str | None = None,
    ) -> Cluster:
        """Start a cluster, or take the one that another notebook starts at the same moment."""
        for last in (False, False, True):
            try:
                live, more = start(self, resources, name, idle, report, until_up, allocation)
                notes += more
                return live
            except SkyNameTaken:
                known = name or self.name_for(resources)
                await_other(self, known, report)
                if live := self._live(resources, name, notes):
                    return live
                row = self.store.cluster(known)
                if last or (row is not None and row.state == "up"):
                    raise
        raise AssertionError

    def name_for(self, resources: Resources) -> str:
        """Return the name of this notebook's own cluster for a request."""
        stem = re.sub(r"[^A-Za-z0-9]+", "-", Path(self.notebook).stem).strip("-").lower() or "sky"
        text = f"{self.notebook}\n{resources.command_line()}"
        return f"{stem[:24]}-{hashlib.blake2b(text.encode(), digest_size=2).hexdigest()}"

    # -- ending ----------------------------------------------------------------------------

    def down(self, name: str) -> ClusterRow:
        """Terminate a cluster and close its account; return what it was.

        Raises
        ------
        SkyUsageError
            No cluster of that name is up.
        """
        with self._lock:
            row = self.store.cluster(name)
            if row is not None and row.state == "starting":
                if is_under_way(row):
                    raise SkyUsageError(
                        f"cluster {name} is being launched by {launcher(row)}",
                        hint="interrupt that cell; its machines are given back",
                    )
                abandon(self, row)
                return row
            if row is None or row.state != "up":
                up = ", ".join(r.name for r in self.store.clusters()) or "none"
                raise SkyUsageError(f"no cluster {name!r} is up (up now: {up})")
            self.end(row)
            return row

    def end(self, row: ClusterRow, why: str = "") -> None:
        """Terminate a cluster that is up, and close its account.

        The reason is noted first: notebooks that use the cluster see it end before this returns.

        Parameters
        ----------
        why
            The reason; who did it unless given.
        """
        why = why or f"{ENDED} {self.ender}"
        self.store.note_cluster(row.id, why)
        try:
            clouds.get(row.cloud).terminate([machine["id"] for machine in row.machines])
        except BaseException:
            self.store.note_cluster(row.id, "")
            raise
        self.bury(row, None, why)

    def end_unless_gone(self, row: ClusterRow) -> bool:
        """Terminate a cluster; one that has ended already is only recorded, and False returned."""
        if gone := self._gone(row):
            self.bury(row, gone[0])
            return False
        self.end(row)
        return True

    def forget(self, cluster: str | ClusterId, lost: str = "") -> None:
        """Close this process's connection to a cluster; say why to those who wait for it.

        Parameters
        ----------
        cluster
            A name, or the identity of one cluster: another one of that name is left alone.
        """
        name = cluster if isinstance(cluster, str) else cluster.name
        live = self.connected.get(name)
        if live is not None and cluster in (name, live.row.id):
            del self.connected[name]
            if lost:
                live.link.lose(lost, ANOTHER)
            live.close()

    def bury(self, row: ClusterRow, gone: Machine | None, why: str = "") -> bool:
        """Record that a cluster has ended, at the time its cloud says, or now.

        Of several processes that have seen it end the first one records it.

        Returns
        -------
        bool
            Whether this process was the first.
        """
        seen = recorded_end(row) if gone is not None else math.inf  # before it is noted anew
        if gone is not None:  # what is left of it is of no use
            with suppress(SkyError):
                clouds.get(row.cloud).terminate([machine["id"] for machine in row.machines])
        reason = why or self.ending(row) or (gone.reason if gone else "")
        self.forget(row.id, reason or "it has ended")
        wanted = reason in EXPECTED or reason.startswith(ENDED)
        state = "lost" if gone is not None and not wanted else "down"
        known = gone.ended if gone else time.time()
        ended = known if known is not None else min(latest_end(row, time.time()), seen)
        first = self.store.end_cluster(
            row.id, state, ended, reason, bounded=known is None, session=self.session
        )
        if known is not None and not first:
            self.store.correct_end(row.id, known)
        if first and known is not None:
            for kind, seconds in observed_ends(row, _told(row, gone), known):
                observe(kind, Offer(**row.offer), seconds=seconds)
        return first

    def ending(self, row: ClusterRow) -> str:
        """Return who ends a cluster, or did so, in words; empty when nobody did."""
        noted = self.store.find_cluster(row.id)
        return noted.note if noted is not None and noted.note.startswith(ENDED) else ""

    def reconcile(self) -> list[ClusterRow]:
        """Compare what is remembered with what the clouds say; return what is up."""
        rows = self.store.clusters()
        are_up = at_once([partial(self._is_up, row) for row in rows])
        return [row for row, is_up in zip(rows, are_up, strict=True) if is_up]

    def _is_up(self, row: ClusterRow) -> bool:
        """Compare what is remembered of a cluster with what its cloud says."""
        machines = clouds.get(row.cloud).describe([machine["id"] for machine in row.machines])
        if gone := _ended_ones(machines):
            self.bury(row, gone[0])
            return False
        if all(machine.state == "running" and not machine.reason for machine in machines):
            self.store.beat(row.id, time.time())  # billed up to here, whoever looks next
            self._reprice(row)
        return True

    def _reprice(self, row: ClusterRow) -> None:
        """Bill a spot cluster at the price that the tracker has seen since it was last priced."""
        offer, now = Offer(**row.offer), time.time()
        if not row.spot or offer.service or offer.price is None or row.price is None:
            return
        with suppress(SkyError):
            seen = tracker.price(offer, now)
            since = [one.started for one in self.store.intervals(row.name) if one.ended is None]
            if seen is not None and since and seen.at > max(since):
                disks = row.price - (offer.price or 0.0) * row.nodes
                self.store.change_price(row.id, seen.usd * row.nodes + disks, now)

    def needed(self) -> tuple[set[str], set[str]]:
        """Return the machines of clusters that are up, and the orders that somebody launches.

        Whoever compares this with a listing of a cloud reads it after the listing: a cluster is
        noted before it is launched, so that a machine that was listed is needed, or a stray.
        """
        rows = self.store.live()
        machines = {machine["id"] for row in rows for machine in row.machines}
        starting = [row for row in rows if row.state == "starting"]
        return machines, {row.connection.get("token", "") for row in starting}

    def orphans(self) -> dict[str, list[Machine]]:
        """Return machines of this user that run and that no remembered cluster has."""
        listed: list[Machine] = []
        for name in clouds.launchable():
            with suppress(SkyError):  # one that cannot be asked: the reaper says so
                listed += clouds.get(name).mine()
        known, tokens = self.needed()
        found: dict[str, list[Machine]] = {}
        for machine in listed:
            if machine.id not in known and machine.token not in tokens:
                found.setdefault(machine.cluster, []).append(machine)
        return found

    def forget_unsent(self) -> None:
        """Close the rows of cells that were waiting for a cluster when their kernel was killed."""
        for run in self.store.runs(status="waiting", unsent=True, limit=None):
            if not run.is_watched():
                self.store.close_run_at_beat(run.run_id)

    def unfinished(self, cluster: str) -> list[RunRow]:
        """Return runs of this notebook on a cluster whose kernel is gone."""
        return [
            run
            for run in self.store.runs(notebook=self.notebook, cluster=cluster, status="running")
            if run.session != self.session
        ]


def _has_ended(name: str, why: str) -> str:
    return f"cluster {name} has ended{f' ({why})' if why else ''}; its variables are gone"


def _ended_ones(machines: Sequence[Machine]) -> list[Machine | None]:
    """Return the machines that have ended; one that nobody knows where there are none at all."""
    return [m for m in machines if m.state == "ended"] if machines else [None]


def recorded_end(row: ClusterRow) -> float:
    """Return when a process here saw that a cluster had ended; infinity where none noted it.

    That process may have been killed before it closed the account.
    """
    if row.cloud not in clouds.RENTED:
        return math.inf
    ended = clouds.rented_cloud(row.cloud).recorded_end(row.connection.get("token", ""))
    return float(ended.get("time") or math.inf)


def latest_end(row: ClusterRow, now: float) -> float:
    """Return the latest time at which a cluster can have ended that nobody saw end.

    Examples
    --------
    >>> latest_end(replace(row, machines=[{"lease_end": 900.0}]), now=1000.0)  # doctest: +SKIP
    900.0
    """
    leases = [end for machine in row.machines if (end := machine.get("lease_end")) is not None]
    return min([now, *leases])


def _told(row: ClusterRow, gone: Machine | None) -> list[Machine]:
    """Return what the cloud says of the machines of a cluster of which one has ended."""
    if gone is None or len(row.machines) == 1:
        return [gone] if gone else []
    with suppress(SkyError):
        return clouds.get(row.cloud).describe([machine["id"] for machine in row.machines])
    return [gone]


def lacking(resources: Resources, row: ClusterRow) -> list[str]:
    """Return the labels of a request that a cluster does not meet, as they are written."""
    found = resources.unmet(Offer(**row.offer))
    if resources.nodes not in (1, row.nodes):
        found.append(f"--nodes {resources.nodes}")
    return found


def _described(row: ClusterRow) -> str:
    offer = Offer(**row.offer)
    nodes = f"{row.nodes} x " if row.nodes > 1 else ""
    return f"{nodes}{offer.vcpus:g} vCPUs and {offer.memory:g} GiB on {offer.place}"
