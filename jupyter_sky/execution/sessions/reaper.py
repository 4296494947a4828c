"""Reaper: compares the machines that each cloud lists as ours with the store, and ends orphans.

No record is removed before its cloud has said that the machine is gone. A machine is kept when a
cluster that is up has it, or when the process that launches it lives; any other is an orphan. A
machine past its lease is ended in any case.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from jupyter_sky import clouds
from jupyter_sky.base.clouds.index import MANAGED
from jupyter_sky.base.concurrency import run_parallel
from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _
from jupyter_sky.clouds import Machine
from jupyter_sky.execution.clusters.cluster_launch import (
    ABANDONED_NOTE,
    end_abandoned_launch,
    is_launch_running,
)
from jupyter_sky.execution.clusters.cluster_records import ClusterRecords
from jupyter_sky.execution.clusters.reap_finding import ReapFinding
from jupyter_sky.execution.clusters.recovery import recover_rows
from jupyter_sky.execution.clusters.stopped_records import reconcile_stopped

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import ClusterRow
    from jupyter_sky.clouds import Cloud


def reap_machines(records: ClusterRecords, everywhere: bool = True) -> list[ReapFinding]:
    """End machines that are no longer needed; return the findings.

    Parameters
    ----------
    everywhere
        Ask in all regions of all clouds with credentials, not only where something was launched.
    """
    recover_rows(records.store)
    left = [row for row in records.store.starting_clusters() if not is_launch_running(row)]
    found = run_parallel([partial(_end_abandoned, row, records) for row in left])
    records.close_unsent_runs()
    records.reconcile()
    reconcile_stopped(records)
    names = clouds.launcher_names()
    found += run_parallel([partial(_reap_cloud, name, records, everywhere) for name in names])
    return [*(each for several in found for each in several), *_reap_scratch()]


def _reap_scratch() -> list[ReapFinding]:
    """Remove scratch that nobody uses; a store that cannot be asked becomes a finding."""
    from jupyter_sky.execution.files.scratch import reap_scratch

    try:
        return reap_scratch()
    except SkyError as error:
        return [ReapFinding("", "", "", _("the scratch cannot be swept"), False, error.message)]


def _end_abandoned(row: ClusterRow, records: ClusterRecords) -> list[ReapFinding]:
    """End the machines of a launch whose process is gone."""
    try:
        orphans = end_abandoned_launch(records, row)
    except SkyError as error:
        return [ReapFinding(row.cloud, row.name, row.name, ABANDONED_NOTE, False, error.message)]
    return [_ended_finding(machine, ABANDONED_NOTE) for machine in orphans]


def find_orphaned_machines(
    machines: Iterable[Machine], needed: Collection[str], tokens: Collection[str], now: float
) -> Iterator[tuple[Machine, str]]:
    """Yield the machines that should not be there, each with the reason.

    Parameters
    ----------
    needed
        Names of the machines of clusters that are up.
    tokens
        Tokens of launches in progress.
    now
        Unix seconds.
    """
    for machine in machines:
        if machine.lease_end is not None and machine.lease_end < now:
            yield machine, _("its lease has ended")
        elif machine.id not in needed and machine.token not in tokens:
            yield machine, _("no cluster that is up has it")


def _reap_cloud(name: str, records: ClusterRecords, everywhere: bool) -> list[ReapFinding]:
    """Reap in one cloud; its errors become findings, so that the others are reaped, too."""
    found: list[ReapFinding] = []
    try:
        cloud = clouds.get(name)
        listed = cloud.list_mine(everywhere)
        # after the listing: what was launched meanwhile had been noted before
        needed, tokens = records.live_identities()
        orphans = find_orphaned_machines(listed, needed, tokens, time.time())
        found += run_parallel(
            [partial(_terminate, cloud, machine, why) for machine, why in orphans]
        )
        if clouds.is_rented(name):
            clouds.get_launcher(name).close_ended_records()
            if everywhere:
                left = clouds.get_launcher(name).delete_unused_resources()
                found += [
                    ReapFinding(name, what, "", _("no machine uses it"), True) for what in left
                ]
    except SkyError as error:
        # an account need not admit services that it was never used for
        if name not in MANAGED or _was_launched(name, records):
            found.append(ReapFinding(name, "", "", _("it cannot be asked"), False, error.message))
    return found


def _was_launched(name: str, records: ClusterRecords) -> bool:
    """Return whether anything has been launched by a cloud or a service."""
    return any(row.cloud == name for row in records.store.clusters(live_only=False))


def _terminate(cloud: Cloud, machine: Machine, why: str) -> ReapFinding:
    try:
        cloud.terminate([machine.id])
    except SkyError as error:
        return ReapFinding(cloud.name, machine.id, machine.cluster, why, False, error.message)
    return _ended_finding(machine, why)


def _ended_finding(machine: Machine, why: str) -> ReapFinding:
    return ReapFinding(machine.cloud, machine.id, machine.cluster, why, True)
