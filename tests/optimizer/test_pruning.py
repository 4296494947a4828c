"""Labels that the reduction keeps: for tasks together as for each by itself."""

from dataclasses import replace

import numpy as np
import pytest

from jupyter_sky.decisions.optimizer.solver import pruning
from jupyter_sky.decisions.optimizer.solver.problem import Objective, Problem, SameConstraint

from .random_problems import random_problem, with_demands


def plain(problem: Problem, v: int, labels: np.ndarray) -> list[int]:
    """Labels that no other one of a task beats in cost, times, rows and tags, at equal places."""
    task = problem.tasks[v]
    columns = [task.usd, task.hours, task.ready_hours]
    columns += [row.terms[v] for row in problem.rows if v in row.terms]
    tags = [problem.tag(v, same.by) for same in problem.same if v in same.tasks]
    tags.append(pruning.equal_places(problem)[task.place])

    def beats(a: int, b: int) -> bool:
        if any(tag[a] != tag[b] for tag in tags) or any(c[a] > c[b] for c in columns):
            return False
        return a < b or any(c[a] < c[b] for c in columns)

    return [b for b in labels.tolist() if not any(beats(a, b) for a in labels.tolist())]


@pytest.mark.parametrize("batch", [1, 10, 10_000])
@pytest.mark.parametrize("seed", range(8))
def test_labels_left_are_those_that_no_other_one_beats(
    seed: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "_BATCH", batch)
    problem = with_demands(random_problem(seed, places=3, per_place=4, ties=seed % 2 == 0), seed)
    some = {v: values for v, values in problem.rows[0].terms.items() if v != seed % 4}
    problem = replace(problem, rows=(replace(problem.rows[0], terms=some),))
    kept = [np.flatnonzero(flags) for flags in pruning.allowed_labels(problem)]
    left = pruning.pareto_labels(problem, Objective("cost", deadline_h=9.0), kept)
    expected = [plain(problem, v, labels) for v, labels in enumerate(kept)]
    assert [labels.tolist() for labels in left] == expected


@pytest.mark.parametrize("seed", range(10))
def test_equal_places_are_those_with_equal_rows_and_columns(seed: int) -> None:
    problem = random_problem(seed, places=7, ties=True)
    found = pruning.equal_places(problem)
    for a in range(7):
        for b in range(7):
            alike = all(
                np.array_equal(part[a], part[b]) and np.array_equal(part[:, a], part[:, b])
                for table in problem.tables
                for part in (table.usd, table.hours, table.gco2)
                if part is not None
            )
            assert (found[a] == found[b]) == alike


@pytest.mark.parametrize("seed", range(8))
def test_demands_of_one_kind_are_kept_together(seed: int) -> None:
    problem = with_demands(random_problem(seed, places=3, per_place=4, ties=True), seed)
    pairs = [(0, 1, "region"), (1, 2, "region"), (0, 2, "cluster"), (2, 3, "region")]
    same = tuple(SameConstraint("pair", (one, other), by) for one, other, by in pairs)
    problem = replace(problem, same=same)
    kept = [np.flatnonzero(flags) for flags in pruning.allowed_labels(problem)]
    left = pruning.pareto_labels(problem, Objective("cost", deadline_h=9.0), kept)
    assert [labels.tolist() for labels in left] == [
        plain(problem, v, labels) for v, labels in enumerate(kept)
    ]
