"""Observations of places: launches, refusals and losses, and the stays that they tell of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum


class Happening(Enum):
    """Kind of an observation of a place."""

    REFUSED = "refused"
    LAUNCHED = "launched"
    LOST = "lost"
    RELEASED = "released"
    """The machine was given back; what would have become of it is not known."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Observation of a place.

    Attributes
    ----------
    at : float
        Hours.
    machine : str
        Name that tells machines of one zone apart; needed where several run there at once.
    """

    at: float
    zone: str
    what: Happening
    machine: str = ""


@dataclass(frozen=True, slots=True)
class Stay:
    """Time that a machine was kept in a place.

    Attributes
    ----------
    end, hours : float
        Hours.
    age : float
        Hours for which the place was taken to be up at the begin.
    is_lost : bool
        Whether the machine was taken away, and not given back.
    """

    zone: str
    end: float
    hours: float
    age: float
    is_lost: bool


def find_stays(seen: Sequence[Seen], now: float, unseen_age: float) -> list[Stay]:
    """Return the stays that observations tell of; one that goes on lasts until now.

    Parameters
    ----------
    unseen_age
        Age (hours) at the begin of a stay in a place that was not seen to be down before.
    """
    stays, begun, was_down = list[Stay](), dict[tuple[str, str], Seen](), set[str]()

    def close(launch: Seen, end: float, *, is_lost: bool) -> None:
        age = 0.0 if launch.zone in was_down else unseen_age
        stays.append(Stay(launch.zone, end, end - launch.at, age, is_lost))

    for event in seen:
        key = event.zone, event.machine
        if event.what is Happening.LAUNCHED:
            begun.setdefault(key, event)
        elif event.what is not Happening.REFUSED and key in begun:
            close(begun.pop(key), event.at, is_lost=event.what is Happening.LOST)
        if event.what in (Happening.LOST, Happening.REFUSED):
            was_down.add(event.zone)
    for launch in begun.values():
        close(launch, now, is_lost=False)
    return stays


def find_latest(seen: Iterable[Seen], kinds: set[Happening]) -> dict[str, float]:
    """Return the time of the last observation of some kinds, by zone."""
    return {event.zone: event.at for event in seen if event.what in kinds}
