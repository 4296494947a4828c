"""The solver against trying every plan, for every objective, limit and demand."""

import itertools
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.decisions.optimizer.solver.evaluator import evaluate, is_within_limits
from jupyter_sky.decisions.optimizer.solver.glpk import is_installed
from jupyter_sky.decisions.optimizer.solver.problem import (
    LabelMask,
    Objective,
    Places,
    Problem,
    TransferTable,
    add_quota,
    make_edges,
    make_task_labels,
    require_difference,
)
from jupyter_sky.decisions.optimizer.solver.solve import resolve, solve

from .random_problems import best_by_trying, random_problem, with_demands

KINDS = ("cost", "time", "time_then_cost", "weighted", "carbon")
quick = settings(max_examples=25, derandomize=True)
shapes = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10_000),
        "tasks": st.integers(1, 4),
        "places": st.integers(1, 4),
        "ties": st.booleans(),
        "infinite": st.booleans(),
        "structured": st.booleans(),
    }
)


def goal(kind: str, **limits: float) -> Objective:
    return Objective(kind, hour_weight=0.7, gram_weight=0.3, **limits)


def agrees(problem: Problem, objective: Objective, **how) -> None:
    solution = solve(problem, objective, **how)
    wanted, fastest = best_by_trying(problem, objective)
    if not np.isfinite(wanted):
        assert solution.status == "infeasible"
        assert solution.choice is None
        return
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(wanted, rel=2e-6, abs=2e-6)
    assert solution.bound == solution.value
    assert is_within_limits(problem, objective, solution.choice)
    assert evaluate(problem, solution.choice)[:3] == (
        solution.cost,
        solution.hours,
        solution.gco2,
    )
    if objective.kind == "time_then_cost":
        assert solution.hours == pytest.approx(fastest, rel=2e-6)


@quick
@given(shapes, st.sampled_from(KINDS))
def test_the_best_of_all_plans(shape, kind):
    agrees(random_problem(**shape), goal(kind))


@quick
@given(shapes, st.sampled_from(KINDS), st.sampled_from(["glpk", "highs"]))
def test_the_same_by_the_model_alone(shape, kind, solver):
    agrees(random_problem(**shape), goal(kind), presolve=False, solver=solver)


@settings(quick, max_examples=40)
@given(
    shapes,
    st.sampled_from(KINDS),
    st.sampled_from(["deadline", "budget", "cap"]),
    st.floats(0.9, 2),
)
def test_limits(shape, kind, limit, factor):
    problem = random_problem(**shape, per_place=2 if shape["places"] < 4 else 1)
    name = {"deadline": "deadline_h", "budget": "budget_usd", "cap": "carbon_cap_g"}[limit]
    alone = {"deadline": "time", "budget": "cost", "cap": "carbon"}[limit]
    least, _ = best_by_trying(problem, Objective(alone))
    if np.isfinite(least) and abs(factor - 1) > 1e-3:
        agrees(problem, goal(kind, **{name: least * factor}))


@settings(quick, max_examples=40)
@given(shapes, st.sampled_from(KINDS), st.booleans())
def test_masks_quotas_and_sameness(shape, kind, presolve):
    problem = with_demands(random_problem(**shape), shape["seed"])
    agrees(problem, goal(kind), presolve=presolve)


@pytest.mark.slow
@settings(max_examples=100, derandomize=True)
@given(shapes, st.sampled_from(KINDS), st.sampled_from(["auto", "glpk", "highs"]), st.booleans())
def test_all_of_it_together(shape, kind, solver, presolve):
    problem = with_demands(random_problem(**shape, per_place=2), shape["seed"])
    least, _ = best_by_trying(problem, Objective("time"))
    if np.isfinite(least):
        agrees(problem, goal(kind, deadline_h=1.5 * least), solver=solver, presolve=presolve)


def two_places(
    *tasks, edges=(), usd: float | np.ndarray = 1.0, hours: float | np.ndarray = 1.0
) -> Problem:
    own = np.eye(2, dtype=bool)
    places = Places(("a", "b"), {"cloud": np.array([0, 1])})
    table = TransferTable(*(np.where(own, 0.0, amount) for amount in (usd, hours)))
    return Problem(places, tuple(tasks), make_edges(edges), (table,))


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_place(kind):
    solution = solve(two_places(), goal(kind))
    assert (solution.status, solution.choice, solution.cost) == ("optimal", (), 0.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("presolve", [True, False])
def test_a_task_with_no_candidates(kind, presolve):
    problem = two_places(make_task_labels("u", [0], 1, 1), make_task_labels("v", [], [], []))
    assert solve(problem, goal(kind), presolve=presolve).status == "infeasible"


@pytest.mark.parametrize("kind", KINDS)
def test_graphs_that_do_not_hang_together(kind):
    tasks = [make_task_labels(f"t{k}", [0, 1], [1 + k, 2], [2, 1 + k]) for k in range(5)]
    agrees(two_places(*tasks, edges=[(0, 1, 1.0), (2, 3, 0.0)]), goal(kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("presolve", [True, False])
@pytest.mark.parametrize("what", ["usd", "hours"])
def test_data_that_must_move_where_they_cannot(kind, presolve, what):
    tasks = (make_task_labels("u", [0, 1], [1, 9], 1), make_task_labels("v", [1], 1, 1))
    problem = two_places(*tasks, edges=[(0, 1, 1.0)], **{what: np.array([[1, np.inf], [1, 1]])})
    assert solve(problem, goal(kind), presolve=presolve).choice == (1, 0)
    stuck = replace(problem, tasks=(make_task_labels("u", [0], 1, 1), tasks[1]))
    assert solve(stuck, goal(kind), presolve=presolve).status == "infeasible"


@pytest.mark.parametrize("presolve", [True, False])
def test_among_equal_plans_the_first_places_win(presolve):
    tasks = [make_task_labels(f"t{k}", [1, 0, 0], 1.0, 1.0) for k in range(3)]
    solution = solve(two_places(*tasks, edges=[(0, 1, 1.0), (1, 2, 1.0)]), presolve=presolve)
    assert solution.cost == 3.0
    if presolve:
        assert solution.choice == (1, 1, 1)


def test_the_same_question_has_the_same_answer():
    problem = random_problem(7, tasks=6, places=5, ties=True)
    for kind in KINDS:
        answers = {solve(problem, goal(kind)).choice for _ in range(3)}
        assert len(answers) == 1


def test_certificate_of_a_large_graph_holds_at_the_time_limit():
    """Too little time: the bound is below, the plan above, the gap what lies between."""
    problem = random_problem(3, tasks=60, places=12)
    early = solve(problem, time_limit=0.02)
    late = solve(problem, time_limit=20)
    assert late.status == "optimal"
    assert early.bound <= late.value * (1 + 1e-9)
    assert early.value >= late.value * (1 - 1e-9)
    assert early.gap == pytest.approx((early.value - early.bound) / early.value, abs=1e-12)


@pytest.mark.parametrize("solver", ["auto", "highs"])
def test_a_deadline_below_the_fastest_path(solver):
    problem = two_places(
        make_task_labels("u", [0], 1, 5), make_task_labels("v", [1], 1, 5), edges=[(0, 1, 1.0)]
    )
    assert solve(problem, Objective(deadline_h=10.9), solver=solver).status == "infeasible"
    assert solve(problem, Objective(deadline_h=11.0), solver=solver).status == "optimal"


def test_a_hook_sees_all_labels_and_is_kept():
    tasks = [make_task_labels(f"t{k}", [0, 1], [1, 3], [1, 1]) for k in range(3)]
    base = two_places(*tasks)

    def hook(model):
        assert all(expression.shape == (2,) for expression in model.chosen)
        return [sum(chosen[1] for chosen in model.chosen) >= 2, model.cost <= 100]

    for kind in KINDS:
        solution = solve(replace(base, hook=hook), goal(kind))
        assert sum(solution.choice) >= 2, kind
        assert solution.status == "optimal"
    assert solve(replace(base, hook=hook)).cost == 7.0


def test_another_plan_differs_as_asked():
    problem = random_problem(11, tasks=4, places=4)
    first = solve(problem)
    apart = solve(replace(problem, rows=(require_difference(problem, first.choice, "cloud", 2),)))
    tags = [problem.tag(v, "cloud") for v in range(4)]
    moved = sum(tags[v][first.choice[v]] != tags[v][apart.choice[v]] for v in range(4))
    assert moved >= 2
    assert apart.value >= first.value


def test_a_quota_keeps_nodes_of_one_cloud_under_it():
    tasks = [make_task_labels(f"t{k}", [0, 1], [1, 2], 1, nodes=2) for k in range(3)]
    problem = two_places(*tasks)
    row = add_quota(problem, "nodes of a", range(3), 4, cloud=0)
    solution = solve(replace(problem, rows=(row,)))
    assert sorted(solution.choice) == [0, 0, 1]


@settings(quick, max_examples=20)
@given(shapes, st.sampled_from(["cost", "time", "time_then_cost", "carbon"]))
def test_a_blocked_place_and_new_prices(shape, kind):
    problem = random_problem(**(shape | {"places": max(shape["places"], 2)}))
    first = solve(problem, goal(kind))
    if first.choice is None:
        return
    place = int(problem.tasks[0].place[first.choice[0]])
    usd = {0: problem.tasks[0].usd * 1.5}
    second = resolve(first, blocked_places=[place], usd=usd)
    left = tuple(LabelMask("x", v, task.place != place) for v, task in enumerate(problem.tasks))
    tasks = (replace(problem.tasks[0], usd=usd[0]), *problem.tasks[1:])
    wanted, _ = best_by_trying(replace(problem, tasks=tasks, masks=left), goal(kind))
    if np.isfinite(wanted):
        assert second.value == pytest.approx(wanted, rel=2e-6, abs=2e-6)
        third = resolve(second, blocked={0: [second.choice[0]]})
        assert third.choice is None or third.choice[0] != second.choice[0]
    else:
        assert second.status == "infeasible"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda p: replace(p, tasks=(p.tasks[0], p.tasks[0])),
        lambda p: replace(p, edges=make_edges([(0, 1, 1.0), (1, 0, 1.0)])),
        lambda p: replace(p, edges=make_edges([(0, 0, 1.0)])),
        lambda p: replace(p, edges=make_edges([(0, 1, -1.0)])),
        lambda p: replace(p, edges=make_edges([(0, 1, np.nan)])),
        lambda p: replace(p, edges=make_edges([(0, 5, 1.0)])),
        lambda p: replace(p, tables=()),
        lambda p: replace(p, tables=(TransferTable(np.zeros((3, 3)), np.zeros((3, 3))),)),
        lambda p: replace(p, tasks=(make_task_labels("w", [7], 1, 1), p.tasks[1])),
        lambda p: replace(p, tasks=(make_task_labels("w", [0], np.nan, 1), p.tasks[1])),
        lambda p: replace(p, tasks=(make_task_labels("w", [0], 1, -1), p.tasks[1])),
        lambda p: replace(p, masks=(LabelMask("m", 0, np.ones(9, bool)),)),
    ],
)
def test_numbers_that_are_no_problem(wrong):
    base = two_places(
        make_task_labels("u", [0], 1, 1), make_task_labels("v", [1], 1, 1), edges=[(0, 1, 1.0)]
    )
    with pytest.raises(SkyUsageError):
        solve(wrong(base))


@pytest.mark.parametrize(
    "objective",
    [
        Objective("speed"),  # pyright: ignore
        Objective(deadline_h=-1.0),
        Objective(budget_usd=np.nan),
        Objective("weighted", usd_weight=0.0),
        Objective("weighted", hour_weight=np.inf),
    ],
)
def test_objectives_that_mean_nothing(objective):
    with pytest.raises(SkyUsageError):
        solve(two_places(make_task_labels("u", [0], 1, 1)), objective)


def test_problem_solved_by_presolve_needs_no_cvxpy():
    code = (
        "import sys, numpy as np\n"
        "from jupyter_sky.decisions.optimizer.solver.problem import *\n"
        "from jupyter_sky.decisions.optimizer.solver.solve import solve\n"
        "work = (make_task_labels('u', [0, 1], [3, 1], 1),)\n"
        "print(solve(Problem(Places(('a', 'b')), work, make_edges([]))).choice)\n"
        "print('cvxpy' in sys.modules, 'scipy' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split("\n")[:2] == ["(1,)", "False False"]


def test_without_swiglpk_highs_does_all(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not is_installed()
    problem = two_places(*(make_task_labels(f"t{k}", [0, 1], [1, 2], 1) for k in range(3)))
    solution = solve(problem, presolve=False)
    assert (solution.solver, solution.cost) == ("highs", 3.0)
    with pytest.raises(SkyUsageError, match="swiglpk is not installed"):
        solve(problem, solver="glpk")


def test_ways_to_a_plan_agree_on_graphs_of_middle_size():
    for seed, kind in itertools.product(range(2), ("cost", "time_then_cost")):
        problem = random_problem(seed, tasks=10, places=5)
        values = {
            round(solve(problem, goal(kind), solver=solver, presolve=presolve).value, 6)
            for solver in ("auto", "glpk", "highs")
            for presolve in (True, False)
        }
        assert len(values) == 1
