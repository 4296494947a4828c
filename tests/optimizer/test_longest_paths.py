import numpy as np
import pytest

from jupyter_sky.decisions.optimizer.solver.bounds import TimePrices, priced_plans
from jupyter_sky.decisions.optimizer.solver.evaluator import evaluate, is_within_limits
from jupyter_sky.decisions.optimizer.solver.longest_paths import (
    TimedPlan,
    bound_paths,
    find_labels_in_time,
    make_fast_plan,
    reduce_cost,
)
from jupyter_sky.decisions.optimizer.solver.problem import LabelMask, Objective
from jupyter_sky.decisions.optimizer.solver.pruning import allowed_labels, pareto_labels

from .random_problems import best_by_trying, random_problem, with_demands


def masked(problem, kept):
    """The problem with only these labels."""
    masks = tuple(
        LabelMask(f"kept {v}", v, np.isin(np.arange(len(t)), k))
        for v, (t, k) in enumerate(zip(problem.tasks, kept, strict=True))
    )
    return type(problem)(
        problem.places, problem.tasks, problem.edges, problem.tables,
        (*problem.masks, *masks), problem.rows, problem.same,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(10))
def test_no_plan_is_faster_than_the_bound(seed):
    problem = random_problem(seed, tasks=3, per_place=2, places=3, ties=seed % 2 == 0)
    kept = [np.flatnonzero(flags) for flags in allowed_labels(problem)]
    fastest, _ = best_by_trying(problem, Objective("time"))
    known = bound_paths(problem, kept)
    assert known.bound <= fastest + 1e-12
    plan = make_fast_plan(problem, kept, known)
    assert evaluate(problem, plan).hours >= fastest - 1e-12


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("factor", [1.0, 1.2, 2.0])
def test_labels_that_are_too_late_are_in_no_timely_plan(seed, factor):
    problem = random_problem(seed, tasks=3, per_place=2, places=3)
    kept = [np.flatnonzero(flags) for flags in allowed_labels(problem)]
    fastest, _ = best_by_trying(problem, Objective("time"))
    goal = Objective("cost", deadline_h=factor * fastest * (1 + 1e-9))
    left = find_labels_in_time(problem, kept, bound_paths(problem, kept), goal.deadline_h)
    assert best_by_trying(masked(problem, left), goal)[0] == best_by_trying(problem, goal)[0]


@pytest.mark.parametrize("seed", range(20))
def test_a_walk_times_plans_as_the_judge_does(seed):
    problem = random_problem(seed, tasks=6)
    kept = [np.flatnonzero(flags) for flags in allowed_labels(problem)]
    rng = np.random.default_rng(seed)
    plan = tuple(int(rng.choice(labels)) for labels in kept)
    walk = TimedPlan(problem, kept)
    walk.take(plan)
    np.testing.assert_allclose(walk.finish, evaluate(problem, plan).finish)
    deadline = 1.3 * max(walk.finish)
    cheaper = reduce_cost(problem, kept, plan, deadline)
    assert evaluate(problem, cheaper).cost <= evaluate(problem, plan).cost + 1e-12
    assert evaluate(problem, cheaper).hours <= deadline * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["cost", "time", "time_then_cost", "weighted", "carbon"])
def test_labels_off_the_front_are_not_needed(seed, kind):
    problem = random_problem(seed, tasks=3, places=2, per_place=2, ties=seed % 2 == 0)
    problem = with_demands(problem, seed) if seed % 3 else problem
    goal = Objective(kind, hour_weight=0.5, gram_weight=0.2, budget_usd=5.0)
    kept = [np.flatnonzero(flags) for flags in allowed_labels(problem)]
    left = pareto_labels(problem, goal, kept)
    assert all(set(a) <= set(b) for a, b in zip(left, kept, strict=True))
    found, wanted = best_by_trying(masked(problem, left), goal), best_by_trying(problem, goal)
    assert found[0] == wanted[0]
    assert goal.kind not in ("time", "time_then_cost") or found == wanted


@pytest.mark.parametrize("seed", range(6))
def test_the_critical_path_is_as_long_as_the_plan(seed: int) -> None:
    problem = random_problem(seed, tasks=6, per_place=2, places=3)
    kept = [np.flatnonzero(flags) for flags in allowed_labels(problem)]
    plan = TimedPlan(problem, kept)
    plan.take([int(labels[-1]) for labels in kept])
    first, path = plan.critical_path()
    edges = problem.edges
    hours = float(problem.tasks[first].ready_hours[plan.choice[first]])
    hours += float(problem.tasks[first].hours[plan.choice[first]])
    for e in reversed(path):
        u, v = int(edges.src[e]), int(edges.dst[e])
        moved = (
            float(edges.scale[e]) * plan.hours[int(edges.table[e])][plan.place[u], plan.place[v]]
        )
        hours += moved + float(problem.tasks[v].hours[plan.choice[v]])
    assert hours <= max(plan.finish) + 1e-9  # less only where a store is later than all inputs
    assert len(path) == 0 or int(edges.dst[path[0]]) == int(np.argmax(plan.finish))


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))]
)
def test_prices_of_time_lead_to_plans_within_the_deadline(seed: int) -> None:
    problem = random_problem(seed, tasks=5, per_place=2, places=4)
    kept = [np.flatnonzero(flags) for flags in allowed_labels(problem)]
    fastest, _ = best_by_trying(problem, Objective("time"))
    goal = Objective("cost", deadline_h=1.5 * fastest)
    best, _ = best_by_trying(problem, goal)
    nothing = TimePrices(np.full(5, 0.1), np.full(len(problem.edges), 0.1))
    found = list(priced_plans(problem, kept, nothing, 1.5 * fastest))
    assert found and all(is_within_limits(problem, goal, plan) for plan in found)
    assert min(evaluate(problem, plan).cost for plan in found) <= 1.5 * best
