"""Files of graphs: notebooks and task files, read, written, previewed and planned."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyError, SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.workflows.pipelines.model.graph import RunGraph

if TYPE_CHECKING:
    from jupyter_sky.base.requests.dag.dag import Dag
    from jupyter_sky.decisions.optimizer.plan import Plan
    from jupyter_sky.workflows.pipelines.notebook.links import Pipeline
    from jupyter_sky.workflows.pipelines.run.graph_parts import GraphPart, PartRequest


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
    from jupyter_sky.workflows.pipelines.files.task_file import read_task_file

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
    from jupyter_sky.workflows.pipelines.files.task_file_writer import write_task_file

    write_task_file(dag, Path(path))


def is_task_file(path: Path) -> bool:
    """Return whether a path is that of a task file, and not of a notebook."""
    return path.suffix in (".yaml", ".yml")


def read_notebook(path: Path) -> tuple[dict[str, Any], Pipeline]:
    """Return a notebook in format 4, and the graph of its cells.

    Raises
    ------
    SkyUsageError
        It is not a notebook, or cannot be read.
    """
    from jupyter_sky.workflows.pipelines.notebook.cells import read_cells, read_source
    from jupyter_sky.workflows.pipelines.notebook.links import link_cells

    try:
        source = read_source(path.read_text(encoding="utf-8"))
        return source, link_cells(read_cells(source))
    except SkyError:
        raise
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise SkyUsageError(
            _("{path} cannot be read as a notebook: {error}").format(path=path, error=error)
        ) from None


def make_checked_graph(
    found: Pipeline, parameters: Mapping[str, Any], strict: bool | None, stacklevel: int = 3
) -> RunGraph:
    """Return what is to be run for the cells of a notebook; warn of what may be wrong with it."""
    from jupyter_sky.workflows.pipelines.notebook.cell_body import make_notebook_graph

    graph = make_notebook_graph(found, parameters, is_strict(strict))
    warn_of(found, stacklevel)
    return graph


def is_strict(strict: bool | None) -> bool:
    """Return whether cells whose changes would be lost are refused: where nobody is there to see.

    Parameters
    ----------
    strict
        What was asked for; None for nothing.
    """
    from IPython import get_ipython  # type: ignore[attr-defined]

    return get_ipython() is None if strict is None else strict


def warn_of(found: Pipeline, stacklevel: int = 2) -> None:
    """Warn of what may be wrong with a notebook."""
    for finding in found.findings:
        warnings.warn(f"{finding.text}; {finding.hint}", stacklevel=stacklevel)


def plan_file(
    path: Path,
    parameters: Mapping[str, Any],
    request: PartRequest | None = None,
    strict: bool | None = None,
    **settings: Any,
) -> Plan:
    """Return the plan of the graph of a notebook or task file, or of a part, as it would run."""
    from jupyter_sky.workflows.pipelines.model.task_body import make_graph
    from jupyter_sky.workflows.pipelines.notebook.cell_body import make_notebook_dag
    from jupyter_sky.workflows.pipelines.run.placing import place_graph

    if is_task_file(path):
        dag = read_dag(path, **parameters)
        graph = make_graph(dag)  # what is wrong is said before anything is planned
        return place_graph(dag, part=choose_part(graph, request, {}, origin_of(dag)), **settings)
    __, found = read_notebook(path)
    graph = make_checked_graph(found, parameters, strict)
    part = choose_part(graph, request, cell_tasks(found, parameters), origin_of(path))
    return place_graph(make_notebook_dag(found, path.stem, parameters), part=part, **settings)


def choose_part(
    graph: RunGraph,
    request: PartRequest | None,
    cells: Mapping[str, Sequence[str]],
    origin: str,
) -> GraphPart | None:
    """Return the part of a graph that is asked for, with what it takes; None for the whole."""
    from jupyter_sky.base.settings.settings import Sky
    from jupyter_sky.workflows.pipelines.run.earlier_results import find_part

    folder = Path(Sky.load().data_dir)
    return find_part(graph, request, cells, origin, folder) if request else None


def cell_tasks(found: Pipeline, parameters: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    """Return the tasks of each cell of a notebook, and of each tag as ``#tag``."""
    from jupyter_sky.workflows.pipelines.notebook.sweeps import expand_cells

    tasks = {
        cell: [each.name for each in expanded]
        for cell, expanded in expand_cells(found, parameters).items()
    }
    tagged: dict[str, list[str]] = {}
    for cell in found.tasks:
        for tag in cell.tags:
            tagged.setdefault(f"#{tag}", []).extend(tasks[cell.name])
    return {**tagged, **tasks}


def preview_notebook(
    found: Pipeline,
    path: Path,
    parameters: Mapping[str, Any],
    request: PartRequest | None = None,
) -> dict[str, str]:
    """Return for each task of a notebook whether its result is kept, or why it would run.

    Parameters
    ----------
    found
        Its cells and links.
    path
        Of the notebook.
    parameters
        Values in place of those of the cell that is tagged ``parameters``.
    request
        Part that would run; None for the whole.
    """
    from jupyter_sky.workflows.pipelines.notebook.cell_body import make_notebook_graph

    graph, origin = make_notebook_graph(found, parameters), origin_of(path)
    part = choose_part(graph, request, cell_tasks(found, parameters), origin)
    return _limit_preview(_preview(graph, origin), part)


def preview_dag(dag: Dag, request: PartRequest | None = None) -> dict[str, str]:
    """Return for each task of a graph whether its result is kept, or why it would run."""
    from jupyter_sky.workflows.pipelines.model.task_body import make_graph

    graph, origin = make_graph(dag), origin_of(dag)
    return _limit_preview(_preview(graph, origin), choose_part(graph, request, {}, origin))


def _limit_preview(found: dict[str, str], part: GraphPart | None) -> dict[str, str]:
    """Return what would become of each task where only a part runs."""
    if part is None:
        return found
    for name in found.keys() - part.tasks:
        found[name] = _("kept") if name in part.taken else _("left out")
    return found


def _preview(graph: RunGraph, origin: str) -> dict[str, str]:
    from jupyter_sky.base.settings.settings import Sky
    from jupyter_sky.workflows.pipelines.model.reuse import Reuse, describe
    from jupyter_sky.workflows.pipelines.run.run_storage import open_kept, open_shared

    config = Sky.load()
    kept = open_kept(Path(config.data_dir))
    try:
        judged = Reuse(graph, kept, origin, shared=open_shared(config, kept)).preview()
        return {name: describe(each) for name, each in judged.items()}
    finally:
        kept.close()


def origin_of(source: Dag | Path) -> str:
    """Return the name under which results of a graph or notebook are compared with later ones."""
    if isinstance(source, Path):
        return f"notebook {source.resolve()}"
    return f"graph {source.name}"
