"""Cost of a transfer between stores: its entry in the ledger, and the limits above which to ask."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyStoreError, SkyUsageError
from jupyter_sky.base.requests.quantities import format_size
from jupyter_sky.base.store.store import Store
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.ledger import budget
from jupyter_sky.knowledge.ledger.ledger import format_usd
from jupyter_sky.knowledge.tracker.transfer_rates import TransferRates
from jupyter_sky.machines.storage.stores.places import Charge, ColdBytes, is_priced, price_transfer
from jupyter_sky.machines.storage.stores.traffic import TransferTraffic

if TYPE_CHECKING:
    from jupyter_sky.knowledge.catalog.catalog import Catalog

BOOKED_SECONDS = 5.0
"""Time between two entries of a transfer that goes on: what a killed process has not booked."""


@dataclass
class TransferAccount:
    """Entry of one transfer in the ledger, which grows while it goes on.

    Parameters
    ----------
    store, notebook
        Ledger, and who pays.
    catalog
        Prices.
    title
        Addresses, for the entry.
    route
        Places from source to target.
    cold
        Bytes in classes that charge for reading.
    listed
        What finding out about the objects has taken before.
    """

    store: Store
    notebook: str
    catalog: Catalog
    title: str
    route: Sequence[str]
    cold: Sequence[ColdBytes] = ()
    listed: TransferTraffic = TransferTraffic()  # noqa: RUF009 - a frozen value
    _id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _begun: float = field(default_factory=time.time)
    _booked: float = 0.0

    def price(self, traffic: TransferTraffic) -> Charge:
        """Return the price of what has passed, with the listing before."""
        return price_transfer(self.catalog, self.route, traffic + self.listed, self.cold)

    def book_now_and_then(self, traffic: TransferTraffic) -> None:
        """Enter what has passed, every few seconds."""
        now = time.monotonic()
        if now - self._booked >= BOOKED_SECONDS:
            self._booked = now
            self.book(traffic)

    def book(self, traffic: TransferTraffic) -> Charge:
        """Enter what has passed, in place of the entry before, and return its price."""
        charge, whole = self.price(traffic), traffic + self.listed
        billed = next(place for place in self.route if is_priced(place))
        what = _("{title}: {moved}, {writes:,} writes, {reads:,} reads").format(
            title=self.title,
            moved=format_size(whole.moved),
            writes=whole.source.writes + whole.target.writes,
            reads=whole.source.reads + whole.target.reads,
        )
        self.store.record_transfer_cost(
            self._id,
            what,
            charge.usd,
            notebook=self.notebook,
            cloud=billed.partition("/")[0],
            at=self._begun,
        )
        return charge


def observe_transfer(
    source: str, target: str, part_size: int, machines: int, nbytes: int, seconds: float
) -> None:
    """Tell the tracker how fast a transfer was; a tracker that cannot be opened is passed over."""
    from jupyter_sky.knowledge import tracker
    from jupyter_sky.knowledge.tracker.transfer_rates import TransferObservation

    seen = (source, target, part_size, machines, nbytes, seconds, time.time())
    with suppress(SkyStoreError):
        tracker.current().record_transfer(TransferObservation(*seen))


def observed_rates() -> TransferRates:
    """Return the rates of earlier transfers; none where the tracker cannot be opened."""
    from jupyter_sky.knowledge import tracker

    try:
        return tracker.current().transfer_rates(time.time())
    except SkyStoreError:
        return TransferRates()


def check_budget(store: Store, usd: float, what: str) -> None:
    """Raise SkyBudget where a transfer would go beyond the budget of the day.

    Parameters
    ----------
    usd
        Its price.
    what
        Beginning of the message, such as the addresses.
    """
    day = budget.assess(store)
    if day.budget.usd is None or day.spent.usd + usd <= day.budget.usd:
        return
    raise budget.budget_error(
        day, _("{what}: {usd} more would be needed").format(what=what, usd=format_usd(usd))
    )


def is_dear(usd: float | None, limit: float) -> bool:
    """Return whether a price is above the limit from which the user is asked."""
    return usd is not None and usd > limit


def dear_error(estimate: object, how: str) -> SkyUsageError:
    """Return the error for a transfer that costs more than the user has agreed to."""
    return SkyUsageError(
        _("{estimate}: that is more than Sky.ask_usd").format(estimate=estimate),
        hint=_("agree to it: {how}").format(how=how),
    )
