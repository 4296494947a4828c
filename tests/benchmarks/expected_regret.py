"""Expected regret of random search, computed instead of sampled."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.decisions.search.bandit import round_budgets
from jupyter_sky.decisions.search.space import Space


def random_search(results: np.ndarray, budget: int) -> np.ndarray:
    """Chances that each sorted value is the best of some draws with repeats.

    Parameters
    ----------
    results
        Finite values of all points.
    budget
        Draws.

    Examples
    --------
    >>> random_search(np.array([3.0, 1.0]), 2)
    array([0.75, 0.25])
    """
    worse = 1 - np.arange(len(results) + 1) / len(results)  # share of points from each place on
    tail = worse**budget
    return tail[:-1] - tail[1:]


def bandit_regret(space: Space, results: np.ndarray, b1: int = 1, eta: float = 2) -> float:
    """Mean regret, in percent, of CloudBandit with random search that may repeat points.

    The reward of an arm is its best value so far (algorithm 1), so the state after a round is the
    best value of each arm: a chain over sorted values, independent between arms until one is
    eliminated. Three arms are followed exactly.

    Raises
    ------
    SkyUsageError
        Unless the space has three arms and every result is finite.
    """
    if len(space.arms) != 3 or not np.isfinite(results).all():
        raise SkyUsageError(
            f"{len(space.arms)} arms, {int(np.isnan(results).sum())} failures",
            hint="the exact mean is known for three arms without failures; sample others",
        )
    budgets = round_budgets(3, b1, eta)
    values = [np.sort(results[space.members(arm)]) for arm in space.arms]
    first = [random_search(one, budgets[0]) for one in values]
    mean = 0.0
    for out, one, other in permutations(range(3)):
        # the first eliminated, the second, and the one that stays
        alive = np.outer(first[one], first[other])
        worst = np.maximum(values[one][:, None], values[other][None, :])
        alive *= _beyond(values[out], first[out], worst)
        alive = _step(values[one], budgets[1]).T @ alive @ _step(values[other], budgets[1])
        loses = _wins(values[other][None, :], values[one][:, None])
        final = (alive * loses).sum(0) @ _step(values[other], budgets[2])
        mean += float(final @ values[other])
    best = float(results.min())
    return 100 * (mean - best) / best


def _beyond(values: np.ndarray, chances: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Chance that an arm's best is above a limit; a tie counts half."""
    tail = np.append(np.cumsum(chances[::-1])[::-1], 0.0)
    above = tail[np.searchsorted(values, limit, side="right")]
    at_least = tail[np.searchsorted(values, limit, side="left")]
    return (above + at_least) / 2


def _wins(value: np.ndarray, other: np.ndarray) -> np.ndarray:
    """1 where a value is below another, one half where they are equal."""
    return (value < other) + 0.5 * (value == other)


def _step(values: np.ndarray, draws: int) -> np.ndarray:
    """Chances of going from each sorted best value to each other by some more draws."""
    new = random_search(values, draws)
    step = np.zeros((len(values), len(values)))
    for place in range(len(values)):
        step[place, :place] = new[:place]
        step[place, place] = new[place:].sum()
    return step
