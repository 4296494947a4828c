"""The demand that a plan uses only what can be launched from here."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.clouds.launches.launch_support import (
    is_rented,
    is_service_launchable,
    launch_obstacle,
)
from jupyter_sky.decisions.optimizer.constraints import _OfferDemand
from jupyter_sky.decisions.optimizer.market import Market, OfferPool
from jupyter_sky.decisions.optimizer.solver.problem import Flags, Ints

if TYPE_CHECKING:
    from jupyter_sky.knowledge.catalog.tables import CatalogTables


@dataclass(frozen=True)
class Launchable(_OfferDemand):
    """Only offers that can be launched from here; see `clouds.launch_support.launch_obstacle`.

    Attributes
    ----------
    are_bought : bool
        Whether they are for a launch, not for a look at what an account would be good for.
    """

    are_bought: bool = True

    @property
    def name(self) -> str:
        """Name, such as ``only what can be launched from here``."""
        return f"only what can be launched from here{self._for()}"

    def allowed(self, market: Market, pool: OfferPool) -> Flags:
        """Return offers that can be launched, by columns: a pool holds 100,000 and more.

        Of clouds that are asked for their stock just before, only the answer counts.
        """
        launched = [is_service_launchable(one.name, one.version) for one in pool.services]
        allowed = np.array([True, *launched])[pool.service + 1]
        listed = np.flatnonzero(pool.row >= 0)
        allowed[listed] &= launchable_rows(
            market.catalog, pool.row[listed], are_bought=self.are_bought
        )
        for index in np.flatnonzero(pool.row < 0).tolist():
            allowed[index] &= not launch_obstacle(market.own[-1 - int(pool.row[index])])
        return allowed


def launchable_rows(
    catalog: CatalogTables,
    rows: Ints,
    names: Collection[str] | None = None,
    are_bought: bool = False,
) -> Flags:
    """Return which rows of the catalog's offers can be launched from here.

    Parameters
    ----------
    names : collection of str, optional
        Clouds that count; all that rent machines unless given.
    are_bought : bool, optional
        Whether the offers are for a launch, which takes those of some clouds from their API alone.
    """
    table = catalog.offers
    words = dict(enumerate(table.categories("cloud")))
    clouds = {
        code: find_facts(word)
        for code, word in words.items()
        if is_rented(word)
        and (names is None or word in names)
        and not (are_bought and find_facts(word).has_live_offers)
    }
    sold = np.isin(table.values("cloud")[rows], list(clouds))
    for code, facts in clouds.items():
        if prefix := facts.dedicated_host_prefix:
            hosts = _prefixed(table.categories("instance_type"), prefix)
            mine = table.values("cloud")[rows] == code
            sold &= ~(mine & np.isin(table.values("instance_type")[rows], hosts))
    return sold


def _prefixed(words: list[str], prefix: str) -> list[int]:
    return [code for code, word in enumerate(words) if word.startswith(prefix)]
