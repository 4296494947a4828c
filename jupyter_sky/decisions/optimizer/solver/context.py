"""State of one run of the solver: limits, clocks, counts, and the start of the next run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from jupyter_sky.decisions.optimizer.solver.hierarchy import Hierarchy
from jupyter_sky.decisions.optimizer.solver.problem import (
    Floats,
    Ints,
    Objective,
    Problem,
    ProblemSizes,
    Solver,
)


@dataclass(frozen=True, eq=False)
class WarmStart:
    """Problem, structure of its tables and messages, from which `resolve` continues."""

    problem: Problem
    objective: Objective
    solver: Solver = "auto"
    sums: Hierarchy | None = None
    hours: Hierarchy | None = None
    messages: tuple[Floats, Floats] | None = None
    shapes: dict = field(default_factory=dict)


@dataclass(frozen=True)
class SolverResult:
    """Labels, a bound on the objective, and the proof of it."""

    status: str
    choice: tuple[int, ...] | None
    bound: float
    proof: str


class SolveContext:
    """One run: problem, limits, and the time it took."""

    def __init__(
        self,
        problem: Problem,
        objective: Objective,
        solver: Solver,
        time_limit: float,
        gap: float,
        presolve: bool,
    ) -> None:
        self.problem, self.objective = problem, objective
        self.solver, self.gap, self.presolve = solver, gap, presolve
        self.begin, self.begin_wall = time.process_time(), time.monotonic()
        self.until = self.begin + time_limit
        self.seconds: dict[str, float] = {}
        self.state = WarmStart(problem, objective, solver)
        self.used = "none"
        self.labels = sum(len(task) for task in problem.tasks)
        self.kept = self.open_tasks = self.variables = self.rows = 0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the CPU seconds of a stage."""
        begin = time.process_time()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - begin

    @property
    def seconds_left(self) -> float:
        """CPU s until the limit."""
        return max(self.until - time.process_time(), 0.0)

    def wall_seconds(self, seconds: float) -> float:
        """Return CPU seconds in wall-clock seconds: more on a machine that is busy."""
        used = time.process_time() - self.begin
        share = (time.monotonic() - self.begin_wall) / used if used > 0.01 else 1.0
        return max(seconds, 0.05) * min(max(share, 1.0), 3.0)

    @property
    def is_over(self) -> bool:
        """Whether the time limit is reached."""
        return time.process_time() >= self.until

    @property
    def sizes(self) -> ProblemSizes:
        """Sizes before and after reduction."""
        tasks, edges = len(self.problem.tasks), len(self.problem.edges)
        kept = (self.kept, self.open_tasks, self.variables, self.rows)
        return ProblemSizes(tasks, edges, self.labels, *kept)

    def count_labels(self, kept: Sequence[Ints]) -> None:
        """Count the labels that are left."""
        self.kept = sum(len(labels) for labels in kept)
        self.open_tasks = sum(len(labels) > 1 for labels in kept)
