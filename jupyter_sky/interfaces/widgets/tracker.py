"""Tables of the tracker: blocked places, launches, lifetimes, spot prices."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from jupyter_sky.base.requests.resources import format_duration, format_elapsed
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.ledger.ledger import format_rate
from jupyter_sky.knowledge.tracker import Place, Tracker

PARTS = ("blocked", "launches", "lifetimes", "prices")
MAX_PRICES = 40
"""Largest number of prices, newest first."""

_CAUSES = {
    "capacity": "no capacity",
    "quota": "quota used up",
    "permission": "not permitted",
    "transient": "failed for the moment",
}
_WORDS = 80  # characters shown of what a cloud said
_NOTHING = "nothing has been seen of the clouds yet: launches, refusals and prices will show here"


@dataclass(frozen=True, slots=True)
class TableGroup:
    """Several tables, one below the other.

    Examples
    --------
    >>> print(TableGroup((Table("a", ("x",), ((1,),)), Table("b", ("x",), (), empty="none"))))
    a
    x
    -
    1
    <BLANKLINE>
    b
    none
    """

    tables: tuple[Table, ...]

    def __iter__(self) -> Iterator[Table]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        return "".join(table._repr_html_() for table in self.tables)


def tracker_tables(
    tracker: Tracker, now: float, parts: Collection[str] = (), clouds: Collection[str] = ()
) -> TableGroup:
    """Return tables of a tracker's knowledge at a time.

    Parameters
    ----------
    now
        Unix seconds.
    parts
        Names in `PARTS`; all that are not empty unless given.
    clouds
        Only these; all unless given.
    """
    makers = {
        "blocked": _blocked,
        "launches": _launches,
        "lifetimes": _lifetimes,
        "prices": _prices,
    }
    made = {part: makers[part](tracker, now, clouds) for part in PARTS if part in (parts or PARTS)}
    if parts:
        return TableGroup(tuple(made.values()))
    held = tuple(table for part, table in made.items() if table.rows)
    if not held:
        return TableGroup((Table("Tracker", ("place",), (), empty=_NOTHING),))
    blocked = made["blocked"]
    return TableGroup(held if blocked.rows else (blocked, *held))


def _blocked(tracker: Tracker, now: float, clouds: Collection[str]) -> Table:
    rows = tuple(
        (
            str(block.scope),
            _CAUSES[block.cause],
            block.times,
            _clock(block.until, now),
            format_duration(block.until - now),
            _shortened(block.why),
        )
        for block in tracker.knowledge(now).blocks
        if not clouds or block.scope.cloud in clouds
    )
    return Table(
        _("Blocked now"),
        ("place", "why", "times", "until", "left", _("what the cloud said")),
        rows,
        note=_("ask there again before that: %sky tracker clear [PLACE]") if rows else "",
        empty=_("no place is blocked"),
    )


def _launches(tracker: Tracker, now: float, clouds: Collection[str]) -> Table:
    known, rows = tracker.knowledge(now), []
    for place, last in _last_seen(tracker, now, clouds, ("launched", "refused")):
        tally = known.tallies.get(place)
        if tally is None or not tally.tried:
            continue
        chance = known.chance(place)
        low, high = chance.interval()
        took = format_elapsed(chance.seconds) if chance.seconds is not None else ""
        between = _("{low:.0f} to {high:.0f} %").format(low=100 * low, high=100 * high)
        rows.append(
            (str(place), tally.tried, f"{100 * chance.mean:.0f} %", between, took, _ago(last, now))
        )
    return Table(
        "Launches",
        ("place", "tried", "chance", "80 % interval", "takes", "last"),
        tuple(rows),
        note=_("chance that a launch works there; older launches count for less") if rows else "",
        empty=_("no launch has been seen"),
    )


def _lifetimes(tracker: Tracker, now: float, clouds: Collection[str]) -> Table:
    known, rows = tracker.knowledge(now), []
    for place, last in _last_seen(tracker, now, clouds, ("preempted", "ended")):
        tally = known.tallies.get(place)
        if tally is None or not tally.machines:
            continue
        life = known.lifetime(place)
        low, high = life.interval()
        between = _("{low} to {high}").format(low=format_hours(low), high=format_hours(high))
        mean = format_hours(life.hours)
        rows.append((str(place), tally.machines, mean, between, _ago(last, now)))
    return Table(
        "Lifetimes",
        ("place", "machines", _("mean life"), "80 % interval", _("last end")),
        tuple(rows),
        note=_("until the cloud takes a machine back; those given back alive count")
        if rows
        else "",
        empty=_("no machine has been seen to end"),
    )


def _prices(tracker: Tracker, now: float, clouds: Collection[str]) -> Table:
    found = tracker.prices(now).items()
    wanted = [(place, price) for place, price in found if not clouds or place.cloud in clouds]
    wanted.sort(key=lambda pair: (-pair[1].at, str(pair[0])))
    rows = tuple(
        (str(place), format_rate(price.usd), _ago(price.at, now))
        for place, price in wanted[:MAX_PRICES]
    )
    more = len(wanted) - len(rows)
    note = f"and {more:,} more: sky.tracker.current().prices(time.time())" if more else ""
    return Table(
        _("Spot prices"), ("place", "price", "seen"), rows, note, _("no spot price was seen")
    )


def _last_seen(
    tracker: Tracker, now: float, clouds: Collection[str], kinds: Collection[str]
) -> Iterable[tuple[Place, float]]:
    """Return places with observations of these kinds, by name, and the last time [Unix s]."""
    last: dict[Place, float] = {}
    for seen in tracker.observations():  # oldest first
        wide = not clouds or seen.place.cloud in clouds
        if seen.kind in kinds and seen.at <= now and wide:
            last[seen.place] = seen.at
    return sorted(last.items(), key=lambda pair: str(pair[0]))


def format_hours(hours: float) -> str:
    """Format a lifetime [h] in the unit that fits.

    Examples
    --------
    >>> format_hours(0.5), format_hours(31.7), format_hours(346), format_hours(8766)
    ('30 min', '32 h', '14 days', '1.0 years')
    """
    if hours < 1:
        return _("{hours:.0f} min").format(hours=hours * 60)
    if hours < 48:
        return f"{hours:.1f} h" if hours < 9.95 else f"{hours:.0f} h"
    days = hours / 24
    return (
        _("{days:.0f} days").format(days=days)
        if days < 365
        else _("{days:,.1f} years").format(days=days / 365.25)
    )


def _ago(at: float, now: float) -> str:
    seconds = max(0.0, now - at)
    if seconds < 90:
        return _("just now")
    if seconds < 5400:
        return _("{seconds:.0f} min ago").format(seconds=seconds / 60)
    hours = seconds / 3600
    return (
        _("{hours:.0f} h ago").format(hours=hours)
        if hours < 48
        else _("{hours:.0f} days ago").format(hours=hours / 24)
    )


def _clock(at: float, now: float) -> str:
    """Format local time, with the date unless it is today."""
    moment, today = time.localtime(at), time.localtime(now)
    same = (moment.tm_year, moment.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M:%S" if same else "%Y-%m-%d %H:%M", moment)


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WORDS else f"{line[: _WORDS - 1]}…"
