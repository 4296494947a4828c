"""Tests of whether optimizers differ over a collection of tasks, as the CloudBandit paper has them.

Demšar, "Statistical comparisons of classifiers over multiple data sets" (2006): ranks and tests of
ranks over tasks, in place of tests on each task.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np


def average_ranks(values: np.ndarray) -> np.ndarray:
    """Return the mean rank of each column over the rows; equal values share a rank.

    Examples
    --------
    >>> average_ranks(np.array([[1.0, 2.0, 3.0], [1.0, 1.0, 3.0]]))
    array([1.25, 1.75, 3.  ])
    """
    from scipy.stats import rankdata

    return rankdata(values, axis=1).mean(0)


def iman_davenport(values: np.ndarray) -> tuple[float, float]:
    """Return statistic and p-value of Iman and Davenport's correction of Friedman's test.

    Parameters
    ----------
    values
        Tasks in rows, algorithms in columns.

    Examples
    --------
    >>> same, other = np.arange(30.0).reshape(10, 3), np.tile([1.0, 2.0, 3.0], (10, 1))
    >>> other[0] = [2.0, 1.0, 3.0]
    >>> iman_davenport(other)[1] < 0.001 < iman_davenport(np.roll(same, 1)[:, ::-1] % 7)[1]
    True
    """
    from scipy.stats import f

    tasks, algorithms = values.shape
    ranks = average_ranks(values)
    spread = float((ranks**2).sum()) - algorithms * (algorithms + 1) ** 2 / 4
    friedman = 12 * tasks / (algorithms * (algorithms + 1)) * spread
    rest = tasks * (algorithms - 1) - friedman
    if rest <= 0:  # the same order in every task
        return float("inf"), 0.0
    statistic = (tasks - 1) * friedman / rest
    degrees = algorithms - 1, (algorithms - 1) * (tasks - 1)
    return float(statistic), float(f.sf(statistic, *degrees))


def li_correction(p_values: np.ndarray) -> np.ndarray:
    """Return p-values corrected for their number by Li's two steps (2008).

    Examples
    --------
    >>> li_correction(np.array([0.01, 0.5])).round(4)
    array([0.0196, 0.5   ])
    """
    found = np.asarray(p_values, float)
    rest = 1 - found.max()
    total = found + rest
    return np.divide(found, total, out=np.ones_like(found), where=total > 0)


def wilcoxon_pairs(values: np.ndarray) -> dict[tuple[int, int], float]:
    """Return the p-values of Wilcoxon's signed-rank tests of all pairs of columns, Li-corrected.

    Examples
    --------
    >>> values = np.arange(20.0)[:, None] + np.array([0.0, 1.0, 1.0])
    >>> found = wilcoxon_pairs(values)
    >>> found[0, 1] < 0.001, found[1, 2]
    (True, 1.0)
    """
    from scipy.stats import wilcoxon

    pairs = list(combinations(range(values.shape[1]), 2))
    found = []
    for one, other in pairs:
        differ = values[:, one] - values[:, other]
        equal = not np.any(np.abs(differ) > 1e-12)
        found.append(1.0 if equal else float(wilcoxon(differ, zero_method="zsplit").pvalue))
    if max(found) == 1.0:  # then Li's second step divides by what is left of nothing
        rest = np.array(found) < 1.0
        corrected = np.ones(len(found))
        if rest.any():
            corrected[rest] = li_correction(np.array(found)[rest])
    else:
        corrected = li_correction(np.array(found))
    return dict(zip(pairs, corrected.tolist(), strict=True))
