"""Watch over a pool's machines on demand, which give way to spot machines; see `spot_return`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.execution.functions.pools.spot_return import (
    TICK_SECONDS,
    OnDemandStay,
    choose_spot,
)

if TYPE_CHECKING:
    from jupyter_sky.base.store.rows import ClusterId
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.execution.functions.pools.launch import ClusterLauncher
    from jupyter_sky.execution.functions.pools.pool import Pool

ALLOCATION = "spot-if-available"


class SpotWatch:
    """Watch over one pool.

    Parameters
    ----------
    move
        Asks for spot machines, of an offer, in place of those of a cluster; returns whether they
        could be had.
    """

    def __init__(
        self, pool: Pool, launcher: ClusterLauncher, move: Callable[[ClusterHandle, Offer], bool]
    ) -> None:
        self._pool, self._launcher, self._move = pool, launcher, move
        self._stays: dict[ClusterId, OnDemandStay] = {}
        self._stopped = threading.Event()

    def begin(self) -> None:
        """Watch from now on, in a thread, if the pool is to be on spot machines."""
        if self._launcher.allocation == ALLOCATION:
            threading.Thread(target=self._run, name="sky-spot", daemon=True).start()

    def stop(self) -> None:
        """Watch no more."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(TICK_SECONDS):
            if self._pool.closed:
                return
            for cluster in self._pool.clusters:
                with suppress(SkyError):  # of the store or the catalog: next time, then
                    self.look(cluster, time.time())

    def look(self, cluster: ClusterHandle, now: float) -> None:
        """Move a cluster to spot machines if it is time, and they can be had.

        Parameters
        ----------
        now
            Unix seconds.
        """
        offer = Offer(**cluster.row.offer)
        if offer.spot or find_facts(offer.cloud).on_premises:
            return
        stay = self._stays.setdefault(cluster.row.id, OnDemandStay(cluster.row.created))
        if not stay.is_due(now) or self._is_bound(cluster):
            return
        from jupyter_sky.knowledge import tracker

        observed = tracker.current().observations()
        target = choose_spot(self._launcher.spot_offers(offer), observed, offer.price or 0.0, now)
        if target is not None and not self._move(cluster, target):
            self._stays[cluster.row.id] = stay.refused(now)

    def _is_bound(self, cluster: ClusterHandle) -> bool:
        """Return whether what a cluster has or runs would be lost: it is in no checkpoint."""
        if self._pool.named_uses() or self._has_variables(cluster):
            return True
        return any(not task.is_saved for task in self._pool.members.calls_of(cluster))

    @staticmethod
    def _has_variables(cluster: ClusterHandle) -> bool:
        """Return whether cells have run there."""
        row = cluster.row
        return bool(cluster.store.runs(cluster=row.name, since=row.created, limit=1))
