"""Connection of a notebook to a live cluster: heartbeat, recovery, disconnection."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_sky import clouds
from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.concurrency import run_parallel
from jupyter_sky.base.errors import (
    SkyCancelled,
    SkyClusterLost,
    SkyEngineLost,
    SkyError,
    SkyNodeLost,
)
from jupyter_sky.base.requests.resources import format_duration
from jupyter_sky.base.store.store import ClusterRow, Store
from jupyter_sky.base.translation import _
from jupyter_sky.clouds import Machine
from jupyter_sky.clouds.launches.base import is_reached_by_ssh
from jupyter_sky.execution.clusters.machine_notices import MachineNotices
from jupyter_sky.execution.display import Display, RunStatus
from jupyter_sky.machines.engines.controller.activity import warn_seconds
from jupyter_sky.machines.engines.controller.agent_server import GIVEN_UP
from jupyter_sky.machines.engines.wire.controller_requests import ListEngines
from jupyter_sky.machines.provisioner import check_alive
from jupyter_sky.machines.provisioner.bootstrap import ensure_uv
from jupyter_sky.machines.provisioner.launch_stages import record_event
from jupyter_sky.machines.provisioner.ssh_launch import STAGES, open_connection
from jupyter_sky.machines.storage.stores.places import LOCAL

if TYPE_CHECKING:
    from jupyter_sky.machines.engines.client.tunnel import Tunnel

HEARTBEAT_SECONDS = 2.0
SHOWN_DELAY_SECONDS = 0.2
"""Period at which the number of shown messages is recorded, so that a new kernel shows the rest."""
SUSPECT_SECONDS = 3.0
"""Time for which its cloud is asked repeatedly after the connection was cut."""
HEARTBEAT_TIMEOUT_SECONDS = 10.0
"""Silence of a controller after which its cluster is lost, whatever its cloud says."""
RECONNECT_SECONDS = 30.0
CLOUD_CHECK_SECONDS = 3.0
"""Period at which its cloud is asked while the connection is down."""
EXPECTED_REASONS = ("idle", "stopped", "the day's budget is spent")
"""Reasons of machines for an end that was intended."""
ENDED_BY_BUDGET = "ended by your budget"
"""Beginning of the reason of an end by the budget; it begins as that of any intended end."""
ENDED_HINT = "ended by you"
"""Beginning of the reason of an intended end; the place of the command follows."""
NEXT_CLUSTER_HINT = "its variables are gone; the next cell starts another"


def is_intended(reason: str) -> bool:
    """Return whether a cluster that has ended for a reason was to end.

    Examples
    --------
    >>> is_intended("idle"), is_intended("ended by you in a.ipynb"), is_intended("it crashed")
    (True, True, False)
    """
    return reason in EXPECTED_REASONS or reason.startswith(ENDED_HINT)


def essential_machines(row: ClusterRow) -> frozenset[str]:
    """Return the IDs of the machines without which a cluster has ended.

    All of them, unless a pool replaces those that are not the head node.
    """
    ranks = row.connection.get("essential")
    return frozenset(m["id"] for m in row.machines if ranks is None or m["rank"] in ranks)


class ClusterHandle:
    """Live cluster whose heartbeat this process monitors.

    Examples
    --------
    >>> cluster.row.name, cluster.connection.ranks()  # doctest: +SKIP
    ('quickstart-3f2a', [0])
    """

    def __init__(self, row: ClusterRow, store: Store, notebook: str) -> None:
        self.row, self.store, self.notebook = row, store, notebook
        self.datasets: set[str] = set()  # ids of those that its machines have
        self.mounts: set[str] = set()  # ids of those that this process serves
        # pairs of ranks: the first is not reached from the second
        self.unreachable_peers: set[tuple[int, int]] = set()
        self.idleness = IdleWarning(row.name)
        self.cloud = clouds.get(row.cloud)
        self.machines = [Machine(**machine) for machine in row.machines]
        self.tunnel, self.connection = open_connection(Path(row.connection["file"]), row.name)
        self.notices = MachineNotices(self.record_event)
        self.connection.client.on_notices = lambda told: self.notices.update(told, time.time())
        self.money_left: Callable[[], float | None] = lambda: None
        """Returns for how many seconds the day's money lasts; None for ever."""
        self.awaits_replay = False
        """Whether outputs of earlier kernels' cells are still to be shown by the next cell."""
        self.egress = EgressMeter(row, store)
        self.paths: set[str] = set()
        self._has_installer = threading.Event()
        self.running: dict[str, Callable[[], int]] = {}
        self._shown: dict[str, int] = {}
        self._recorded: dict[str, int] = {}
        self._closed = threading.Event()
        self._asked = 0.0
        threading.Thread(target=self._monitor, name=f"sky-watch-{row.name}", daemon=True).start()

    def ensure_package_installer(self) -> None:
        """Install uv on its machines where it is missing: engines themselves need no installer.

        Raises
        ------
        SkyError
            A machine does not answer, or has no room.
        """
        if is_reached_by_ssh(self.cloud) and not self._has_installer.is_set():
            nodes = self.cloud.await_slots(self.machines)
            run_parallel([partial(ensure_uv, node) for node in nodes])
        self._has_installer.set()

    def record_event(self, text: str) -> None:
        """Write an event to the log of the cluster, for ``%sky logs --provision``."""
        record_event(Path(self.row.connection["file"]).parent / STAGES, text)

    def _monitor(self) -> None:
        """Monitor the cluster's heartbeat and record shown output until it is lost or closed."""
        heard = beat = time.monotonic()
        suspect = 0.0
        while not self._closed.wait(SHOWN_DELAY_SECONDS):
            self._write_record(self._record_shown)
            now = time.monotonic()
            if not self.connection.is_lost:
                self.idleness.show(time.time())
            if self.tunnel is not None and not self.tunnel.is_up:
                if self._is_unrecoverable(self.tunnel, now):
                    break
                heard = beat = time.monotonic()  # nothing can be heard meanwhile
                continue
            if self.connection.disconnections.was_cut():
                suspect = now + SUSPECT_SECONDS
            if now - beat < self._heartbeat_delay(beat):
                if now < suspect and self._is_lost(silent=0.0):
                    break
                continue
            beat = now
            try:
                self.send_heartbeat(timeout=3.0, wait_reconnect=False)
                heard = time.monotonic()
                self._write_record(self._record_heartbeat)
            except Exception:
                if self._closed.is_set() or self._is_lost(time.monotonic() - heard):
                    break
        self.connection.disconnections.close()

    def send_heartbeat(
        self, idle: float | None = None, timeout: float = 10.0, wait_reconnect: bool = True
    ) -> None:
        """Send a heartbeat to the controller: this notebook is connected, and what it runs."""
        beat = replace(self.connection.use.describe(self.notebook), idle=idle)
        if self.row.price:
            with contextlib.suppress(SkyError):  # a store that is locked: the old deadline stays
                beat = replace(beat, left=self.money_left())
        answer = self.connection.ask_controller(beat, timeout, wait_reconnect)
        self.idleness.update(answer.idle_left, answer.idle, time.time())
        self.notices.update(answer.notices, time.time())

    def _heartbeat_delay(self, last: float) -> float:
        """Return how long after the last heartbeat the next is due."""
        used = self.connection.use.used_at
        if used is not None and used > last and self.idleness.ends_soon(time.time()):
            return 0.0  # the controller must know before it is too late
        return min(HEARTBEAT_SECONDS, self.row.idle / 4)

    def _is_unrecoverable(self, tunnel: Tunnel, now: float) -> bool:
        """Return whether a connection that is down, and reconnects by itself, never will again."""
        if tunnel.lost_reason:
            self.connection.mark_lost(
                tunnel.lost_reason, _("the cluster goes on: the next %%sky cell connects anew")
            )
            return True
        if now - self._asked < CLOUD_CHECK_SECONDS:
            return False
        self._asked = now
        return self._is_lost(silent=0.0)

    def _was_stopped(self) -> bool:
        """Return whether the cluster was stopped by a request, its disks kept."""
        with contextlib.suppress(SkyError):
            noted = self.store.find_cluster(self.row.id)
            return noted is not None and noted.state == "stopped"
        return False

    def _is_lost(self, silent: float) -> bool:
        """Return whether the cluster is lost; if it is, end all waits for it."""
        kind: type[SkyError] = SkyClusterLost
        intended = False
        if self._was_stopped():
            hint = _("jupyter sky start {name}").format(name=self.row.name)
            self.connection.mark_lost(_("it was stopped"), hint, kind, True)
            return True
        try:
            self.check_alive()
            if silent < HEARTBEAT_TIMEOUT_SECONDS:
                return False
            reason = _("its controller has said nothing for {silent:.0f} s").format(silent=silent)
            hint = _("end what is left of it: %sky down {name}").format(name=self.row.name)
        except SkyError as gone:
            reason, hint = (
                gone.message.partition(" is gone: ")[2] or gone.message,
                NEXT_CLUSTER_HINT,
            )
            kind = type(gone)
            noted = self.store.find_cluster(self.row.id)
            if noted is not None and noted.note.startswith(ENDED_HINT):
                reason = noted.note
            intended = is_intended(reason)
            if reason == "idle":
                reason = _("nobody used it for {idle} (--idle)").format(
                    idle=format_duration(self.row.idle)
                )
                self.idleness.mark_ended(time.time())
        except Exception as trouble:  # the cloud's own must not end the watch unsaid
            if silent < HEARTBEAT_TIMEOUT_SECONDS:
                return False
            reason, hint = f"{type(trouble).__name__}: {trouble}", None
        self.connection.mark_lost(reason, hint, kind, intended)
        return True

    @staticmethod
    def _write_record(write: Callable[[], None]) -> None:
        with contextlib.suppress(SkyError):
            write()

    def _record_heartbeat(self) -> None:
        now = time.time()
        self.store.record_heartbeat(self.row.id, now)
        for run in list(self.running):
            self.store.record_run_heartbeat(run, now, self._recorded.get(run, 0))

    def _record_shown(self) -> None:
        """Record the messages that runs had shown a moment ago: the front end has them by now."""
        now = time.time()
        for run, count in list(self.running.items()):
            before, shown = self._shown.get(run), count()
            self._shown[run] = shown
            if before and before != self._recorded.get(run):
                self._recorded[run] = before
                self.store.record_run_heartbeat(run, now, before)
        for run in self._shown.keys() - self.running.keys():
            self._shown.pop(run)
            self._recorded.pop(run, None)

    def check_alive(self) -> None:
        """Raise SkyClusterLost when the cloud says that machines that it needs have ended."""
        needed = essential_machines(self.row)
        machines = [machine for machine in self.machines if machine.id in needed]
        check_alive(self.cloud, machines, self.row.name)

    def check_ended(self) -> None:
        """Raise SkyClusterLost when its cloud says that it has ended; the next cell starts another.

        A cluster of which a machine has ended has ended, whatever the others do, unless a pool
        replaces that one.
        """
        try:
            self.check_alive()
        except SkyClusterLost:
            if self._is_lost(silent=0.0):
                raise self.connection.lost_error() from None
            raise

    def await_engines(
        self, ranks: Iterable[int], is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Wait until the engines of `ranks` are there (a new one replaces each that died).

        Parameters
        ----------
        is_wanted
            Whether to go on waiting; asked several times a second.

        Raises
        ------
        SkyCancelled
            Nobody wants them any more.
        SkyNodeLost
            One of their nodes is lost, and has not come back.
        SkyClusterLost
            The cluster has ended.
        """
        wanted, asked = set(ranks), [time.monotonic()]

        def alive() -> None:
            if not is_wanted():
                raise SkyCancelled(_("nobody waits for it any more"))
            self.check_ended()
            if time.monotonic() - asked[0] > 1.0:
                asked[0] = time.monotonic()
                self._check_replaceable(wanted)
                self._check_not_lost(wanted, only_given_up=True)

        try:
            self.connection.wait_ranks(wanted, RECONNECT_SECONDS, alive)
        except SkyEngineLost:
            self._check_not_lost(wanted)
            raise

    def _check_replaceable(self, ranks: set[int]) -> None:
        """Raise SkyNodeLost for a lost node that a pool replaces, without patience."""
        needed = essential_machines(self.row)
        machines = {m.id: m.rank for m in self.machines if m.rank in ranks and m.id not in needed}
        if not machines:
            return
        self._check_not_lost({*machines.values()})
        for machine in self.cloud.describe([*machines]):
            if machine.state == "ended":
                error = self.node_lost_error(machines[machine.id], machine.reason)
                error.is_abandoned = True
                raise error

    def _check_not_lost(self, ranks: set[int], only_given_up: bool = False) -> None:
        for rank, why in self.lost_nodes().items():
            error = self.node_lost_error(rank, why)
            if rank in ranks and (error.is_abandoned or not only_given_up):
                raise error

    def node_lost_error(self, rank: int, why: str, label: str = "") -> SkyNodeLost:
        """Return the error of a node that is lost, with what ran on it."""
        name, during = (
            self.row.name,
            _(" while it ran {label}").format(label=label) if label else "",
        )
        error = SkyNodeLost(
            _("node {rank} of cluster {name} was lost{during}: {why}").format(
                rank=rank, name=name, during=during, why=why
            ),
            hint=_(
                "its variables are gone, those of the other nodes are kept: --on names "
                "nodes; to start all anew: %sky down {name}"
            ).format(name=name),
        )
        error.is_abandoned = GIVEN_UP in why
        return error

    def lost_nodes(self) -> dict[int, str]:
        """Return the ranks of nodes that are lost, each with the reason."""
        with contextlib.suppress(SkyError):
            engines = self.connection.ask_controller(ListEngines()).engines
            return {engine["rank"]: engine["lost"] for engine in engines if engine["lost"]}
        return {}

    def exit_reason(self, rank: int) -> str:
        """Return the reason why the engine of a rank was lost."""
        with contextlib.suppress(SkyError):
            for engine in self.connection.ask_controller(ListEngines()).engines:
                if engine["rank"] == rank and engine["exit_reason"]:
                    return engine["exit_reason"]
        return _("the reason is not known")

    def close(self) -> None:
        """Close the connection; the cluster goes on without this process."""
        self._closed.set()
        self.connection.close()
        if self.tunnel:
            self.tunnel.close()


# -- Egress: cost of values that leave a cluster's cloud for this machine -------------------------
#
# What comes in costs nothing on the clouds that we launch on. The price is the catalog's, at the
# first tier: a free allowance of an account is not counted, since it is not known here whether it
# is spent. Less than `BOOKING_BYTES` waits until there is more.

_log = logging.getLogger(__name__)

BOOKING_BYTES = 10**6


class EgressMeter:
    """The bytes that have left one cluster for this process, and their entries in the ledger."""

    def __init__(self, row: ClusterRow, store: Store) -> None:
        self._row, self._store = row, store
        self._waiting = 0
        self._lock = threading.Lock()

    def add(self, nbytes: int) -> None:
        """Count fetched bytes; book them, in a thread of its own, as soon as they are enough."""
        if find_facts(self._row.cloud).on_premises:
            return
        with self._lock:
            self._waiting += nbytes
            if self._waiting < BOOKING_BYTES:
                return
            moved, self._waiting = self._waiting, 0
        threading.Thread(target=self._book, args=(moved,), name="sky-egress", daemon=True).start()

    def _book(self, nbytes: int) -> None:
        at, gb = time.time(), nbytes / 1e9
        try:
            usd = egress_price(self._row, gb)
        except Exception:  # a catalog that cannot be read: it is named as unknown
            _log.warning("the price of egress could not be looked up", exc_info=True)
            usd = None
        self._store.add_other_cost(self._row.id, _("egress of {gb:.3g} GB").format(gb=gb), usd, at)


def egress_price(row: ClusterRow, gb: float) -> float | None:
    """Return the cost of data sent from a cluster to the internet, USD; None if not known."""
    from jupyter_sky.knowledge import catalog

    return catalog.load().egress(f"{row.cloud}/{row.region}", "internet", gb).usd


# -- Warnings, in the status line of a cluster's last cell, that the idle cluster is about --------

MIN_CHANGE_SECONDS = 3.0
"""Least change of the end that is shown."""

Show = Callable[[RunStatus], None]


class IdleWarning:
    """The end of one cluster for idleness, as its controller says, and what was said of it here.

    Parameters
    ----------
    cluster
        Its name.
    """

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._ends: float | None = None
        self._idle = 0.0
        self._warned: float | None = None
        self._last: tuple[Display, RunStatus] | None = None
        self._lock = threading.Lock()

    def remember(self, display: Display, status: RunStatus) -> None:
        """Use the status line of a cell that has ended for warnings from now on."""
        with self._lock:
            if self._last is not None and self._warned is not None:
                self._restore(*self._last)
            self._last, self._warned = (display, status), None

    def update(self, left: float, idle: float, now: float) -> None:
        """Note the seconds that the controller gives the cluster, and its idle limit."""
        self._ends, self._idle = now + left, idle

    def ends_soon(self, now: float) -> bool:
        """Return whether the cluster ends so soon that its users are to be warned."""
        return self._ends is not None and self._ends - now < warn_seconds(self._idle)

    def show(self, now: float) -> None:
        """Show a warning that is due, or remove one that is no longer."""
        with self._lock:
            if self._last is None:
                return
            if not self.ends_soon(now):
                if self._warned is not None:
                    self._warned = None
                    self._restore(*self._last)
                return
            assert self._ends is not None
            if self._warned is None or abs(self._ends - self._warned) > MIN_CHANGE_SECONDS:
                self._warned = self._ends
                self._show_note(
                    _(
                        "nobody uses {cluster}: it ends at {ends}, with its variables; %sky "
                        "extend {cluster} 1h keeps it"
                    ).format(cluster=self._cluster, ends=_clock(self._ends))
                )

    def mark_ended(self, now: float) -> None:
        """Show that the cluster has ended."""
        with self._lock:
            if self._last is not None:
                self._show_note(
                    _(
                        "{cluster} ended at {now}: nobody used it; its variables are gone, and "
                        "the next cell starts another"
                    ).format(cluster=self._cluster, now=_clock(now))
                )
                self._last = None

    def _show_note(self, note: str) -> None:
        assert self._last is not None
        display, status = self._last
        display.update_status(replace(status, notes=(*status.notes, note)))

    @staticmethod
    def _restore(display: Display, status: RunStatus) -> None:
        display.update_status(status)


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


# -- Request for a cluster, the placement on it, and the limits of a cell there -------------------


@dataclass(frozen=True, slots=True)
class Placement:
    """The engines of a cell: a cluster, and ranks of its nodes."""

    cluster: ClusterHandle
    ranks: tuple[int, ...]

    @property
    def row(self) -> ClusterRow:
        """Record of the cluster, with its price in USD/h."""
        return self.cluster.row


# -- Places of clusters, as the catalog and the prices of storage write them ----------------------


def place_of_cluster(row: ClusterRow) -> str:
    """Return the place of a cluster, as the catalog writes it."""
    return place_of_machine(row.cloud, row.region)


def place_of_machine(cloud: str, region: str | None) -> str:
    """Return the place of a machine, as the catalog writes it.

    Examples
    --------
    >>> place_of_machine("aws", "us-east-1"), place_of_machine("local", "this-machine")
    ('aws/us-east-1', 'local')
    """
    return f"{cloud}/{region}" if region and cloud != LOCAL else cloud
