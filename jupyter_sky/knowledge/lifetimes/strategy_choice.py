"""Choice of a recovery strategy for a request: by replays on the lifetimes that are assumed.

Each replay draws how often each region takes machines away, from what is known of it (`priors`),
and then the life of each machine. All strategies are given the same draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.knowledge.lifetimes.observations import Seen
from jupyter_sky.knowledge.lifetimes.priors import Posterior
from jupyter_sky.knowledge.lifetimes.recovery import STRATEGIES, SpotPlace
from jupyter_sky.knowledge.lifetimes.replays import Replay, ReplayedJob, replay
from jupyter_sky.knowledge.lifetimes.synthetic import MachineLives

USUAL = "index"
"""Strategy that is taken unless another one is clearly cheaper."""
CLEARLY = 2.0
"""Standard errors of a mean saving from which on it is taken for more than chance."""
RUNS = 50
"""Replays of each strategy."""
MAX_STRETCH = 5.0
"""Ratio of the longest replay to its work: what takes longer does not get done."""
MAX_PLACES = 12
"""Places that are looked at, the cheapest of each market."""


@dataclass(frozen=True, slots=True)
class StrategyForecast:
    """Mean outcome of a strategy.

    Attributes
    ----------
    name : str
        One of `recovery.STRATEGIES`.
    costs : tuple of float
        USD of each replay.
    hours, preemptions : float
        Time from the start to the end, and losses; means.
    """

    name: str
    costs: tuple[float, ...]
    hours: float
    preemptions: float

    @property
    def usd(self) -> float:
        """Mean cost."""
        return sum(self.costs) / len(self.costs)

    def is_clearly_cheaper(self, other: StrategyForecast) -> bool:
        """Return whether it saves something, replay by replay, that is no chance.

        Examples
        --------
        >>> usual = StrategyForecast("index", (1.0, 2.0, 1.5), 1.0, 0.0)
        >>> StrategyForecast("broker", (0.9, 1.9, 1.4), 1.0, 0.0).is_clearly_cheaper(usual)
        True
        >>> StrategyForecast("broker", (0.5, 2.4, 1.5), 1.0, 0.0).is_clearly_cheaper(usual)
        False
        """
        saved = [his - own for own, his in zip(self.costs, other.costs, strict=True)]
        error = float(np.std(saved)) / math.sqrt(len(saved))
        return sum(saved) / len(saved) > max(CLEARLY * error, 1e-9)


def forecast_strategies(
    job: ReplayedJob,
    places: Sequence[SpotPlace],
    lifetimes: Mapping[str, Posterior],
    start: float = 0.0,
    seen: Sequence[Seen] = (),
) -> list[StrategyForecast]:
    """Replay a job under each strategy by which it gets done.

    Parameters
    ----------
    job
        What is run.
    places
        Places that fit the request.
    lifetimes
        What is known of the lifetimes, by zone of the places with spot machines.
    start
        Hours at which the job starts.
    seen
        Observations until then.

    Returns
    -------
    list of StrategyForecast
        In the order of `recovery.STRATEGIES`.
    """
    markets = ([p for p in places if p.is_spot is spot] for spot in (True, False))
    spot, on_demand = (sorted(m, key=lambda place: place.price)[:MAX_PLACES] for m in markets)
    end = start + MAX_STRETCH * (job.work + job.boot)
    draws = [_draw_lives(spot, lifetimes, seed, end) for seed in range(RUNS)]
    found = []
    for name, strategy in STRATEGIES.items():
        if not (on_demand if name == "on-demand" else spot):
            continue
        with suppress(SkyUsageError):  # at the end of its record a job was not done
            both = [*spot, *on_demand]
            runs = [replay(job, both, lives, strategy, start, seen) for lives in draws]
            found.append(_summarize(name, runs))
    return found


def choose_strategy(forecasts: Sequence[StrategyForecast]) -> str:
    """Return the name of the cheapest strategy; the usual one where none is clearly cheaper.

    Examples
    --------
    >>> usual = StrategyForecast("index", (1.0, 1.0), 1.2, 0.1)
    >>> choose_strategy([StrategyForecast("broker", (1.0, 1.0), 1.2, 0.1), usual])
    'index'
    >>> choose_strategy([StrategyForecast("single-region", (0.9, 0.9), 1.5, 0.3), usual])
    'single-region'
    """
    if not forecasts:
        return USUAL
    cheapest = min(forecasts, key=lambda forecast: forecast.usd)
    usual = next((each for each in forecasts if each.name == USUAL), None)
    return cheapest.name if usual is None or cheapest.is_clearly_cheaper(usual) else USUAL


def _draw_lives(
    places: Sequence[SpotPlace], lifetimes: Mapping[str, Posterior], seed: int, end: float
) -> list[MachineLives]:
    """Draw how often each region takes machines away; its zones are alike."""
    from scipy.special import gammaincinv

    lives = []
    for place in places:
        known = lifetimes[place.zone]
        share = np.random.default_rng([seed, crc32(place.region.encode())]).random()
        factor = float(gammaincinv(known.preemptions, share)) / known.exposure
        lives.append(MachineLives(place.zone, known.base.times(factor), seed, end))
    return lives


def _summarize(name: str, runs: Sequence[Replay]) -> StrategyForecast:
    hours, preemptions = np.mean([(run.hours, run.preemptions) for run in runs], axis=0)
    return StrategyForecast(name, tuple(run.usd for run in runs), float(hours), float(preemptions))
