"""Every way to write transfers says what the tables say, and relaxes as tightly as pairs do."""

import numpy as np
import pytest

from jupyter_sky.decisions.optimizer.solver.hierarchy import Hierarchy
from jupyter_sky.decisions.optimizer.solver.model import (
    ModelBuilder,
    PriceTree,
    TransferRows,
    find_structure,
    solve_model,
)
from jupyter_sky.decisions.optimizer.solver.problem import (
    Objective,
    Places,
    Problem,
    TransferTable,
    make_edges,
    make_task_labels,
)

from .random_problems import best_by_trying

pytest.importorskip("cvxpy")


def problem(seed: int, kind: str, tasks: int = 4) -> Problem:
    """Eight places in two clouds; prices by node, by place and level, or by target as well."""
    rng = np.random.default_rng(seed)
    region, cloud = np.arange(8) // 2, np.arange(8) // 4
    level = (region[:, None] != region).astype(int) + (cloud[:, None] != cloud)
    level += np.arange(8)[:, None] != np.arange(8)
    tables = []
    for _ in range(2):
        of = {"tree": cloud, "source": np.arange(8) // 2, "target": np.arange(8)}[kind]
        steps = np.cumsum(rng.random((2, 8, 4)) * np.array([0, 1, 1, 1]), axis=2)
        amounts = steps[:, of][:, np.arange(8)[:, None], level]
        if kind == "target":
            amounts = amounts + (level == 3) * rng.random((2, 1, 2))[:, :, region // 2 % 2]
        tables.append(TransferTable(*amounts))
    work = tuple(
        make_task_labels(f"t{k}", np.arange(8), rng.random(8) * 3, rng.random(8))
        for k in range(tasks)
    )
    edges = [
        (u, v, float(rng.random()), int(rng.integers(2))) for u in range(tasks) for v in range(u)
    ]
    edges = [(v, u, *rest) for u, v, *rest in edges if rng.random() < 0.8]
    places = Places(tuple("abcdefgh"), {"region": region, "cloud": cloud})
    return Problem(places, work, make_edges(edges), tuple(tables))


def relaxed(one: Problem, goal: Objective, monkeypatch, pairs: bool):
    kept = [np.arange(8)] * len(one.tasks)
    with monkeypatch.context() as patch:
        patch.setattr(TransferRows, "_size", lambda *_: 10**9 if pairs else 0)
        builder = ModelBuilder(one, goal, kept)
        model = builder.build(find_structure(one, builder.kinds), relaxed=True)
    solve_model(model, "highs", 10.0)
    return model.program.value / model.scale, model.variables


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["tree", "source", "target"])
def test_the_structure_is_found_and_the_relaxation_is_as_tight(seed, kind, monkeypatch):
    one = problem(seed, kind)
    found = find_structure(one, ["usd"]).found
    assert isinstance(found, PriceTree if kind == "tree" else Hierarchy)
    goal = Objective("cost")
    ours, few = relaxed(one, goal, monkeypatch, pairs=False)
    textbook, many = relaxed(one, goal, monkeypatch, pairs=True)
    assert few < many
    assert ours <= textbook + 1e-6
    assert ours >= textbook * (0.97 if kind == "target" else 1 - 1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["tree", "source", "target"])
@pytest.mark.parametrize("goal", [Objective("cost"), Objective("time")])
def test_the_model_is_exact_however_transfers_are_written(seed, kind, goal, monkeypatch):
    one = problem(seed, kind, tasks=3)
    monkeypatch.setattr(TransferRows, "_size", lambda *_: 0)
    builder = ModelBuilder(one, goal, [np.arange(8)] * 3)
    model = builder.build(find_structure(one, builder.kinds))
    assert solve_model(model, "highs", 10.0).status == "optimal"
    wanted, _ = best_by_trying(one, goal)
    assert model.program.value / model.scale == pytest.approx(wanted, rel=1e-6)
