"""Market of a plan, as the catalog and the tracker know it now."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyStoreError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.decisions.optimizer.market import Market
from jupyter_sky.decisions.optimizer.service_requests import check_service
from jupyter_sky.knowledge.lifetimes.priors import Beliefs

if TYPE_CHECKING:
    from jupyter_sky.knowledge.catalog import Catalog
    from jupyter_sky.knowledge.tracker.quotas import QuotaTable


def build_market(
    catalog: Catalog | None,
    offers: Sequence[Offer] | None,
    beside: Sequence[Offer],
    tracked: bool,
    needs: Sequence[Resources],
) -> tuple[Market, tuple]:
    """Return what can be had, and which places are blocked."""
    from jupyter_sky.knowledge import catalog as rooms
    from jupyter_sky.knowledge.catalog.managed_services import serverless_offers

    shelf = rooms.load() if catalog is None else catalog
    known, beliefs, prices, rates = None, None, {}, None
    if tracked:
        from jupyter_sky.knowledge import tracker

        with suppress(SkyStoreError):  # what is remembered helps; it is not needed
            now = time.time()
            seen = tracker.current()
            known, prices = tracker.knowledge(now), seen.prices(now)
            rates = seen.transfer_rates(now)
            beliefs = Beliefs.of(seen.observations(), now, shelf.interruption)
    for need in needs:
        check_service(need, shelf)
    serverless = [offer for need in needs for offer in serverless_offers(shelf, need)]
    own = (*(offers or ()), *dict.fromkeys(serverless), *beside)
    market = Market(shelf, own, offers is None, known, beliefs, prices, rates)
    return market, tuple(block.scope for block in known.blocks) if known else ()


def read_quotas() -> QuotaTable:
    """Return the quotas of this user's accounts that were read lately."""
    from jupyter_sky.base.settings import paths
    from jupyter_sky.knowledge.tracker import account_quotas

    return account_quotas.read_quotas(paths.data_dir(), time.time()).table
