"""Autoscaler of pools: nodes are added and removed with the load.

Nodes that join are clusters of their own, beside the first; that one, with the controller, stays.
Each joins when it is up: none waits for another.
"""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyCancelled, SkyError, SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.images.specs import Nodes, Options
from jupyter_sky.execution.functions.pools.node_launches import NodeLaunches
from jupyter_sky.machines.provisioner.broker import LOST_STAGE

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.execution.functions.pools.launch import ClusterLauncher
    from jupyter_sky.execution.functions.pools.pool import Pool

TICK_SECONDS = 0.25
RETRY_SECONDS = 30.0
"""Delay of the next request after nodes could not be had."""
JOIN_SECONDS = 30.0
"""Most seconds for which the end of a pool waits for the autoscaler."""


def nodes_to_add(nodes: int, slots: int, waiting: int, most: int) -> int:
    """Return the number of nodes to add for calls that have waited too long.

    Examples
    --------
    >>> nodes_to_add(nodes=2, slots=1, waiting=3, most=8)
    3
    >>> nodes_to_add(2, 1, 30, 8), nodes_to_add(2, 4, 3, 8)
    (6, 1)
    """
    return max(0, min(most - nodes, math.ceil(waiting / slots)))


class Autoscaler:
    """Adjusts the number of nodes of a pool to its load.

    Parameters
    ----------
    prepare
        Makes nodes ready, before calls go there.
    launches
        Nodes that are being launched since before the pool began, if any.
    """

    def __init__(
        self,
        pool: Pool,
        nodes: Nodes,
        launcher: ClusterLauncher,
        options: Options,
        prepare: Callable[[Pool, Sequence[int]], None],
        launches: NodeLaunches | None = None,
    ) -> None:
        self.pool, self.nodes, self._launcher = pool, nodes, launcher
        self.options, self._prepare = options, prepare
        self._launches = launches or NodeLaunches(launcher)
        self.last_error: SkyError | None = None
        """Error of the last failed request for nodes; None if there was none."""
        self._joined: list[ClusterHandle] = []
        self._draining: list[ClusterHandle] = []
        self._exchanged: list[ClusterHandle] = []
        self._idle_since: dict[str, float] = {}
        self._busy_since: float | None = None
        self._retry_at = 0.0
        self._failed_attempts = 0
        self._stopped, self._lock = threading.Event(), threading.Lock()
        self._serial = 1 if launches is None else nodes.initial
        self._thread = threading.Thread(target=self._run, name="sky-autoscaler", daemon=True)

    def begin(self) -> None:
        """Start a thread that scales the pool until it ends."""
        if self._thread.is_alive():
            return
        self.pool.defer(self._stop)
        self._launcher.check_wanted = self._check
        self._launches.hand_over(self._join, self._record_failure)
        self._thread.start()

    def adopt(self, clusters: Sequence[ClusterHandle]) -> None:
        """Let clusters that have been there from the start leave when there are too many nodes."""
        self._joined += clusters
        self._serial = max(self._serial, 1 + len(clusters))

    def resize(self, nodes: Nodes) -> None:
        """Change the numbers of nodes, and wait for those with which work can begin.

        Nodes that are too many leave once they have no calls.

        Raises
        ------
        SkyError
            More nodes cannot be had; the pool goes on with what it has.
        """
        before, first = self.nodes, self.pool.cluster.row.nodes
        if nodes.initial < first:
            raise SkyUsageError(
                _(
                    "pool {name} has {first} nodes in its first cluster, which has its "
                    "controller and stays: it cannot have {initial}"
                ).format(name=self.pool.name, first=first, initial=nodes.initial),
                hint=_("begin smaller: sky.Compute(nodes=({initial}, {first}))").format(
                    initial=nodes.initial, first=first
                ),
            )
        self.last_error, self._retry_at, self._failed_attempts = None, 0.0, 0
        self.nodes = nodes
        self.begin()
        while len(self.pool.ranks) < nodes.ready:
            if self.pool.closed:
                raise SkyCancelled(
                    _("pool {name} {closed}").format(name=self.pool.name, closed=self.pool.closed)
                )
            if self.last_error is not None:
                self.nodes = before
                raise self.last_error
            time.sleep(TICK_SECONDS / 5)

    def replace(self, old: ClusterHandle, new: ClusterHandle) -> None:
        """Take a cluster for another, whose nodes it has replaced."""
        with self._lock:
            self._joined = [new if cluster is old else cluster for cluster in self._joined]

    def exchange(self, clusters: Sequence[ClusterHandle]) -> None:
        """Let clusters that have joined end once they have no calls; others take their place."""
        self._exchanged += clusters
        self.begin()

    def _stop(self) -> None:
        self._stopped.set()
        self._thread.join(JOIN_SECONDS)
        self._launches.abandon()

    def _check(self) -> None:
        if self._stopped.is_set():
            raise SkyCancelled(_("the pool has ended meanwhile"))

    def _run(self) -> None:
        self._add_nodes(self._missing())
        while not self._stopped.wait(TICK_SECONDS):
            now = time.monotonic()
            self.pool.check_nodes()
            if self.pool.closed:
                return
            self._drain_exchanged()
            self._end_drained()
            if self._missing() > 0:
                if now > self._retry_at:
                    self._add_nodes(self._missing())
            elif len(self.pool.ranks) < self.nodes.initial:
                continue  # they are being launched
            elif len(self.pool.ranks) > self.nodes.limit:
                self._drain()
            elif self.nodes.limit > self.nodes.initial:
                self._scale(now)

    def _missing(self) -> int:
        """Return the number of nodes to launch for the pool to have as many as it begins with."""
        return self.nodes.initial - len(self.pool.ranks) - self._launches.pending

    def _scale(self, now: float) -> None:
        """Add nodes when calls have waited too long, remove nodes that have been idle too long."""
        waiting = self.pool.waiting
        if not waiting:
            self._busy_since = None
            self._shrink(now)
            return
        self._idle_since.clear()
        self._busy_since = self._busy_since or now
        if now - self._busy_since > self.options.scale_up_after and now > self._retry_at:
            self._add_nodes(self._wanted(waiting))
            self._busy_since = None

    def _wanted(self, waiting: int) -> int:
        """Return the number of nodes to launch for calls that wait, beside those on their way."""
        pending, slots = self._launches.pending, self.pool.worker.concurrency
        if pending and self._launcher.resources.max_hourly_cost is not None:
            return 0  # what they will cost is not known yet
        most = self.nodes.limit - pending
        return nodes_to_add(len(self.pool.ranks), slots, waiting - pending * slots, most)

    def _add_nodes(self, count: int) -> None:
        if count < 1:
            return
        count = self._launcher.affordable(count)
        first, self._serial = self._serial + 1, self._serial + count
        self._launches.begin([f"{self.pool.name}-{n}" for n in range(first, first + count)])

    def _join(self, cluster: ClusterHandle) -> None:
        """Let a cluster that has come up join the pool."""
        try:
            self._check()
            self.pool.members.join(cluster, lambda ranks: self._prepare(self.pool, ranks))
        except BaseException as error:
            self._launcher.end(cluster)  # it costs, and is of no use
            if isinstance(error, SkyError) and not isinstance(error, SkyCancelled):
                error.machines_came_up = True
            raise
        with self._lock:
            self._joined.append(cluster)
            self._failed_attempts, self.last_error = 0, None

    def _record_failure(self, error: BaseException) -> None:
        """Delay the next request for nodes, or give up: nodes that came up have cost money."""
        if isinstance(error, SkyCancelled) or self._stopped.is_set():
            return
        if not isinstance(error, SkyError):
            raise error  # of ours: threads show it
        with self._lock:
            self.last_error, self._retry_at = error, time.monotonic() + RETRY_SECONDS
            self._failed_attempts += error.machines_came_up
            if self._failed_attempts < LOST_STAGE:
                return
            self._retry_at = math.inf
            if self._failed_attempts > LOST_STAGE:
                return  # said already
        warnings.warn(
            _(
                "pool {name} stays at {ranks_count} nodes: {lost_stage} times others "
                "came up and were of no use ({message})"
            ).format(
                name=self.pool.name,
                ranks_count=len(self.pool.ranks),
                lost_stage=LOST_STAGE,
                message=error.message.splitlines()[0],
            ),
            stacklevel=2,
        )

    def _drain(self) -> None:
        """Send no more calls to nodes that are too many, the last ones to join first.

        Nodes that have joined together leave together.
        """
        with self._lock:
            for cluster in reversed(list(self._joined)):
                if len(self.pool.ranks) - cluster.row.nodes >= self.nodes.initial:
                    self.pool.members.drain(cluster)
                    self._joined.remove(cluster)
                    self._draining.append(cluster)

    def _drain_exchanged(self) -> None:
        with self._lock:
            wanted, self._exchanged = self._exchanged, []
            for cluster in [each for each in self._joined if each in wanted]:
                self.pool.members.drain(cluster)
                self._joined.remove(cluster)
                self._draining.append(cluster)

    def _end_drained(self) -> None:
        """End clusters that have no calls any more."""
        for cluster in [each for each in self._draining if not self.pool.members.is_busy(each)]:
            self._draining.remove(cluster)
            self.pool.members.leave(cluster)
            self._launcher.end(cluster)

    def _shrink(self, now: float) -> None:
        with self._lock:
            self._joined = [cluster for cluster in self._joined if cluster in self.pool.clusters]
            joined = list(self._joined)
        for cluster in joined:
            count = len(self.pool.ranks)
            name = cluster.row.name
            if count - cluster.row.nodes < self.nodes.initial or self.pool.members.is_busy(cluster):
                self._idle_since.pop(name, None)
                continue
            if now - self._idle_since.setdefault(name, now) > self.options.scale_down_after:
                self.pool.members.leave(cluster)
                with self._lock:
                    self._joined.remove(cluster)
                self._launcher.end(cluster)
