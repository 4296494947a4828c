from dataclasses import replace

import numpy as np
import pytest

from jupyter_sky.decisions.optimizer.explain.infeasibility import find_conflict, is_feasible
from jupyter_sky.decisions.optimizer.solver.problem import LabelMask, LinearLimit, Objective

from .random_problems import best_by_trying, random_problem, with_demands


@pytest.mark.parametrize("seed", range(8))
def test_the_set_that_is_named_cannot_hold_and_all_of_it_is_needed(seed):
    problem = with_demands(random_problem(seed, tasks=3, places=3), seed)
    fastest, _ = best_by_trying(problem, Objective("time"))
    limit = 0.8 * fastest if np.isfinite(fastest) else 1.0
    goal = Objective("cost", deadline_h=limit, budget_usd=2.0)
    found = find_conflict(problem, goal)
    possible = np.isfinite(best_by_trying(problem, goal)[0])
    assert possible == (not found)
    if possible:
        return
    names = [*goal.limits(), *problem.constraint_names()]
    others = [name for name in names if name not in found]

    def holds(without):
        left = problem.without(without), goal.without(without)
        return np.isfinite(best_by_trying(*left)[0])

    assert not holds(others)
    assert all(holds([*others, name]) for name in found)


def test_masks_of_one_task_are_named_in_the_smallest_number():
    problem = random_problem(0, tasks=2, places=3)
    first, second = (np.arange(3) == k for k in (0, 1))
    masks = (
        LabelMask("not blocked", 1, np.array([True, True, False])),
        LabelMask("eu", 1, first),
        LabelMask("ceiling", 1, second),
    )
    assert find_conflict(replace(problem, masks=masks), Objective()) == ("eu", "ceiling")


def test_a_deadline_that_no_plan_keeps_is_a_conflict_by_itself():
    problem = random_problem(4, tasks=3, places=3)
    assert find_conflict(problem, Objective("cost", deadline_h=1e-3)) == ("deadline",)


def test_questions_without_a_demand():
    problem = random_problem(4, tasks=3, places=3)
    row = LinearLimit("none at all", {v: np.ones(3) for v in range(3)}, 0.0)
    strict = replace(problem, rows=(row,))
    assert is_feasible(strict, Objective()) is False
    assert is_feasible(strict, Objective(), without=["none at all"]) is True
