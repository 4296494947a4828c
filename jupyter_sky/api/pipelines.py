"""Runs of graphs of tasks as Python calls."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SkyError, SkyUsageError
from ..executor import session as _sessions
from ..runs.graph import RunGraph
from ..runs.state import RunState, fold
from ..tables import Table
from ..translation import _

if TYPE_CHECKING:
    from ..dag.dag import Dag
    from ..optimizer.plan import Plan
    from ..pipelines.links import Pipeline
    from ..pipelines.pipeline_run import PipelineRun


def run_graph(
    dag: Dag,
    name: str | None = None,
    fresh: bool = False,
    detach: bool = False,
    fail_fast: bool = False,
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
    **settings
        ``minimize="time"``, ``deadline="3h"``, ``budget=20`` (USD) and so on, as `plan` has them.
        Deadline and budget hold while it runs: after refusals, losses and delays the rest is
        planned anew within what is left of them. Where no plan keeps them, tasks that have not
        begun fail; what runs when the budget is used up is stopped.
    """
    from ..pipelines.placing import choose_stores, place_graph
    from ..pipelines.replanning import make_problem
    from ..pipelines.starting import start_run
    from ..pipelines.task_body import make_graph

    _register_view()
    session = _sessions.current()
    # what cannot be run is said before anything is planned
    graph = make_graph(dag, is_batched=session.config.trust)
    plan = place_graph(dag, **settings)
    if stores := choose_stores(dag, plan):
        graph = make_graph(dag, stores, is_batched=session.config.trust)
    problem = make_problem(dag.freeze(), time.time(), **settings)
    name = name or f"{dag.name or 'run'}-{time.strftime('%m%d-%H%M%S')}"
    facts = {"origin": _origin_of_dag(dag), "fresh": fresh, "fail_fast": fail_fast}
    return start_run(session, graph, name, plan, problem, detach, **facts)


def read_dag(path: str | Path, **values: Any) -> Dag:
    """Read a graph from a task file of YAML: one of SkyPilot, or what `write_dag` has written.

    Parameters
    ----------
    path
        Of the file. Each of its documents is a task, which follows the one before it unless
        ``x-sky: {after: [...]}`` says otherwise.
    **values
        In place of those of its ``envs``.

    Returns
    -------
    Dag
        What of the file is not done is warned of.

    Raises
    ------
    SkyUsageError
        A field is unknown or unsupported, or its value is invalid; the message names the line.

    Examples
    --------
    >>> sky.run(sky.read_dag("train.yaml", EPOCHS=3)).wait()  # doctest: +SKIP
    """
    from ..pipelines.task_file import read_task_file

    found = read_task_file(Path(path), values)
    for text in found.warnings:
        warnings.warn(text, stacklevel=2)
    return found.dag


def write_dag(dag: Dag, path: str | Path) -> None:
    """Write a graph as a task file of YAML, which `read_dag` and reviewers read.

    Parameters
    ----------
    dag
        Its functions are written as ``module:name``.
    path
        A file that is there is replaced.

    Raises
    ------
    SkyUsageError
        A function is defined in the notebook, or has no name.

    Examples
    --------
    >>> sky.write_dag(dag, "vision.yaml")  # doctest: +SKIP
    """
    from ..pipelines.task_file_writer import write_task_file

    write_task_file(dag, Path(path))


def is_task_file(path: Path) -> bool:
    """Return whether a path is that of a task file, and not of a notebook."""
    return path.suffix in (".yaml", ".yml")


def pipeline(
    notebook: str | Path,
    name: str | None = None,
    fresh: bool = False,
    detach: bool = False,
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
    return start_notebook(Path(notebook), name, parameters, fresh, detach)


def read_notebook(path: Path) -> tuple[dict[str, Any], Pipeline]:
    """Return a notebook in format 4, and the graph of its cells.

    Raises
    ------
    SkyUsageError
        It is not a notebook, or cannot be read.
    """
    from ..pipelines.cells import read_cells, read_source
    from ..pipelines.links import link_cells

    try:
        source = read_source(path.read_text(encoding="utf-8"))
        return source, link_cells(read_cells(source))
    except SkyError:
        raise
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise SkyUsageError(
            _("{path} cannot be read as a notebook: {error}").format(path=path, error=error)
        ) from None


def plan_file(path: Path, parameters: Mapping[str, Any], **settings: Any) -> Plan:
    """Return the plan of the graph of a notebook or task file, as it would run."""
    from ..pipelines.cell_body import make_notebook_dag, make_notebook_graph
    from ..pipelines.placing import place_graph
    from ..pipelines.task_body import make_graph

    if is_task_file(path):
        dag = read_dag(path, **parameters)
        make_graph(dag)  # what is wrong is said before anything is planned
        return place_graph(dag, **settings)
    __, found = read_notebook(path)
    make_notebook_graph(found, parameters)  # what is wrong is said before anything is planned
    return place_graph(make_notebook_dag(found, path.stem, parameters), **settings)


def preview_notebook(found: Pipeline, path: Path, parameters: Mapping[str, Any]) -> dict[str, str]:
    """Return for each task of a notebook whether its result is kept, or why it would run.

    Parameters
    ----------
    found
        Its cells and links.
    path
        Of the notebook.
    parameters
        Values in place of those of the cell that is tagged ``parameters``.
    """
    from ..pipelines.cell_body import make_notebook_graph

    return _preview(make_notebook_graph(found, parameters), _origin(path))


def preview_dag(dag: Dag) -> dict[str, str]:
    """Return for each task of a graph whether its result is kept, or why it would run."""
    from ..pipelines.task_body import make_graph

    return _preview(make_graph(dag), _origin_of_dag(dag))


def _preview(graph: RunGraph, origin: str) -> dict[str, str]:
    from ..config.settings import Sky
    from ..pipelines.reuse import Reuse, describe
    from ..pipelines.run_storage import open_kept

    kept = open_kept(Path(Sky.load().data_dir))
    try:
        judged = Reuse(graph, kept, origin).preview()
        return {name: describe(each) for name, each in judged.items()}
    finally:
        kept.close()


def start_file(
    path: Path,
    name: str | None,
    parameters: Mapping[str, Any],
    fresh: bool = False,
    detach: bool = False,
    fail_fast: bool = False,
    **settings: Any,
) -> PipelineRun:
    """Run the graph of a notebook or a task file, with `settings` of its plan."""
    if is_task_file(path):
        dag = read_dag(path, **parameters)
        return run_graph(dag, name, fresh, detach, fail_fast, **settings)
    return start_notebook(path, name, parameters, fresh, detach, fail_fast, **settings)


def start_notebook(
    path: Path,
    name: str | None,
    parameters: Mapping[str, Any],
    fresh: bool = False,
    detach: bool = False,
    fail_fast: bool = False,
    **settings: Any,
) -> PipelineRun:
    """Run the cells of a notebook as a graph, with `settings` of its plan."""
    from ..pipelines.cell_body import make_notebook_dag, make_notebook_graph
    from ..pipelines.placing import place_graph
    from ..pipelines.replanning import make_problem
    from ..pipelines.starting import start_run
    from ..pipelines.sweeps import expand_cells

    _register_view()
    source, found = read_notebook(path)
    graph = make_notebook_graph(found, parameters)
    for finding in found.findings:
        warnings.warn(f"{finding.text}; {finding.hint}", stacklevel=3)
    dag = make_notebook_dag(found, path.stem, parameters)
    plan = place_graph(dag, **settings)
    name = name or f"{path.stem}-{time.strftime('%m%d-%H%M%S')}"
    expanded = expand_cells(found, parameters)
    facts = {
        "source": source,
        "cells": {each.name: cell.number for cell in found.tasks for each in expanded[cell.name]},
        "sweeps": {
            cell.name: [each.name for each in expanded[cell.name]]
            for cell in found.tasks
            if cell.maps
        },
        "origin": _origin(path),
        "fresh": fresh,
        "fail_fast": fail_fast,
    }
    problem = make_problem(dag.freeze(), time.time(), **settings)
    return start_run(_sessions.current(), graph, name, plan, problem, detach, **facts)


def _origin_of_dag(dag: Dag) -> str:
    return f"graph {dag.name}"


def _origin(path: Path) -> str:
    return f"notebook {path.resolve()}"


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
    from ..pipelines.pipeline_run import PipelineRun

    _register_view()
    return PipelineRun(_sessions.current(), name)


def _register_view() -> None:
    from ..widgets import run_view  # noqa: F401  # it registers itself


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
    from ..pipelines.run_storage import open_journal

    journal = open_journal(Path(_sessions.current().config.data_dir))
    try:
        return journal.names()
    finally:
        journal.close()


def runs() -> Table:
    """Return a table of the runs of graphs, the newest first."""
    from ..pipelines.run_storage import open_journal

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
