"""Launch of a notebook's cluster: record, broker, connection, rollback."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyClusterLost, SkyError
from jupyter_sky.base.remote import processes
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import parse_duration
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.store import ClusterRow
from jupyter_sky.base.translation import _
from jupyter_sky.clouds import LaunchRequest, Machine
from jupyter_sky.clouds.launches.cloud_init import lease_duration
from jupyter_sky.clouds.launches.launch_records import installation_id
from jupyter_sky.execution.clusters.cluster import ClusterHandle
from jupyter_sky.execution.clusters.cluster_records import ClusterRecords
from jupyter_sky.execution.clusters.cluster_request import ClusterRequest
from jupyter_sky.knowledge.ledger import reservations
from jupyter_sky.knowledge.ledger.baseline import PendingBaseline
from jupyter_sky.knowledge.ledger.billing import cluster_price
from jupyter_sky.machines.provisioner import Lease, Report, broker, check_alive, provision
from jupyter_sky.machines.provisioner.interrupts import AllowedInterrupts, HeldInterrupts

ENGINES_SECONDS = 120.0
ABANDONED_NOTE = "its notebook was killed while it launched it"
_RUNNING_LAUNCHES = set[str]()
"""Tokens of the launches of this process."""
END_SECONDS = 5.0
"""Time within which the end of a cluster that does not answer is known."""
RENEW_SECONDS = 10.0
"""Period at which a launch shows others that its process lives."""


@dataclass(frozen=True, slots=True)
class LaunchCallbacks:
    """Operations of its owner that a launch calls.

    Attributes
    ----------
    report
        Called with the stage and a detail; raises to end the launch.
    check_budget
        Called with a price in USD/h and what would be refused; raises SkyBudget.
    connect
        Connects this process to a cluster.
    announce
        Called once, when a place has been found and before it costs anything.
    """

    report: Report
    check_budget: Callable[[float | None, str], object]
    connect: Callable[[ClusterRow], ClusterHandle]
    announce: Callable[[], None] = lambda: None


def launch_cluster(
    records: ClusterRecords, request: ClusterRequest, cluster: str, callbacks: LaunchCallbacks
) -> tuple[ClusterHandle, list[str]]:
    """Launch a new cluster for a request; return it, and notes for the user.

    Parameters
    ----------
    cluster
        Its name: where the request has none, only cells of its own notebook find it.

    Raises
    ------
    SkyNameTaken
        Another notebook is launching, or has launched, one of this name.
    SkyStoreError
        The launch, which costs money, cannot be recorded now.
    """
    settings = Sky.load()
    idle = parse_duration(settings.idle, "Sky.idle") if request.idle is None else request.idle
    is_announced = False

    def launch(offer: Offer) -> ClusterHandle:
        nonlocal is_announced
        callbacks.check_budget(
            offer.price,
            _("{cluster} was not started on {place}").format(cluster=cluster, place=offer.place),
        )
        if not is_announced:  # not again for each place that refuses
            is_announced = True
            callbacks.announce()
        launch_request = LaunchRequest(
            token=f"{cluster}-{uuid.uuid4().hex[:8]}",
            cluster=cluster,
            offer=offer,
            resources=request.resources,
            idle=idle,
            owner=installation_id(Path(settings.data_dir)),
            notebook=records.notebook,
            lease=lease_duration(),
        )
        return _LaunchAttempt(records, launch_request, bool(request.name), callbacks).run()

    placed = broker.place(
        request.resources,
        launch,
        callbacks.report,
        request.until_up,
        request.allocation,
        request.burst,
        **request.plan_settings,
    )
    return placed.result, placed.notes


class _LaunchAttempt:
    """One attempt at one place: its record, and the machines that may be up."""

    def __init__(
        self,
        records: ClusterRecords,
        request: LaunchRequest,
        named: bool,
        callbacks: LaunchCallbacks,
    ) -> None:
        self.records, self.request, self.callbacks = records, request, callbacks
        self.row = _new_row(request, named)
        self.machines: list[Machine] = []
        self._baseline = PendingBaseline(request.resources, request.offer)

    def run(self) -> ClusterHandle:
        """Launch the machines and connect to them, or leave nothing behind."""
        _RUNNING_LAUNCHES.add(self.request.token)
        try:
            return self._launch()
        finally:
            _RUNNING_LAUNCHES.discard(self.request.token)

    def _launch(self) -> ClusterHandle:
        renewed = time.monotonic()

        def waiting(stage: str, detail: str) -> None:
            nonlocal renewed
            self.callbacks.report(stage, detail)
            self.callbacks.check_budget(
                self.row.price, _("{name} was given back as it started").format(name=self.row.name)
            )
            # a cluster that is up, whose engines are waited for, is no launch to be renewed
            is_due = time.monotonic() - renewed > RENEW_SECONDS
            if is_due and self.row.state == "starting":
                renewed = time.monotonic()
                if not self.records.store.renew_launch(self.row.id, time.time()):
                    raise self._was_abandoned()

        with HeldInterrupts():
            # before the launch: whatever happens to this process, it is known what to look for
            self.row = reservations.reserve(self.records.store, self.row)
            try:  # interrupts are allowed inside, where what has come up is given back
                lease = provision(self.request, waiting, self._open_account)
            except BaseException:
                self._close_account()
                raise
            try:
                with AllowedInterrupts():
                    return self._connect(lease, waiting)
            except BaseException:
                with HeldInterrupts():
                    self._roll_back()
                raise

    def _close_account(self) -> None:
        """Close the account: its machines are gone, also such as were found only afterwards."""
        if not self.machines and clouds.is_rented(self.row.cloud):
            found = clouds.get_launcher(self.row.cloud).recorded_machines(self.request.token)
            if found:
                self._billed_row(found)
        self._list_ended()

    def _open_account(self, machines: list[Machine]) -> None:
        """Open the account: from now on it costs."""
        if not self._billed_row(machines):
            raise self._was_abandoned()

    def _billed_row(self, machines: list[Machine]) -> bool:
        self.machines = machines
        self.row = replace(self.row, machines=[asdict(machine) for machine in machines])
        return self.records.store.record_launch(self.row, _billing_start(machines))

    def _connect(self, lease: Lease, report: Report) -> ClusterHandle:
        connection = {**self.row.connection, **self._baseline(), "file": str(lease.connection)}
        del connection["launcher"]
        self._save_row(state="up", connection=connection)
        try:
            live = self.callbacks.connect(self.row)
        except SkyClusterLost as error:
            raise self._loss(error) from error

        def alive() -> None:
            report("booting", "")
            live.check_alive()

        live.connection.wait_ranks(range(self.row.nodes), ENGINES_SECONDS, alive)
        live.send_heartbeat()  # from now on it knows when the day's money is spent
        return live

    def _loss(self, error: SkyClusterLost) -> SkyClusterLost:
        """Return why a cluster that has come up could not be connected to.

        Its controller removes its files when its engines fail; the reason is written after that.
        """
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline:
            try:
                check_alive(clouds.get(self.row.cloud), self.machines, self.row.name)
            except SkyClusterLost as loss:
                return loss
            except SkyError:
                break  # the cloud cannot say
            time.sleep(0.2)
        return error

    def _roll_back(self) -> None:
        try:
            clouds.get(self.row.cloud).terminate([machine.id for machine in self.machines])
        finally:
            self._list_ended()

    def _list_ended(self) -> None:
        if self._may_be_up():
            # its cloud does not answer: billed on, and ended by whoever asks it next
            kept = {
                name: value for name, value in self.row.connection.items() if name != "launcher"
            }
            self.row = replace(self.row, state="starting", connection=kept)
            self.records.store.save_cluster(self.row)
        elif self.machines:
            # closed by another process: they ran on
            if not self.records.record_end(self.row, None):
                begun, now = _billing_start(self.machines), time.time()
                self.records.store.add_late_interval(self.row.id, self.row.price, begun, now)
        else:
            self.records.store.delete_cluster(self.row.id)

    def _may_be_up(self) -> bool:
        """Return whether a machine of this launch has not ended, as far as its cloud says."""
        ids = [machine.id for machine in self.machines]
        try:
            found = clouds.get(self.row.cloud).describe(ids) if ids else []
        except SkyError:
            return True
        return any(machine.state != "ended" for machine in found)

    def _save_row(self, **values: object) -> None:
        self.row = replace(self.row, **values)
        if not self.records.store.save_cluster(self.row):
            raise self._was_abandoned()

    def _was_abandoned(self) -> SkyClusterLost:
        """Another process took this launch for abandoned, as after a long sleep of this machine."""
        return SkyClusterLost(
            _("the launch of {name} was ended by another process while this one was silent").format(
                name=self.row.name
            ),
            hint=_("run the cell again"),
        )


def _billing_start(machines: Iterable[Machine]) -> float:
    """Return the time from which on machines that have come up are billed."""
    return min([time.time(), *(machine.started for machine in machines if machine.started)])


def _new_row(request: LaunchRequest, named: bool) -> ClusterRow:
    """Return the row of a cluster before its launch."""
    offer, nodes, now = request.offer, request.resources.nodes, time.time()
    disk, launcher = request.resources.disk, clouds.launcher_name(offer)
    connection = {"named": named, "token": request.token, "launcher": processes.identity()}
    if offer.service == launcher:  # a session has one engine, on this machine
        connection["session_nodes"] = nodes
    return ClusterRow(
        name=request.cluster,
        state="starting",
        cloud=launcher,
        region=offer.region,
        instance_type=offer.instance_type,
        spot=offer.spot,
        price=cluster_price(offer.price, offer.cloud, nodes, disk.value if disk else 0.0),
        nodes=1 if offer.service == launcher else nodes * offer.hosts,
        resources=request.resources.command_line(),
        offer=asdict(offer),
        machines=[],
        connection=connection,
        notebook=request.notebook,
        created=now,
        idle=request.idle,
        price_source=offer.source,
        price_date=offer.date,
        renewed=now,
    )


def describe_launcher(row: ClusterRow) -> str:
    """Return in words the process that launches a cluster.

    Examples
    --------
    >>> describe_launcher(row)  # doctest: +SKIP
    'train.ipynb (process 4711 on laptop)'
    """
    known = row.connection.get("launcher") or {}
    return _("{notebook} (process {known} on {known2})").format(
        notebook=row.notebook, known=known.get("pid", "?"), known2=known.get("host", "this machine")
    )


def is_launch_running(row: ClusterRow) -> bool:
    """Return whether a process is launching a cluster now.

    The row of a failed launch stays if the store could not be written, while its process lives:
    launches of this process are therefore looked up in memory.
    """
    by = row.connection.get("launcher") or {}
    ours = by.get("pid") == os.getpid() and processes.liveness(by) == "alive"
    return row.is_being_launched() and (
        not ours or row.connection.get("token") in _RUNNING_LAUNCHES
    )


def await_other_launch(records: ClusterRecords, name: str, report: Report) -> None:
    """Wait while another notebook launches a cluster of a name; forget one that was abandoned."""
    while True:
        row = next((row for row in records.store.starting_clusters() if row.name == name), None)
        if row is None:
            return
        if not is_launch_running(row):
            end_abandoned_launch(records, row)
            return
        report(
            "placing",
            _("{name} is being launched by {row}").format(name=name, row=describe_launcher(row)),
        )
        time.sleep(0.1)


def end_abandoned_launch(records: ClusterRecords, row: ClusterRow) -> list[Machine]:
    """End the launch of a process that was killed; return the machines that were up.

    Machines that have ended by themselves meanwhile are billed all the same.

    Raises
    ------
    SkyError
        The cloud cannot be asked now; the row stays.
    """
    cloud, token = clouds.get(row.cloud), row.connection.get("token", "")
    orphans = [machine for machine in cloud.list_mine() if machine.token == token]
    rented = clouds.get_launcher(row.cloud) if clouds.is_rented(row.cloud) else None
    made = orphans
    if not orphans and not row.machines and rented is not None:
        made = rented.find_launched(token)
    if made and not row.machines:  # it was killed before it could open their account
        row = replace(row, machines=[asdict(machine) for machine in made])
        records.store.record_launch(row, min(m.started or row.created for m in made))
    gone = _ended_machine(row) if row.machines and not orphans else None
    cloud.terminate([machine.id for machine in orphans])
    if row.machines:
        records.record_end(row, gone, "" if gone is None else ABANDONED_NOTE)
    elif rented is not None and (span := rented.unobserved_interval(token, time.time())):
        records.store.record_launch(row, span[0])
        records.store.end_cluster(row.id, "lost", span[1], ABANDONED_NOTE, bounded=True)
    else:
        records.store.delete_cluster(row.id)
    return orphans


def _ended_machine(row: ClusterRow) -> Machine:
    """Return a machine of a cluster none of which is up; with its end where that is known."""
    machines = clouds.get(row.cloud).describe([machine["id"] for machine in row.machines])
    ended = [machine for machine in machines if machine.state == "ended"]
    unknown = replace(Machine(**row.machines[0]), state="ended", ended=None)
    return max(ended, key=lambda machine: machine.ended or 0.0, default=unknown)


def cancel_launch(records: ClusterRecords, row: ClusterRow, why: str) -> None:
    """End a launch against the will of its process, or without it.

    The row is ended first, so that what its process notes from then on takes no effect and makes
    it give back what comes up later.

    Raises
    ------
    SkyError
        The cloud cannot be asked now; a row with machines stays.
    """
    cloud, token = clouds.get(row.cloud), row.connection.get("token", "")
    if not row.machines:
        records.record_end(row, None, why)
    orphans = {machine.id: machine for machine in cloud.list_mine() if machine.token == token}
    cloud.terminate(list({*orphans, *(machine["id"] for machine in row.machines)}))
    if row.machines:
        records.record_end(row, None, why)
    elif orphans:
        records.store.add_late_interval(
            row.id, row.price, _billing_start(orphans.values()), time.time()
        )
