"""Covariances of configurations that take account of arms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jupyter_sky.decisions.search.space import Space


@dataclass(frozen=True, slots=True)
class KernelSettings:
    """Sizes and lengths of the parts of a covariance.

    Attributes
    ----------
    length : float
        Distance over which numbers matter, in doublings.
    alike : float
        Correlation that is left for each category in which two points of an arm differ.
    level, arm, shared, own : float
        Variance of the level of all points, of an arm's level, of what the numbers that all arms
        have explain in all arms alike, and of what all parameters explain in one arm.
    each : float
        Variance of a configuration's own peculiarity, which no other one shares. It is part of
        what is searched for: of two points that the rest calls equal, one is better.
    """

    length: float = 2.0
    alike: float = 0.5
    level: float = 1.0
    arm: float = 0.5
    shared: float = 0.5
    own: float = 0.5
    each: float = 0.15

    @property
    def variance(self) -> float:
        """Variance of a point."""
        return self.level + self.arm + self.shared + self.own + self.each


class SpaceKernel:
    """Covariance of all points of a space with one, in any setting.

    The parts are those of a hierarchical space: level, arm, the numbers that all arms have
    (nodes, size), and all parameters within an arm. Numbers enter by a squared exponential,
    categories by a factor for each difference.
    """

    def __init__(self, space: Space) -> None:
        self._arm = space.arm_of
        columns = {name: space.column(name) for name in space.parameters}
        self._shared = _stack([columns[name][0] for name in space.shared], len(space))
        numbers = [values for values, numeric in columns.values() if numeric]
        words = [values for values, numeric in columns.values() if not numeric]
        self._numbers = np.nan_to_num(_stack(numbers, len(space)))
        self._words = np.nan_to_num(_stack(words, len(space)), nan=-1.0)
        self._columns: dict[tuple[int, KernelSettings], np.ndarray] = {}

    def column(self, index: int, setting: KernelSettings) -> np.ndarray:
        """Covariance of every point with one of them."""
        found = self._columns.get((index, setting))
        if found is None:
            found = self._columns[index, setting] = self._compute(index, setting)
        return found

    def columns(self, points: np.ndarray, setting: KernelSettings) -> np.ndarray:
        """Covariance of every point with some, a column for each."""
        if not len(points):
            return np.zeros((len(self._arm), 0))
        return np.stack([self.column(int(index), setting) for index in points], axis=1)

    def _compute(self, index: int, setting: KernelSettings) -> np.ndarray:
        scale = 2 * setting.length**2
        same = self._arm == self._arm[index]
        far = ((self._shared - self._shared[index]) ** 2).sum(1)
        own = ((self._numbers - self._numbers[index]) ** 2).sum(1)
        differ = (self._words != self._words[index]).sum(1)
        inside = setting.arm + setting.own * np.exp(-own / scale) * setting.alike**differ
        column = setting.level + same * inside + setting.shared * np.exp(-far / scale)
        column[index] += setting.each
        return column


def _stack(columns: list[np.ndarray], length: int) -> np.ndarray:
    return np.stack(columns, axis=1) if columns else np.zeros((length, 0))
