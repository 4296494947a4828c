"""Runs of graphs in this process: kept results are looked up and kept as in any run.

Tasks are executed here instead of on clusters: the code of cells in one namespace, as running all
cells does, functions with the values before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_sky.base.requests.dag.dag import Dag
from jupyter_sky.workflows.pipelines.model.graph import RunGraph
from jupyter_sky.workflows.pipelines.model.kept_results import KeptResults, RunResults
from jupyter_sky.workflows.pipelines.model.reuse import Reuse, describe
from jupyter_sky.workflows.pipelines.model.task_body import make_graph
from jupyter_sky.workflows.pipelines.notebook.cell_body import make_notebook_graph
from jupyter_sky.workflows.pipelines.notebook.cells import read_cells
from jupyter_sky.workflows.pipelines.notebook.links import link_cells


def notebook_graph(
    sources: list[str] | tuple[str, ...], parameters: Mapping[str, Any] | None = None
) -> RunGraph:
    """Return the graph of cells; the first of them has the notebook's parameters."""
    cells = [
        {"cell_type": "code", "source": source, "metadata": {"tags": ["parameters"][: number == 0]}}
        for number, source in enumerate(sources)
    ]
    return make_notebook_graph(link_cells(read_cells({"cells": cells})), parameters or {})


class KeptRuns:
    """Runs that share a folder of kept results.

    Attributes
    ----------
    why
        Why each task of the last run has run, by its name.
    unkept
        Why the results of the last run were not kept, by task.
    results
        Of the last run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.kept = folder, KeptResults(folder / "kept")
        self.why: dict[str, str] = {}
        self.unkept: dict[str, str] = {}
        self.results = RunResults("", self.kept)
        self._count = 0

    def cells(self, *sources: str, is_fresh: bool = False, **parameters: Any) -> list[str]:
        """Run cells; return the names of those that have run."""
        return self._run(notebook_graph(sources, parameters), is_fresh)

    def preview(self, *sources: str, **parameters: Any) -> dict[str, str]:
        """Return what would become of each cell."""
        judged = Reuse(notebook_graph(sources, parameters), self.kept, "book").preview()
        return {name: describe(each) for name, each in judged.items()}

    def functions(self, dag: Dag) -> list[str]:
        """Run functions; return the names of those that have run."""
        return self._run(make_graph(dag), False, {task.name: task.run for task in dag})

    def _run(
        self, graph: RunGraph, is_fresh: bool, functions: Mapping[str, Any] | None = None
    ) -> list[str]:
        self._count += 1
        self.results = RunResults(f"run{self._count}", self.kept)
        reuse = Reuse(graph, self.kept, "book", self.results, is_fresh)
        self.why, self.unkept = {}, {}
        space: dict[str, Any] = {}
        for name, task in graph.tasks.items():
            found = reuse.look_up(name)
            if found.result is not None:
                space |= {each: self.results.load(name, each) for each in found.result.values}
                continue
            self.why[name] = found.why
            if functions is None:
                exec(task.body["definitions"], space)
                exec(task.body["code"], space)
                values = {each: space[each] for each in task.body["gives"]}
            else:
                inputs = [self.results.load(each) for each in task.body["arguments"]]
                values = {"": functions[name](*inputs)}
            self.results.save_outputs(name, [{"output_type": "stream", "text": name}])
            self.results.save(name, values, **reuse.shown_and_written(name))
            self.unkept |= reuse.keep([name])
        return list(self.why)
