"""Placement of large graphs on the world's places, and cost under deadlines. CPU seconds.

Figures are of the worst of ten seeds, which go round the six families of `generate`, unless
`--instances` names a folder. `--without PART` leaves a part of the solver out: see
`ablation.PARTS`. `--seed` draws other instances.
"""

import resource
import tempfile
import time
from pathlib import Path
from statistics import median

import ablation
import generate
from instances import Instance, read
from instances import instances as found

from jupyter_sky.decisions.optimizer.solver.dual_bound import make_task_levels
from jupyter_sky.decisions.optimizer.solver.problem import Objective, Solution
from jupyter_sky.decisions.optimizer.solver.solve import solve

FACTORS = (1.1, 1.3, 1.7)


def say(text: str) -> None:
    """Print progress at once."""
    print(text, flush=True)


def main(
    quick: bool = False,
    instances: str | None = None,
    without: str | None = None,
    seed: int = 1,
) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as made, ablation.without(without):
        folder = Path(instances or made)
        if instances is None:
            seeds = range(seed, seed + (1 if quick else 10))
            generate.large(folder, seeds, tasks=100 if quick else 1000)
            generate.deadlines(folder, seeds)
        return measure(folder, quick)


def measure(folder: Path, quick: bool) -> dict[str, float]:
    solve(read(found(folder)[0]).problem, presolve=False, solver="highs")  # imports
    groups: dict[str, list[Path]] = {}
    for path in found(folder):
        groups.setdefault(shape(read(path)), []).append(path)
    figures: dict[str, float] = {}
    for key, least in (("chain1000", 5.0), ("mapreduce1000", 5.0), ("layered100", 5.0)):
        took = [proven(path, 4 * least) for path in groups.get(key, [])]
        if took:
            figures[f"{key}_s"] = max(took)
    for limit in (5.0, 15.0):
        gaps = [show(path, solved(read(path), limit)).gap for path in groups.get("layered1000", [])]
        if gaps:
            figures[f"layered1000_gap_{limit:.0f}s"] = max(gaps)
    figures |= under_deadlines(groups.get("small", [])[: 2 if quick else None])
    figures["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return figures


def shape(instance: Instance) -> str:
    """Return the kind of graph, found from the graph itself."""
    n, edges = len(instance.problem.tasks), instance.problem.edges
    depth = len(make_task_levels(n, edges.src, edges.dst))
    if n < 90:
        return "small"
    if depth == n:
        return "chain1000"
    if depth <= 4:
        return "mapreduce1000"  # fork-joins as well
    return "layered100" if n < 500 else "layered1000"


def solved(instance: Instance, limit: float) -> tuple[Instance, Solution, float]:
    begin = time.process_time()
    solution = solve(instance.problem, time_limit=limit)
    return instance, solution, time.process_time() - begin


def show(path: Path, run: tuple[Instance, Solution, float]) -> Solution:
    instance, solution, took = run
    known = instance.reference.get("cost")
    off = f"{solution.cost / known - 1:+.1e} of the best known" if known else ""
    labels = sum(len(task) for task in instance.problem.tasks)
    say(
        f"{path.name:32} {len(instance.problem.tasks)} tasks, {labels} labels: {took:.2f} s, "
        f"{solution.status} by {solution.proof}, gap {solution.gap:.1e} {off}"
    )
    return solution


def proven(path: Path, limit: float) -> float:
    """Return CPU seconds to a proof; without one, infinitely many."""
    instance = read(path)
    run = solved(instance, limit)
    return run[2] if show(path, run).status == "optimal" else float("inf")


def under_deadlines(files: list[Path]) -> dict[str, float]:
    """Measure cost under deadlines a little above the fastest plan."""
    shares, gaps, took = [], [], []
    for path in files:
        instance = read(path)
        fastest = solve(instance.problem, Objective("time"), time_limit=10)
        stated = [one["deadline_h"] for one in instance.reference.get("deadlines", [])]
        for deadline in stated or [factor * fastest.hours for factor in FACTORS]:
            goal = Objective("cost", deadline_h=deadline)
            begin = time.process_time()
            solution = solve(instance.problem, goal, time_limit=10)
            seconds = time.process_time() - begin
            shares.append(solution.status == "optimal")
            took.append(seconds)
            if seconds > 4:  # what was not done by then is asked again with half the time
                solution = solve(instance.problem, goal, time_limit=5)
            gaps.append(solution.gap)
            say(
                f"{path.name:28} deadline {deadline:.2f} h: {seconds:.2f} s, {solution.status}, "
                f"gap after 5 s {solution.gap:.1e}"
            )
    if not shares:
        return {}
    return {
        "deadline_proven_share_10s": sum(shares) / len(shares),
        "deadline_worst_gap_5s": max(gaps),
        "deadline_median_s": median(took),
    }
