"""Records of clusters in the store: compared with their clouds, and closed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from jupyter_sky import clouds
from jupyter_sky.base.concurrency import run_parallel
from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.store.store import ClusterId, ClusterRow, RunRow, Store
from jupyter_sky.base.translation import _
from jupyter_sky.clouds import Machine
from jupyter_sky.execution.clusters.cluster import ENDED_HINT, essential_machines, is_intended
from jupyter_sky.knowledge import tracker
from jupyter_sky.machines.engines.controller.activity import notebook_name
from jupyter_sky.machines.provisioner import record_observation


class ClusterRecords:
    """Records of this user's clusters, and the operations that end them.

    Parameters
    ----------
    store
        Storage between kernels.
    notebook
        Path of this notebook.
    session
        Id of this kernel's session; runs of other sessions are those of kernels that are gone.
    on_end
        Called with a cluster and the reason when it has ended, before that is recorded.
    """

    def __init__(
        self, store: Store, notebook: str, session: str, on_end: Callable[[ClusterId, str], None]
    ) -> None:
        self.store, self.notebook, self.session = store, notebook, session
        self.end_initiator = f"in {notebook_name(notebook)}"
        """Place of the commands by which this process ends clusters, for other notebooks."""
        self._on_end = on_end

    @staticmethod
    def ended_machines(row: ClusterRow) -> list[Machine | None]:
        """Return the machines of a cluster that have ended; empty while it is up."""
        machines = clouds.get(row.cloud).describe([machine["id"] for machine in row.machines])
        return _filter_ended(row, machines)

    def terminate_row(self, row: ClusterRow, why: str = "") -> None:
        """Terminate a cluster that is up, and close its account.

        The reason is noted first: notebooks that use the cluster see it end before this returns.

        Parameters
        ----------
        why
            The reason; unless given, the author of the end.
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
        is_stopped = row.state == "stopped"  # its machines are off and there, whatever is said
        if not is_stopped and (gone := self.ended_machines(row)):
            self.record_end(row, gone[0])
            return False
        self.terminate_row(row)
        return True

    def record_end(self, row: ClusterRow, gone: Machine | None, why: str = "") -> bool:
        """Record that a cluster has ended, at the time its cloud says, or now.

        Of several processes that have seen it end the first one records it.

        Returns
        -------
        bool
            Whether this process was the first.
        """
        if gone is not None and self._is_stopped(row):
            return False  # its machines are off, and kept
        seen = recorded_end(row) if gone is not None else math.inf  # before it is noted anew
        if gone is not None:  # what is left of it is of no use
            with suppress(SkyError):
                clouds.get(row.cloud).terminate([machine["id"] for machine in row.machines])
        reason = why or self.end_in_progress(row) or (gone.reason if gone else "")
        self._on_end(row.id, reason or _("it has ended"))
        state = "lost" if gone is not None and not is_intended(reason) else "down"
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

    def _is_stopped(self, row: ClusterRow) -> bool:
        noted = self.store.find_cluster(row.id)
        return noted is not None and noted.state == "stopped"

    def end_in_progress(self, row: ClusterRow) -> str:
        """Return the author of an intended end of a cluster, in words; empty without one."""
        noted = self.store.find_cluster(row.id)
        return noted.note if noted is not None and noted.note.startswith(ENDED_HINT) else ""

    def reconcile(self) -> list[ClusterRow]:
        """Compare the records with the clouds; return the clusters that are up."""
        rows = self.store.clusters()
        are_up = run_parallel([partial(self._is_up, row) for row in rows])
        return [row for row, is_up in zip(rows, are_up, strict=True) if is_up]

    def _is_up(self, row: ClusterRow) -> bool:
        """Compare the record of a cluster with its cloud; return whether it is up."""
        machines = clouds.get(row.cloud).describe([machine["id"] for machine in row.machines])
        if gone := _filter_ended(row, machines):
            self.record_end(row, gone[0])
            return False
        needed = [machine for machine in machines if machine.id in essential_machines(row)]
        if all(machine.state == "running" and not machine.reason for machine in needed):
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
                machines = sum(machine.get("state") != "ended" for machine in row.machines)
                nodes = machines / offer.hosts
                disks = row.price - (offer.price or 0.0) * nodes
                self.store.change_price(row.id, seen.usd * nodes + disks, now)

    def live_identities(self) -> tuple[set[str], set[str]]:
        """Return the IDs of machines in live clusters and the tokens of launches in progress.

        Whoever compares this with a listing of a cloud reads it after the listing: a cluster is
        noted before it is launched, so that a machine that was listed is needed, or an orphan.
        """
        rows = self.store.live_clusters()
        machines = {machine["id"] for row in rows for machine in row.machines}
        starting = [row for row in rows if row.state == "starting"]
        return machines, {row.connection.get("token", "") for row in starting}

    def find_orphans(self) -> dict[str, list[Machine]]:
        """Return machines of this user that run and that no remembered cluster has."""
        listed: list[Machine] = []
        for name in clouds.recorded_names():
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


def _filter_ended(row: ClusterRow, machines: Sequence[Machine]) -> list[Machine | None]:
    """Return the needed machines that have ended; an unknown one where there are none at all."""
    needed = essential_machines(row)
    ended: list[Machine | None] = [
        machine for machine in machines if machine.state == "ended" and machine.id in needed
    ]
    return ended if machines else [None]


def recorded_end(row: ClusterRow) -> float:
    """Return the time at which a process here noted the end of a cluster; infinity where none did.

    That process may have been killed before it closed the account.
    """
    if not clouds.is_rented(row.cloud):
        return math.inf
    ended = clouds.get_launcher(row.cloud).read_recorded_end(row.connection.get("token", ""))
    return float(ended.get("time") or math.inf)


def latest_end(row: ClusterRow, now: float) -> float:
    """Return the latest possible end of a cluster whose end was not observed.

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


def describe_place(row: ClusterRow) -> str:
    """Return the place of a cluster in words, such as ``'2 x aws us-east-1 g5.xlarge spot'``."""
    offer = Offer(**row.offer)
    return offer.place_of(max(1, row.nodes // offer.hosts))


def observed_ends(
    row: ClusterRow, machines: Sequence[Machine], ended: float
) -> list[tuple[str, float]]:
    """Return the kind of end and the age of each machine of a cluster that has ended.

    A machine that the cloud has taken back is a loss. All others were alive when their cluster
    ended: they are censored observations, without which machines would seem to live shorter.

    Parameters
    ----------
    machines
        States of the cluster's machines, or of some, as the cloud reports them.
    ended
        Unix seconds of the cluster's end.

    Returns
    -------
    list of (str, float)
        ``preempted`` or ``ended``, and the age in seconds, by rank; machines that were given up
        before are left out.
    """
    known = {machine.id: machine for machine in machines}
    observed: list[tuple[str, float]] = []
    for record in row.machines:
        if record.get("state") == "ended":  # observed when it was given up
            continue
        machine = known.get(record["id"])
        lost = machine is not None and machine.preempted
        # a survivor is ended by us a moment after the loss: that moment is not known better
        at = machine.ended if machine is not None and lost and machine.ended else ended
        observed.append(("preempted" if lost else "ended", max(0.0, at - record["started"])))
    return observed
