import numpy as np
import pytest

from jupyter_sky.decisions.optimizer.solver.hierarchy import Hierarchy, find_hierarchy
from jupyter_sky.decisions.optimizer.solver.model import find_price_tree

from .random_problems import random_problem


def rebuilt(found: Hierarchy) -> np.ndarray:
    """The tables from levels and classes alone."""
    size = found.places
    across = found.across[:, found.row_class][:, :, found.column_class]
    made = across.copy()
    for level in range(len(found.nodes) - 1, -1, -1):
        same = found.nodes[level][:, None] == found.nodes[level]
        made = np.where(same, np.broadcast_to(found.inside[:, level, :, None], made.shape), made)
    assert made.shape[1:] == (size, size)
    return made


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("structured", [True, False])
def test_levels_and_classes_say_the_same_as_the_tables(seed, structured):
    problem = random_problem(seed, places=7, structured=structured, ties=seed % 2 == 0)
    tables = [one.usd for one in problem.tables] + [one.hours for one in problem.tables]
    found = find_hierarchy(tables, problem.places.levels)
    np.testing.assert_allclose(rebuilt(found), np.stack(tables))


@pytest.mark.parametrize("seed", range(20))
def test_least_over_pairs_is_the_same_by_levels_as_by_trying_all(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    problem = random_problem(seed, places=9, structured=seed % 3 > 0)
    found = find_hierarchy([one.usd for one in problem.tables], problem.places.levels)
    if seed % 2:
        found = found.take(np.sort(rng.choice(9, 6, replace=False)))
    h, scale = rng.random((5, found.places)), rng.random(5) * 3
    which = rng.integers(0, 2, 5)
    h[0, 0], scale[1] = np.inf, 0.0  # a place that cannot be, an edge that moves nothing
    cost = scale[:, None, None] * found.tables[which]
    monkeypatch.setattr(Hierarchy, "_dense", lambda self, edges: False)
    np.testing.assert_allclose(found.forward(h, scale, which), (h[:, :, None] + cost).min(1))
    np.testing.assert_allclose(found.backward(h, scale, which), (h[:, None, :] + cost).min(2))


@pytest.mark.parametrize("seed", range(20))
def test_a_tree_gives_every_price_back(seed):
    problem = random_problem(seed, places=8)
    tables = [one.usd for one in problem.tables]
    found = find_price_tree(find_hierarchy(tables, problem.places.levels))
    if found is None:
        pytest.skip("these prices are no tree")
    leaves = found.member[:, :, None] & ~found.member[:, None, :]
    made = found.base[:, :, None] + np.einsum("ka,aij->kij", found.weight, leaves.astype(float))
    np.testing.assert_allclose(made, np.stack(tables), atol=1e-12)


def test_prices_that_no_tree_has_are_refused():
    rng = np.random.default_rng(0)
    assert (
        find_price_tree(find_hierarchy([rng.random((5, 5))], {"cloud": np.array([0, 0, 1, 1, 1])}))
        is None
    )
