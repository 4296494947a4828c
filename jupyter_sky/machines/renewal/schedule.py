"""Decision on what to read anew, by ages alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jupyter_sky.base.translation import N_

SPOT_PRICES, QUOTAS, CATALOG = N_("spot prices"), N_("quotas"), N_("catalog")
PERIODS = {SPOT_PRICES: 3600.0, QUOTAS: 86400.0, CATALOG: 7 * 86400.0}
"""Ages beyond which each kind of knowledge is read anew, seconds; in the order of the work."""
RETRY_SECONDS = (900.0, 86400.0)
"""Wait after a failure, and the longest one: it doubles with each further failure."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Kind of knowledge about one cloud.

    Attributes
    ----------
    kind : str
        One of `PERIODS`.
    cloud : str
        Its name.
    """

    kind: str
    cloud: str


@dataclass(frozen=True, slots=True)
class Reading:
    """Last attempt to read something.

    Attributes
    ----------
    tried : float
        When, unix seconds.
    done : float
        When it was last read with success, unix seconds; 0 where it never was.
    failures : int
        Attempts in vain since then.
    text : str
        Result of the last attempt in a sentence.
    invalid : str
        What was left out of it as invalid, in a sentence; empty for nothing.
    """

    tried: float = 0.0
    done: float = 0.0
    failures: int = 0
    text: str = ""
    invalid: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of an attempt that has succeeded.

    Attributes
    ----------
    text, invalid : str
        As those of `Reading`.
    """

    text: str
    invalid: str = ""


def find_due(
    subjects: Iterable[Subject], readings: Mapping[Subject, Reading], now: float
) -> list[Subject]:
    """Return what is to be read now, what is read most often first.

    Parameters
    ----------
    subjects
        What can be read from here.
    readings
        Last attempts; what has none was never read.
    now
        Unix seconds.

    Examples
    --------
    >>> prices = Subject(SPOT_PRICES, "aws")
    >>> find_due([prices], {prices: Reading(100.0, 100.0)}, 200.0)
    []
    >>> find_due([prices], {prices: Reading(100.0, 100.0)}, 4000.0) == [prices]
    True
    """
    order = list(PERIODS)
    due = [each for each in subjects if next_time(each, readings.get(each, Reading())) <= now]
    return sorted(due, key=lambda each: (order.index(each.kind), each.cloud))


def next_time(subject: Subject, last: Reading) -> float:
    """Return when something is to be read next, unix seconds; 0 where it never was.

    Examples
    --------
    >>> next_time(Subject(SPOT_PRICES, "aws"), Reading(tried=1000.0, failures=2)) - 1000.0
    1800.0
    """
    if last.failures:
        first, longest = RETRY_SECONDS
        return last.tried + min(longest, first * 2 ** min(last.failures - 1, 30))
    return last.done + PERIODS[subject.kind] if last.done else 0.0
