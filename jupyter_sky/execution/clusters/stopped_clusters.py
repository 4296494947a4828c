"""Clusters that are stopped, their machines off and their disks kept, and started again.

What engines hold in memory is lost; files stay. A stopped cluster costs its disks, and it ends with
the lease of its machines as any other does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial

from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyError, SkyUsageError
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.store.store import ClusterRow
from jupyter_sky.base.translation import _
from jupyter_sky.clouds import LaunchRequest
from jupyter_sky.clouds.launches.machine_records import launch_records
from jupyter_sky.clouds.launches.stopped_machines import note_started
from jupyter_sky.execution.clusters.cluster import ClusterHandle
from jupyter_sky.execution.clusters.cluster_launch import ENGINES_SECONDS
from jupyter_sky.execution.clusters.clusters import ClusterRegistry
from jupyter_sky.execution.clusters.stopped_records import (
    describe_stop,
    hold_power,
    is_kept,
    stop_cost,
)
from jupyter_sky.machines.provisioner import Lease, Report, resume
from jupyter_sky.machines.provisioner.interrupts import HeldInterrupts, uninterruptible


def find_stoppable(clusters: ClusterRegistry, name: str) -> ClusterRow:
    """Return a cluster that can be stopped now.

    Raises
    ------
    SkyUsageError
        It is not up, its cloud cannot keep it, or cells run on it.
    """
    row = clusters.find_row(name)
    if row.state == "stopped":  # its cloud may not have heard of that, and is asked again
        is_kept(clusters.records, row)
        row = clusters.store.find_cluster(row.id) or row
    if row.state != "up":
        under_way = describe_stop(row) if row.state == "stopped" else ""
        raise SkyUsageError(
            _("cluster {name} is not up: it is {state}").format(name=name, state=row.state)
            + (f" ({under_way})" if under_way else ""),
            hint=_start_hint(name)
            if row.state == "stopped"
            else _("look again: jupyter sky status"),
        )
    if why := clouds.stop_obstacle(row.cloud, row.spot, row.instance_type):
        raise SkyUsageError(
            _("cluster {name} cannot be stopped: {why}").format(name=name, why=why),
            hint=_(
                "keep what is needed in a store (--out) or here (jupyter sky get), then "
                "jupyter sky down {name}"
            ).format(name=name),
        )
    running = clusters.store.runs(cluster=name, status="running", limit=None)
    if labels := [run.label for run in running if run.started >= row.created]:
        raise SkyUsageError(
            _("cluster {name} is busy: {labels}").format(name=name, labels=", ".join(labels)),
            hint=_("wait for it, or jupyter sky cancel {label}").format(label=labels[0]),
        )
    return row


def stop_cluster(
    clusters: ClusterRegistry, row: ClusterRow, say: Callable[[str], None] = lambda what: None
) -> ClusterRow:
    """Stop a cluster; return its record once its machines are off.

    From before the request it counts as stopped, so that no process takes it for lost.

    Raises
    ------
    SkyError
        Its cloud refuses: it stays up. Or its cloud does not answer: `is_kept` finds out.
    """
    token, store = row.connection["token"], clusters.store
    provider = clouds.get_launcher(row.cloud)
    note = _("stopped {where}").format(where=clusters.records.end_initiator)
    stopped = replace(row, state="stopped", note=note)
    is_own = row.name in clusters.started
    with _only_one(clusters, row), HeldInterrupts():
        if is_own:  # a headless run ends at its end what it has started
            clusters.started.remove(row.name)
        clusters.disconnect(row.id, "stopped")
        store.save_cluster(stopped, durable=True)
        try:
            uninterruptible(partial(provider.stop, token, say))
        except BaseException:
            if not launch_records().read(token).get("stopped"):
                store.save_cluster(row)  # it was not asked for, or is refused
                clusters.started += [row.name] * is_own
            raise
        store.change_price(row.id, stop_cost(row).price, time.time())
    return stopped


def find_startable(clusters: ClusterRegistry, name: str) -> ClusterRow:
    """Return a cluster that is stopped.

    Raises
    ------
    SkyUsageError
        There is none of that name, or its lease has ended.
    """
    row = clusters.find_row(name)
    if row.state == "stopped" and is_kept(clusters.records, row):
        return row
    row = clusters.store.find_cluster(row.id) or row
    if row.state == "up":
        raise SkyUsageError(
            _("cluster {name} is up already").format(name=name),
            hint=_("look again: jupyter sky status"),
        )
    text = _("cluster {name} cannot be started: it has ended {note}")
    raise SkyUsageError(
        text.format(name=name, note=f"({row.note})" if row.note else "").rstrip(),
        hint=_("jupyter sky up -c {name} starts another").format(name=name),
    )


def start_cluster(clusters: ClusterRegistry, row: ClusterRow, report: Report) -> ClusterHandle:
    """Start a stopped cluster; return a connection to it once its engines answer.

    Where that fails, its machines are stopped again.

    Raises
    ------
    SkyNoCapacity
        The place has none of its machines now.
    SkyBudget
        The day's budget is spent.
    """
    clusters.budget_monitor.check_start(
        row.price, _("{name} was not started").format(name=row.name)
    )
    with _only_one(clusters, row), HeldInterrupts():
        clusters.store.change_price(row.id, row.price, time.time())
        try:
            lease = resume(_make_request(row), report)
            live = _connect(clusters, row, lease, report)
        except BaseException:
            _stop_again(clusters, row)
            raise
    return live


def _connect(
    clusters: ClusterRegistry, row: ClusterRow, lease: Lease, report: Report
) -> ClusterHandle:
    machines = [asdict(machine) for machine in lease.machines]
    connection = {**row.connection, "file": str(lease.connection)}
    up = replace(row, state="up", note="", machines=machines, connection=connection)
    clusters.store.save_cluster(up)
    live = clusters.connect(up)

    def check_alive() -> None:
        report("booting", "")
        live.check_alive()

    live.connection.wait_ranks(range(up.nodes), ENGINES_SECONDS, check_alive)
    live.send_heartbeat()
    note_started(up.connection["token"])
    return live


def _stop_again(clusters: ClusterRegistry, row: ClusterRow) -> None:
    """Stop machines on which no cluster could be started; its record says that they are off.

    Machines that go on all the same are billed so: their own lease ends them.
    """
    clusters.disconnect(row.id)
    noted = clusters.store.find_cluster(row.id)
    if noted is None or noted.state not in ("up", "stopped"):
        return  # it was ended meanwhile
    clusters.store.save_cluster(row)
    with suppress(SkyError):  # then they cost as before, until their own lease ends them
        provider = clouds.get_launcher(row.cloud)
        uninterruptible(partial(provider.stop_again, row.connection["token"]))
        clusters.store.change_price(row.id, stop_cost(row).price, time.time())


def _make_request(row: ClusterRow) -> LaunchRequest:
    """Return the request by which a cluster was launched."""
    record = launch_records().read(row.connection["token"])
    need = replace(parse_cell_line(row.resources).resources, nodes=row.nodes)
    return LaunchRequest(
        token=row.connection["token"],
        cluster=row.name,
        offer=Offer(**row.offer),
        resources=need,
        idle=row.idle,
        owner=record["owner"],
        notebook=row.notebook,
        lease=max(0.0, record["lease_end"] - time.time()),
    )


def _start_hint(name: str) -> str:
    return _("jupyter sky start {name}").format(name=name)


@contextmanager
def _only_one(clusters: ClusterRegistry, row: ClusterRow) -> Iterator[None]:
    """Let no other process stop or start a cluster meanwhile.

    Raises
    ------
    SkyUsageError
        Another one does, or has done so since the record was read.
    """
    with hold_power(row) as is_free:
        found = clusters.store.find_cluster(row.id)
        if not is_free or found is None or found.state != row.state:
            raise SkyUsageError(
                _("another process stops or starts cluster {name} now").format(name=row.name),
                hint=_("look again: jupyter sky status"),
            )
        yield
