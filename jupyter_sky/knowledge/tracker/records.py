"""The tracker's side effects: observations in the store, read and written.

Observations are rows that never change, so any number of kernels can add theirs. Only compaction
takes rows away, see `compaction`.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from sqlite3 import Row
from typing import Any

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.offers import Offer, Place, Price
from jupyter_sky.base.store.database import Database, Statement
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.tracker.blocks import Block
from jupyter_sky.knowledge.tracker.estimates import half_life
from jupyter_sky.knowledge.tracker.knowledge import Bands, Knowledge, no_bands
from jupyter_sky.knowledge.tracker.observations import (
    DAY,
    Observation,
    age_weight,
    check_observation,
)
from jupyter_sky.knowledge.tracker.transfer_rates import (
    KEPT_SECONDS,
    TransferObservation,
    TransferRates,
)

_log = logging.getLogger(__name__)

FRESH_SECONDS = 1.0
"""Time for which knowledge is reused when nothing new was seen."""

_MAX_REASON = 500  # characters kept of a cloud's message
_COLUMNS = "kind, cause, cloud, region, zone, instance_type, spot, at, seconds, weight, events, why"
_INSERT = f"INSERT INTO observations ({_COLUMNS}) SELECT {', '.join('?' * 12)}"
_PRICE = "INSERT OR REPLACE INTO spot_prices VALUES (?, ?, ?, ?, ?, ?)"
_PRICES = "cloud, region, zone, instance_type, max(at) AS at, usd FROM spot_prices WHERE at <= ?"
_SAME_PRICE = "cloud = ? AND region = ? AND zone = ? AND instance_type = ? AND at = ?"
_BATCH = 500
"""Prices in one transaction: a cell that writes meanwhile waits for no more than these."""
_MARK_PRICES: Statement = ("UPDATE tracker_state SET prices = prices + 1", ())
"""Goes with each write of spot prices: readers keep what they have read until it changes."""
_BY_PLACE = "GROUP BY cloud, region, instance_type, zone"


@dataclass(frozen=True, slots=True)
class RecordedPrices:
    """Spot prices of a list that were kept.

    Attributes
    ----------
    valid, changed
        Prices that were kept, and how many of them are new or have changed.
    invalid
        Reason for each that was left out.
    """

    valid: int
    changed: int
    invalid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _ReadPrices:
    """Last prices of all places, as they were read at a mark of the file."""

    mark: int
    last: float  # when the newest of them was seen
    by_place: dict[Place, Price]


class Tracker:
    """Tracker: observations of clouds in one database, and estimates from them.

    Parameters
    ----------
    db
        Database of the observations; its tables are those of `Store`.
    bands
        The interruption band of a cloud, region and instance type.

    Examples
    --------
    >>> tracker = Tracker(Store.open(folder).database)  # doctest: +SKIP
    >>> tracker.record(Observation("launched", place, time.time(), seconds=31))  # doctest: +SKIP
    >>> tracker.knowledge(time.time()).chance(place).mean  # doctest: +SKIP
    0.96
    """

    def __init__(self, db: Database, bands: Bands = no_bands) -> None:
        self._db, self._bands = db, bands
        self._lock = threading.RLock()
        self._read: tuple[tuple[int, int], tuple[Observation, ...]] | None = None
        self._known: Knowledge | None = None
        self._prices: _ReadPrices | None = None
        self._writes = 0
        self._compact_at = 0.0

    # -- writing --------------------------------------------------------------------------------

    def record(self, *observations: Observation) -> None:
        """Keep observations, all or none.

        Raises
        ------
        SkyUsageError
            One of them is invalid, see `check_observation`. None is kept.
        """
        statements = [_statement(check_observation(observation)) for observation in observations]
        if statements:
            if any(observation.kind == "price" for observation in observations):
                statements.append(_MARK_PRICES)
            with self._lock:
                self._writes += 1
                self._db.write(*statements)

    def record_prices(self, prices: Mapping[Place, float], now: float) -> RecordedPrices:
        """Keep the valid spot prices of a whole list; return what has become of them.

        A price that is as it was is only seen later: its history keeps the changes alone. Prices
        that are invalid, see `check_observation`, are left out and logged.

        Parameters
        ----------
        prices
            USD/h of one machine by place.
        now
            When they were seen, unix seconds.
        """
        seen, invalid = _check_prices(prices, now)
        before, statements, changed = self.prices(now), list[Statement](), 0
        for each in seen:
            known = before.get(each.place)
            if known is not None and known.usd == each.usd:
                place = each.place
                where = (place.cloud, place.region, place.zone, place.instance_type, known.at)
                statements.append((f"DELETE FROM spot_prices WHERE {_SAME_PRICE}", where))
            else:
                changed += 1
            statements.append(_statement(each))
            if len(statements) >= _BATCH:
                self._db.write(*statements, _MARK_PRICES)
                statements = []
        if statements:
            self._db.write(*statements, _MARK_PRICES)
        return RecordedPrices(len(seen), changed, tuple(invalid))

    def record_transfer(self, seen: TransferObservation) -> None:
        """Keep the rate of a transfer, if it tells one; forget those of long ago."""
        if not seen.is_telling:
            return
        values = astuple(seen)
        columns = "source, target, part_size, machines, nbytes, seconds, at"
        self._db.write(
            (f"INSERT INTO transfer_rates ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", values),
            ("DELETE FROM transfer_rates WHERE at < ?", (seen.at - KEPT_SECONDS,)),
        )

    def transfer_rates(self, now: float) -> TransferRates:
        """Return the rates of transfers that are known at a time."""
        columns = "source, target, part_size, machines, nbytes, seconds, at"
        rows = self._db.read(f"SELECT {columns} FROM transfer_rates WHERE at <= ?", (now,))
        return TransferRates.of((TransferObservation(*row) for row in rows), now)

    def compact(self, now: float) -> None:
        """Fold and delete old observations, once a day at most; estimates stay the same."""
        with self._lock:
            if now < self._compact_at:
                return
            last = self._db.read("SELECT compacted FROM tracker_state")[0][0]
            self._compact_at = max(now, last + PERIOD)
            if now < self._compact_at:
                return
            rows = self._db.read(f"SELECT id, {_COLUMNS} FROM observations WHERE at <= ?", (now,))
            dropped, folded = fold([(row["id"], _read_observation(row)) for row in rows], now)
            # two processes may get here with the same rows: only the first finds `last` in place;
            # its mark is its own, also where both came at the same moment
            mark = now - secrets.randbelow(4096) / 2**22
            first = f"(SELECT compacted FROM tracker_state) = {mark!r}"
            self._writes += 1
            self._db.write(
                ("UPDATE tracker_state SET compacted = ? WHERE compacted = ?", (mark, last)),
                *((f"{_INSERT} WHERE {first}", _values(observation)) for observation in folded),
                *((f"DELETE FROM observations WHERE id = ? AND {first}", (n,)) for n in dropped),
                *price_statements(now),
                _MARK_PRICES,
            )

    def clear(self, words: Iterable[str], now: float) -> tuple[Block, ...]:
        """Remove the blocks whose places have all of these words; without words, all.

        Raises
        ------
        SkyUsageError
            No blocked place has them.
        """
        wanted = [word for text in words for word in text.split()]
        blocks = self.knowledge(now).blocks
        matching = tuple(block for block in blocks if set(wanted) <= _block_words(block))
        if wanted and not matching:
            names = sorted(set().union(*map(_block_words, blocks)))
            hint = suggest(wanted[-1], names) if names else "nothing is blocked"
            raise SkyUsageError(
                _("{wanted}: no such place is blocked").format(wanted=" ".join(wanted)), hint=hint
            )
        self.record(*(Observation("cleared", b.place, now, cause=b.cause) for b in matching))
        return matching

    # -- reading --------------------------------------------------------------------------------

    def observations(self) -> tuple[Observation, ...]:
        """Return all observations except prices, oldest first."""
        with self._lock:
            # the file's own count of what other connections wrote; ours are not in it
            version = (self._db.read("PRAGMA data_version")[0][0], self._writes)
            if self._read is None or self._read[0] != version:
                rows = self._db.read(f"SELECT {_COLUMNS} FROM observations ORDER BY at, id")
                self._read = (version, tuple(map(_read_observation, rows)))
                self._known = None
            return self._read[1]

    def knowledge(self, now: float) -> Knowledge:
        """Return the knowledge at a time (unix seconds)."""
        with self._lock:
            observations, knowledge = self.observations(), self._known
            if knowledge is None or not 0 <= now - knowledge.now < FRESH_SECONDS:
                knowledge = self._known = Knowledge.of(observations, now, self._bands)
            return knowledge

    def price(self, where: Offer | Place, now: float) -> Price | None:
        """Return the last spot price seen at a place.

        Of a place that names no zone it is the mean over the last prices of the region's zones,
        unless one was seen for the region as a whole; its time is that of the oldest of them. Of a
        zone where none was seen, it is that of the region as a whole.
        """
        place = Place.of(where)
        sql = f"SELECT {_PRICES} AND cloud = ? AND region = ? AND instance_type = ? {_BY_PLACE}"
        values = (now, place.cloud, place.region, place.instance_type)
        return _find_price(place, {_place(row): _price(row) for row in self._db.read(sql, values)})

    def prices(self, now: float) -> dict[Place, Price]:
        """Return the last spot price of every place where one was seen.

        The same object as long as none is added; there may be tens of thousands.
        """
        with self._lock:
            mark = self._db.read("SELECT prices FROM tracker_state")[0][0]
            if self._prices is not None and self._prices.mark == mark and self._prices.last <= now:
                return self._prices.by_place
            rows = self._db.read(f"SELECT {_PRICES} {_BY_PLACE}", (now,))
            found = {_place(row): _price(row) for row in rows}
            last = self._db.read("SELECT max(at) FROM spot_prices")[0][0] or 0.0
            if last <= now:  # else there are some that do not hold yet
                self._prices = _ReadPrices(mark, last, found)
            return found

    def priced(self, offers: Iterable[Offer], now: float) -> list[Offer]:
        """Return offers with the spot prices last seen, where these are newer than their own."""
        regions: defaultdict[Place, dict[Place, Price]] = defaultdict(dict)
        for place, price in self.prices(now).items():
            regions[replace(place, zone="")][place] = price

        def last(place: Place) -> Price | None:
            return _find_price(place, regions.get(replace(place, zone=""), {}))

        return [_with_price(offer, last(Place.of(offer))) for offer in offers]


def _check_prices(prices: Mapping[Place, float], now: float) -> tuple[list[Observation], list[str]]:
    """Return the valid prices of a list, and the reasons against the others."""
    seen, invalid = [], []
    for place, usd in prices.items():
        try:
            seen.append(check_observation(Observation("price", place, now, usd=usd)))
        except SkyUsageError as error:
            invalid.append(error.message)
    if invalid:
        _log.warning("%d spot prices were left out, such as: %s", len(invalid), invalid[0])
    return seen, invalid


def _place(row: Row) -> Place:
    return Place(row["cloud"], row["region"], row["zone"], row["instance_type"], spot=True)


def _price(row: Row) -> Price:
    return Price(row["usd"], row["at"])


def _find_price(place: Place, zones: Mapping[Place, Price]) -> Price | None:
    """Return the price of a place by the last ones of its region, see `Tracker.price`."""
    if not place.spot or place in zones or not zones:
        return zones.get(place)
    if place.zone:
        return zones.get(replace(place, zone=""))
    prices = zones.values()
    return Price(
        sum(price.usd for price in prices) / len(prices), min(price.at for price in prices)
    )


def _with_price(offer: Offer, seen: Price | None) -> Offer:
    if seen is None or offer.service:  # with a service, the price holds more than the machine's
        return offer
    day = datetime.fromtimestamp(seen.at, UTC).date().isoformat()
    if offer.price is not None and offer.date > day:
        return offer
    return replace(offer, price=seen.usd, source="seen by the tracker", date=day)


def _statement(seen: Observation) -> Statement:
    place = seen.place
    if seen.kind == "price":
        where = (place.cloud, place.region, place.zone, place.instance_type)
        return _PRICE, (*where, float(seen.at), _float(seen.usd))
    return _INSERT, _values(seen)


def _values(seen: Observation) -> tuple[Any, ...]:
    place = seen.place
    where = (place.cloud, place.region, place.zone, place.instance_type, int(place.spot))
    amounts = (_float(seen.seconds), seen.weight, seen.events, seen.why[:_MAX_REASON])
    return (seen.kind, seen.cause, *where, float(seen.at), *amounts)


def _float(value: float | None) -> float | None:
    """Convert a number to a plain one: SQLite stores numpy's small ones as bytes."""
    return None if value is None else float(value)


def _read_observation(row: Row) -> Observation:
    words = (row["cloud"], row["region"], row["zone"], row["instance_type"])
    return Observation(
        kind=row["kind"],
        place=Place(*words, bool(row["spot"])),
        at=row["at"],
        cause=row["cause"],
        seconds=row["seconds"],
        why=row["why"],
        weight=row["weight"],
        events=row["events"],
    )


def _block_words(block: Block) -> set[str]:
    """Return the words by which a user may name a blocked place."""
    scope = block.scope
    market = {None: "", True: "spot", False: "on-demand"}[scope.spot]
    names = (scope.cloud, scope.region, scope.zone, scope.instance_type, market, scope.cause)
    return {*names, *str(scope).split()} - {""}


# -- Compaction of old observations that leaves decisions as they were ----------------------------
#
# Launches that worked and ends of machines fade exponentially, so any number of them at one place
# is as good as one observation of their faded weight; those older than `FOLD_SECONDS` are folded
# so. Refusals are kept one by one as long as a row of them can matter to a block. Prices are
# thinned to one a day, then to the last one of each place.

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
