"""Registry of a user's clusters: find, start and end them."""

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
from ..concurrency import run_parallel
from ..engines.controller.activity import notebook_name
from ..errors import SkyClusterLost, SkyError, SkyNameTaken, SkyUsageError
from ..offers import Offer
from ..provisioner import Report, record_observation
from ..resources import Resources
from ..store.store import ClusterId, ClusterRow, RunRow, Store
from ..tracker.cluster_ends import observed_ends
from .budget_monitor import BudgetMonitor
from .cluster import ENDED_HINT, NEXT_CLUSTER_HINT, ClusterHandle
from .cluster_launch import (
    await_other_launch,
    describe_launcher,
    end_abandoned_launch,
    is_launch_running,
    launch_cluster,
)

EXPECTED_ERRORS = ("idle", "stopped", "the day's budget is spent")
"""Reasons for an end that somebody wanted, as machines say them."""


class ClusterRegistry:
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
        self.end_initiator = f"by {notebook_name(notebook)}"
        """Who ends clusters through this object, as others are told."""
        self.connected: dict[str, ClusterHandle] = {}
        self.started: list[str] = []
        self.budget_monitor = BudgetMonitor(self)
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
    ) -> tuple[ClusterHandle, list[str]]:
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
            live = self._find_live(resources, name, notes)
            if live is None:
                live = self._start_or_join(
                    resources, name, idle, report, until_up, notes, allocation
                )
            if idle is not None and idle != live.row.idle:
                live.send_heartbeat(idle=idle)
                live.row = replace(live.row, idle=idle)
                self.store.save_cluster(live.row)
            return live, notes

    def _find_live(
        self, resources: Resources, name: str | None, notes: list[str]
    ) -> ClusterHandle | None:
        """Return a live cluster that satisfies a request, if there is one."""
        for row in self._find_row(resources, name):
            live, note = self._connect(row)
            if note:
                notes.append(note)
            if live is not None:
                return live
        notes += self._forget_ended(name)
        return None

    def _forget_ended(self, name: str | None) -> list[str]:
        """Forget clusters that others have ended; return what this notebook's user should know."""
        notes = []
        for live in list(self.connected.values()):
            mine = live.row.name == name if name else self._is_own(live.row)
            row = self.store.find_cluster(live.row.id) if mine and live.connection.is_lost else None
            if row is not None and row.state not in ("starting", "up"):
                self.disconnect(row.id)
                notes.append(_has_ended(row.name, row.note))
        return notes

    def find_connected(self, resources: Resources, name: str | None) -> ClusterHandle | None:
        """Return a cluster for a request that this process is connected to, if there is one."""
        for live in self.connected.values():
            mine = live.row.name == name if name else self._is_own(live.row)
            if mine and not live.connection.is_lost and not missing_labels(resources, live.row):
                return live
        return None

    def _find_row(self, resources: Resources, name: str | None) -> list[ClusterRow]:
        if live := self.find_connected(resources, name):  # as a rule: no look into the store
            return [live.row]
        if name:
            row = self.store.cluster(name)
            rows = [row] if row and row.state == "up" else []
        else:
            rows = [row for row in self.store.clusters() if self._is_own(row)]
        fitting = []
        for row in rows:
            missing = missing_labels(resources, row)
            if not missing or (name and self._ended_machines(row)):
                fitting.append(row)
            elif name:
                raise SkyUsageError(
                    f"cluster {name} is up with {_describe_row(row)}; "
                    f"{' and '.join(missing)} cannot be met by it",
                    hint=f"take another name, or end it first: %sky down {name}",
                )
        return sorted(fitting, key=lambda row: (row.name not in self.connected, -row.created))

    def _is_own(self, row: ClusterRow) -> bool:
        """Whether this notebook started a cluster for itself, without giving it a name."""
        return row.notebook == self.notebook and not row.connection.get("named")

    def _connect(self, row: ClusterRow) -> tuple[ClusterHandle | None, str]:
        """Connect to a remembered cluster; say what is new about it."""
        live = self.connected.get(row.name)
        if live is not None and not live.connection.is_lost and live.row.created == row.created:
            return live, ""
        if gone := self._ended_machines(row):
            self.record_end(row, gone[0])
            ended = self.store.find_cluster(row.id)
            return None, _has_ended(row.name, ended.note if ended else "")
        self.disconnect(row.name)
        try:
            live = self.connected[row.name] = self.connect(row)
        except SkyClusterLost as error:
            error.hint = f"wait, or end it: %sky down {row.name}"
            raise
        try:
            live.await_engines(range(row.nodes))
            live.send_heartbeat()
            busy = live.connection.hello["running"]
            count = len(live.connection.ask_engine(0, "names")["names"]) if not busy else None
        except BaseException:
            self.disconnect(row.name)
            raise
        kept = f", {count} variable{'' if count == 1 else 's'}" if count is not None else ""
        return live, f"reconnected to {row.name}{kept}"

    def connect(self, row: ClusterRow) -> ClusterHandle:
        """Return a new connection to a cluster, which tells it how long the day's money lasts."""
        live = ClusterHandle(row, self.store, self.notebook)
        live.money_left = self.budget_monitor.money_left
        return live

    @staticmethod
    def _ended_machines(row: ClusterRow) -> list[Machine | None]:
        """Return the machines of a cluster that have ended; empty while it is up."""
        machines = clouds.get(row.cloud).describe([machine["id"] for machine in row.machines])
        return _filter_ended(machines)

    # -- starting --------------------------------------------------------------------------

    def _start_or_join(
        self,
        resources: Resources,
        name: str | None,
        idle: float | None,
        report: Report,
        until_up: bool,
        notes: list[str],
        allocation: str | None = None,
    ) -> ClusterHandle:
        """Start a cluster, or take the one that another notebook starts at the same moment."""
        for last in (False, False, True):
            try:
                live, more = launch_cluster(
                    self, resources, name, idle, report, until_up, allocation
                )
                notes += more
                return live
            except SkyNameTaken:
                known = name or self.name_for(resources)
                await_other_launch(self, known, report)
                if live := self._find_live(resources, name, notes):
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

    def terminate(self, name: str) -> ClusterRow:
        """Terminate a cluster and close its account; return what it was.

        Raises
        ------
        SkyUsageError
            No cluster of that name is up.
        """
        with self._lock:
            row = self.store.cluster(name)
            if row is not None and row.state == "starting":
                if is_launch_running(row):
                    raise SkyUsageError(
                        f"cluster {name} is being launched by {describe_launcher(row)}",
                        hint="interrupt that cell; its machines are given back",
                    )
                end_abandoned_launch(self, row)
                return row
            if row is None or row.state != "up":
                up = ", ".join(r.name for r in self.store.clusters()) or "none"
                raise SkyUsageError(f"no cluster {name!r} is up (up now: {up})")
            self.terminate_row(row)
            return row

    def terminate_row(self, row: ClusterRow, why: str = "") -> None:
        """Terminate a cluster that is up, and close its account.

        The reason is noted first: notebooks that use the cluster see it end before this returns.

        Parameters
        ----------
        why
            The reason; who did it unless given.
        """
        why = why or f"{ENDED_HINT} {self.end_initiator}"
        self.store.set_cluster_note(row.id, why)
        try:
            clouds.get(row.cloud).terminate([machine["id"] for machine in row.machines])
        except BaseException:
            self.store.set_cluster_note(row.id, "")
            raise
        self.record_end(row, None, why)

    def terminate_unless_ended(self, row: ClusterRow) -> bool:
        """Terminate a cluster; one that has ended already is only recorded, and False returned."""
        if gone := self._ended_machines(row):
            self.record_end(row, gone[0])
            return False
        self.terminate_row(row)
        return True

    def disconnect(self, cluster: str | ClusterId, lost: str = "") -> None:
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
                live.connection.mark_lost(lost, NEXT_CLUSTER_HINT)
            live.close()

    def record_end(self, row: ClusterRow, gone: Machine | None, why: str = "") -> bool:
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
        reason = why or self.end_in_progress(row) or (gone.reason if gone else "")
        self.disconnect(row.id, reason or "it has ended")
        wanted = reason in EXPECTED_ERRORS or reason.startswith(ENDED_HINT)
        state = "lost" if gone is not None and not wanted else "down"
        known = gone.ended if gone else time.time()
        ended = known if known is not None else min(latest_end(row, time.time()), seen)
        first = self.store.end_cluster(
            row.id, state, ended, reason, bounded=known is None, session=self.session
        )
        if known is not None and not first:
            self.store.move_end_earlier(row.id, known)
        if first and known is not None:
            for kind, seconds in observed_ends(row, _end_report(row, gone), known):
                record_observation(kind, Offer(**row.offer), seconds=seconds)
        return first

    def end_in_progress(self, row: ClusterRow) -> str:
        """Return who ends a cluster, or did so, in words; empty when nobody did."""
        noted = self.store.find_cluster(row.id)
        return noted.note if noted is not None and noted.note.startswith(ENDED_HINT) else ""

    def reconcile(self) -> list[ClusterRow]:
        """Compare what is remembered with what the clouds say; return what is up."""
        rows = self.store.clusters()
        are_up = run_parallel([partial(self._is_up, row) for row in rows])
        return [row for row, is_up in zip(rows, are_up, strict=True) if is_up]

    def _is_up(self, row: ClusterRow) -> bool:
        """Compare what is remembered of a cluster with what its cloud says."""
        machines = clouds.get(row.cloud).describe([machine["id"] for machine in row.machines])
        if gone := _filter_ended(machines):
            self.record_end(row, gone[0])
            return False
        if all(machine.state == "running" and not machine.reason for machine in machines):
            self.store.record_heartbeat(
                row.id, time.time()
            )  # billed up to here, whoever looks next
            self._update_spot_price(row)
        return True

    def _update_spot_price(self, row: ClusterRow) -> None:
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

    def live_identities(self) -> tuple[set[str], set[str]]:
        """Return the IDs of machines in live clusters and the tokens of launches in progress.

        Whoever compares this with a listing of a cloud reads it after the listing: a cluster is
        noted before it is launched, so that a machine that was listed is needed, or a orphan.
        """
        rows = self.store.live_clusters()
        machines = {machine["id"] for row in rows for machine in row.machines}
        starting = [row for row in rows if row.state == "starting"]
        return machines, {row.connection.get("token", "") for row in starting}

    def find_orphans(self) -> dict[str, list[Machine]]:
        """Return machines of this user that run and that no remembered cluster has."""
        listed: list[Machine] = []
        for name in clouds.reachable_names():
            with suppress(SkyError):  # one that cannot be asked: the reaper says so
                listed += clouds.get(name).list_mine()
        known, tokens = self.live_identities()
        found: dict[str, list[Machine]] = {}
        for machine in listed:
            if machine.id not in known and machine.token not in tokens:
                found.setdefault(machine.cluster, []).append(machine)
        return found

    def close_unsent_runs(self) -> None:
        """Close the rows of cells that were waiting for a cluster when their kernel was killed."""
        for run in self.store.runs(status="waiting", unsent=True, limit=None):
            if not run.is_monitored():
                self.store.close_run_at_heartbeat(run.run_id)

    def find_unfinished(self, cluster: str) -> list[RunRow]:
        """Return runs of this notebook on a cluster whose kernel is gone."""
        return [
            run
            for run in self.store.runs(notebook=self.notebook, cluster=cluster, status="running")
            if run.session != self.session
        ]


def _has_ended(name: str, why: str) -> str:
    return f"cluster {name} has ended{f' ({why})' if why else ''}; its variables are gone"


def _filter_ended(machines: Sequence[Machine]) -> list[Machine | None]:
    """Return the machines that have ended; one that nobody knows where there are none at all."""
    return [m for m in machines if m.state == "ended"] if machines else [None]


def recorded_end(row: ClusterRow) -> float:
    """Return when a process here saw that a cluster had ended; infinity where none noted it.

    That process may have been killed before it closed the account.
    """
    if not clouds.is_rented(row.cloud):
        return math.inf
    ended = clouds.cloud_provider(row.cloud).read_recorded_end(row.connection.get("token", ""))
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


def _end_report(row: ClusterRow, gone: Machine | None) -> list[Machine]:
    """Return what the cloud says of the machines of a cluster of which one has ended."""
    if gone is None or len(row.machines) == 1:
        return [gone] if gone else []
    with suppress(SkyError):
        return clouds.get(row.cloud).describe([machine["id"] for machine in row.machines])
    return [gone]


def missing_labels(resources: Resources, row: ClusterRow) -> list[str]:
    """Return the labels of a request that a cluster does not meet, as they are written."""
    found = resources.unmet(Offer(**row.offer))
    if resources.nodes not in (1, row.nodes):
        found.append(f"--nodes {resources.nodes}")
    return found


def _describe_row(row: ClusterRow) -> str:
    offer = Offer(**row.offer)
    nodes = f"{row.nodes} x " if row.nodes > 1 else ""
    return f"{nodes}{offer.vcpus:g} vCPUs and {offer.memory:g} GiB on {offer.place}"
