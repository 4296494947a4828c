"""Return of a pool from machines on demand to spot machines, once they can be had again.

With ``spot-if-available``, machines on demand stand in where spot machines were refused. A way back
costs a launch and the time to make a node ready, so there is hysteresis in time and in price: a
machine on demand is kept for a while, a place counts only if none was refused or taken away there
lately, a refusal doubles the wait for the next request, and the spot machine must cost clearly
less, with what its losses cost. Calls that run stay where they are until they end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from jupyter_sky.base.requests.offers import Offer, Place
from jupyter_sky.execution.cells.recovery_places import (
    BOOT_HOURS,
    LOSS_HOURS,
    price_places,
    seen_events,
)
from jupyter_sky.knowledge.lifetimes.observations import Happening, find_latest
from jupyter_sky.knowledge.lifetimes.recovery import IndexStrategy, Situation
from jupyter_sky.knowledge.tracker.blocks import blocked
from jupyter_sky.knowledge.tracker.observations import Observation

KEPT_SECONDS = 600.0
"""Time for which a machine on demand is kept at least."""
QUIET_HOURS = 0.5
"""Hours after a refusal or a loss for which a place is not asked."""
PRICE_SHARE = 0.8
"""Most that an hour on a spot machine may cost, over an hour on demand."""
MAX_WAIT_SECONDS = 4 * 3600.0
TICK_SECONDS = 15.0
_AHEAD_HOURS = 4.0
"""Hours of work that a way back is weighed for: how long the pool will be up is not known."""


@dataclass(frozen=True, slots=True)
class OnDemandStay:
    """Time that a cluster of a pool has spent on demand.

    Attributes
    ----------
    since : float
        Time of its start (s).
    tried : float
        Time of the last request for spot machines in its place (s).
    refusals : int
        Number of such requests that were refused.
    """

    since: float
    tried: float = -math.inf
    refusals: int = 0

    def is_due(self, now: float) -> bool:
        """Return whether spot machines may be asked for.

        Examples
        --------
        >>> stay = OnDemandStay(since=0.0)
        >>> stay.is_due(599.0), stay.is_due(600.0)
        (False, True)
        >>> [stay.refused(600.0).is_due(now) for now in (1799.0, 1800.0)]
        [False, True]
        """
        wait = min(MAX_WAIT_SECONDS, KEPT_SECONDS * 2**self.refusals)
        return now - self.since >= KEPT_SECONDS and now - self.tried >= wait

    def refused(self, now: float) -> OnDemandStay:
        """Return it after a request that was refused."""
        return replace(self, tried=now, refusals=self.refusals + 1)


def choose_spot(
    offers: Iterable[Offer], observed: Sequence[Observation], price: float, now: float
) -> Offer | None:
    """Return the spot machine to go to from one on demand; None to stay.

    Parameters
    ----------
    offers
        Spot machines that meet the request.
    observed
        Observations of the tracker.
    price
        USD/h of the machine on demand.
    now
        Unix seconds.

    Examples
    --------
    >>> spot = Offer("aws", "us-east-1", "c5.large", 2, 4, zone="us-east-1a", spot=True, price=1.0)
    >>> choose_spot([spot], [], 3.0, 0.0) is spot, choose_spot([spot], [], 1.2, 0.0)
    (True, None)
    """
    blocks = blocked(observed, now)
    open_ = [o for o in offers if not any(b.scope.covers(Place.of(o)) for b in blocks)]
    priced = {place: offer for place, offer in price_places(open_).items() if place.is_spot}
    seen, hours = seen_events(observed, {place.zone for place in priced}), now / 3600
    troubled = find_latest(seen, {Happening.REFUSED, Happening.LOST})
    quiet = {
        place: offer
        for place, offer in priced.items()
        if hours - troubled.get(place.zone, -math.inf) >= QUIET_HOURS
    }
    situation = Situation(
        hours, _AHEAD_HOURS, tuple(quiet), seen, restart=BOOT_HOURS, loss=LOSS_HOURS
    )
    indices = IndexStrategy(patience=0.0).indices(situation)
    best = min(quiet, key=lambda place: indices[place.zone], default=None)
    if best is None or indices[best.zone] > PRICE_SHARE * price:
        return None
    return quiet[best]
