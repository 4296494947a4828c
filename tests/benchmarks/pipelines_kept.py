"""Results kept across runs: tasks wrongly run or skipped after edits, and the time of a hit."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

TAIL = {"join", "cell8"}
EVERY = {"cell3", "prep", "fit", "tune"} | TAIL


@dataclass(frozen=True)
class Project:
    """A notebook with its files; each edit gives another one."""

    cells: tuple[str, ...] = (
        "lr = 0.1\nepochs = 2\ntitle = 'a'",
        "import tinymodule\nimport tinypackage\nSCALE = 2\n"
        "def step(x):\n    return x * SCALE + tinymodule.shift(x)\n"
        "def unused(x):\n    return x",
        "rows = [int(line) for line in open('rows.txt')]",
        "%%sky --name prep -i rows -o clean\nclean = [x for x in rows if x >= 0]",
        "%%sky --name fit -i clean -o model,note\nmodel = [step(x) * lr for x in clean]\nnote = 0",
        "%%sky --name tune -i clean -o best\nbest = max(clean) * epochs + tinypackage.VALUE",
        "%%sky --name join -i model,best -o score\nscore = sum(model) + best",
        "print(title, score)",
    )
    rows: str = "1\n2\n3\n"
    module: str = "def shift(x):\n    return 1\n"
    version: str = "1.0"
    package: str = "VALUE = 1\n"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    is_touched: bool = False

    def edit(self, number: int, old: str, new: str) -> Project:
        """Return the project with a text of a cell replaced."""
        cells = list(self.cells)
        assert old in cells[number - 1], (number, old, cells[number - 1])
        cells[number - 1] = cells[number - 1].replace(old, new, 1)
        return replace(self, cells=tuple(cells))

    def write(self) -> None:
        """Write all files, those that have changed."""
        cells = [
            {
                "cell_type": "code",
                "id": f"c{number}",
                "source": source,
                "metadata": {"tags": ["parameters"] if number == 1 else []},
                "outputs": [],
                "execution_count": None,
            }
            for number, source in enumerate(self.cells, 1)
        ]
        notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        _write(Path("book.ipynb"), json.dumps(notebook))
        _write(Path("rows.txt"), self.rows)
        if self.is_touched:
            os.utime("rows.txt", (1.0, time.time()))
        _write(Path("tinymodule.py"), self.module)
        site = Path("site-packages")
        _write(site / "tinypackage.py", self.package)
        for old in site.glob("*.dist-info"):
            if self.version not in old.name:
                for file in old.iterdir():
                    file.unlink()
                old.rmdir()
        folder = site / f"tinypackage-{self.version}.dist-info"
        _write(folder / "METADATA", f"Name: tinypackage\nVersion: {self.version}\n")
        _write(folder / "top_level.txt", "tinypackage\n")


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


Edit = tuple[str, Callable[[Project], Project], set[str]]


def edits() -> list[Edit]:
    """Return 60 edits, each with the tasks that are to run after it; one follows another."""
    found: list[Edit] = []

    def add(name: str, change: Callable[[Project], Project], expected: set[str]) -> None:
        found.append((name, change, expected))

    for number in range(1, 9):
        add(f"comment in cell {number}", _appended(number, "  # a remark"), set())
    for n in range(4):
        _add_code(add, n)
        _add_data(add, n)
    add("layout", lambda p: p.edit(7, "sum(model) + best", "(sum(model)\n    + best)"), set())
    add("quotes", lambda p: p.edit(1, "title = 'a'", 'title = "a"'), set())
    add("docstring", lambda p: p.edit(2, "def step(x):\n", "def step(x):\n    'Step.'\n"), set())
    add("blank lines", lambda p: p.edit(4, "clean =", "\n\nclean ="), set())
    return found[:60]


def _appended(number: int, text: str) -> Callable[[Project], Project]:
    def change(project: Project) -> Project:
        cells = list(project.cells)
        cells[number - 1] += text
        return replace(project, cells=tuple(cells))

    return change


def _add_code(add: Callable[..., None], n: int) -> None:
    """Add edits of code, definitions and parameters; those of each round give other values."""
    add("code, equal value", lambda p: p.edit(4, " if ", f" if {n + 1} and "), {"prep"})
    add(
        "code of fit",
        lambda p: p.edit(5, "note = ", f"note = {n + 5} + "),
        {"fit"},
    )
    add("code of tune", lambda p: p.edit(6, "best = ", "best = 1 + "), {"tune", *TAIL})
    add("code that shows", lambda p: p.edit(8, "print(", f"print({n}, "), {"cell8"})
    add(
        "constant of a function",
        lambda p: p.edit(2, f"SCALE = {n + 2}", f"SCALE = {n + 3}"),
        {"fit", *TAIL},
    )
    add("unused function", _appended(2, f" + {n}"), set())
    add(
        "parameter",
        lambda p: replace(p, parameters={"lr": 0.25 + n}),
        {"fit", *TAIL},
    )


def _add_data(add: Callable[..., None], n: int) -> None:
    """Add edits of files, modules and packages."""
    add("file", lambda p: replace(p, rows=f"{p.rows}{7 + n}\n", parameters={}), EVERY)
    add("file, equal value", lambda p: replace(p, rows=p.rows.replace("\n", " \n", 1)), {"cell3"})
    add("time of a file", lambda p: replace(p, is_touched=True), set())
    add("comment of a module", lambda p: replace(p, module=f"# {n}\n{p.module}"), set())
    add(
        "module",
        lambda p: replace(p, module=p.module.replace("return 1", "return 1 + 1")),
        {"fit", *TAIL},
    )
    version = f"1.{n + 1}"
    add(
        "package",
        lambda p: replace(p, version=version, package=f"VALUE = {n + 2}\n"),
        {"tune", *TAIL},
    )


def stale_wrong(most: int) -> dict[str, float]:
    """Return the number of tasks wrongly run or skipped after edits, in runs on real clusters."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "site-packages").mkdir()
        env = {
            **os.environ,
            "SKY_DATA_DIR": str(Path(folder, "data")),
            "PYTHONPATH": os.pathsep.join([f"{folder}/site-packages", folder, str(ROOT)]),
        }
        command = [sys.executable, __file__, str(most)]
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=env)
        assert ran.returncode == 0, ran.stdout
        lines = ran.stdout.splitlines()
        print("\n".join(lines[:-1]))
        return json.loads(lines[-1])


def _run_edits(most: int) -> None:
    import jupyter_sky as sky
    from jupyter_sky.execution.sessions import session as sessions

    sessions.open_session({}, "benchmark.ipynb", lasting=True)
    project, wrong, runs = Project(), 0, 0
    nothing: Edit = ("first run", lambda p: p, EVERY)
    for name, change, expected in [nothing, *edits()[:most]]:
        project = change(project)
        project.write()
        run = sky.pipeline("book.ipynb", f"run{runs}", **project.parameters).wait(150)
        ran = {task for task, state in run.state.tasks.items() if state.attempts}
        if ran != expected:
            wrong += len(ran ^ expected)
            why = {task: run.why(task) for task in ran ^ expected}
            print(f"{name}: {sorted(ran)} ran instead of {sorted(expected)}: {why}")
        runs += 1
    sessions.close()
    print(json.dumps({"stale_edits": runs - 1, "stale_wrong": wrong}))


def cache_hit_ms(count: int) -> float:
    """Return milliseconds in which a kept result is found, checked and taken, per task."""
    import jupyter_sky as sky
    from jupyter_sky.workflows.pipelines.model.graph import RunGraph
    from jupyter_sky.workflows.pipelines.model.kept_results import KeptResults, RunResults
    from jupyter_sky.workflows.pipelines.model.reuse import Reuse
    from jupyter_sky.workflows.pipelines.model.task_body import make_graph

    with sky.Dag("chain") as dag:
        tasks = [sky.Task(f"t{n}", run=lambda *values: values) for n in range(count)]
        for one, other in itertools.pairwise(tasks):
            _ = one >> other
    graph: RunGraph = make_graph(dag)
    with tempfile.TemporaryDirectory() as folder:
        kept = KeptResults(Path(folder, "kept"))
        seconds = 0.0
        for run in ("first", "second"):
            results = RunResults(run, kept)
            reuse = Reuse(graph, kept, "chain", results)
            began = time.perf_counter()
            for name in graph.tasks:
                if reuse.look_up(name).result is None:
                    assert run == "first", "all are kept"
                    results.save(name, {"": name * 100}, **reuse.shown_and_written(name))
                    assert reuse.keep([name]) == {}
            seconds = time.perf_counter() - began
        return seconds / count * 1000


if __name__ == "__main__":
    _run_edits(int(sys.argv[1]))
