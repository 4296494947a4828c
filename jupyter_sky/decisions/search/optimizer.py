"""Protocol and base class of optimizers with an ask-and-tell interface."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.search.space import Space

Seed = int | Sequence[int]
Statistic = str | Callable[[np.ndarray], float]

STATISTICS: dict[str, Callable[[np.ndarray], float]] = {
    "mean": lambda values: float(np.mean(values)),
    "median": lambda values: float(np.median(values)),
    "p90": lambda values: float(np.percentile(values, 90)),
    "max": lambda values: float(np.max(values)),
    "min": lambda values: float(np.min(values)),
}
"""Statistics of several measurements of one configuration; the paper's appendix F has three."""

_TINY = 1e-12


class Optimizer(Protocol):
    """Interface of optimizers, which choose the next point to try; smaller values are better.

    Points are named by their place in the space. `ask` may be called again before what it gave
    was told: that is how several tries run at once.

    Attributes
    ----------
    space : Space
        Configurations to choose from.

    Examples
    --------
    >>> from jupyter_sky.decisions.search import RandomSearch, Space
    >>> optimizer = RandomSearch(Space.of({"A": {"nodes": [2]}}))
    >>> optimizer.tell(optimizer.ask(), 0.5)
    >>> optimizer.finished
    True
    """

    space: Space

    def ask(self) -> int | None:
        """Return the next point; None when all is tried or results must come first."""
        ...

    def tell(self, index: int, value: float | None) -> None:
        """Record the value of a point; None when the try failed."""
        ...

    def exclude(self, index: int) -> None:
        """Leave out a point that has no value: it is not under way, nor asked for again."""
        ...

    @property
    def finished(self) -> bool:
        """Whether no further point will be returned."""
        ...


def get_statistic(name: Statistic) -> Callable[[np.ndarray], float]:
    """Return the function of a statistic's name.

    Raises
    ------
    SkyUsageError
        For a name that is not one of `STATISTICS`.

    Examples
    --------
    >>> get_statistic("median")(np.array([1.0, 2.0, 9.0]))
    2.0
    """
    if callable(name):
        return name
    if name not in STATISTICS:
        raise SkyUsageError(
            _("statistic {name!r} is not known").format(name=name), hint=suggest(name, STATISTICS)
        )
    return STATISTICS[name]


class Remembering:
    """An optimizer over some points of a space that never asks for one of them twice.

    Subclasses say in `_choose` which of the points that are left to try next.

    Parameters
    ----------
    space : Space
        What can be tried.
    members : sequence of int, optional
        The points to choose from, as those of one arm; all unless given.
    seed
        Of the generator of random numbers: the same seed gives the same trace.
    statistic
        What several values of one point amount to.

    Examples
    --------
    >>> from jupyter_sky.decisions.search import Cheapest, Space
    >>> issubclass(Cheapest, Remembering)
    True
    """

    repeats = False

    def __init__(
        self,
        space: Space,
        members: Sequence[int] | np.ndarray | None = None,
        seed: Seed = 0,
        statistic: Statistic = "mean",
    ) -> None:
        self.space = space
        self.members = np.arange(len(space)) if members is None else np.asarray(members)
        self.random = np.random.default_rng(seed)
        self._amount = get_statistic(statistic)
        self._told: dict[int, list[float | None]] = {}
        self._pending: Counter[int] = Counter()
        self._excluded: set[int] = set()

    # -- asking and telling --------------------------------------------------------------------

    def ask(self) -> int | None:
        """Return the next point; None when all is tried or results must come first."""
        left = self.left
        if not len(left):
            return None
        index = int(self._choose(left))
        self._pending[index] += 1
        return index

    def tell(self, index: int, value: float | None) -> None:
        """Record the value of a point; None when the try failed."""
        if index not in self._place:
            raise SkyUsageError(
                _("point {index} is none of the {members_count} that are searched").format(
                    index=index, members_count=len(self.members)
                ),
                hint=_("tell what ask gave"),
            )
        if self._pending[index]:
            self._pending[index] -= 1
        self._told.setdefault(index, []).append(valid_value(value))

    def exclude(self, index: int) -> None:
        """Leave out a point that has no value: it is not under way, nor asked for again."""
        self._pending.pop(index, None)
        self._excluded.add(index)

    @property
    def finished(self) -> bool:
        """Whether no further point will be returned."""
        if self.repeats:
            return not len(self.left)
        return len(self._told.keys() | self._excluded) == len(self.members) and not self.pending

    # -- what is known -------------------------------------------------------------------------

    @property
    def _place(self) -> dict[int, int]:
        if not hasattr(self, "_places"):
            self._places = {int(index): place for place, index in enumerate(self.members)}
        return self._places

    @property
    def pending(self) -> list[int]:
        """Points that were asked for and not told yet."""
        return [index for index, count in self._pending.items() if count]

    @property
    def left(self) -> np.ndarray:
        """Points that may be asked for."""
        if self.repeats and not self._excluded:
            return self.members
        tried = set() if self.repeats else self._told.keys() | set(self.pending)
        busy = tried | self._excluded
        return np.array([index for index in self.members.tolist() if index not in busy], int)

    def value(self, index: int) -> float | None:
        """Summarize the values of a point; None when all of its tries failed."""
        good = [value for value in self._told.get(index, []) if value is not None]
        return self._amount(np.array(good)) if good else None

    @property
    def told(self) -> tuple[np.ndarray, np.ndarray]:
        """Points that were told, by their first try, and their values; NaN for failed ones."""
        points = list(self._told)
        values = [self.value(index) for index in points]
        return np.array(points, int), np.array([np.nan if v is None else v for v in values], float)

    @property
    def best(self) -> tuple[int, float] | None:
        """The best point and its value; None as long as none succeeded."""
        points, values = self.told
        if not np.isfinite(values).any():
            return None
        place = int(np.nanargmin(values))
        return int(points[place]), float(values[place])

    # -- for subclasses ------------------------------------------------------------------------

    def _choose(self, left: np.ndarray) -> int:
        raise NotImplementedError

    def _first(self, scores: np.ndarray, left: np.ndarray) -> int:
        """Return the point with the highest score; a random one of equally good points."""
        return int(self.random.choice(left[scores >= scores.max() - 1e-9 * abs(scores.max())]))


def valid_value(value: float | None) -> float | None:
    """Normalize a recorded value; all but a finite number of 0 or more is a failure."""
    return value if value is not None and 0 <= value < float("inf") else None


def log_values(values: np.ndarray) -> np.ndarray:
    """Logarithms, in which run times and costs have errors of one size."""
    return np.log(np.maximum(values, _TINY))


def fill_failures(values: np.ndarray) -> np.ndarray:
    """Logarithms where a failure, NaN, is as bad as the worst success; 0 when none succeeded."""
    good = np.isfinite(values)
    if not good.any():
        return np.zeros(len(values))
    return log_values(np.where(good, values, values[good].max()))


def expected_improvement(best: float, mean: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Mean of ``max(0, best - Y)`` for normal Y of some means and standard deviations."""
    from scipy.special import ndtr

    spread = np.maximum(spread, _TINY)
    z = (best - mean) / spread
    return spread * (z * ndtr(z) + np.exp(-z * z / 2) / np.sqrt(2 * np.pi))


def probability_of_improvement(best: float, mean: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Chance that a normal Y of some means and standard deviations is below ``best``."""
    from scipy.special import ndtr

    return ndtr((best - mean) / np.maximum(spread, _TINY))
