"""The solver without one of its parts: the same answers, only later."""

import pytest

from jupyter_sky.decisions.optimizer.solver.problem import Objective
from jupyter_sky.decisions.optimizer.solver.solve import solve
from tests.benchmarks import ablation

from .random_problems import random_problem


@pytest.mark.parametrize("part", ablation.PARTS)
def test_each_part_changes_no_answer(part: str) -> None:
    problem = random_problem(7, tasks=5, places=6, per_place=6)
    fastest = solve(problem, Objective("time")).hours
    for objective in (Objective(), Objective("cost", deadline_h=1.2 * fastest)):
        best = solve(problem, objective)
        with ablation.without(part):
            other = solve(problem, objective)
        assert (other.status, other.value) == ("optimal", pytest.approx(best.value))


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(SystemExit, match="no part 'magic'"), ablation.without("magic"):
        pass
