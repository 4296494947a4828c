"""Launches of single nodes side by side: each counts when it is up, and no other waits for it.

A pool that may begin with fewer nodes than it asks for (`Nodes`) launches all at once, each as a
cluster of its own. The first to be accepted by a cloud decides on the region of the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyCancelled, SkyError, SkyNoCapacity, SkyNoOffer
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.execution.functions.images.specs import Nodes
    from jupyter_sky.execution.functions.pools.launch import ClusterLauncher

TICK_SECONDS = 0.1
JOIN_SECONDS = 30.0
REGIONS = 3
"""Regions that are tried, one after the other, while too few of the nodes can be had in each."""


class NodeLaunches:
    """Launches of one pool.

    Parameters
    ----------
    launcher
        Starts the clusters.

    Attributes
    ----------
    pending : int
        Nodes that are being launched, or made ready.
    """

    def __init__(self, launcher: ClusterLauncher) -> None:
        self._launcher = launcher
        self.pending = 0
        self._changed = threading.Condition()
        self._arrived: list[ClusterHandle] = []
        self._failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        self._take: Callable[[ClusterHandle], object] | None = None
        self._fail: Callable[[BaseException], object] = self._failures.append
        self._is_led = False
        self._leader_error: BaseException | None = None
        self._accepted = threading.Event()
        """Set when the place of the others is known, or that there is none."""
        self._stopped = threading.Event()

    def begin(self, names: Sequence[str]) -> None:
        """Launch a node under each name."""
        if self._launcher.is_standalone or self._launcher.clusters or self._launcher.near:
            self._accepted.set()  # the place is known, or is of no importance
        self._start([(name, partial(self._launch, name)) for name in names])

    def _start(self, jobs: Sequence[tuple[str, Callable[[], ClusterHandle]]]) -> None:
        """Run jobs that give a cluster, in a thread each."""
        threads = [
            threading.Thread(target=self._run, args=(job,), name=f"sky-{name}", daemon=True)
            for name, job in jobs
        ]
        with self._changed:
            self._threads = [thread for thread in self._threads if thread.is_alive()] + threads
            self._count(len(threads))
        for thread in threads:
            thread.start()

    def _count(self, more: int) -> None:
        self.pending += more
        self._launcher.launching = self.pending
        self._changed.notify_all()

    def await_first(self, count: int) -> list[ClusterHandle]:
        """Wait until so many nodes are up, and return all that are.

        Raises
        ------
        SkyError
            Too few of them can be had: the reason of the first that cannot. All have ended.
        """
        try:
            with self._changed:
                while len(self._arrived) < count:
                    if len(self._arrived) + self.pending < count:
                        raise self._failures[0]
                    self._changed.wait(TICK_SECONDS)  # so that an interrupt comes through
                first, self._arrived = self._arrived, []
                return first
        except BaseException:
            self.abandon()
            raise

    def hand_over(
        self,
        take: Callable[[ClusterHandle], object],
        fail: Callable[[BaseException], object],
    ) -> None:
        """Call functions with clusters that come up, and with the errors of others, from now on."""
        with self._changed:
            self._take, self._fail = take, fail
            arrived, self._arrived = self._arrived, []
            failures, self._failures = self._failures, []
        for error in failures:
            fail(error)
        # to be made ready side by side, while work begins
        self._start([(cluster.row.name, lambda each=cluster: each) for cluster in arrived])

    def abandon(self) -> None:
        """Give up what is being launched, and end what nobody has taken."""
        self._stopped.set()
        self._accepted.set()
        for thread in self._threads:
            thread.join(JOIN_SECONDS)
        with self._changed:
            arrived, self._arrived = self._arrived, []
        for cluster in arrived:
            self._launcher.end(cluster)

    # -- in a thread for each ----------------------------------------------------------------------

    def _run(self, job: Callable[[], ClusterHandle]) -> None:
        try:
            cluster = job()
            with self._changed:
                take = self._take
                if take is None:
                    self._arrived.append(cluster)
            if take is not None:
                take(cluster)
        except BaseException as error:
            with self._changed:
                fail = self._fail
            fail(error)
        finally:
            with self._changed:
                self._count(-1)

    def _launch(self, name: str) -> ClusterHandle:
        """Launch one node; the first finds the place, the others follow."""
        with self._changed:
            leads, self._is_led = not self._accepted.is_set() and not self._is_led, True
        if leads:
            try:
                cluster = self._launcher(name, 1, lambda stage: self._follow(name, stage))
            except _ElsewhereError:
                pass  # its place has failed, where others are: there, then
            except BaseException as error:
                self._leader_error = error
                self._accepted.set()
                raise
            else:
                self._set_place(Offer(**cluster.row.offer))
                return cluster
        self._accepted.wait()
        if self._launcher.near is None and self._leader_error is not None:
            raise self._leader_error  # what the first cannot have, others cannot
        return self._launcher(name, 1, lambda stage: self._check())

    def _check(self) -> None:
        if self._stopped.is_set():
            raise SkyCancelled(_("the pool has ended meanwhile"))

    def _follow(self, name: str, stage: str) -> None:
        """Note the place of the first node once a cloud has accepted it."""
        self._check()
        if self._launcher.near is not None:
            self._accepted.set()
            if stage == "placing":
                raise _ElsewhereError(_("its place has failed"))
            return
        row = self._launcher.registry.store.cluster(name)
        if row is not None and row.state == "starting" and row.machines:
            self._set_place(Offer(**row.offer))

    def _set_place(self, offer: Offer) -> None:
        if not self._launcher.is_standalone:
            self._launcher.near = offer
        self._accepted.set()


class _ElsewhereError(SkyError):
    """The first node has to be launched anew, near the others."""


def begin_nodes(
    launcher: ClusterLauncher, name: str, nodes: Nodes
) -> tuple[NodeLaunches, list[ClusterHandle]]:
    """Launch all nodes of a pool; return when it may begin, with the clusters that are up.

    Where a region has too few of them, those are given back, and the next region is asked.

    Raises
    ------
    SkyError
        Too few of them can be had.
    """
    names = [name, *(f"{name}-{number}" for number in range(2, nodes.initial + 1))]
    for number in range(1, REGIONS + 1):
        launches = NodeLaunches(launcher)
        launches.begin(names)
        try:
            first = launches.await_first(nodes.ready)
        except (SkyNoCapacity, SkyNoOffer):
            if launcher.near is None or number == REGIONS:
                raise
            launcher.near = None
        else:
            return launches, sorted(first, key=lambda cluster: cluster.row.name != name)
    raise AssertionError
