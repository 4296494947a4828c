"""Registry of a user's clusters: find, launch and end them by name."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from jupyter_sky import clouds
from jupyter_sky.base.clouds.index import MANAGED
from jupyter_sky.base.errors import SkyClusterLost, SkyError, SkyNameTaken, SkyUsageError, suggest
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.quantities import format_vcpus
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.store import ClusterId, ClusterRow, Store
from jupyter_sky.base.translation import _, ngettext
from jupyter_sky.execution.clusters.budget_monitor import BudgetMonitor
from jupyter_sky.execution.clusters.cluster import NEXT_CLUSTER_HINT, ClusterHandle, is_intended
from jupyter_sky.execution.clusters.cluster_fit import (
    describe_second_cluster,
    missing_labels,
    name_stem,
    preferred,
)
from jupyter_sky.execution.clusters.cluster_launch import (
    LaunchCallbacks,
    await_other_launch,
    describe_launcher,
    end_abandoned_launch,
    is_launch_running,
    launch_cluster,
)
from jupyter_sky.execution.clusters.cluster_records import ClusterRecords
from jupyter_sky.execution.clusters.cluster_request import ClusterRequest
from jupyter_sky.machines.engines.wire.controller_requests import Use, UseReply
from jupyter_sky.machines.engines.wire.engine_requests import ListNames
from jupyter_sky.machines.provisioner import Report
from jupyter_sky.machines.services.requests import start_engine

END_SECONDS = 60.0
"""Longest wait of a cell for the end of its cluster by somebody else."""


class ClusterRegistry:
    """The clusters of this user, by name, and the connections of this process to them.

    Parameters
    ----------
    store
        Storage between kernels.
    notebook
        Path of this notebook; clusters that it started without a name are found by it.
    session
        Id of this kernel's session; runs of other sessions are those of kernels that are gone.
    """

    def __init__(self, store: Store, notebook: str, session: str) -> None:
        self.store, self.notebook = store, notebook
        self.records = ClusterRecords(store, notebook, session, self.disconnect)
        self.budget_monitor = BudgetMonitor(self.records)
        self.connected: dict[str, ClusterHandle] = {}
        self.started: list[str] = []
        self._lock = threading.RLock()

    # -- finding ---------------------------------------------------------------------------

    def obtain(
        self,
        request: ClusterRequest,
        report: Report,
        announce: Callable[[str], None] = lambda note: None,
    ) -> tuple[ClusterHandle, list[str]]:
        """Return a cluster for a request, live or new, and notes for the user.

        With a name, that cluster; else any live cluster of this notebook that satisfies the
        request; else a new one.

        Parameters
        ----------
        announce
            Called with a note when one more cluster of this notebook is about to be started.

        Raises
        ------
        SkyUsageError
            The named cluster is up and does not satisfy the request.
        SkyNoOffer
            Nothing on sale can meet the request.
        """
        with self._lock:
            notes: list[str] = []
            live = self._find_live(request, notes, report) or self._start_or_join(
                request, report, notes, announce
            )
            if request.idle is not None and request.idle != live.row.idle:
                live.send_heartbeat(idle=request.idle)
                live.row = replace(live.row, idle=request.idle)
                self.store.save_cluster(live.row)
            return live, notes

    def _find_live(
        self, request: ClusterRequest, notes: list[str], report: Report
    ) -> ClusterHandle | None:
        """Return a live cluster that satisfies a request, if there is one."""
        notes += self._forget_ended(request.name, report)
        for row in self.find_rows(request.resources, request.name):
            live, note = self._connect(row)
            if note:
                notes.append(note)
            if live is not None:
                return live
        return None

    def _forget_ended(self, name: str | None, report: Report) -> list[str]:
        """Disconnect from clusters that others end, also before their connections hear of it.

        Returns
        -------
        list of str
            Notes for the user.
        """
        notes = []
        for live in list(self.connected.values()):
            if not (live.row.name == name if name else self._is_own(live.row)):
                continue
            row = self._await_end(live.row, report)
            if row is not None and row.state not in ("starting", "up"):
                notes.append(self._forget(row))
        return notes

    def _forget(self, ended: ClusterRow) -> str:
        """Disconnect from a cluster that has ended; return a note for the user."""
        live = self.connected.get(ended.name)
        knows = live is None or live.connection.is_lost  # those that wait have been told
        self.disconnect(ended.id, "" if knows else ended.note or _("it has ended"))
        return _has_ended(ended.name, ended.note)

    def _await_end(self, row: ClusterRow, report: Report) -> ClusterRow | None:
        """Return the record of a cluster; if somebody ends it, once that has been done.

        A cell that was sent there now would end with it.
        """
        deadline = time.monotonic() + END_SECONDS
        now = self.store.find_cluster(row.id)
        while now is not None and now.state == "up" and is_intended(now.note):
            if time.monotonic() > deadline:  # whoever ends it may have been killed
                break
            report("placing", _("{name} is being ended").format(name=row.name))
            time.sleep(0.1)
            now = self.store.find_cluster(row.id)
        return now

    def find_connected(self, resources: Resources, name: str | None) -> ClusterHandle | None:
        """Return a cluster for a request that this process is connected to, if there is one."""
        for live in self.connected.values():
            mine = live.row.name == name if name else self._is_own(live.row)
            if mine and not live.connection.is_lost and not missing_labels(resources, live.row):
                return live
        return None

    def find_rows(self, resources: Resources, name: str | None) -> list[ClusterRow]:
        """Return the clusters that are up and would take a request, best first.

        Raises
        ------
        SkyUsageError
            The named cluster is up and does not satisfy the request.
        """
        if live := self.find_connected(resources, name):  # usual; the store is not read
            return [live.row]
        if name:
            row = self.store.cluster(name)
            if row is not None and row.state == "stopped":
                raise SkyUsageError(
                    _("cluster {name} is stopped").format(name=name),
                    hint=_("jupyter sky start {name}").format(name=name),
                )
            rows = [row] if row and row.state == "up" else []
        else:
            rows = [row for row in self.store.clusters() if self._is_own(row)]
        fitting = []
        for row in rows:
            missing = missing_labels(resources, row)
            if not missing or (name and self.records.ended_machines(row)):
                fitting.append(row)
            elif name:
                raise SkyUsageError(
                    _("cluster {name} is up with {row}; {missing} cannot be met by it").format(
                        name=name, row=_describe_row(row), missing=" and ".join(missing)
                    ),
                    hint=_("take another name, or end it first: %sky down {name}").format(
                        name=name
                    ),
                )
        return preferred(fitting, self.connected)

    def second_cluster_note(self, resources: Resources, name: str | None) -> str:
        """Return a note for a request that starts one more cluster of this notebook, or nothing."""
        if name or self.find_rows(resources, None):
            return ""
        own = [row for row in self.store.clusters() if self._is_own(row) and row.state == "up"]
        return describe_second_cluster(resources, own)

    def _is_own(self, row: ClusterRow) -> bool:
        """Return whether this notebook started a cluster for itself, without giving it a name."""
        return row.notebook == self.notebook and not row.connection.get("named")

    def find(self, name: str | None = None) -> ClusterHandle:
        """Return a live cluster by name, or the only one of this notebook.

        Raises
        ------
        SkyUsageError
            There is none, or several and none was named.
        """
        name = name or Sky.load().cluster or None
        rows = self.records.reconcile()
        if name is None:
            mine = [row for row in rows if row.notebook == self.notebook] or rows
            if len(mine) != 1:
                names = ", ".join(row.name for row in mine)
                raise SkyUsageError(
                    _("several clusters are up ({names}): say which").format(names=names)
                    if mine
                    else _("no cluster is up: run a %%sky cell, or %sky up")
                )
            name = mine[0].name
        row = next((row for row in rows if row.name == name), None)
        if row is None:
            raise SkyUsageError(
                _("no cluster {name!r} is up").format(name=name),
                hint=suggest(name, [row.name for row in rows]),
            )
        live, note = self._connect(row)
        if live is None:
            raise SkyClusterLost(note)
        return live

    def find_row(self, name: str | None) -> ClusterRow:
        """Return the record of a cluster, up or not; without a name of the only one.

        Raises
        ------
        SkyUsageError
            There is no record of that name.
        """
        if name is None:
            return self.find().row
        row = self.store.cluster(name)
        if row is None:
            names = [row.name for row in self.store.clusters()]
            raise SkyUsageError(
                _("no cluster {name!r} is known").format(name=name), hint=suggest(name, names)
            )
        return row

    def read_activity(self, row: ClusterRow) -> UseReply | None:
        """Return the use of a cluster.

        Returns
        -------
        UseReply or None
            None where it does not answer, or where to ask would take a new connection to another
            machine.
        """
        live = self.connected.get(row.name)
        with contextlib.suppress(SkyError, OSError, ValueError, KeyError):
            if live is not None and not live.connection.is_lost:
                return live.connection.ask_controller(Use(), 2.0, wait_reconnect=False)
            if clouds.runs_here(row.cloud):
                return _ask_local_controller(row)
        return None

    # -- connecting ------------------------------------------------------------------------

    def _connect(self, row: ClusterRow) -> tuple[ClusterHandle | None, str]:
        """Connect to a recorded cluster; return the connection, and a note if something is new."""
        live = self.connected.get(row.name)
        if live is not None and not live.connection.is_lost and live.row.created == row.created:
            return live, ""
        if gone := self.records.ended_machines(row):
            self.records.record_end(row, gone[0])
            return None, self._forget(self.store.find_cluster(row.id) or row)
        self.disconnect(row.name)
        try:
            live = self.connect(row)
        except SkyClusterLost as error:
            error.hint = _("wait, or end it: %sky down {name}").format(name=row.name)
            raise
        live.awaits_replay = True
        try:
            live.await_engines(range(row.nodes))
            live.send_heartbeat()
            busy = live.connection.hello.running
            count = len(live.connection.ask_engine(0, ListNames()).names) if not busy else None
        except BaseException:
            self.disconnect(row.name)
            raise
        kept = (
            ngettext(", {count} variable", ", {count} variables", count).format(count=count)
            if count is not None
            else ""
        )
        return live, _("reconnected to {name}{kept}").format(name=row.name, kept=kept)

    def connect(self, row: ClusterRow) -> ClusterHandle:
        """Return a new connection to a cluster, which tells it how long the day's money lasts."""
        live = ClusterHandle(row, self.store, self.notebook)
        live.money_left = self.budget_monitor.money_left
        self.connected[row.name] = live
        return live

    def _connect_launched(self, engine: str | None, row: ClusterRow) -> ClusterHandle:
        """Connect to a cluster that has just been launched, and start its data engine."""
        live = self.connect(row)
        if engine is not None and row.cloud not in MANAGED:  # while its own engines start
            start_engine(live.connection.ask_controller, engine)
        return live

    def disconnect(self, cluster: str | ClusterId, lost: str = "") -> None:
        """Close this process's connection to a cluster; end the waits for it.

        Parameters
        ----------
        cluster
            A name, or the identity of one cluster: another one of that name is left alone.
        lost
            Reason why the cluster is lost; empty while it goes on.
        """
        name = cluster if isinstance(cluster, str) else cluster.name
        live = self.connected.get(name)
        if live is not None and cluster in (name, live.row.id):
            del self.connected[name]
            if lost:
                live.connection.mark_lost(lost, NEXT_CLUSTER_HINT, is_intended=is_intended(lost))
            live.close()

    # -- launching -------------------------------------------------------------------------

    def launch(
        self,
        request: ClusterRequest,
        report: Report,
        announce: Callable[[str], None] = lambda note: None,
    ) -> tuple[ClusterHandle, list[str]]:
        """Launch a new cluster for a request; return it, and notes for the user.

        Raises
        ------
        SkyNameTaken
            Another notebook is launching, or has launched, one of this name.
        SkyStoreError
            The launch, which costs money, cannot be recorded now.
        """
        cluster = request.name or self.default_name(request.resources)
        note = self.second_cluster_note(request.resources, request.name)
        callbacks = LaunchCallbacks(
            report,
            self.budget_monitor.check_start,
            partial(self._connect_launched, request.engine),
            announce=lambda: announce(note) if note else None,
        )
        placed = launch_cluster(self.records, request, cluster, callbacks)
        self.started.append(cluster)
        return placed

    def _start_or_join(
        self,
        request: ClusterRequest,
        report: Report,
        notes: list[str],
        announce: Callable[[str], None],
    ) -> ClusterHandle:
        """Start a cluster, or take the one that another notebook starts at the same moment."""
        for last in (False, False, True):
            try:
                live, more = self.launch(request, report, announce)
                notes += more
                return live
            except SkyNameTaken:
                known = request.name or self.default_name(request.resources)
                await_other_launch(self.records, known, report)
                if live := self._find_live(request, notes, report):
                    return live
                row = self.store.cluster(known)
                if last or (row is not None and row.state == "up"):
                    raise
        raise AssertionError

    def default_name(self, resources: Resources) -> str:
        """Return the name of this notebook's own cluster for a request."""
        text = f"{self.notebook}\n{resources.command_line()}"
        digest = hashlib.blake2b(text.encode(), digest_size=2).hexdigest()
        return f"{name_stem(self.notebook)}-{digest}"

    # -- ending ----------------------------------------------------------------------------

    def terminate(self, name: str) -> ClusterRow:
        """Terminate a cluster and close its account; return its record.

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
                        _("cluster {name} is being launched by {row}").format(
                            name=name, row=describe_launcher(row)
                        ),
                        hint=_("interrupt that cell; its machines are given back"),
                    )
                end_abandoned_launch(self.records, row)
                return row
            if row is None or row.state not in ("up", "stopped"):
                up = ", ".join(r.name for r in self.store.clusters()) or "none"
                raise SkyUsageError(
                    _("no cluster {name!r} is up (up now: {up})").format(name=name, up=up)
                )
            self.records.terminate_row(row)
            return row


def _has_ended(name: str, why: str) -> str:
    return f"cluster {name} has ended{f' ({why})' if why else ''}; its variables are gone"


def _describe_row(row: ClusterRow) -> str:
    offer = Offer(**row.offer)
    nodes = f"{row.nodes} x " if row.nodes > 1 else ""
    return _("{nodes}{vcpus} and {memory:g} GiB on {place}").format(
        nodes=nodes, vcpus=format_vcpus(offer.vcpus), memory=offer.memory, place=offer.place
    )


def _ask_local_controller(row: ClusterRow) -> UseReply:
    """Return the use of a cluster on this machine, without a notebook's connection to it."""
    from jupyter_sky.machines.engines.client.observer import Observer

    observer = Observer(row.name, json.loads(Path(row.connection["file"]).read_text()))
    try:
        return observer.ask(Use(), timeout=2.0)
    finally:
        observer.close()
