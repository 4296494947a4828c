"""Clusters as a notebook sees them: found, started, watched, healed, given back."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from .. import clouds
from ..clouds import Launch, Machine
from ..config import Sky
from ..errors import SkyClusterLost, SkyError, SkyUsageError
from ..offers import Offer
from ..optimizer.candidates import candidates, no_offer
from ..provisioner import Report, check_alive, provision
from ..resources import Resources, parse_duration
from ..store import ClusterRow, RunRow, Store

if TYPE_CHECKING:
    from ..engines.link import Link

BEAT_SECONDS = 2.0
SILENCE_SECONDS = 10.0
"""A cluster whose controller says nothing for so long is lost, whatever its cloud says."""
HEAL_SECONDS = 30.0


class Cluster:
    """A live cluster with a connection to it, whose heart this process hears.

    Examples
    --------
    >>> cluster.row.name, cluster.link.ranks()  # doctest: +SKIP
    ('quickstart-3f2a', [0])
    """

    def __init__(self, row: ClusterRow, store: Store) -> None:
        from ..engines.link import Link

        self.row, self.store = row, store
        self.cloud = clouds.get(row.cloud)
        self.machines = [Machine(**machine) for machine in row.machines]
        self.link: Link = Link(row.name, Path(row.connection["file"]))
        self.paths: set[str] = set()
        self.running: dict[str, Callable[[], int]] = {}
        self._closed = threading.Event()
        threading.Thread(target=self._beat, name=f"sky-beat-{row.name}", daemon=True).start()

    def _beat(self) -> None:
        heard = time.monotonic()
        while not self._closed.wait(BEAT_SECONDS):
            try:
                self.link.head("beat", timeout=3.0)
                heard = time.monotonic()
                self._record_beat(time.time())
            except SkyClusterLost:
                try:
                    self.check_alive()
                    silent = time.monotonic() - heard
                    if silent < SILENCE_SECONDS:
                        continue
                    reason = f"its controller has said nothing for {silent:.0f} s"
                except SkyError as error:
                    reason = str(error).partition(" is gone: ")[2] or str(error)
                except Exception as error:  # the cloud's own trouble must not end the watch
                    reason = f"{type(error).__name__}: {error}"
                if not self._closed.is_set():
                    self.link.lose(reason)
                return

    def _record_beat(self, now: float) -> None:
        with contextlib.suppress(SkyError):
            self.store.beat(self.row.name, now)
            for run, shown in list(self.running.items()):
                self.store.beat_run(run, now, shown())

    def check_alive(self) -> None:
        """Raise SkyClusterLost when the cloud says that the machines have ended."""
        check_alive(self.cloud, self.machines, self.row.name)

    def heal(self, ranks: Iterable[int]) -> None:
        """Wait until the engines of `ranks` are there (a new one replaces each that died)."""
        self.link.wait_ranks(ranks, HEAL_SECONDS, self.check_alive)

    def last_words(self, rank: int) -> str:
        """Say why the engine of a rank was lost."""
        with contextlib.suppress(SkyError):
            for engine in self.link.head("engines")["engines"]:
                if engine["rank"] == rank and engine["last_words"]:
                    return engine["last_words"]
        return "the reason is not known"

    def close(self) -> None:
        """Let go of the cluster; it goes on without this process."""
        self._closed.set()
        self.link.close()


class Clusters:
    """The clusters of this user, by name, and the connections of this process to them.

    Parameters
    ----------
    store
        Where they are remembered between kernels.
    notebook
        Path of this notebook; clusters that it started without a name are found by it.
    """

    def __init__(self, store: Store, notebook: str) -> None:
        self.store, self.notebook = store, notebook
        self.connected: dict[str, Cluster] = {}
        self.started: list[str] = []
        self._lock = threading.RLock()

    # -- finding ---------------------------------------------------------------------------

    def obtain(
        self, resources: Resources, name: str | None, idle: float | None, report: Report
    ) -> tuple[Cluster, list[str]]:
        """Return a cluster for a request, live or new, and what the user should know about it.

        With a `name`, that cluster; else any live cluster of this notebook that satisfies the
        request; else a new one.

        Raises
        ------
        SkyUsageError
            The named cluster is up and does not satisfy the request.
        SkyNoOffer
            Nothing on sale can meet the request.
        """
        with self._lock:
            notes: list[str] = []
            for row in self._found(resources, name):
                live, note = self._connect(row)
                if note:
                    notes.append(note)
                if live is not None:
                    if idle is not None and idle != row.idle:
                        live.link.head("beat", idle=idle)
                    return live, notes
            return self.start(resources, name, idle, report), notes

    def _found(self, resources: Resources, name: str | None) -> list[ClusterRow]:
        for live in self.connected.values():  # the usual case needs no look into the store
            mine = live.row.name == name if name else self._is_own(live.row)
            if mine and not live.link.lost and not _lacking(resources, live.row):
                return [live.row]
        if name:
            row = self.store.cluster(name)
            rows = [row] if row and row.state == "up" else []
        else:
            rows = [row for row in self.store.clusters() if self._is_own(row)]
        fitting = []
        for row in rows:
            lacking = _lacking(resources, row)
            if not lacking:
                fitting.append(row)
            elif name:
                raise SkyUsageError(
                    f"cluster {name} is up with {_described(row)}; "
                    f"{' and '.join(lacking)} cannot be met by it",
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
        self.forget(row.name)
        cloud = clouds.get(row.cloud)
        machines = cloud.describe([machine["id"] for machine in row.machines])
        ended = [machine for machine in machines if machine.state == "ended"]
        if ended or not machines:
            gone = ended[0] if ended else None
            self.bury(row, gone)
            why = f" ({gone.reason})" if gone and gone.reason else ""
            return None, f"cluster {row.name} has ended{why}; its variables are gone"
        live = self.connected[row.name] = Cluster(row, self.store)
        try:
            live.heal(range(row.nodes))
            count = len(live.link.ask(0, "names")["names"]) if _idle(live) else None
        except BaseException:
            self.forget(row.name)
            raise
        kept = f", {count} variable{'' if count == 1 else 's'}" if count is not None else ""
        return live, f"reconnected to {row.name}{kept}"

    # -- starting --------------------------------------------------------------------------

    def plan(self, resources: Resources) -> list[Offer]:
        """Return the offers that can meet a request, best first.

        Raises
        ------
        SkyNoOffer
            There is none; says which label stands in the way.
        """
        on_sale = [
            offer for name in clouds.launchable() for offer in clouds.get(name).offers(resources)
        ]
        found = candidates(resources, on_sale)
        if not found:
            raise no_offer(resources, on_sale)
        return found

    def start(
        self, resources: Resources, name: str | None, idle: float | None, report: Report
    ) -> Cluster:
        """Launch a new cluster for a request."""
        report("placing", "")
        offer = self.plan(resources)[0]
        config = Sky.load()
        idle = idle if idle is not None else parse_duration(config.idle, "Sky.idle")
        cluster = name or self.name_for(resources)
        order = Launch(
            token=f"{cluster}-{uuid.uuid4().hex[:8]}",
            cluster=cluster,
            offer=offer,
            resources=resources,
            idle=idle,
            owner=getpass.getuser(),
            notebook=self.notebook,
        )
        lease = provision(order, report)
        price = None if offer.price is None else offer.price * resources.nodes
        now = time.time()
        row = ClusterRow(
            name=cluster,
            state="up",
            cloud=offer.cloud,
            region=offer.region,
            instance_type=offer.instance_type,
            spot=offer.spot,
            price=price,
            nodes=resources.nodes,
            resources=resources.command_line(),
            offer=asdict(offer),
            machines=[asdict(machine) for machine in lease.machines],
            connection={"file": str(lease.connection), "named": bool(name)},
            notebook=self.notebook,
            created=now,
            idle=idle,
            price_source=offer.source,
            price_date=offer.date,
        )
        try:
            self.store.put_cluster(row)
            self.store.open_interval(cluster, price, now)
            live = Cluster(row, self.store)
            self.connected[cluster] = live
            self.started.append(cluster)

            def alive() -> None:
                report("booting", "")
                live.check_alive()

            live.link.wait_ranks(range(row.nodes), 120.0, alive)
        except BaseException:
            clouds.get(offer.cloud).terminate([machine.id for machine in lease.machines])
            self.forget(cluster)
            self.bury(row, None)
            raise
        return live

    def name_for(self, resources: Resources) -> str:
        """Return the name of this notebook's own cluster for a request."""
        stem = re.sub(r"[^A-Za-z0-9]+", "-", Path(self.notebook).stem).strip("-").lower() or "sky"
        text = f"{self.notebook}\n{resources.command_line()}"
        return f"{stem[:24]}-{hashlib.blake2b(text.encode(), digest_size=2).hexdigest()}"

    # -- ending ----------------------------------------------------------------------------

    def down(self, name: str) -> None:
        """Terminate a cluster and close its account.

        Raises
        ------
        SkyUsageError
            No cluster of that name is up.
        """
        with self._lock:
            row = self.store.cluster(name)
            if row is None or row.state != "up":
                up = ", ".join(r.name for r in self.store.clusters()) or "none"
                raise SkyUsageError(f"no cluster {name!r} is up (up now: {up})")
            self.forget(name)
            clouds.get(row.cloud).terminate([machine["id"] for machine in row.machines])
            self.bury(row, None)

    def forget(self, name: str) -> None:
        """Close this process's connection to a cluster."""
        live = self.connected.pop(name, None)
        if live is not None:
            live.close()

    def bury(self, row: ClusterRow, gone: Machine | None) -> None:
        """Record that a cluster has ended, at the time its cloud says, or now."""
        ended = gone.ended if gone else time.time()
        self.store.close_dead(row.name, ended)
        self.store.set_cluster_state(row.name, "down", ended or time.time())
        for run in self.store.runs(cluster=row.name, status="running"):
            if run.owner_pid != os.getpid():
                self.store.close_run_at_beat(run.run_id)

    def reconcile(self) -> list[ClusterRow]:
        """Compare what is remembered with what the clouds say; return what is up."""
        up = []
        for row in self.store.clusters():
            machines = clouds.get(row.cloud).describe([m["id"] for m in row.machines])
            ended = [machine for machine in machines if machine.state == "ended"]
            if ended or not machines:
                self.forget(row.name)
                self.bury(row, ended[0] if ended else None)
            else:
                up.append(row)
        return up

    def orphans(self) -> list[Machine]:
        """Return machines of this user that run and that no remembered cluster has."""
        known = {m["id"] for row in self.store.clusters() for m in row.machines}
        return [
            machine
            for name in clouds.launchable()
            for machine in clouds.get(name).mine()
            if machine.id not in known
        ]

    def unfinished(self, cluster: str) -> list[RunRow]:
        """Return runs of this notebook on a cluster whose kernel is gone."""
        return [
            run
            for run in self.store.runs(notebook=self.notebook, cluster=cluster, status="running")
            if run.owner_pid != os.getpid()
        ]


def _lacking(resources: Resources, row: ClusterRow) -> list[str]:
    lacking = resources.unmet(Offer(**row.offer))
    if resources.nodes not in (1, row.nodes):
        lacking.append(f"--nodes {resources.nodes}")
    return lacking


def _described(row: ClusterRow) -> str:
    offer = Offer(**row.offer)
    nodes = f"{row.nodes} x " if row.nodes > 1 else ""
    return f"{nodes}{offer.vcpus:g} vCPUs and {offer.memory:g} GiB on {offer.place}"


def _idle(live: Cluster) -> bool:
    return all(run["status"] != "running" for run in live.link.hello["runs"])
