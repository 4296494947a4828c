"""Placement from a file to a checked plan, for cost, time, and time then cost.

CPU seconds, because machines are shared: reading, reducing, modelling, compiling, solving and
checking, with cvxpy imported. `worst_gap` is the largest relative distance from the optimum that
the folder states (`optimal.json` or the instance itself) and from the certified bound.
`--without PART` leaves a reduction, bound or heuristic out, to measure what it is worth: see
`ablation.PARTS`.
"""

import importlib.util
import tempfile
import time
from pathlib import Path
from statistics import median

import ablation
import generate
import numpy as np
from instances import Instance, read
from instances import instances as found

from jupyter_sky.decisions.optimizer.solver.problem import Objective
from jupyter_sky.decisions.optimizer.solver.solve import resolve, solve

KINDS = ("cost", "time", "time_then_cost")
SHORT = {"cost": "", "time": "time_", "time_then_cost": "ttc_"}


def say(text: str) -> None:
    """Print progress at once."""
    print(text, flush=True)


def main(
    quick: bool = False, instances: str | None = None, without: str | None = None
) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as made, ablation.without(without):
        folder = Path(instances or made)
        if instances is None:
            generate.small(folder)
        return measure(folder, quick)


def measure(folder: Path, quick: bool) -> dict[str, float]:
    files = found(folder)
    files = files[:4] if quick else files
    warm_up(files[0])
    solvers = [name for name in ("auto", "glpk", "highs") if name != "glpk" or has_glpk()]
    figures: dict[str, float] = {"worst_gap": 0.0}
    for solver in solvers[: 1 if quick else 3]:
        figures |= part(files, solver, True, 1 if quick else 3, figures)
    part(files, "auto", False, 1, figures)
    problems = [read(path) for path in files]
    figures["replan_ms"] = max(replan(one) for one in problems)
    return figures | ({} if quick else beside(problems))


def has_glpk() -> bool:
    return importlib.util.find_spec("swiglpk") is not None


def warm_up(path: Path) -> None:
    """Imports and first calls are not of the instance."""
    for solver in ("glpk", "highs") if has_glpk() else ("highs",):
        solve(read(path).problem, presolve=False, solver=solver)


def part(
    files: list[Path], solver: str, presolve: bool, repeats: int, figures: dict[str, float]
) -> dict[str, float]:
    """One way to solve everything: the table, and the figures of CPU seconds."""
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    say(f"\nsolver {solver}{'' if presolve else ', presolve off'}")
    for path in files:
        for kind in KINDS:
            runs = [once(path, kind, solver, presolve) for _ in range(repeats)]
            instance, solution, _ = runs[-1]
            took = median(run[2] for run in runs)
            seconds[kind].append(took)
            off = distance(instance, kind, solution)
            figures["worst_gap"] = max(figures["worst_gap"], off)
            show(instance.name, kind, solution, took, off)
    suffix = "" if solver == "auto" else f"_{solver}"
    made = {f"{SHORT[kind]}worst_cpu_s{suffix}": max(seconds[kind]) for kind in KINDS}
    return made | {f"{SHORT[kind]}median_cpu_s{suffix}": median(seconds[kind]) for kind in KINDS}


def once(path: Path, kind: str, solver: str, presolve: bool):
    begin = time.process_time()
    instance = read(path)
    solution = solve(
        instance.problem,
        Objective(kind),  # pyright: ignore
        solver=solver,  # pyright: ignore
        presolve=presolve,
        time_limit=30,
    )
    return instance, solution, time.process_time() - begin


def distance(instance: Instance, kind: str, solution) -> float:
    """From the optimum that is stated, and from the bound that is certified."""
    known = instance.reference.get(kind)
    if solution.choice is None:
        return float("inf")
    off = abs(solution.value / known - 1) if known else 0.0
    if kind == "time_then_cost" and instance.reference.get("time"):
        off = max(off, solution.hours / instance.reference["time"] - 1 - 1e-6)
    return max(off, solution.gap)


def show(name: str, kind: str, solution, took: float, off: float) -> None:
    part = {key: f"{1e3 * value:.1f}" for key, value in solution.seconds.items()}
    sizes = solution.sizes
    say(
        f"{name:24} {kind:14} {1e3 * took:7.1f} ms  "
        f"reduce {part.get('reduce', '0')}, build {part.get('build', '0')}, "
        f"solve {part.get('solve', '0')}, check {part.get('check', '0')}  "
        f"labels {sizes.labels} -> {sizes.labels_kept}, variables {sizes.variables}, "
        f"rows {sizes.rows}  {solution.status} by {solution.proof} ({solution.solver})  {off:.1e}"
    )


def replan(instance: Instance) -> float:
    """ms of CPU for the plan after the place of a task refused, the median over tasks."""
    first, took = solve(instance.problem), []
    for task in range(0, len(instance.problem.tasks), 3):
        place = int(instance.problem.tasks[task].place[first.choice[task]])
        begin = time.process_time()
        second = resolve(first, blocked_places=[place])
        took.append(time.process_time() - begin)
        taken = zip(instance.problem.tasks, second.choice or (), strict=True)
        places = [int(labels.place[label]) for labels, label in taken]
        assert place not in places
    return 1e3 * median(took)


def beside(problems: list[Instance]) -> dict[str, float]:
    """The linearization with a variable for each pair of candidates, in the same run."""
    fit = [one for one in problems if 10 <= len(one.problem.tasks) <= 25]
    figures: dict[str, float] = {}
    if not fit:
        return figures
    chosen = fit[0]
    begin = time.process_time()
    ours = solve(chosen.problem)
    took = time.process_time() - begin
    for solver in ("highs", "glpk") if has_glpk() else ("highs",):
        value, seconds = textbook(chosen, solver)
        say(f"{chosen.name}, a variable for each pair, {solver}: {seconds:.2f} s, {value:.6f}")
        assert value >= ours.cost * (1 - 1e-6)
        figures[f"textbook_{solver}_over_ours"] = seconds / took
    return figures


def textbook(instance: Instance, solver: str) -> tuple[float, float]:
    """SkyPilot's own linearization (as in Alpa) in CVXPY: USD and CPU seconds."""
    import cvxpy as cp
    from scipy.sparse import coo_array

    from jupyter_sky.decisions.optimizer.solver.glpk import glpk_solver

    begin = time.process_time()
    problem = instance.problem
    ends = np.r_[0, np.cumsum([len(task) for task in problem.tasks])]
    s = cp.Variable(int(ends[-1]), boolean=True)
    cost = np.concatenate([task.usd for task in problem.tasks]) @ s
    owner = np.repeat(np.arange(len(problem.tasks)), np.diff(ends))
    rules = [coo_array((np.ones(len(owner)), (owner, np.arange(len(owner))))).tocsr() @ s == 1]
    edges = problem.edges
    for u, v, scale, k in zip(edges.src, edges.dst, edges.scale, edges.table, strict=True):
        a, b = problem.tasks[u], problem.tasks[v]
        y = cp.Variable((len(a), len(b)), nonneg=True)
        price = scale * problem.tables[k].usd[np.ix_(a.place, b.place)]
        cost = cost + cp.sum(cp.multiply(price, y))
        rules.append(cp.sum(y, axis=1) == s[ends[u] : ends[u + 1]])
        rules.append(cp.sum(y, axis=0) == s[ends[v] : ends[v + 1]])
    program = cp.Problem(cp.Minimize(cost), rules)
    if solver == "glpk":
        program.solve(solver=glpk_solver(), tm_lim=60_000)
    else:
        program.solve(solver="HIGHS", time_limit=60.0, threads=1)
    return float(program.value), time.process_time() - begin
