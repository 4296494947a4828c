import numpy as np
import pytest

from jupyter_sky.decisions.optimizer.solver.evaluator import (
    evaluate,
    is_within_limits,
    objective_value,
)
from jupyter_sky.decisions.optimizer.solver.problem import (
    LinearLimit,
    Objective,
    Places,
    Problem,
    SameConstraint,
    TransferTable,
    make_edges,
    make_task_labels,
)

APART = 1.0 - np.eye(2)


def diamond(**more) -> Problem:
    """By hand: two branches of 1 and 3 h between tasks of 1 h; 2 GB on each edge."""
    hours = (1.0, 1.0, 3.0, 1.0)
    tasks = tuple(
        make_task_labels(
            f"t{k}", [0, 1], [1.0, 2.0], h, gco2=[5.0, 1.0], ready_hours=0.5 if k == 0 else 0
        )
        for k, h in enumerate(hours)
    )
    edges = make_edges([(0, 1, 2.0), (0, 2, 2.0), (1, 3, 2.0), (2, 3, 2.0)])
    table = TransferTable(0.1 * APART, 0.25 * APART, 3.0 * APART)
    return Problem(Places(("a", "b"), {"cloud": np.arange(2)}), tasks, edges, (table,), **more)


def test_a_graph_worked_out_by_hand():
    together = evaluate(diamond(), (0, 0, 0, 0))
    assert together.cost == 4.0
    assert together.hours == 0.5 + 1 + 3 + 1
    assert together.gco2 == 20.0
    apart = evaluate(diamond(), (0, 1, 0, 0))
    assert apart.cost == pytest.approx(5.0 + 2 * 0.2)
    assert apart.hours == 5.5  # the branch of 1 h has time for two moves of half an hour
    assert apart.gco2 == pytest.approx(16 + 2 * 6)
    assert apart.finish == (1.5, 3.0, 4.5, 5.5)


def test_nothing_costs_nothing_to_move_even_where_nothing_can():
    table = TransferTable(np.where(APART > 0, np.inf, 0), np.where(APART > 0, np.inf, 0))
    tasks = (make_task_labels("u", [0], 1, 1), make_task_labels("v", [1], 1, 1))
    still = Problem(Places(("a", "b")), tasks, make_edges([(0, 1, 0.0)]), (table,))
    assert evaluate(still, (0, 0))[:2] == (2.0, 2.0)


def test_limits_and_demands_are_looked_at_one_by_one():
    problem = diamond()
    assert is_within_limits(
        problem, Objective(deadline_h=5.5, budget_usd=4.0, carbon_cap_g=20.0), (0,) * 4
    )
    assert not is_within_limits(problem, Objective(deadline_h=5.4), (0,) * 4)
    assert not is_within_limits(problem, Objective(budget_usd=3.9), (0,) * 4)
    assert not is_within_limits(problem, Objective(carbon_cap_g=19.0), (0,) * 4)
    row = LinearLimit("b only once", {v: np.array([0.0, 1.0]) for v in range(4)}, 1.0)
    assert is_within_limits(diamond(rows=(row,)), Objective(), (0, 1, 0, 0))
    assert not is_within_limits(diamond(rows=(row,)), Objective(), (0, 1, 1, 0))
    same = SameConstraint("together", (0, 3), "cloud")
    assert not is_within_limits(diamond(same=(same,)), Objective(), (0, 0, 0, 1))


def test_the_value_is_what_the_objective_names():
    outcome = evaluate(diamond(), (0,) * 4)
    assert objective_value(Objective("time"), outcome) == 5.5
    assert objective_value(Objective("carbon"), outcome) == 20.0
    assert objective_value(Objective("time_then_cost"), outcome) == 4.0
    weighted = Objective("weighted", 2.0, 3.0, 0.1)
    assert objective_value(weighted, outcome) == pytest.approx(8 + 16.5 + 2)


def test_a_chain_of_many_tasks_needs_no_deep_stack():
    tasks = tuple(make_task_labels(f"t{k}", [0], 1, 1) for k in range(3000))
    edges = make_edges([(k + 1, k, 0.0) for k in range(2999)])
    table = TransferTable(np.zeros((1, 1)), np.zeros((1, 1)))
    assert evaluate(Problem(Places(("a",)), tasks, edges, (table,)), (0,) * 3000).hours == 3000
