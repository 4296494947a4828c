"""Synthetic availability: drawn from fitted hazards, where there is no record to replay.

The recordings that the rates were fitted to have no licence and do not come with
this package; `availability.read_traces` reads them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType
from zlib import crc32

import numpy as np

from jupyter_sky.knowledge.lifetimes.availability import Availability
from jupyter_sky.knowledge.lifetimes.models import Model

SAMPLE = 195 / 3600
"""Hours between two samples of the recording."""
AGES = (0.0, 1 / 6, 0.5, 1.0, 2.0, 4.0, 8.0, 24.0)
"""Hours at which the classes of ages begin that the rates below are for."""
LOSSES = (1.08, 1.09, 0.76, 0.44, 0.21, 0.17, 0.15, 0.043)
RETURNS = (1.19, 1.20, 0.60, 0.39, 0.28, 0.33, 0.22, 0.060)
"""Losses of places that are up and returns of those that are down, per hour, by their age. They and
`FACTORS` are the likeliest of a proportional hazard for the first half of the trace
``aws-02-15-2023`` of Wu et al. (NSDI 2024), nine zones."""
FACTORS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "us-east-1a": (1.96, 0.61),
        "us-east-1c": (1.56, 0.96),
        "us-east-1d": (1.43, 0.98),
        "us-east-1f": (1.19, 0.92),
        "us-east-2a": (0.63, 0.83),
        "us-east-2b": (0.84, 0.92),
        "us-west-2a": (0.76, 1.45),
        "us-west-2b": (0.60, 1.17),
        "us-west-2c": (0.79, 1.48),
    }
)
"""Rates at which each zone of the recording went down and came back, over those above."""


def draw_places(
    hours: float, rng: np.random.Generator, factors: Mapping[str, tuple[float, float]] = FACTORS
) -> tuple[Availability, ...]:
    """Draw the availability of places, each with hazards of its own.

    Parameters
    ----------
    hours
        Length of the record.
    rng
        Generator of random numbers.
    factors
        How many times as often as fitted each place goes down and comes back, by its name.

    Examples
    --------
    >>> places = draw_places(48.0, np.random.default_rng(0), {"a": (1.0, 1.0), "b": (2.0, 1.0)})
    >>> [place.place for place in places], min(place.end for place in places) >= 48
    (['a', 'b'], True)
    """
    return tuple(draw_availability(zone, hours, rng, *both) for zone, both in factors.items())


def draw_availability(
    zone: str, hours: float, rng: np.random.Generator, losses: float = 1.0, returns: float = 1.0
) -> Availability:
    """Draw the availability of one place.

    Parameters
    ----------
    losses, returns
        How many times as often as fitted the place goes down and comes back.

    Examples
    --------
    >>> place = draw_availability("a", 1000.0, np.random.default_rng(0), losses=3.0)
    >>> place.end > 1000 and len(place.changes) > 100
    True
    """
    is_up = is_up_first = bool(rng.random() < 0.5)
    lengths, total = list[float](), 0.0
    while total < hours:
        rates, factor = (LOSSES, losses) if is_up else (RETURNS, returns)
        lengths.append(_draw_length(rng, np.array(rates) * factor))
        total += lengths[-1]
        is_up = not is_up
    changes = list(accumulate(lengths))
    return Availability(zone, tuple(changes[:-1]), is_up_first, changes[-1])


def _draw_length(rng: np.random.Generator, rates: np.ndarray) -> float:
    """Draw the hours, in whole samples, until a change whose hourly rate depends on the age."""
    age = SAMPLE
    for begin, end, rate in zip(AGES, [*AGES[1:], math.inf], rates, strict=True):
        begun = max(begin, age)
        length = math.ceil(rng.exponential(1 / rate) / SAMPLE) * SAMPLE
        if begun + length < end:
            return begun + length
        age = end
    raise AssertionError("the last class of ages has no end")


@dataclass(frozen=True)
class MachineLives:
    """Place that always has a machine, and takes each away after a life of its own.

    It stands for a record where many machines run in one zone: they do not go at once.

    Attributes
    ----------
    place : str
        Zone.
    model : Model
        Distribution of the lives.
    seed : int
        Seed; the life of a machine depends on it, on the zone and on the time of the launch.
    end : float
        Hours at which the record ends: never.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> place = MachineLives("a", Exponential(0.1, 24.0), seed=1)
    >>> place.is_up(3.0), place.until_change(3.0) == place.until_change(3.0)
    (True, True)
    """

    place: str
    model: Model
    seed: int
    end: float = math.inf

    def is_up(self, at: float) -> bool:
        """Return True: a machine can be had at any time (hours)."""
        return True

    def until_change(self, at: float) -> float:
        """Return the life of a machine that is launched at a time (hours)."""
        launch = round(at * 3600)
        rng = np.random.default_rng([self.seed, crc32(self.place.encode()), launch])
        return float(self.model.sample(1, rng)[0])
