"""Compaction of old observations that leaves decisions as they were.

Launches that worked and ends of machines fade exponentially, so any number of them at one place is
as good as one observation of their faded weight; those older than `FOLD_SECONDS` are folded so.
Refusals are kept one by one as long as a row of them can matter to a block. Prices are thinned to
one a day, then to the last one of each place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from jupyter_sky.base.store.database import Statement
from jupyter_sky.knowledge.tracker.estimates import half_life
from jupyter_sky.knowledge.tracker.observations import DAY, Observation, age_weight

PERIOD = DAY
"""Seconds between compactions."""
FOLD_SECONDS = 2 * DAY
REFUSAL_SECONDS = 21 * DAY
"""A quota block reaches its longest after six refusals, each within two days of the last: 12 days,
and as long again for good measure."""
NEGLIGIBLE_WEIGHT = 1e-4
"""Weight below which an observation is forgotten."""
PRICES_WHOLE, PRICES_DAILY, PRICES_AT_ALL = 2 * DAY, 14 * DAY, 90 * DAY


def fold(
    rows: Sequence[tuple[int, Observation]], now: float
) -> tuple[list[int], list[Observation]]:
    """Say which rows go and which new ones take their place.

    Parameters
    ----------
    rows
        Observations with their numbers.
    now
        Unix seconds.

    Returns
    -------
    dropped, folded
        Numbers of the rows to delete, and observations to insert.
    """
    dropped: list[int] = []
    groups: defaultdict[tuple, list[tuple[int, Observation]]] = defaultdict(list)
    for number, seen in rows:
        if seen.kind in ("refused", "cleared"):
            if now - seen.at > REFUSAL_SECONDS:
                dropped.append(number)
        elif seen.weight * age_weight(now - seen.at, half_life(seen.kind)) < NEGLIGIBLE_WEIGHT:
            dropped.append(number)
        elif now - seen.at > FOLD_SECONDS:
            groups[seen.kind, seen.place, seen.seconds is None].append((number, seen))
    folded = []
    for group in groups.values():
        if len(group) > 1:
            dropped += [number for number, _ in group]
            folded.append(_sum([seen for _, seen in group]))
    return dropped, folded


def _sum(group: Sequence[Observation]) -> Observation:
    """One observation that counts as much as all of these, now and later."""
    last = max(group, key=lambda seen: seen.at)
    half = half_life(last.kind)
    weights = [seen.weight * age_weight(last.at - seen.at, half) for seen in group]
    seconds = None
    if last.seconds is not None:
        pairs = zip(weights, group, strict=True)
        seconds = sum(w * (seen.seconds or 0.0) for w, seen in pairs) / sum(weights)
    events = sum(seen.events for seen in group)
    return replace(last, seconds=seconds, weight=sum(weights), events=events)


def price_statements(now: float) -> Iterable[Statement]:
    """Statements that thin the prices out; done twice, they do nothing more."""
    later = (
        "EXISTS (SELECT 1 FROM spot_prices AS later WHERE later.cloud = spot_prices.cloud "
        "AND later.region = spot_prices.region AND later.zone = spot_prices.zone "
        "AND later.instance_type = spot_prices.instance_type AND later.at > spot_prices.at"
    )
    same_day = f"AND CAST(later.at / {DAY} AS INT) = CAST(spot_prices.at / {DAY} AS INT)"
    yield f"DELETE FROM spot_prices WHERE at < ? AND {later} {same_day})", (now - PRICES_WHOLE,)
    yield f"DELETE FROM spot_prices WHERE at < ? AND {later})", (now - PRICES_DAILY,)
    yield "DELETE FROM spot_prices WHERE at < ?", (now - PRICES_AT_ALL,)
