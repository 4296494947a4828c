"""Random search alone and in CloudBandit on synthetic providers: the paper's Table 6.

The values of a provider are drawn from a normal distribution of its own. The paper does not say
how many configurations it has, nor how equal results rank. Its two mean ranks add up to less than
3, and the less, the fewer providers there are. So equal results both rank first here, and a
provider has as many configurations as the last one left is pulled.

The best of some draws with repeats is drawn at once: of c sorted values, it is at a place beyond j
with the chance ((c - j) / c)^draws. The first sorted values are drawn exactly, those further back,
where two searches hardly ever meet, by their mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jupyter_sky.decisions.search import round_arms, round_budgets

EXACT = 400
"""Sorted values of a provider that are drawn."""
DEVIATIONS = (1000, 100, 10, 5, 2, 1, 0.1)
PROVIDERS = (12, 10, 8, 6, 5, 4, 3, 2)
PAPER = {  # alone, in CloudBandit
    "deviation": [
        *((1.34, 1.33), (1.34, 1.33), (1.38, 1.33), (1.41, 1.31)),
        *((1.49, 1.24), (1.54, 1.18), (1.56, 1.16)),
    ],
    "providers": [
        *((1.84, 1.08), (1.81, 1.10), (1.78, 1.11), (1.71, 1.14)),
        *((1.68, 1.15), (1.62, 1.17), (1.54, 1.18), (1.39, 1.18)),
    ],
}


def ranks(
    means: Sequence[float], deviation: float, b1: int = 8, seeds: int = 4000, drop: float = 1
) -> tuple[float, float]:
    """Return the mean ranks of random search alone and in CloudBandit.

    Parameters
    ----------
    means, deviation
        Of the providers' normal distributions.
    b1
        First budget; the growth is 2.
    drop
        Providers eliminated after each round, see `jupyter_sky.decisions.search.round_arms`.

    Examples
    --------
    >>> alone, inside = ranks([0.0, 1.0, 2.0], 1.0, seeds=500)
    >>> 1 <= inside < alone <= 2
    True
    """
    random = np.random.default_rng([6, len(means), b1])
    count = len(means)
    sizes, budgets = round_arms(count, drop=drop), round_budgets(count, b1, drop=drop)
    values = _Values(random, np.asarray(means, float), deviation, sum(budgets), seeds)
    total = sum(size * pulls for size, pulls in zip(sizes, budgets, strict=True))
    shares = random.multinomial(total, np.full(count, 1 / count), size=seeds)
    alone = values.best(shares).min(1)
    inside = _bandit(values, sizes, budgets, seeds)
    return float(1 + (alone > inside).mean()), float(1 + (inside > alone).mean())


class _Values:
    """Sorted values of each provider, by seed."""

    def __init__(
        self,
        random: np.random.Generator,
        means: np.ndarray,
        deviation: float,
        length: int,
        seeds: int,
    ) -> None:
        self._random, self._means, self._deviation = random, means, deviation
        self.length = length
        gaps = random.exponential(size=(seeds, len(means), min(length, EXACT) + 1))
        sums = gaps.cumsum(axis=2)
        whole = sums[:, :, -1:] if length <= EXACT else length + 1
        self._shares = sums[:, :, :-1] / whole  # places of the values in their distribution

    def best(self, draws: np.ndarray | int) -> np.ndarray:
        """Return the best of some draws from each provider, by seed."""
        from scipy.special import ndtri

        shape = self._shares.shape[:2]
        at = best_place(self._random, self.length, draws, shape)
        near = np.minimum(at, self._shares.shape[2] - 1)
        share = np.take_along_axis(self._shares, near[:, :, None], axis=2)[:, :, 0]
        share = np.where(at > near, (at + self._random.random(shape)) / self.length, share)
        return self._means + self._deviation * ndtri(share.clip(1e-12, 1 - 1e-12))


def _bandit(values: _Values, sizes: list[int], budgets: list[int], seeds: int) -> np.ndarray:
    """Return the best value that CloudBandit finds, by seed."""
    rows = np.arange(seeds)
    best, active = np.full((seeds, sizes[0]), np.inf), np.ones((seeds, sizes[0]), bool)
    for place, pulls in enumerate(budgets):
        best = np.where(active, np.minimum(best, values.best(pulls)), best)
        out = sizes[place] - sizes[place + 1] if place + 1 < len(sizes) else 0
        for _turn in range(out):
            active[rows, np.where(active, best, -np.inf).argmax(1)] = False
    return np.where(active, best, np.inf).min(1)


def best_place(
    random: np.random.Generator, length: int, draws: np.ndarray | int, shape: tuple[int, ...]
) -> np.ndarray:
    """Return the place of the best of some draws with repeats among sorted values."""
    return (length * (1 - random.random(shape) ** (1 / np.maximum(draws, 1)))).astype(int)


def table(seeds: int = 4000) -> dict[str, list[tuple[float, float]]]:
    """Return Table 6 as `PAPER` has it."""
    return {
        "deviation": [ranks(range(3), each, seeds=seeds) for each in DEVIATIONS],
        "providers": [ranks(range(each), 1.0, seeds=seeds) for each in PROVIDERS],
    }
