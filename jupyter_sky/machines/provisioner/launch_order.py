"""Order of offers by what stands in the way of their launch, before the price."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np

from jupyter_sky import clouds
from jupyter_sky.decisions.optimizer.launchability import launchable_rows

if TYPE_CHECKING:
    from jupyter_sky.knowledge.catalog import Selection

LaunchTier = Literal["now", "account", "never"]
"""Whether an offer can be launched now, after its cloud has got an account, or not from here."""


def split_by_launchability(found: Selection) -> Iterator[tuple[LaunchTier, Selection]]:
    """Yield the offers of each tier that has any, the best tier first.

    Parameters
    ----------
    found : Selection
        Offers of the catalog.
    """
    if not len(found):
        return
    names = set(found.catalog.offers.categories("cloud"))
    ready = {name for name in names if clouds.is_ready(name)}
    bare = np.ones(len(found), bool)
    if found.service is not None:
        launched = [clouds.is_service_launchable(one.name, one.version) for one in found.services]
        bare = np.array(launched, bool)[found.service]
    sold = bare & launchable_rows(found.catalog, found.rows)
    now = sold & launchable_rows(found.catalog, found.rows, ready)
    tiers: tuple[tuple[LaunchTier, np.ndarray], ...] = (
        ("now", now),
        ("account", sold & ~now),
        ("never", ~sold),
    )
    for tier, mask in tiers:
        if mask.any():
            yield tier, found.where(mask)
