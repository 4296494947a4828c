"""GLPK in CVXPY: values and duals as HiGHS has them, statuses, limits, and what must not crash."""

import signal
import subprocess
import sys

import numpy as np
import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.decisions.optimizer.solver.glpk import glpk_solver
from jupyter_sky.decisions.optimizer.solver.glpk_cvxpy import Program, solve_program

cp = pytest.importorskip("cvxpy")
pytest.importorskip("swiglpk")


def knapsack(seed: int, n: int = 40, rows: int = 8):
    rng = np.random.default_rng(seed)
    x = cp.Variable(n, boolean=True)
    weights = rng.integers(10, 100, (rows, n))
    goal = rng.integers(10, 100, n) @ x
    return cp.Problem(cp.Maximize(goal), [weights @ x <= weights.sum(1) // 3]), x


def program(**changes) -> Program:
    """min x + y, x + y >= 1 (as -x - y <= -1), both within 0 and 3."""
    parts = {
        "c": np.array([1.0, 1.0]),
        "starts": np.array([0, 1, 2]),
        "rows": np.array([0, 0]),
        "values": np.array([-1.0, -1.0]),
        "b": np.array([-1.0]),
        "equal": 0,
        "lower": np.zeros(2),
        "upper": np.full(2, 3.0),
        "integer": np.empty(0, np.int64),
    }
    return Program(**(parts | changes))


@pytest.mark.parametrize("seed", range(8))
def test_values_and_duals_of_linear_programs_are_those_of_highs(seed):
    rng = np.random.default_rng(seed)
    x = cp.Variable(6, bounds=[0, 4])
    a, b = rng.random((4, 6)), rng.random(4) + 1
    rules = [a @ x >= b, cp.sum(x) == 5, x[0] <= 2]
    goal = cp.Problem(cp.Minimize(rng.random(6) @ x + 3), rules)
    ours = goal.solve(solver=glpk_solver())
    duals = [np.array(rule.dual_value) for rule in rules]
    assert goal.solve(solver="HIGHS") == pytest.approx(ours)
    for mine, rule in zip(duals, rules, strict=True):
        np.testing.assert_allclose(mine, rule.dual_value, atol=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_integer_programs_agree_with_highs(seed):
    problem, _ = knapsack(seed)
    ours = problem.solve(solver=glpk_solver())
    stats = problem.solver_stats.extra_stats
    assert problem.status == "optimal"
    assert stats["bound"] == pytest.approx(-ours)
    assert problem.solve(solver="HIGHS") == pytest.approx(ours)


def test_a_time_limit_leaves_a_point_and_a_bound_on_both_sides_of_the_best():
    problem, x = knapsack(3, n=120, rows=25)
    problem.solve(solver=glpk_solver(), tm_lim=400)
    assert problem.status == "user_limit"
    bound = -problem.solver_stats.extra_stats["bound"]
    if np.isfinite(np.asarray(x.value, float)).all():
        assert problem.value <= bound + 1e-6
    problem.solve(solver="HIGHS", time_limit=1.0)
    assert problem.value <= bound + 1e-6


def test_a_wide_gap_is_good_enough_when_asked():
    problem, _ = knapsack(1)
    best = problem.solve(solver=glpk_solver())
    near = problem.solve(solver=glpk_solver(), mip_gap=0.2)
    assert problem.status == "optimal"
    assert best * 0.8 <= near <= best


def test_infeasible_and_unbounded():
    x = cp.Variable(2)
    problem = cp.Problem(cp.Minimize(x[0]), [x[0] >= 2, x[0] <= 1])
    problem.solve(solver=glpk_solver())
    assert problem.status == "infeasible"
    problem = cp.Problem(cp.Minimize(x[0]), [x[1] >= 2])
    problem.solve(solver=glpk_solver())
    assert problem.status == "unbounded"
    k = cp.Variable(integer=True)
    problem = cp.Problem(cp.Minimize(k), [k >= 0.2, k <= 0.8])
    problem.solve(solver=glpk_solver())
    assert problem.status == "infeasible"


def test_changed_bounds_go_on_from_the_last_basis():
    limit = cp.Parameter(30, nonneg=True, value=np.ones(30))
    rng = np.random.default_rng(0)
    x, rows, costs = cp.Variable(30), rng.random((10, 30)), rng.random(30)
    rules = [x >= 0, x <= limit, rows @ x >= 3]
    problem = cp.Problem(cp.Minimize(costs @ x), rules)
    problem.solve(solver=glpk_solver(), warm_start=True)
    (kept,) = problem._solver_cache.values()
    for k in range(5):
        limit.value = np.where(np.arange(30) == k, 0.0, 1.0)
        warm = problem.solve(solver=glpk_solver(), warm_start=True)
        assert next(iter(problem._solver_cache.values())) is kept
        fresh = cp.Problem(problem.objective, rules)
        assert fresh.solve(solver="HIGHS") == pytest.approx(warm)


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": np.array([0, 7])},
        {"rows": np.array([-1, 0])},
        {"values": np.array([np.nan, 1.0])},
        {"c": np.array([np.inf, 1.0])},
        {"c": np.array([1.0])},
        {"b": np.array([np.nan])},
        {"lower": np.array([np.nan, 0.0])},
        {"starts": np.array([0, 2, 2]), "rows": np.array([0, 0])},
        {"integer": np.array([5])},
        {"upper": np.zeros(3)},
    ],
)
def test_bad_numbers_are_refused_before_glpk_ends_the_process(changes):
    with pytest.raises(SkyUsageError):
        solve_program(program(**changes), {})


def test_bounds_that_cross_are_infeasible_and_unknown_options_are_named():
    answer, _ = solve_program(program(lower=np.array([2.0, 0]), upper=np.array([1.0, 3])), {})
    assert answer.status == "infeasible"
    with pytest.raises(SkyUsageError, match="no option speed"):
        solve_program(program(), {"speed": 11})
    assert solve_program(program(), {})[0].value == pytest.approx(1.0)


def test_nothing_is_printed(capfd):
    knapsack(2)[0].solve(solver=glpk_solver())
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_stops_a_long_search():
    code = """
import signal, threading, os, time, sys
import numpy as np, cvxpy as cp
from jupyter_sky.decisions.optimizer.solver.glpk import glpk_solver
rng = np.random.default_rng(3)
x = cp.Variable(150, boolean=True)
w = rng.integers(10, 100, (40, 150))
p = cp.Problem(cp.Maximize(rng.integers(10, 100, 150) @ x), [w @ x <= w.sum(1) // 3])
p.get_problem_data(glpk_solver())
threading.Timer(2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    p.solve(solver=glpk_solver(), tm_lim=60000)
    print("not stopped")
except KeyboardInterrupt:
    print("stopped")
"""
    assert signal.getsignal(signal.SIGINT)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True
    )
    assert done.stdout.strip() == "stopped"
