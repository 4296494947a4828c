"""Records of stopped clusters: compared with their clouds, and billed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from jupyter_sky import clouds
from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.concurrency import run_parallel
from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.store.process_lock import only_process
from jupyter_sky.base.store.store import ClusterRow
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.cloud_init import DISK_GIB
from jupyter_sky.clouds.launches.machine_records import launch_records
from jupyter_sky.clouds.launches.stopped_machines import StopPhase, stop_phase
from jupyter_sky.execution.clusters.cluster_records import ClusterRecords, latest_end
from jupyter_sky.knowledge.ledger.billing import disk_usd_h

_LOCK = "stop.lock"


@dataclass(frozen=True, slots=True)
class StopCost:
    """Cost of a cluster while it is stopped.

    Attributes
    ----------
    price
        USD/h of its disks, and of what else its cloud bills then.
    disk_gib
        GiB of all its disks.
    ends
        Unix seconds at which its lease ends, and it with it.
    """

    price: float
    disk_gib: float
    ends: float


def stop_cost(row: ClusterRow) -> StopCost:
    """Return what a cluster costs while it is stopped, and until when."""
    disk = parse_cell_line(row.resources).resources.disk
    gib = max(DISK_GIB, disk.value if disk else 0.0) * row.nodes
    extra = find_facts(row.cloud).stop_extra_usd * row.nodes
    return StopCost(disk_usd_h(gib) + extra, gib, latest_end(row, float("inf")))


def describe_stop(row: ClusterRow) -> str:
    """Return how far the stop of a cluster has come, in words; empty once it is off."""
    phase, title = stop_phase(row.connection["token"]), find_facts(row.cloud).title
    if phase == StopPhase.OFF:
        return ""
    if phase == StopPhase.ACCEPTED:
        return _("{title} is stopping it; until it is seen off it is booked in full").format(
            title=title
        )
    return _("{title} has not answered whether it is stopped; it may cost in full").format(
        title=title
    )


@contextmanager
def hold_power(row: ClusterRow) -> Iterator[bool]:
    """Yield whether no other process stops or starts a cluster now; none does until the end."""
    with only_process(launch_records().folder(row.connection["token"]) / _LOCK) as is_free:
        yield is_free


def reconcile_stopped(records: ClusterRecords) -> list[ClusterRow]:
    """Compare stopped clusters with their clouds; return those whose machines are kept."""
    rows = records.store.stopped_clusters()
    are_kept = run_parallel([partial(is_kept, records, row) for row in rows])
    return [row for row, is_its in zip(rows, are_kept, strict=True) if is_its]


def is_kept(records: ClusterRecords, row: ClusterRow) -> bool:
    """Compare the record of a stopped cluster with its cloud; return whether its machines are kept.

    Where they are not, its end is recorded. A stop whose answer was lost is settled.
    """
    machines = clouds.get(row.cloud).describe([machine["id"] for machine in row.machines])
    gone = [each for each in machines if each.state == "ended" and not each.stopped]
    if machines and not gone:
        records.store.record_heartbeat(row.id, time.time())
        return _settle(records, row)
    known = next((each.ended for each in gone if each.ended), None)
    ended = known or latest_end(row, time.time())
    why = _("it has ended while it was stopped")
    records.store.end_cluster(row.id, "down", ended, why, bounded=known is None)
    return False


def _settle(records: ClusterRecords, row: ClusterRow) -> bool:
    """Bill a cluster for its disks alone from when it is seen off; return whether it is stopped.

    One whose cloud refuses the stop is up again.
    """
    price, token = stop_cost(row).price, row.connection["token"]
    billed = [one.price for one in records.store.intervals(row.name) if one.ended is None]
    if not launch_records().read(token) or (stop_phase(token) == StopPhase.OFF and price in billed):
        return True
    with hold_power(row) as is_free:
        noted = records.store.find_cluster(row.id)
        if not is_free or noted is None or noted.state != "stopped":
            return True  # it is being started, or stopped
        try:
            is_off = clouds.get_launcher(row.cloud).settle_stop(token)
        except SkyError:
            if launch_records().read(token).get("stopped"):
                return True  # it does not answer now either
            records.store.save_cluster(replace(noted, state="up", note=""))
            return False
        if is_off:
            records.store.change_price(row.id, price, time.time())
    return True
