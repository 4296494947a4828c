"""Results that a run of a part takes from earlier runs, also those that are kept under no key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.pickles import open_pickle
from jupyter_sky.execution.files.stored_values import StoredValue
from jupyter_sky.workflows.pipelines.model.graph import RunGraph
from jupyter_sky.workflows.pipelines.model.kept_results import KeptResults, RunResults, TaskResult
from jupyter_sky.workflows.pipelines.model.reuse import Freshness, Reuse
from jupyter_sky.workflows.pipelines.notebook.conditions import TaskCondition, as_tasks
from jupyter_sky.workflows.pipelines.run.graph_parts import (
    GraphPart,
    PartRequest,
    choose_tasks,
    take_part,
)
from jupyter_sky.workflows.pipelines.run.journal import RunJournal
from jupyter_sky.workflows.pipelines.run.run_storage import open_journal, open_kept, open_shared

_MOST_RUNS = 50
"""Runs of the same notebook or graph that are looked through, the newest first."""


class EarlierResults:
    """Results of tasks that have no key, and of those that are skipped by their condition.

    The first are taken from the newest run of the same notebook or graph in which the code of the
    task, its definitions and parameters, and the values that it read, were those of now.

    Parameters
    ----------
    graph
        Whose bodies have identities.
    kept, journal
        Results and runs of a user.
    origin
        Notebook or graph.
    """

    def __init__(
        self, graph: RunGraph, kept: KeptResults, journal: RunJournal, origin: str
    ) -> None:
        self._graph, self._kept, self._origin = graph, kept, origin
        self._journal = journal
        self._earlier: list[tuple[RunGraph, RunResults]] | None = None

    def find(self, task: str, found: Mapping[str, Freshness]) -> TaskResult | None:
        """Return what stands for the result of a task that is not kept; None without any.

        Parameters
        ----------
        task
            Its name.
        found
            Whether the results of the tasks before it are kept.
        """
        body = self._graph.tasks[task].body
        if body.get("condition"):
            condition = TaskCondition.from_json(body["condition"])
            if (result := self._declined(condition, body["gives"], found)) is not None:
                return result
        identity = body["identity"]
        # without a key of its own, or of one before it whose variables it needs
        is_unkeyed = identity["problem"] or any(
            found[mate].key is None for mate in identity["tasks"].values()
        )
        if not is_unkeyed:
            return None
        inputs = _inputs(identity, {name: each.result for name, each in found.items()})
        for graph, results in self._runs() if inputs is not None else ():
            if task not in graph.tasks or not _is_same(body, graph.tasks[task].body):
                continue
            result = results.find(task)
            if result is not None and inputs == _inputs_then(identity, results):
                return None if self._kept.find_damage(result) else result
        return None

    def _declined(
        self, condition: TaskCondition, gives: Iterable[str], found: Mapping[str, Freshness]
    ) -> TaskResult | None:
        """Return the defaults of a task whose condition does not hold; None where it has to run."""
        import cloudpickle

        reads = [each for read in condition.reads.values() for each in as_tasks(read)]
        if any(each not in found or found[each].result is None for each in reads):
            return None

        def load(producer: str, name: str) -> Any:
            result = found[producer].result
            assert result is not None
            if name in result.handles:
                return StoredValue.from_json(result.handles[name]).fetch()
            return open_pickle(self._kept.read_file(result.values[name]))

        if not condition.find_unmet(load) or set(gives) - condition.defaults.keys():
            return None
        data = [cloudpickle.dumps(value) for value in condition.defaults.values()]
        digests = self._kept.write_files(data)
        return TaskResult(dict(zip(condition.defaults, digests, strict=True)))

    def _runs(self) -> list[tuple[RunGraph, RunResults]]:
        """Return graphs and results of the runs of the same origin, the newest first."""
        if self._earlier is None:
            self._earlier = []
            for name in reversed(self._journal.names()):
                recorded = self._journal.read(name)
                if recorded.settings.get("origin") == self._origin:
                    self._earlier.append((recorded.graph, RunResults(name, self._kept)))
                if len(self._earlier) == _MOST_RUNS:
                    break
        return self._earlier


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two bodies are those of the same code."""
    parts = ("code", "definitions", "parameters")
    return all(one["identity"][part] == other["identity"][part] for part in parts)


def _inputs(
    identity: Mapping[str, Any], results: Mapping[str, TaskResult | None]
) -> Mapping[str, Any] | None:
    """Return what a task reads, and finds on its engine; None where one of it is not known."""
    inputs: dict[str, Any] = {}
    for label, (producer, value) in identity["values"].items():
        if (result := results[producer]) is None:
            return None
        inputs[label] = result.digest(value)
    for label, producer in identity["tasks"].items():
        if (result := results[producer]) is None:
            return None
        inputs[label] = dict(result.values)
    return inputs


def _inputs_then(identity: Mapping[str, Any], results: RunResults) -> Mapping[str, Any] | None:
    before = {*(each for each, __ in identity["values"].values()), *identity["tasks"].values()}
    return _inputs(identity, {name: results.find(name) for name in before})


def find_part(
    graph: RunGraph,
    request: PartRequest,
    cells: Mapping[str, Sequence[str]],
    origin: str,
    folder: Path,
) -> GraphPart:
    """Return the part of a graph that a user asks for, with the kept results that it reads.

    Parameters
    ----------
    graph
        The whole graph.
    request
        What is asked for, which is not the whole graph.
    cells
        Tasks of each cell and tag.
    origin
        Notebook or graph.
    folder
        Of the user's data.

    Raises
    ------
    SkyUsageError
        A name is that of no task, or a result that the part reads is not kept.
    """
    chosen = choose_tasks(graph, request, cells)
    kept, journal = open_kept(folder), open_journal(folder)
    try:
        earlier = EarlierResults(graph, kept, journal, origin)
        shared = open_shared(Sky.load(), kept)

        def judge(whole: RunGraph, tasks: Iterable[str]) -> Mapping[str, Freshness]:
            reuse = Reuse(whole, kept, origin, substitute=earlier.find, shared=shared)
            reuse.bring_shared(tasks)
            return reuse.judge(tasks)

        part = take_part(graph, chosen, judge)
        for task, key in part.keys.items():
            kept.note_use(key, part.taken[task], origin, task)
        sizes = {
            task: sum(kept.file_size(digest) for digest in result.values.values()) / 1e9
            for task, result in part.taken.items()
        }
        return replace(part, gb=sizes)
    finally:
        kept.close()
        journal.close()
