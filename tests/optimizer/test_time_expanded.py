"""The bound over labels and times against trying every plan."""

from dataclasses import replace

import numpy as np
import pytest

from jupyter_sky.decisions.optimizer.solver import solve as constrained_solver
from jupyter_sky.decisions.optimizer.solver.bounds import DeadlineSearch
from jupyter_sky.decisions.optimizer.solver.evaluator import evaluate
from jupyter_sky.decisions.optimizer.solver.longest_paths import PathBounds, bound_paths
from jupyter_sky.decisions.optimizer.solver.problem import (
    LabelMask,
    Objective,
    Places,
    Problem,
    TransferTable,
    make_edges,
    make_task_labels,
)
from jupyter_sky.decisions.optimizer.solver.pruning import allowed_labels
from jupyter_sky.decisions.optimizer.solver.solve import solve
from jupyter_sky.decisions.optimizer.solver.time_expanded import TimeExpandedBound

from .random_problems import best_by_trying, random_problem


def made(seed: int, factor: float, steps: int) -> tuple[Problem, Objective, TimeExpandedBound]:
    """A problem of four tasks, a deadline, and its bound."""
    more = {"ties": seed % 2 == 0, "infinite": seed % 5 == 0, "structured": seed % 3 > 0}
    problem = random_problem(seed, places=3, per_place=2, **more)
    fastest, _ = best_by_trying(problem, Objective("time"))
    goal = Objective("cost", deadline_h=factor * fastest * (1 + 1e-6))
    kept = [np.flatnonzero(flags) for flags in allowed_labels(problem)]
    paths = bound_paths(problem, kept)
    return problem, goal, TimeExpandedBound(problem, kept, paths, goal.deadline_h, steps)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("factor", [1.0, 1.3, 2.0])
def test_no_plan_within_the_deadline_costs_less(seed: int, factor: float) -> None:
    problem, goal, states = made(seed, factor, 20)
    best, _ = best_by_trying(problem, goal)
    for _ in range(6):
        plan = states.sweep()
        assert states.bound <= best + 1e-9
        low, rises = states.find_rises()
        assert low <= best + 1e-9
        if evaluate(problem, plan).hours <= goal.deadline_h:
            assert evaluate(problem, plan).cost >= best - 1e-9
    finer = states.refine([one.labels for one in states.states], 200)
    finer.sweep()
    assert states.bound - 1e-9 <= finer.bound <= best + 1e-9
    assert len(rises) == len(problem.tasks)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))]
)
def test_the_rise_of_a_label_is_a_bound_on_plans_with_it(seed: int) -> None:
    problem, goal, states = made(seed, 1.3, 40)
    for _ in range(4):
        states.sweep()
    low, rises = states.find_rises()
    for v, task in enumerate(problem.tasks):
        for label in range(len(task)):
            mask = LabelMask("only", v, np.arange(len(task)) == label)
            forced, _ = best_by_trying(replace(problem, masks=(mask,)), goal)
            assert low + rises[v][label] <= forced + 1e-9 or np.isinf(forced)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("factor", [1.0, 1.3, 2.0])
def test_closed_states_are_in_no_better_plan(seed: int, factor: float) -> None:
    problem, goal, states = made(seed, factor, 20)
    best, _ = best_by_trying(problem, goal)
    for steps in (40, 160, 640):
        for _ in range(3):
            states.sweep()
        low, _ = states.find_rises()
        assert low <= best + 1e-9
        before = sum(np.isfinite(one.unary).sum() for one in states.states)
        states.close_states(best * (1 + 1e-9) + 1e-9, low)
        after = sum(np.isfinite(one.unary).sum() for one in states.states)
        assert 0 < after <= before
        states = states.refine([one.labels for one in states.states], steps)
    assert states.bound <= best + 1e-9


def test_a_run_and_the_transfer_after_it_are_rounded_once() -> None:
    tasks = tuple(make_task_labels(f"t{k}", [0, 1], [1.0, 1.0], 0.6) for k in range(4))
    table = TransferTable(np.zeros((2, 2)), np.full((2, 2), 0.6))
    edges = make_edges([(k, k + 1, 1.0) for k in range(3)])
    problem = Problem(Places(("a", "b")), tasks, edges, (table,))
    kept = [np.arange(2)] * 4
    paths = PathBounds(np.zeros((4, 2)), np.zeros((4, 2)), 0.0)  # of no help
    for deadline, bound in ((3.0, np.inf), (5.0, 4.0)):  # a plan takes 4.2 h, in steps of an hour
        states = TimeExpandedBound(problem, kept, paths, deadline, int(deadline))
        for _ in range(3):
            states.sweep()
        assert states.bound == pytest.approx(bound)


def test_times_bound_higher_than_a_mix_of_a_fast_and_a_cheap_label() -> None:
    problem, goal, states = made(1, 1.3, 400)
    for _ in range(20):
        states.sweep()
    best, _ = best_by_trying(problem, goal)
    assert states.bound == pytest.approx(best, rel=0.02)


def test_a_deadline_that_no_plan_keeps_has_an_infinite_bound() -> None:
    problem, *_ = made(1, 1.0, 20)
    kept = [np.arange(len(task)) for task in problem.tasks]
    states = TimeExpandedBound(problem, kept, bound_paths(problem, kept), 1e-3, 20)
    states.sweep()
    assert np.isinf(states.bound)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("factor", [0.99, 1.0, 1.15, 1.6])
def test_plans_near_the_bound_are_the_best(seed, factor, monkeypatch) -> None:
    monkeypatch.setattr(constrained_solver, "_SMALL", 0)
    monkeypatch.setattr(DeadlineSearch, "solve_branches", lambda *_: None)
    more = {"ties": seed % 2 == 0, "structured": seed % 3 > 0}
    problem = random_problem(seed, places=3, per_place=2, **more)
    fastest, _ = best_by_trying(problem, Objective("time"))
    goal = Objective("cost", deadline_h=fastest * factor * (1 + 1e-6))
    wanted, _ = best_by_trying(problem, goal)
    solution = solve(problem, goal)
    if np.isinf(wanted):
        assert solution.status == "infeasible"
        return
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(wanted, rel=2e-6, abs=2e-6)
