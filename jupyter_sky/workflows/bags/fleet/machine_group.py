"""Groups of machines of a bag, each of which runs one job at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import (
    SkyCancelled,
    SkyClusterLost,
    SkyError,
)
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _
from jupyter_sky.execution.clusters.cluster_records import describe_place
from jupyter_sky.execution.functions.calls.lazy_calls import Function
from jupyter_sky.execution.functions.calls.retry import Retry
from jupyter_sky.execution.functions.images.specs import Options, Worker
from jupyter_sky.execution.functions.pools.compute import Compute
from jupyter_sky.execution.functions.pools.launch import ClusterLauncher
from jupyter_sky.workflows.bags.fleet.node import (
    CommandWorld,
    GangFailed,
    make_gang_runner,
)
from jupyter_sky.workflows.bags.queue.application import (
    App,
    JobOutcome,
    OpenJob,
)

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import ClusterRow
    from jupyter_sky.execution.functions.pools.pool import Pool
    from jupyter_sky.execution.sessions.session import Session

MESSAGE_SECONDS = 1.0
"""Time after which a machine begins no further job of a message."""
STOP_SECONDS = 5.0
"""Time for a job's nodes to stop once one has failed; then their engines are restarted."""
LOSSES = 1_000_000
"""Losses of machines after which a job is given up: none, as they are not its fault."""


class MachineGroup:
    """Group of machines, launched in a thread.

    Parameters
    ----------
    number
        Unique among the groups of a bag.
    name
        Of its cluster.
    resources
        Of each machine, and their number.
    around
        ``image`` and ``plugins`` of the machines.
    kind
        Kind of the application: commands are ranks of one MPI world.

    Attributes
    ----------
    error : SkyError or None
        Why it could not be launched.
    messages : int
        Messages that it has not answered.
    is_leaving : bool
        Whether it gets no further message.
    """

    def __init__(
        self,
        session: Session,
        number: int,
        name: str,
        resources: Resources,
        around: Mapping[str, Any],
        kind: str,
    ) -> None:
        self.number, self.name, self.resources = number, name, resources
        self.error: SkyError | None = None
        self.messages, self.is_leaving = 0, False
        self.pool: Pool | None = None
        self._session, self._around, self._kind = session, around, kind
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._runner: Callable[..., list[JobOutcome]] | None = None
        self._sender = ThreadPoolExecutor(1, thread_name_prefix=f"sky-{name}")
        self._thread = threading.Thread(target=self._launch, name=f"sky-{name}", daemon=True)
        self._thread.start()

    # -- begin and end -------------------------------------------------------------------------

    def _launch(self) -> None:
        try:
            self.pool = self._bring_up()
        except SkyError as error:
            self.error = error
        except Exception as error:  # of the image, of plug-ins
            self.error = SkyError(f"{type(error).__name__}: {error}")

    def _bring_up(self) -> Pool:
        plugins = tuple(self._around.get("plugins") or ())
        if self.resources.nodes > 1 and self._kind == "command":
            plugins = (*plugins, CommandWorld())
        compute = Compute(
            worker=Worker(1),
            options=Options(console=False, cancel_grace=STOP_SECONDS),
            image=self._around.get("image"),
            plugins=plugins,
        )
        compute.check()
        launcher = ClusterLauncher(self._session.clusters, self.resources, None)
        launcher.check_wanted = self._check_wanted
        clusters = launcher.obtain(self.name, self.resources.nodes)
        return compute.use_clusters(clusters, launcher)

    def _check_wanted(self) -> None:
        if self._stopped.is_set():
            raise SkyCancelled(_("the bag has ended meanwhile"))

    def end(self) -> None:
        """End the machines, also those that are being launched; return at once."""
        self.is_leaving = True
        self._stopped.set()
        threading.Thread(target=self._end, name=f"sky-end-{self.name}", daemon=True).start()

    def _end(self) -> None:
        self._thread.join()
        if self.pool is not None:
            with suppress(SkyError):
                self.pool.down()
        self._sender.shutdown(wait=False, cancel_futures=True)
        self._stopped.set()

    def await_end(self, seconds: float) -> None:
        """Wait until `end` has ended the machines, so many seconds at most."""
        until = time.monotonic() + seconds
        self._thread.join(seconds)
        while self.pool is not None and self.row is not None and time.monotonic() < until:
            if self.row.state != "up":
                return
            time.sleep(0.05)

    # -- state ---------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether it takes jobs."""
        return self.pool is not None and not self.pool.closed and not self.is_leaving

    @property
    def is_gone(self) -> bool:
        """Whether it could not be launched, or was lost for good."""
        return self.error is not None or (self.pool is not None and bool(self.pool.closed))

    @property
    def row(self) -> ClusterRow | None:
        """Record of its cluster; None while there is none."""
        if self.pool is None:
            return None
        return self._session.store.cluster(self.pool.cluster.row.name)

    @property
    def rows(self) -> list[ClusterRow]:
        """Records of its clusters that are up: machines in place of lost ones have their own."""
        return [] if self.pool is None else [each.row for each in self.pool.clusters]

    @property
    def usd_h(self) -> float:
        """Price of all its machines, USD/h."""
        return sum(row.price or 0.0 for row in self.rows)

    @property
    def place(self) -> str:
        """Number, kind and place of its machines; empty while they are launched."""
        return describe_place(self.rows[0]) if self.rows else ""

    # -- jobs ----------------------------------------------------------------------------------

    def submit(
        self, app: App, jobs: Sequence[OpenJob], timeout: float | None, recover: bool
    ) -> Future[list[JobOutcome]]:
        """Send jobs to all machines; the outcomes are those of the first one."""
        if self._runner is None:
            self._runner = make_gang_runner(app)
        is_together = self.resources.nodes > 1
        # nodes must agree on the jobs that they begin: one at a time
        calls = [(job.number, job.attempts, job.parameters) for job in jobs]
        calls, seconds = (calls[:1], 0.0) if is_together else (calls, MESSAGE_SECONDS)
        losses = LOSSES if is_together or recover else 1
        retry = Retry(losses=losses, recover=recover)
        call = Function(self._runner, timeout, retry)(calls, seconds)
        with self._lock:
            self.messages += 1
        future = self._sender.submit(self._run, call)
        future.add_done_callback(self._note_done)
        return future

    def _run(self, call: Any) -> list[JobOutcome]:
        pool = self.pool
        assert pool is not None
        if pool.closed:
            raise SkyClusterLost(
                _("pool {name} {closed}").format(name=pool.name, closed=pool.closed)
            )
        try:
            outcomes = pool.broadcast(call)[0]
        except GangFailed as failed:
            outcomes = [failed.outcome]
        return [replace(each, rank=self.number) for each in outcomes]

    def _note_done(self, _future: Future[list[JobOutcome]]) -> None:
        with self._lock:
            self.messages -= 1
