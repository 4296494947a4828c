"""Machines of a bag: a pool, whose lost machines are replaced."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.clouds.index import LOCAL
from jupyter_sky.base.errors import (
    SkyCancelled,
    SkyClusterLost,
    SkyError,
    SkyNoCapacity,
    SkyNoOffer,
)
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _
from jupyter_sky.execution.clusters.cluster_records import describe_place
from jupyter_sky.execution.functions.calls.lazy_calls import Function
from jupyter_sky.execution.functions.calls.retry import Retry
from jupyter_sky.execution.functions.images.specs import Nodes, Options, Worker
from jupyter_sky.execution.functions.pools.compute import Compute
from jupyter_sky.execution.functions.pools.launch import ClusterLauncher
from jupyter_sky.machines.provisioner.placement import decide_placement
from jupyter_sky.workflows.bags.decisions.backlog import MachineKind
from jupyter_sky.workflows.bags.decisions.fleet_plan import FIRST_GROUPS
from jupyter_sky.workflows.bags.decisions.job_forecast import DegradedOption
from jupyter_sky.workflows.bags.decisions.outlook import FleetView, on_demand_option, view_fleet
from jupyter_sky.workflows.bags.fleet.fleet import fleet_options
from jupyter_sky.workflows.bags.fleet.node import Call, run_jobs
from jupyter_sky.workflows.bags.queue.application import (
    App,
    BagSettings,
    FunctionApp,
    JobOutcome,
    OpenJob,
)

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.pools.pool import Pool
    from jupyter_sky.execution.sessions.session import Session

MESSAGE_SECONDS = 1.0
"""Time after which a machine begins no further job of a message."""
SPENDING_SECONDS = 1.0
"""Age of the cost that is taken for the present one."""
_END_SECONDS = 120.0


class PoolFleet:
    """Pool of the machines of one bag.

    Machines that are rented are clusters of their own: the loss of one takes no work of another.

    Parameters
    ----------
    session
        Whose clusters they are; they are named after the bag.
    name
        Of the bag.
    settings
        What was asked of it.
    around
        ``image`` and ``plugins`` of its machines.
    known
        Clusters that the bag has had: those that are still up are used again or ended.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        settings: BagSettings,
        around: Mapping[str, Any],
        known: Sequence[str] = (),
    ) -> None:
        self._session, self._settings, self._around = session, settings, around
        self._cluster = f"bag-{name}"
        self._names = dict.fromkeys(known)
        self._pool: Pool | None = None
        self._error: SkyError | None = None
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._nodes: dict[int, tuple[str, float]] = {}
        self._spending, self._spending_at = (0.0, 0.0), 0.0
        self._told: dict[tuple[str, float], str] = {}
        self._size, self._is_local = 0, False
        self._launcher: ClusterLauncher | None = None
        self._news: list[str] = []
        self._runner: Callable[..., list[JobOutcome]] | None = None

    # -- begin and end -------------------------------------------------------------------------

    def begin(self, jobs: int) -> None:
        """Launch machines for so many jobs, in a thread; where they are up, let them be more."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._launch, args=(jobs,), name=f"sky-{self._cluster}", daemon=True
            )
            self._thread.start()
        elif self._pool is not None:
            self.grow(jobs if self._settings.machines is None else self._settings.machines)

    def _launch(self, jobs: int) -> None:
        try:
            self._pool = self._bring_up(jobs)
        except SkyError as error:
            self._error = error
        except Exception as error:  # of the image, of plug-ins
            self._error = SkyError(f"{type(error).__name__}: {error}")

    def _bring_up(self, jobs: int) -> Pool:
        options = fleet_options(self._settings)
        resources = options.resources
        self._is_local = is_local = _is_local(resources)
        count = self._count_machines(jobs, is_local)
        self._size = count
        compute = self._describe_machines(is_local)
        resources = replace(resources, nodes=count)
        launcher = ClusterLauncher(
            self._session.clusters,
            resources,
            None,
            is_standalone=not is_local,
            burst=options.burst,
        )
        launcher.check_wanted = self._check_wanted
        self._end_others()
        if is_local:
            return compute.use_clusters(launcher.obtain(self._cluster, count), launcher)
        # work begins on the first machine that is up; the others join
        self._launcher = launcher
        try:
            clusters = launcher.obtain(self._cluster, 1)
        except (SkyNoCapacity, SkyNoOffer) as error:
            if self._settings.deadline is None or not resources.spot:
                raise
            self._take_on_demand(
                _("machines on demand are taken, since no others can be had: {error}").format(
                    error=error.message
                )
            )
            clusters = launcher.obtain(self._cluster, 1)
        nodes = Nodes(min=1, desired=count) if count > 1 else None
        return compute.use_clusters(clusters, launcher, nodes)

    def _describe_machines(self, is_local: bool) -> Compute:
        worker = Worker(self._settings.per_machine)
        if self._settings.per_machine > 1:
            worker = replace(worker, executor="process")
        compute = Compute(
            worker=worker,
            options=Options(cluster=is_local, console=False),
            image=self._around.get("image"),
            plugins=self._around.get("plugins") or (),
        )
        compute.check()
        return compute

    def _count_machines(self, jobs: int, is_local: bool) -> int:
        most = max(1, math.ceil(jobs / self._settings.per_machine))
        if self._settings.machines is not None:
            return min(self._settings.machines, most)
        first = math.ceil(FIRST_GROUPS / self._settings.per_machine)
        return min(os.cpu_count() or 1 if is_local else first, most)

    def _take_on_demand(self, why: str) -> None:
        """Launch machines on demand from now on."""
        assert self._launcher is not None
        self._launcher.resources = replace(self._launcher.resources, spot=False)
        self._news.append(why)

    def _check_wanted(self) -> None:
        if self._stopped.is_set():
            raise SkyCancelled(_("the bag has ended meanwhile"))

    def _end_others(self) -> None:
        """End clusters of a controller that was killed, other than the one that is used again."""
        for name in self._names:
            row = self._session.store.cluster(name)
            if name != self._cluster and row is not None and row.state in ("up", "starting"):
                with suppress(SkyError):
                    self._session.clusters.terminate(name)

    def view(self, now: float) -> FleetView:
        """Return the machines that are up, at a unix time."""
        rows = [each.row for each in self._clusters()]
        found = view_fleet(rows, self._settings.per_machine, now)
        scaler = None if self._pool is None else self._pool.scaler
        is_refused = scaler is not None and scaler.last_error is not None
        return replace(found, most=len(found.ages)) if is_refused else found

    def alternatives(self) -> tuple[DegradedOption, ...]:
        """Return the same machines on demand, where these are spot machines."""
        launcher = self._launcher
        if launcher is None or self._is_local:
            return ()
        return on_demand_option(launcher.resources, per_machine=self._settings.per_machine)

    def exchange(self, age: float) -> None:
        """Let machines that have lived for so many hours end between jobs; others replace them.

        The first one stays: its controller serves the pool.
        """
        pool = self._pool
        if pool is None or pool.closed or pool.scaler is None or age == math.inf:
            return
        now = time.time()
        old = [each for each in pool.clusters if now - each.row.created > age * 3600]
        old = [each for each in old if each is not pool.cluster]
        if old:
            pool.scaler.exchange(old)

    def grow(self, slots: int, kind: MachineKind | None = None) -> None:
        """Launch machines, so that so many jobs run at a time; return at once.

        There is but one this machine: its nodes are as many from the begin.
        """
        if kind is not None and any(kind.name == each.kind.name for each in self.alternatives()):
            self._take_on_demand(_("machines on demand are added, to keep the deadline"))
        pool, wanted = self._pool, math.ceil(slots / self._settings.per_machine)
        if pool is None or pool.closed or wanted <= self._size or self._is_local:
            return
        self._size = wanted
        with suppress(SkyError):  # it goes on with those that it has
            pool.resize(Nodes(min=1, desired=wanted))

    def give_back(self, jobs: int) -> None:
        """End machines that so few jobs do not need, once these are idle."""
        pool, wanted = self._pool, max(1, math.ceil(jobs / self._settings.per_machine))
        if pool is None or pool.closed or wanted >= self._size:
            return
        wanted = max(wanted, pool.cluster.row.nodes)
        if wanted < self._size:
            self._size = wanted
            with suppress(SkyError):
                pool.resize(Nodes(min=1, desired=wanted) if wanted > 1 else 1)

    def end(self) -> None:
        """End all machines, also those that are being launched."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_END_SECONDS)
        if self._pool is not None:
            self._pool.down()

    # -- jobs ----------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """Jobs that run at a time on the machines that are up; 0 while they are launched."""
        return 0 if self._pool is None or self._pool.closed else self._pool.concurrency

    @property
    def error(self) -> SkyError | None:
        """Why no machine can be had; None while one can."""
        pool = self._pool
        if self._error is None and pool is not None and pool.closed:
            return SkyClusterLost(
                _("pool {name} {closed}").format(name=pool.name, closed=pool.closed)
            )
        return self._error

    def submit(
        self, app: App, jobs: Sequence[OpenJob], timeout: float | None
    ) -> Future[list[JobOutcome]]:
        """Send jobs to one machine."""
        assert self._pool is not None
        # a loss is told, and decided on by the controller, but where saves go on elsewhere
        retry = Retry(recover=True) if self._settings.recover else Retry(losses=1)
        if self._runner is None:
            self._runner = _make_runner(app)
        calls = [(job.number, job.attempts, job.parameters) for job in jobs]
        return self._pool.submit(Function(self._runner, timeout, retry)(calls, MESSAGE_SECONDS))

    def describe(self, rank: int) -> tuple[str, float]:
        """Return the place of a node, and the price of one of its slots (USD/h)."""
        if rank not in self._nodes and self._pool is not None:
            self._nodes = {
                node.rank: (describe_place(replace(each.row, nodes=1)), self._slot_price(each.row))
                for each in self._pool.clusters
                for node in self._pool.members.nodes_of(each)
            }
        return self._nodes.get(rank, ("", 0.0))

    def _slot_price(self, row: Any) -> float:
        return (row.price or 0.0) / row.nodes / self._settings.per_machine

    # -- money ---------------------------------------------------------------------------------

    def spending(self) -> tuple[float, float]:
        """Return the cost up to now (USD) and the price now (USD/h)."""
        now = time.monotonic()
        if now - self._spending_at > SPENDING_SECONDS:
            self._spending_at = now
            price = sum(each.row.price or 0.0 for each in self._clusters())
            usd = sum(self._session.ledger.cluster_usd(name) or 0.0 for name in self._names)
            self._spending = usd, price
        return self._spending

    def clusters(self) -> list[str]:
        """Return the names of the clusters that are up."""
        names = [each.row.name for each in self._clusters()]
        self._names |= dict.fromkeys(names)
        return names

    def _clusters(self) -> list[Any]:
        return [] if self._pool is None else self._pool.clusters

    def take_events(self) -> list[str]:
        """Return what has happened to machines since it was asked last."""
        # a machine in place of a lost one may have its cluster's name
        there = {
            (each.row.name, each.row.created): describe_place(each.row) for each in self._clusters()
        }
        came = [
            _("{name} is up: {place}").format(name=key[0], place=place)
            for key, place in there.items()
            if key not in self._told
        ]
        left = [
            _("{name} is gone: {place}").format(name=key[0], place=place)
            for key, place in self._told.items()
            if key not in there
        ]
        if came or left:
            self._nodes = {}
        self._told = there
        news, self._news = self._news, []
        return [*news, *came, *left]


def _make_runner(app: App) -> Callable[..., list[JobOutcome]]:
    """Return the function that machines call; the modules of the app travel with it as its own."""

    def run(calls: Sequence[Call], seconds: float) -> list[JobOutcome]:
        return run_jobs(app, calls, seconds)

    if isinstance(app, FunctionApp):
        run.__module__ = getattr(app.function, "__module__", run.__module__)
    return run


def _is_local(resources: Resources) -> bool:
    """Return whether a request is met by this machine."""
    offer = decide_placement(replace(resources, nodes=1)).offer
    return offer is not None and offer.cloud == LOCAL
