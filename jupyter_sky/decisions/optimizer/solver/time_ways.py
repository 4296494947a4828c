"""Least of rows of values over steps of time, shifted in time, by the rows that they lead to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jupyter_sky.decisions.optimizer.solver.pareto import starts_of
from jupyter_sky.decisions.optimizer.solver.problem import Floats, Ints

_SIZES = np.unique([k << n for k in (2, 3) for n in range(24)] + [1])  # of bundles of ways


@dataclass(frozen=True, eq=False)
class Bundle:
    """Rows that equally many ways lead to.

    Attributes
    ----------
    target : int array
    source, shift : int arrays, targets x ways
        Row that each way leaves, and which column of the padded values is its first.
    usd : float array, targets x ways x 1
    """

    target: Ints
    source: Ints
    shift: Ints
    usd: Floats


@dataclass(frozen=True, eq=False)
class Ways:
    """Ways from rows of values at some steps to `count` rows of `width` steps."""

    bundles: tuple[Bundle, ...]
    count: int
    width: int

    def lead(self, padded: Floats) -> Floats:
        """Return for each row the least that ways bring to it; ``inf`` where none does."""
        # a view made by hand: `sliding_window_view` takes as long as the copy itself
        rows, columns = padded.shape
        shape, (far, near) = (rows, columns - self.width + 1, self.width), padded.strides
        view = np.ndarray(shape, padded.dtype, padded, 0, (far, near, near))
        least = np.full((self.count, self.width), np.inf)
        for one in self.bundles:
            came = view[one.source, one.shift]
            came += one.usd
            least[one.target] = came.min(axis=1)
        return least


def make_ways(
    source: Ints,
    target: Ints,
    shape: tuple[int, int],
    usd: Floats | None = None,
    shift: Ints | None = None,
) -> Ways:
    """Return ways bundled by how many lead to a row: numpy is slow at groups of unequal sizes."""
    order = np.argsort(target, kind="stable")
    starts = starts_of(target[order])
    counts = np.diff(np.r_[starts, len(order)])
    sizes = _SIZES[np.searchsorted(_SIZES, counts)]
    usd = np.zeros(len(order)) if usd is None else usd
    shift = np.zeros(len(order), np.int64) if shift is None else shift
    bundles = []
    for size in np.unique(sizes):
        here = sizes == size
        # a way that is there twice changes nothing
        ways = starts[here, None] + np.minimum(np.arange(size), counts[here, None] - 1)
        ways = order[ways]
        bundles.append(Bundle(target[ways[:, 0]], source[ways], shift[ways], usd[ways][:, :, None]))
    return Ways(tuple(bundles), *shape)
