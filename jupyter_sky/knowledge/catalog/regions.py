"""Facts about a place and about spot machines there, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

STALE_DAYS = 7
"""Prices older than this are called old."""
OLD_DAYS = 30
"""Age in days of prices beyond which a plan says so first."""


@dataclass(frozen=True, slots=True)
class Region:
    """One region of a cloud.

    Attributes
    ----------
    country, jurisdiction : str
        Two letters, and the law that holds there; empty when not known.
    zones : tuple of str
        Names of its zones, where they are known.
    carbon : float, optional
        Grams of CO2 equivalent per kWh of the grid there.
    latitude, longitude : float, optional
        Degrees, of the city.

    Examples
    --------
    >>> Region("gcp", "europe-north1", country="FI", jurisdiction="EU", carbon=39.32).carbon
    39.32
    """

    cloud: str
    name: str
    city: str = ""
    country: str = ""
    continent: str = ""
    jurisdiction: str = ""
    zones: tuple[str, ...] = ()
    carbon: float | None = None
    carbon_source: str = ""
    latitude: float | None = None
    longitude: float | None = None
    note: str = ""

    @classmethod
    def of(cls, row: dict[str, Any]) -> Region:
        """Return a region from its row of the regions' table."""
        return cls(
            row["cloud"],
            row["region"],
            row["city"],
            row["country"],
            row["continent"],
            row["jurisdiction"],
            tuple(zone for zone in row["zones"].split(";") if zone),
            row["carbon_g_per_kwh"],
            row["carbon_source"],
            row["latitude"],
            row["longitude"],
            row["note"],
        )


@dataclass(frozen=True, slots=True)
class Band:
    """Share of a type's spot machines that a cloud interrupts in a month.

    Attributes
    ----------
    low_pct, high_pct : float, optional
        The share in percent; `high_pct` is None for an open band.
    savings_pct : float, optional
        How much less than on demand, in percent.
    date : str
        When this was read.

    Examples
    --------
    >>> Band(5.0, 10.0, 62.0, "2026-08-10").high_pct
    10.0
    """

    low_pct: float
    high_pct: float | None
    savings_pct: float | None
    date: str


def days_since(text: str, today: date | None = None) -> int | None:
    """Return days since a date; None for a text that is no date to the day.

    Examples
    --------
    >>> days_since("2026-07-30", date(2026, 8, 10)), days_since("2026")
    (11, None)
    """
    try:
        return ((today or date.today()) - date.fromisoformat(text)).days
    except ValueError:
        return None
