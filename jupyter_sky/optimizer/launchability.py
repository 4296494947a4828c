"""The demand that a plan uses only what can be launched from here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..clouds.launch_support import DEDICATED_HOST, PROVIDERS, TPU, launch_obstacle
from .constraints import _OfferDemand
from .market import Market, OfferPool
from .solver.problem import Flags


@dataclass(frozen=True)
class Launchable(_OfferDemand):
    """Only offers that can be launched from here; see `clouds.launch_support.launch_obstacle`."""

    @property
    def name(self) -> str:
        """Name, such as ``only what can be launched from here``."""
        return f"only what can be launched from here{self._for()}"

    def allowed(self, market: Market, pool: OfferPool) -> Flags:
        """Return offers that can be launched, by columns: a pool holds 100,000 and more."""
        table = market.catalog.offers
        clouds = [code for code, word in enumerate(table.categories("cloud")) if word in PROVIDERS]
        slices = _prefixed(table.categories("accelerator"), TPU)
        allowed = pool.service < 0
        listed = np.flatnonzero(pool.row >= 0)
        rows = pool.row[listed]
        sold = np.isin(table.values("cloud")[rows], clouds)
        sold &= ~np.isin(table.values("accelerator")[rows], slices)
        for cloud, prefix in DEDICATED_HOST.items():
            hosts = np.isin(
                table.values("instance_type")[rows],
                _prefixed(table.categories("instance_type"), prefix),
            )
            sold &= ~(hosts & (table.values("cloud")[rows] == table.code("cloud", cloud)))
        allowed[listed] &= sold
        for index in np.flatnonzero(pool.row < 0).tolist():
            allowed[index] &= not launch_obstacle(market.own[-1 - int(pool.row[index])])
        return allowed


def _prefixed(words: list[str], prefix: str) -> list[int]:
    return [code for code, word in enumerate(words) if word.startswith(prefix)]
