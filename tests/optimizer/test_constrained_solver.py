"""Methods for large problems under limits, tried on small ones."""

import numpy as np
import pytest

from jupyter_sky.decisions.optimizer.solver import solve as constrained_solver
from jupyter_sky.decisions.optimizer.solver.bounds import find_fork_join, solve_fork_join
from jupyter_sky.decisions.optimizer.solver.evaluator import evaluate
from jupyter_sky.decisions.optimizer.solver.problem import Objective, Problem, make_edges
from jupyter_sky.decisions.optimizer.solver.pruning import allowed_labels
from jupyter_sky.decisions.optimizer.solver.solve import solve

from .random_problems import best_by_trying, random_problem


def slow(seeds) -> list:
    return [pytest.param(seed, marks=pytest.mark.slow) for seed in seeds]


FORK = [(0, 1, 1.0, 0), (1, 3, 0.5, 1), (0, 2, 0.7, 1), (2, 3, 0.0, 0)]
CHAIN = [(0, 1, 1.0, 0), (1, 2, 0.5, 1), (2, 3, 0.4, 0)]


def graph(seed: int, edges: list, **more) -> Problem:
    base = random_problem(seed, tasks=4, places=2, per_place=2, **more)
    return Problem(base.places, base.tasks, make_edges(edges), base.tables)


@pytest.mark.parametrize("seed", [0, 1, 2, *slow(range(3, 12))])
@pytest.mark.parametrize("edges", [FORK, CHAIN, None])
@pytest.mark.parametrize("factor", [1.0, 1.15, 1.5])
def test_relaxing_first_loses_nothing(seed, edges, factor, monkeypatch):
    monkeypatch.setattr(constrained_solver, "_SMALL", 0)
    more = {"ties": seed % 2 == 0, "structured": seed % 3 > 0}
    problem = (
        graph(seed, edges, **more) if edges else random_problem(seed, tasks=3, per_place=2, **more)
    )
    fastest, _ = best_by_trying(problem, Objective("time"))
    goal = Objective("cost", deadline_h=fastest * factor * (1 + 1e-6))
    wanted, _ = best_by_trying(problem, goal)
    solution = solve(problem, goal, solver=("auto", "glpk")[seed % 2])
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(wanted, rel=2e-6, abs=2e-6)


@pytest.mark.parametrize("kind", ["time", "weighted", "carbon"])
@pytest.mark.parametrize("seed", [0, 4, *slow(range(5, 9))])
def test_relaxing_first_with_budgets(seed, kind, monkeypatch):
    monkeypatch.setattr(constrained_solver, "_SMALL", 0)
    problem = random_problem(seed, tasks=3, per_place=2, places=3)
    cheapest, _ = best_by_trying(problem, Objective("cost"))
    goal = Objective(kind, hour_weight=1.0, budget_usd=1.3 * cheapest)
    wanted, _ = best_by_trying(problem, goal)
    assert solve(problem, goal).value == pytest.approx(wanted, rel=2e-6, abs=2e-6)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("edges", [FORK, CHAIN])
@pytest.mark.parametrize("price", [0.0, 0.8])
def test_branches_are_solved_exactly_at_any_price(seed, edges, price):
    problem = graph(seed, edges, ties=seed % 2 == 0)
    kept = [np.flatnonzero(flags) for flags in allowed_labels(problem)]
    fastest, _ = best_by_trying(problem, Objective("time"))
    deadline = 1.2 * fastest
    wanted, _ = best_by_trying(problem, Objective("cost", deadline_h=deadline))
    prices = np.full(len(edges), price)
    for upper in (wanted * 1.2, wanted * (1 + 1e-9)):
        status, choice = solve_fork_join(problem, kept, prices, deadline, upper)
        assert status == "optimal"
        outcome = evaluate(problem, choice)
        assert outcome.cost == pytest.approx(wanted)
        assert outcome.hours <= deadline * (1 + 1e-9)
    assert solve_fork_join(problem, kept, prices, deadline, wanted * 0.99)[0] == "infeasible"


def test_only_chains_and_fork_joins_have_branches():
    assert find_fork_join(graph(0, FORK)).branches == ((1,), (2,))
    assert find_fork_join(graph(0, CHAIN)).branches == ((1, 2),)
    assert find_fork_join(graph(0, [*FORK, (1, 2, 1.0, 0)])) is None
    assert find_fork_join(graph(0, CHAIN[:2])) is None
