"""Availability of spot machines over time: recorded traces, and hazards by age.

A place is *up* while a spot machine can be had and kept there, else *down*. In the traces of Wu et
al., "Can't Be Late" (NSDI 2024), the hazard of a loss falls with the time for which a place has
been up, and that of a return with the time for which it has been down. `LOSS` and the tables of
`deadlines` were fitted to the trace `aws-02-15-2023` of that paper: one V100 in nine zones.
"""

from __future__ import annotations

import csv
import itertools
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _

COLUMNS = ("trace", "zone", "gap_seconds", "start_index", "up_down_runs")


@dataclass(frozen=True)
class Availability:
    """Recorded availability of one place.

    Attributes
    ----------
    place : str
        Zone.
    changes : tuple of float
        Hours at which it goes up or down, ascending.
    is_up_first : bool
        Whether it is up before the first change.
    end : float
        Hours at which the record ends.

    Examples
    --------
    >>> found = Availability("a", changes=(2.0, 3.0), is_up_first=True, end=10.0)
    >>> found.is_up(1.0), found.is_up(2.5), found.until_change(2.5)
    (True, False, 0.5)
    """

    place: str
    changes: tuple[float, ...]
    is_up_first: bool
    end: float

    def is_up(self, at: float) -> bool:
        """Return whether a machine can be had at a time (hours)."""
        return self.is_up_first ^ (bisect_right(self.changes, at) % 2 == 1)

    def until_change(self, at: float) -> float:
        """Return the hours from a time to the next change, or to the end of the record."""
        index = bisect_right(self.changes, at)
        return (self.changes[index] if index < len(self.changes) else self.end) - at

    def periods(self, begin: float, end: float) -> Iterable[tuple[float, float, bool]]:
        """Yield start and end of each period within a span of time, and whether it is up."""
        at = begin
        while at < end:
            then = min(end, at + self.until_change(at))
            yield at, then, self.is_up(at)
            if then >= self.end:
                return
            at = then


class AvailabilityRecord(Protocol):
    """Availability of one place, as replays ask for it; times are hours."""

    @property
    def place(self) -> str:
        """Zone."""
        ...

    @property
    def end(self) -> float:
        """Hours at which the record ends."""
        ...

    def is_up(self, at: float) -> bool:
        """Return whether a machine can be had at a time."""
        ...

    def until_change(self, at: float) -> float:
        """Return how long a machine that is launched at a time is kept."""
        ...


def read_traces(path: str | Path) -> dict[str, tuple[Availability, ...]]:
    """Read recorded availability from a CSV file, or from all of a folder.

    Columns: ``trace`` (name of a recording), ``zone``, ``gap_seconds`` (seconds between two
    samples), ``start_index`` (samples before the first), ``up_down_runs`` (lengths of runs of equal
    samples: ``1x120 0x7`` is up for 120 samples, then down for 7).

    Returns
    -------
    dict of str to tuple of Availability
        Places by the name of their recording.

    Raises
    ------
    SkyUsageError
        The file is not of this form; names file, line and what is wrong.
    """
    path = Path(path)
    files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    if not files:
        raise SkyUsageError(_("there is no CSV file in {path}").format(path=path))
    found: dict[str, list[Availability]] = {}
    for file in files:
        try:
            with file.open(newline="") as lines:
                rows = list(csv.DictReader(lines))
        except (OSError, UnicodeDecodeError) as error:
            raise SkyUsageError(f"{file}: {error}") from None
        for number, row in enumerate(rows, 2):
            name, availability = _parse_row(row, f"{file}, line {number}")
            found.setdefault(name, []).append(availability)
    return {name: tuple(places) for name, places in found.items()}


def _parse_row(row: Mapping[str, str | None], where: str) -> tuple[str, Availability]:
    missing = [name for name in COLUMNS if not row.get(name)]
    if missing:
        raise SkyUsageError(
            _("{where}: no {columns}").format(where=where, columns=", ".join(missing)),
            hint=_("the columns are {columns}").format(columns=", ".join(COLUMNS)),
        )
    try:
        hours = float(row["gap_seconds"] or "") / 3600
        at = int(row["start_index"] or "") * hours
        runs = [
            (state == "1", int(count))
            for state, count in (run.split("x") for run in (row["up_down_runs"] or "").split())
        ]
    except ValueError as error:
        raise SkyUsageError(f"{where}: {error}") from None
    merged = [
        (state, sum(count for _up, count in group))
        for state, group in itertools.groupby(runs, key=lambda run: run[0])
    ]
    changes = []
    for _up, count in merged:
        at += count * hours
        changes.append(at)
    return str(row["trace"]), Availability(
        str(row["zone"]), tuple(changes[:-1]), merged[0][0], changes[-1]
    )


class HazardCurve(Protocol):
    """Hazard of a loss by the time for which a place has been up."""

    def integral(self, age: float | np.ndarray) -> float | np.ndarray:
        """Return the expected losses from the begin of a period to an age (hours)."""
        ...


@dataclass(frozen=True)
class FallingHazard:
    """Hazard that falls with age to a floor: ``floor + early / (1 + age / scale)``.

    Attributes
    ----------
    floor, early : float
        Losses per hour, of old places and additionally of new ones.
    scale : float
        Hours after which `early` has halved.

    Examples
    --------
    >>> round(float(FallingHazard(0.0, 1.0, 1.0).integral(np.e - 1)), 6)
    1.0
    """

    floor: float
    early: float
    scale: float

    def integral(self, age: float | np.ndarray) -> float | np.ndarray:
        """Return the expected losses from the begin of a period to an age (hours)."""
        return self.floor * age + self.early * self.scale * np.log1p(age / self.scale)


LOSS = FallingHazard(floor=0.03, early=1.6, scale=0.5)
"""Losses of spot machines by the age of their place's availability (one V100, AWS, 2023)."""
RETURN = FallingHazard(floor=0.03, early=1.6, scale=0.5)
"""Returns of places by the time for which they have been down: they fall like the losses."""
