"""Bounds, dominance and elimination of sums over tasks and edges."""

import time

import numpy as np
import pytest

from jupyter_sky.decisions.optimizer.solver.additive_problem import TIE, make_additive
from jupyter_sky.decisions.optimizer.solver.additive_solver import (
    AdditiveSearch,
    eliminate,
    elimination_order,
    find_undominated,
    reduce_problem,
)
from jupyter_sky.decisions.optimizer.solver.dual_bound import DualBound
from jupyter_sky.decisions.optimizer.solver.problem import (
    Objective,
    Places,
    Problem,
    TransferTable,
    make_edges,
    make_task_labels,
)
from jupyter_sky.decisions.optimizer.solver.pruning import allowed_labels

from .random_problems import best_by_trying, random_problem


def a_sum(seed: int, **shape):
    problem = random_problem(seed, **shape)
    return problem, make_additive(problem, allowed_labels(problem), (1.0, 0.0))


def referee(sums) -> tuple[float, np.ndarray]:
    pairs = [
        (int(u), int(v), scale * sums.hier.tables[k])
        for u, v, scale, k in zip(sums.src, sums.dst, sums.scale, sums.table, strict=True)
    ]
    return eliminate(list(sums.unary), pairs)


@pytest.mark.parametrize("seed", range(12))
def test_elimination_finds_the_best_of_all_plans(seed):
    problem, sums = a_sum(seed, tasks=5, places=3, ties=seed % 2 == 0)
    value, x = referee(sums)
    assert value == pytest.approx(best_by_trying(problem, Objective())[0], abs=1e-7)
    assert sums.value(x) == pytest.approx(value)


def test_elimination_of_a_long_chain_stays_small():
    order = elimination_order([50] * 1000, [(k, k + 1) for k in range(999)])
    assert order.largest <= 50**2 + 1
    assert sorted(order.tasks) == list(range(1000))


@pytest.mark.parametrize("seed", range(12))
def test_bounds_stay_below_the_best_and_no_best_label_goes(seed):
    """On graphs with cycles: where a careless bound has claimed more than there is."""
    _, sums = a_sum(seed, tasks=7, places=5, structured=seed % 3 > 0)
    best, x = referee(sums)
    dual = DualBound(sums)
    for _ in range(12):
        dual.sweep()
        low, rise = dual.edge_bound()
        assert dual.bound <= best + 1e-9
        assert low <= best + 1e-9
        assert dual.best >= best - 1e-9
        rows = np.arange(len(x))
        assert (low + rise[rows, x] <= best + 1e-9).all()
        assert not dual.find_removable(1e-9)[rows, x].any() or dual.best > best


@pytest.mark.parametrize("seed", range(4))
def test_a_search_begins_at_the_best_single_place(seed):
    _, sums = a_sum(seed, tasks=6, places=4)
    together = [sums.value(np.full(6, place)) for place in range(4)]
    assert AdditiveSearch(sums, False, None).dual.best <= min(together) + 1e-9
    assert np.isfinite(min(together))


@pytest.mark.parametrize("seed", range(12))
def test_the_rise_of_a_label_is_a_bound_on_plans_with_it(seed):
    _, sums = a_sum(seed, tasks=4, places=4)
    dual = DualBound(sums)
    for _ in range(5):
        dual.sweep()
    low, rise = dual.edge_bound()
    for v in range(4):
        for k in range(4):
            only = sums.unary.copy()
            only[v, np.arange(4) != k] = np.inf
            forced = referee(
                type(sums)(
                    only,
                    *(getattr(sums, f) for f in ("label", "src", "dst", "scale", "table", "hier")),
                )
            )[0]
            assert low + rise[v, k] <= forced + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_dominated_places_are_not_needed(seed):
    _, sums = a_sum(seed, tasks=5, places=7, ties=True, structured=seed % 4 > 0)
    kept = find_undominated(sums)
    assert referee(sums.take(kept))[0] == pytest.approx(referee(sums)[0], abs=1e-12)


def test_equal_places_leave_only_the_first():
    zeros = np.zeros((3, 3))
    tasks = tuple(make_task_labels(f"t{k}", [0, 1, 2], 1.0, 1.0) for k in range(2))
    same = Problem(
        Places(("a", "b", "c")), tasks, make_edges([(0, 1, 1.0)]), (TransferTable(zeros, zeros),)
    )
    assert find_undominated(make_additive(same, allowed_labels(same), (1.0, 0.0))).tolist() == [0]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("exact", [True, False])
def test_reduced_sums_keep_the_best(seed, exact):
    _, sums = a_sum(seed, tasks=9, places=6, ties=seed % 2 == 0)
    best, _ = referee(sums)
    found = reduce_problem(sums, time.process_time() + 10, exact=exact)
    assert found.bound <= best * (1 + 3 * TIE) + 1e-12
    assert found.best >= best * (1 - 3 * TIE)
    if found.proof:
        assert found.best == pytest.approx(best, rel=3 * TIE)
    only = np.where(found.open, sums.unary, np.inf)
    left = type(sums)(only, sums.label, sums.src, sums.dst, sums.scale, sums.table, sums.hier)
    assert min(referee(left)[0], found.best) == pytest.approx(best, rel=3 * TIE)
