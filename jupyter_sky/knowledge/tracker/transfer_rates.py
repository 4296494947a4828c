"""Rates of transfers that have ended, by their places; they replace those of the catalog."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_sky.knowledge.catalog.transfer import Duration, Location

if TYPE_CHECKING:
    from jupyter_sky.knowledge.catalog.catalog import Catalog

LEAST_BYTES = 16 * 10**6
LEAST_SECONDS = 1.0
"""Smaller or shorter transfers say little about the rate of a large one."""
KEPT_SECONDS = 30 * 24 * 3600.0
KEPT_TRANSFERS = 10
"""Latest transfers of one kind whose median rate is taken."""


@dataclass(frozen=True, slots=True)
class TransferObservation:
    """One transfer that has ended.

    Attributes
    ----------
    source, target : str
        Places, such as ``aws/us-east-1``.
    part_size : int
        Bytes of its parts.
    machines : int
        Machines that moved them.
    nbytes : int
        Bytes that were moved.
    seconds : float
        How long it took.
    at : float
        Unix time of its end.
    """

    source: str
    target: str
    part_size: int
    machines: int
    nbytes: int
    seconds: float
    at: float

    @property
    def gbit_s(self) -> float:
        """Rate, Gbit/s."""
        return self.nbytes * 8e-9 / self.seconds

    @property
    def is_telling(self) -> bool:
        """Whether it was long enough to measure a rate."""
        return self.nbytes >= LEAST_BYTES and self.seconds >= LEAST_SECONDS


@dataclass(frozen=True, slots=True)
class TransferRate:
    """Observed rate between two places.

    Attributes
    ----------
    gbit_s : float
        Median of the latest transfers, Gbit/s.
    count : int
        Number of them.
    latest : float
        Unix time of the end of the latest one.
    """

    source: str
    target: str
    part_size: int
    machines: int
    gbit_s: float
    count: int
    latest: float


@dataclass(frozen=True, slots=True)
class TransferRates:
    """Observed rates; of one pair of places the kind of transfer that was seen last comes first."""

    rates: tuple[TransferRate, ...] = ()

    @classmethod
    def of(cls, seen: Iterable[TransferObservation], now: float) -> TransferRates:
        """Return the rates that observations tell.

        Examples
        --------
        >>> one = TransferObservation("aws/a", "gcp/b", 16, 1, 10**9, 4.0, 0.0)
        >>> TransferRates.of([one], 1.0).find("aws/a", "gcp/b").gbit_s
        2.0
        """
        latest = sorted(
            (each for each in seen if each.is_telling and now - each.at <= KEPT_SECONDS),
            key=lambda each: -each.at,
        )
        groups: dict[tuple[str, str, int, int], list[TransferObservation]] = {}
        for each in latest:
            key = (each.source, each.target, each.part_size, each.machines)
            groups.setdefault(key, []).append(each)
        return cls(
            tuple(
                TransferRate(*key, _median_rate(found[:KEPT_TRANSFERS]), len(found), found[0].at)
                for key, found in groups.items()
            )
        )

    def find(self, source: str, target: str) -> TransferRate | None:
        """Return the rate between two places, if a transfer between them was seen."""
        pairs = (each for each in self.rates if (each.source, each.target) == (source, target))
        return next(pairs, None)

    def duration(
        self, catalog: Catalog, source: Location | str, target: Location | str, gb: float
    ) -> Duration:
        """Return the time of a transfer at the observed rate, else at that of the catalog."""
        here, there = Location.parse(source), Location.parse(target)
        rate = self.find(*("/".join((each.cloud, each.region)) for each in (here, there)))
        if rate is None or not math.isfinite(gb):
            return catalog.transfer_hours(here, there, gb)
        note = f"median of {rate.count} transfers from here"
        return Duration(gb * 8 / rate.gbit_s / 3600, rate.gbit_s, "observed", "tracker", note)


def _median_rate(seen: Iterable[TransferObservation]) -> float:
    return statistics.median(each.gbit_s for each in seen)
