"""Offers that no other one beats: the exact reduction before the model is made.

Two offers of one group differ in nothing that the rest of a plan can feel except in their
criteria (USD, h, g...). If one is no worse in all of them, it can take the other's place in any
plan: nothing outside of the task changes, the sums do not grow, and the longest path does not
either. So an optimum is left when every offer goes that another, kept one beats. Of offers that
are equal in all criteria the first in canonical order stays, which makes the choice deterministic.
(Proposition 1 of the notes on placement; `tests/optimizer/test_pareto.py` holds it to brute force.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jupyter_sky.decisions.optimizer.solver.problem import Flags, Floats, Ints


def starts_of(group: Ints) -> Ints:
    """Return where each run of equal numbers begins, in a sorted array.

    Examples
    --------
    >>> starts_of(np.array([3, 3, 5, 9, 9])).tolist()
    [0, 2, 3]
    """
    if not len(group):
        return np.zeros(0, np.int64)
    return np.concatenate([[0], np.flatnonzero(group[1:] != group[:-1]) + 1])


def sort_into_groups(tags: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Return an order in which members with equal tags stand together, and their groups in it.

    Examples
    --------
    >>> order, group = sort_into_groups([np.array([2, 1, 2]), np.array([7, 7, 7])])
    >>> order.tolist(), group.tolist()
    ([1, 0, 2], [0, 1, 1])
    """
    order = np.lexsort(tags[::-1])
    group = np.zeros(len(order), np.int64)
    ordered = np.stack(tags)[:, order]
    group[1:] = np.cumsum((ordered[:, 1:] != ordered[:, :-1]).any(axis=0))
    return order, group


def first_minimum(group: Ints, values: Floats) -> Ints:
    """Return the first smallest of each group; groups are sorted.

    Examples
    --------
    >>> first_minimum(np.array([0, 0, 1]), np.array([2.0, 1.0, 5.0])).tolist()
    [1, 2]
    """
    starts = starts_of(group)
    if not len(starts):
        return starts
    smallest = np.minimum.reduceat(values, starts)
    sizes = np.diff(np.r_[starts, len(group)])
    hits = np.flatnonzero(values == np.repeat(smallest, sizes))
    return hits[starts_of(group[hits])]


def find_front(group: Ints, criteria: Sequence[Floats]) -> Ints:
    """Return rising indices of members that no other of their group equals in all criteria.

    Parameters
    ----------
    group
        Sorted; only members of one group are compared.
    criteria
        Small is good.

    Examples
    --------
    >>> usd, hours = np.array([1.0, 2.0, 3.0]), np.array([4.0, 2.0, 2.0])
    >>> find_front(np.array([0, 0, 0]), [usd, hours]).tolist()
    [0, 1]
    """
    if not len(group):
        return np.zeros(0, np.int64)
    criteria = [values for values in criteria if _varies(group, values)] or criteria[:1]
    if len(criteria) == 1:
        return first_minimum(group, criteria[0])
    left = np.arange(len(group))
    # what the best by one criterion beats needs no closer look: as a rule that is nearly all
    for values in (*criteria, _criteria_product(criteria)):
        pivots = left[first_minimum(group[left], values[left])]
        sizes = np.diff(np.r_[starts_of(group[left]), len(left)])
        against = np.repeat(pivots, sizes)
        beaten = against != left
        for each in criteria:
            beaten &= each[against] <= each[left]
        left = left[~beaten]
    return (
        _find_front_of_two(group, criteria, left)
        if len(criteria) == 2
        else _find_front_of_many(group, criteria, left)
    )


def _varies(group: Ints, values: Floats) -> bool:
    """Return whether values tell members of any one group apart."""
    return bool(((values[1:] != values[:-1]) & (group[1:] == group[:-1])).any())


def _criteria_product(criteria: Sequence[Floats]) -> Floats:
    """Return the product of all criteria: offers good at everything a little beat many."""
    product = np.ones(len(criteria[0]))
    for values in criteria:
        product = product * values
    return product


def _find_front_of_two(group: Ints, criteria: Sequence[Floats], left: Ints) -> Ints:
    """Return the exact front by two criteria: along the first, the second must get smaller."""
    first, second = (values[left] for values in criteria)
    order = np.lexsort([left, second, first, group[left]])
    rank = np.unique(second[order], return_inverse=True)[1].reshape(-1)
    number = np.cumsum(np.r_[0, group[left][order][1:] != group[left][order][:-1]])
    # each group lies below those before it, so that one running minimum serves all
    key = rank - number * (len(order) + 1)
    least = np.minimum.accumulate(key)
    kept = np.r_[True, key[1:] < least[:-1]] if len(key) else np.zeros(0, bool)
    return np.sort(left[order[kept]])


def _find_front_of_many(group: Ints, criteria: Sequence[Floats], left: Ints) -> Ints:
    """Return the exact front by more criteria, group by group."""
    order = left[np.lexsort([left, *(c[left] for c in reversed(criteria)), group[left]])]
    values, kept = np.stack([c[order] for c in criteria]), []
    starts = starts_of(group[order])
    for start, stop in zip(starts, np.r_[starts[1:], len(order)], strict=True):
        kept.append(order[start:stop][_maxima(values[:, start:stop])])
    return np.sort(np.concatenate(kept)) if kept else left


def _maxima(values: Floats) -> Flags:
    """Return which columns, in lexicographic order, no earlier one beats in every criterion."""
    count = values.shape[1]
    if count > 2000:  # the square below would not fit
        good = np.ones(count, bool)
        for column in range(1, count):
            chosen = np.flatnonzero(good[:column])
            good[column] = not np.all(values[:, chosen] <= values[:, [column]], axis=0).any()
        return good
    beats = np.all(values[:, :, None] <= values[:, None, :], axis=0)
    return ~np.triu(beats, 1).any(axis=0)
