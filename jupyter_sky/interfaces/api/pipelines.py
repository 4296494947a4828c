"""Runs of graphs of tasks as Python calls."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.execution.sessions import session as _sessions
from jupyter_sky.interfaces.api.pipeline_files import (
    cell_tasks,
    choose_part,
    is_task_file,
    make_checked_graph,
    origin_of,
    read_dag,
    read_notebook,
    write_dag,
)
from jupyter_sky.workflows.pipelines.run.names import dated_name
from jupyter_sky.workflows.pipelines.run.state import RunState, fold

if TYPE_CHECKING:
    from jupyter_sky.base.requests.dag.dag import Dag
    from jupyter_sky.workflows.pipelines.run.graph_parts import PartRequest
    from jupyter_sky.workflows.pipelines.run.pipeline_run import PipelineRun

__all__ = ["pipeline", "read_dag", "resume", "run_graph", "write_dag"]


def run_graph(
    dag: Dag,
    name: str | None = None,
    fresh: bool = False,
    detach: bool = False,
    fail_fast: bool = False,
    only: str | Sequence[str] | None = None,
    from_task: str | Sequence[str] | None = None,
    to_task: str | Sequence[str] | None = None,
    **settings: Any,
) -> PipelineRun:
    """Plan a Dag over what can be launched, and run its tasks; return the run at once.

    A task whose code, inputs, packages and files are those of an earlier run does not run again:
    its result was kept.

    Parameters
    ----------
    dag
        Its tasks have functions or shell commands to run.
    name
        Of the run; that of the Dag with the time unless given.
    fresh
        Run every task, whatever is kept.
    detach
        Carry it out in a process of its own, which goes on when this one ends.
    fail_fast
        Stop all when a task has failed; else what does not need it goes on.
    only
        Names of tasks that run alone: what they read of others must be kept.
    from_task, to_task
        Names of tasks that run with all that follow them, and with all that they follow; with both,
        what is between them.
    **settings
        ``minimize="time"``, ``deadline="3h"``, ``budget=20`` (USD) and so on, as `plan` has them.
        Deadline and budget hold while it runs: after refusals, losses and delays the rest is
        planned anew within what is left of them. Where no plan keeps them, tasks that have not
        begun fail; what runs when the budget is used up is stopped.
    """
    from jupyter_sky.base.requests.dag.dag import Dag
    from jupyter_sky.workflows.pipelines.run.graph_parts import read_part

    if not isinstance(dag, Dag):
        raise SkyUsageError(
            _("{what!r} cannot be run: it is neither code nor a Dag").format(what=dag),
            hint=_("sky.run takes the text of a cell, a Dag, or the name of a run"),
        )
    request = read_part(only, from_task, to_task)
    return _start_graph(dag, name, fresh, detach, fail_fast, request, **settings)


def _start_graph(
    dag: Dag,
    name: str | None,
    fresh: bool,
    detach: bool,
    fail_fast: bool,
    request: PartRequest,
    **settings: Any,
) -> PipelineRun:
    from jupyter_sky.workflows.pipelines.model.task_body import make_graph
    from jupyter_sky.workflows.pipelines.run.graph_parts import limit_graph, limit_settings
    from jupyter_sky.workflows.pipelines.run.placing import choose_stores, place_graph
    from jupyter_sky.workflows.pipelines.run.replanning import make_problem
    from jupyter_sky.workflows.pipelines.run.starting import start_run

    _register_view()
    session, origin = _sessions.current(), origin_of(dag)
    # results that come here may come several at a time
    is_batched = session.config.trust and not session.config.results
    # what cannot be run is said before anything is planned
    graph = make_graph(dag, is_batched=is_batched)
    plan = part = None
    if not request or any(data.is_anywhere for task in dag for data in task.outputs):
        plan = place_graph(dag, **settings)
        if stores := choose_stores(dag, plan):
            graph = make_graph(dag, stores, is_batched=is_batched)
    if part := choose_part(graph, request, {}, origin):
        graph, plan = part.graph, place_graph(dag, part=part, **settings)
    assert plan is not None
    limited = limit_settings(settings, part)
    problem = make_problem(limit_graph(dag.freeze(), part), time.time(), **limited)
    name = name or dated_name(dag.name or "run", run_names())
    facts = {"origin": origin, "fresh": fresh, "fail_fast": fail_fast, "part": part}
    return start_run(session, graph, name, plan, problem, detach, **facts)


def pipeline(
    notebook: str | Path,
    name: str | None = None,
    fresh: bool = False,
    detach: bool = False,
    only: str | Sequence[str] | None = None,
    from_task: str | Sequence[str] | None = None,
    to_task: str | Sequence[str] | None = None,
    strict: bool | None = None,
    **parameters: Any,
) -> PipelineRun:
    """Run the cells of a notebook as a graph: those that do not need each other side by side.

    A cell whose code, inputs, packages, files and parameters are those of an earlier run does not
    run again: its result and its outputs were kept.

    Parameters
    ----------
    notebook
        Its path. A cell with ``%%sky`` runs on its cluster, what ``-i`` names comes from the
        nearest earlier cell that gives it, what ``-o`` names goes to later ones. Other cells run
        one after the other on this machine; imports and definitions go along with each cell that
        needs them.
    name
        Of the run; that of the notebook with the time unless given.
    fresh
        Run every cell, whatever is kept.
    detach
        Carry it out in a process of its own, which goes on when this one ends.
    only, from_task, to_task
        Part that runs, as `run` has it for the tasks of a Dag; a tag of cells is ``#nightly``.
    strict
        Refuse a notebook a cell of which changes an input and does not give it back, though a later
        cell reads it; else that is warned of. In a notebook it is not strict unless given, as
        somebody reads the warning there; elsewhere it is.
    **parameters
        Values in place of those of the cell tagged ``parameters``.

    Returns
    -------
    PipelineRun
        At once; ``run.result("train", "model")`` is a value that the cell named ``train`` gives.

    Raises
    ------
    SkyUsageError
        The notebook cannot be run as a graph; the message names the cell.

    Examples
    --------
    >>> sky.pipeline("train.ipynb", lr=0.01).wait()  # doctest: +SKIP
    """
    from jupyter_sky.workflows.pipelines.run.graph_parts import read_part

    request = read_part(only, from_task, to_task)
    path = Path(notebook)
    return start_notebook(path, name, parameters, fresh, detach, request=request, strict=strict)


def start_file(
    path: Path,
    name: str | None,
    parameters: Mapping[str, Any],
    fresh: bool = False,
    detach: bool = False,
    fail_fast: bool = False,
    request: PartRequest | None = None,
    strict: bool | None = None,
    **settings: Any,
) -> PipelineRun:
    """Run the graph of a notebook or a task file, or a part, with `settings` of its plan."""
    from jupyter_sky.workflows.pipelines.run.graph_parts import PartRequest

    request = request or PartRequest()
    if is_task_file(path):
        dag = read_dag(path, **parameters)
        return _start_graph(dag, name, fresh, detach, fail_fast, request, **settings)
    return start_notebook(
        path, name, parameters, fresh, detach, fail_fast, request, strict, **settings
    )


def start_notebook(
    path: Path,
    name: str | None,
    parameters: Mapping[str, Any],
    fresh: bool = False,
    detach: bool = False,
    fail_fast: bool = False,
    request: PartRequest | None = None,
    strict: bool | None = None,
    **settings: Any,
) -> PipelineRun:
    """Run the cells of a notebook as a graph, or a part of them, with `settings` of its plan."""
    from jupyter_sky.workflows.pipelines.notebook.cell_body import make_notebook_dag
    from jupyter_sky.workflows.pipelines.run.graph_parts import limit_graph, limit_settings
    from jupyter_sky.workflows.pipelines.run.placing import place_graph
    from jupyter_sky.workflows.pipelines.run.replanning import make_problem
    from jupyter_sky.workflows.pipelines.run.starting import start_run

    _register_view()
    source, found = read_notebook(path)
    graph = make_checked_graph(found, parameters, strict, stacklevel=5)
    dag = make_notebook_dag(found, path.stem, parameters)
    tasks = cell_tasks(found, parameters)
    if part := choose_part(graph, request, tasks, origin_of(path)):
        graph = part.graph
    plan = place_graph(dag, part=part, **settings)
    name = name or dated_name(path.stem, run_names())
    kept = [(cell, [n for n in tasks[cell.name] if n in graph.tasks]) for cell in found.tasks]
    facts = {
        "source": source,
        "cells": {each: cell.number for cell, names in kept for each in names},
        "sweeps": {cell.name: names for cell, names in kept if cell.maps and names},
        "origin": origin_of(path),
        "fresh": fresh,
        "fail_fast": fail_fast,
        "part": part,
    }
    limited = limit_settings(settings, part)
    problem = make_problem(limit_graph(dag.freeze(), part), time.time(), **limited)
    return start_run(_sessions.current(), graph, name, plan, problem, detach, **facts)


def resume(name: str) -> PipelineRun:
    """Go on with a run that is paused, or whose process has ended; nothing is run twice.

    Parameters
    ----------
    name
        Of the run.

    Returns
    -------
    PipelineRun
        The run, which goes on.

    Raises
    ------
    SkyUsageError
        There is none of that name.

    Examples
    --------
    >>> sky.resume("nightly").wait()  # doctest: +SKIP
    """
    run = find(name)
    if run.state.paused:
        run.resume()
    return run.start()


def find(name: str) -> PipelineRun:
    """Return a run, without going on with it.

    Raises
    ------
    SkyUsageError
        There is none of that name.
    """
    from jupyter_sky.workflows.pipelines.run.pipeline_run import PipelineRun

    _register_view()
    session = _sessions.current()
    try:
        return PipelineRun(session, name)
    except SkyUsageError:
        from jupyter_sky.workflows.pipelines.run.controller_machine import check_here

        check_here(name, session.config)
        raise


def _register_view() -> None:
    from jupyter_sky.interfaces.widgets import run_view  # noqa: F401  # it registers itself


def newest() -> PipelineRun:
    """Return the run that was begun last.

    Raises
    ------
    SkyUsageError
        There is none.
    """
    names = run_names()
    if not names:
        raise SkyUsageError(
            _("no graph has been run"), hint=_("begin one: %sky pipeline run train.ipynb")
        )
    return find(names[-1])


def run_names() -> list[str]:
    """Return the names of the runs of graphs, the newest last."""
    from jupyter_sky.workflows.pipelines.run.run_storage import open_journal

    journal = open_journal(Path(_sessions.current().config.data_dir))
    try:
        return journal.names()
    finally:
        journal.close()


def runs() -> Table:
    """Return a table of the runs of graphs, the newest first."""
    from jupyter_sky.workflows.pipelines.run.run_storage import open_journal

    journal = open_journal(Path(_sessions.current().config.data_dir))
    try:
        rows = []
        for name in reversed(journal.names()):
            recorded = journal.read(name)
            state = fold(RunState.begin(recorded.graph), journal.events(name))
            counts = Counter(str(task.phase) for task in state.tasks.values())
            usd = sum(task.usd for task in state.tasks.values())
            made = time.strftime("%Y-%m-%d %H:%M", time.localtime(recorded.made))
            tasks = ", ".join(f"{count} {phase}" for phase, count in counts.items())
            rows.append((name, made, tasks, f"${usd:.2f}"))
    finally:
        journal.close()
    columns = (_("run"), _("begun"), _("tasks"), _("cost"))
    return Table(_("Runs of graphs"), columns, tuple(rows), empty=_("no graph has been run"))
