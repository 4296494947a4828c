"""Figures of fidelity: cells of notebooks under `%%sky` beside the same cells without it.

    python tests/benchmarks/run.py fidelity [--data DIR] [--quick]

Every notebook of a folder is run plainly and with `%%sky` above each code cell, headless, in a
kernel and a folder of its own; then with every second cell under `%%sky --auto`. What a front end
receives is compared cell by cell: types, MIME bundles, text, order, numbers, errors, display ids,
pixels, trees of widgets, payloads. A cell that differs is run plainly once more: what then differs
too differs by chance, and is compared without its numbers. Figures:

cells
    Cells compared under `%%sky`.
notebook_cells_equal
    Share of them that end the same. Differences by design count as equal; they stand, with
    their reasons, in `fidelity_data/design_differences.json`.
silent_differences
    Cells that differ, not by design, and show no error that tells of it.
mixed_cells_equal
    Share of equal cells where every second one runs under `%%sky --auto`.
widget_values_lost
    Progress bars of 600 cells that a saved notebook shows short of their last value.
cell_overhead_ms
    Median time that `%%sky` adds to a cell.

Each difference is printed. Without `--data` the notebooks of `fidelity_data` are run: cases
written for this benchmark, and notebooks of IPython, ipywidgets and nbclient (`sources.json`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from fidelity_comparison import Row, Rule, compare, explain, is_silent, name_causes, read_rules
from fidelity_outputs import view_cells
from fidelity_runs import run_notebook
from fidelity_variants import Mode
from fidelity_widgets import lost_widget_values

DATA = Path(__file__).with_name("fidelity_data")
RULES = DATA / "design_differences.json"
BY_DESIGN = "by_design.ipynb"
"""Notebook with a cell for each difference by design; a test of its own compares it."""
QUICK = "Capturing Output.ipynb"
"""Short notebook of `--quick`."""


def main(quick: bool = False, data: str | None = None) -> dict[str, float]:
    folder, rules = Path(data) if data else DATA, read_rules(RULES)
    paths = [path for path in find_notebooks(folder) if not quick or path.name == QUICK or data]
    if not paths:
        raise SystemExit(f"there is no notebook in {folder}")
    remote = judge(paths[:3] if quick else paths, folder, "remote", rules)
    mixed = judge(paths[:1] if quick else paths, folder, "mixed", rules)
    with tempfile.TemporaryDirectory(prefix="sky-bench-") as home:
        lost = lost_widget_values(10 if quick else 600, Path(home))
    unexplained = [row for row in remote if row.differences and not explain(row, rules)]
    return {
        "cells": len(remote),
        "notebook_cells_equal": 1 - len(unexplained) / len(remote),
        "silent_differences": sum(row.is_silent for row in unexplained),
        "mixed_cells_equal": share_equal(mixed, rules),
        "widget_values_lost": lost,
        "cell_overhead_ms": 1000 * median(row.extra_seconds for row in remote if row.is_remote),
    }


def find_notebooks(folder: Path) -> list[Path]:
    """Return the notebooks of a folder but those that others import as modules of a package."""
    return sorted(
        path
        for path in folder.rglob("*.ipynb")
        if not (path.parent / "__init__.py").exists() and ".ipynb_checkpoints" not in path.parts
    )


def judge(paths: Iterable[Path], folder: Path, mode: Mode, rules: Sequence[Rule]) -> list[Row]:
    """Return the rows of several notebooks; print what differs."""
    rows = []
    for path in paths:
        name = str(path.relative_to(folder))
        found = name_causes(compare_notebook(path, name, mode), rules)
        rows += found
        say(name, mode, found, rules)
    return rows


def compare_notebook(path: Path, name: str, mode: Mode) -> list[Row]:
    """Return a row for each cell of a notebook that ends when it is run plainly.

    Raises
    ------
    RuntimeError
        No cell does.
    """
    with tempfile.TemporaryDirectory(prefix="sky-bench-") as home:
        plain, other = (run_notebook(path, m, Path(home), mode) for m in ("plain", mode))
        views, other_views = view_cells(plain), view_cells(other)
        again = None
        if any(map(compare, views, other_views)):
            again = view_cells(run_notebook(path, "plain", Path(home), mode))
    if views and all(view.status is None for view in views):
        raise RuntimeError(f"{name} cannot be run: {plain.failure}")
    rows = []
    for position, index in enumerate(plain.variant.compared):
        one, two = views[position], other_views[position]
        if one.status is None:
            continue
        differences = compare(one, two, again[position] if again else None)
        is_remote = index in other.variant.remote
        if is_remote and two.status and not two.has_status_line:
            differences |= {"not remote"}
        extra = other.client.seconds.get(index, 0.0) - plain.client.seconds.get(index, 0.0)
        rows.append(
            Row(
                notebook=name,
                index=index,
                source=_source(plain.cells[index].source),
                differences=differences,
                is_silent=is_silent(one, two, differences),
                is_remote=is_remote,
                extra_seconds=extra,
                outputs=two.outputs,
                plain_outputs=one.outputs,
            )
        )
    return rows


def _source(text: str) -> str:
    """Return the code of a cell without the comment in the place of the `%%sky` line."""
    first, _, rest = text.partition("\n")
    return rest if first.startswith("# %%sky") else text


def share_equal(rows: Sequence[Row], rules: Sequence[Rule]) -> float:
    """Return the share of cells that are equal or differ by design."""
    return sum(not row.differences or bool(explain(row, rules)) for row in rows) / len(rows)


def say(name: str, mode: Mode, rows: Sequence[Row], rules: Sequence[Rule]) -> None:
    equal = sum(not row.differences for row in rows)
    print(f"{name}, {mode}: {equal} of {len(rows)} cells equal", flush=True)
    for row in rows:
        if row.differences:
            rule = explain(row, rules)
            why = f"by design: {rule.reason}" if rule else "not by design"
            print(f"  cell {row.index}: {', '.join(sorted(row.differences))} ({why})")
            if rule is None:
                print(f"    {row.source!r:.300}")
                print(f"    plain: {row.plain_outputs!r:.1000}\n    sky:   {row.outputs!r:.1000}")
