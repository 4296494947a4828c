"""The reduction of offers keeps exactly what no other one beats, against a plain double loop."""

from __future__ import annotations

import numpy as np
import pytest

from jupyter_sky.decisions.optimizer.solver.pareto import find_front, first_minimum


def plain(group: np.ndarray, criteria: list[np.ndarray]) -> list[int]:
    kept = []
    for i in range(len(group)):
        beaten = False
        for j in range(len(group)):
            if i == j or group[i] != group[j]:
                continue
            as_good = all(c[j] <= c[i] for c in criteria)
            better = any(c[j] < c[i] for c in criteria)
            beaten |= as_good and (better or j < i)
        if not beaten:
            kept.append(i)
    return kept


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("values", [3, 50])
def test_front_is_that_of_a_double_loop(count: int, values: int) -> None:
    rng = np.random.default_rng(count * 100 + values)
    for _ in range(60):
        size = int(rng.integers(0, 40))
        group = np.sort(rng.integers(0, 4, size))
        criteria = [rng.integers(0, values, size).astype(float) for _ in range(count)]
        assert find_front(group, criteria).tolist() == plain(group, criteria)


def test_one_criterion_keeps_the_first_smallest() -> None:
    rng = np.random.default_rng(7)
    for _ in range(60):
        size = int(rng.integers(1, 40))
        group, value = np.sort(rng.integers(0, 5, size)), rng.integers(0, 4, size).astype(float)
        found = first_minimum(group, value)
        for one in np.unique(group):
            members = np.flatnonzero(group == one)
            assert members[np.argmin(value[members])] in found.tolist()
        assert len(found) == len(np.unique(group))


def test_many_incomparable_offers() -> None:
    size = 2500  # above the size at which the square of comparisons would not fit
    rng = np.random.default_rng(1)
    three = [rng.random(size) for _ in range(3)]
    kept = find_front(np.zeros(size, np.int64), three)
    points = np.stack(three)
    for i in rng.integers(0, size, 50).tolist():
        beaten = (
            np.all(points <= points[:, [i]], axis=0) & np.any(points < points[:, [i]], axis=0)
        ).any()
        assert (i in kept) == (not beaten)
