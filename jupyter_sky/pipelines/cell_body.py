"""Bodies of the tasks of a notebook's pipeline: cells, as values of JSON that a journal keeps."""

from __future__ import annotations

import json
import keyword
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from ..cell_options.parsing import parse_cell_line
from ..cell_options.values import SCRATCH, CellOutput
from ..dag.dag import Dag
from ..dag.task import Task
from ..errors import SkyUsageError, suggest
from ..executor.stored_values import output_uri
from ..resources import Resources
from ..runs.graph import RunGraph, RunTask
from ..translation import _
from .cell_identity import cell_identity
from .cells import Kind, PipelineCell
from .links import LinkKind, Pipeline
from .task_body import LoadValue, TaskCell

_BLANK = "\n" * 8
"""Lines before what is added to a cell, so that no traceback shows it beside the cell's own."""


@dataclass(frozen=True, slots=True)
class CellBody:
    """Code of a cell, with all that it needs from the others.

    Attributes
    ----------
    resources, request
        Of its cluster, as a line of options: the planned offer, and what was asked for.
    line, has_line
        Text after ``%%sky``, and whether the cell has that line.
    code
        Of the cell.
    definitions
        Code of the cells of definitions and parameters that it needs.
    hidden
        Names of other cells, which it must not see although they ran on its engine.
    reads
        Producer of each name that it reads from another task.
    gives
        Names that other tasks may read.
    stores
        Address of each value that stays in a store, by its name.
    folder
        Folder of this machine in which it works; empty for that of its cluster.
    kept_by
        Task on whose cluster it must run, for the variables there; empty for any cluster.
    """

    resources: str = ""
    request: str = ""
    line: str = ""
    has_line: bool = False
    code: str = ""
    definitions: str = ""
    hidden: tuple[str, ...] = ()
    reads: Mapping[str, str] | None = None
    gives: tuple[str, ...] = ()
    stores: Mapping[str, str] | None = None
    folder: str = ""
    kept_by: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return values of JSON from which `from_json` makes an equal body."""
        return {"kind": "cell", **asdict(self), "reads": dict(self.reads or {})}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CellBody:
        """Return the body of what `to_json` gave."""
        names = {each.name for each in fields(cls)}
        known = {name: value for name, value in data.items() if name in names}
        known |= {name: tuple(data[name]) for name in ("hidden", "gives")}
        return cls(**known)

    def as_cell(self, task: str, result: str, load: LoadValue) -> TaskCell:
        """Return the cell that runs it; its values stay in a dict under the name `result`.

        One that goes to a store is given back apart, under that name with its own behind it.

        Definitions and inputs have a cell of their own before it, so that lines in tracebacks are
        those of the notebook.
        """
        options = parse_cell_line(self.line)
        values = {name: load(producer, name) for name, producer in (self.reads or {}).items()}
        before = (
            [f"for _name in {self.hidden!r}: globals().pop(_name, None)"] if self.hidden else []
        )
        if self.folder:
            before.append(f"__import__('os').chdir({self.folder!r})")
        before += [self.definitions] if self.definitions else []
        before += [
            f"{part.name} = ({part.expression})"
            for part in options.inputs
            if part.name != part.expression
        ]
        is_magic = self.code.lstrip().startswith("%%")
        stores = {} if is_magic else dict(self.stores or {})
        given = ", ".join(f"{name!r}: {name}" for name in self.gives if name not in stores)
        after = "" if is_magic else f"{_BLANK}{result} = {{{given}}}"
        after += "".join(f"\n{result}_{name} = {name}" for name in stores)
        outputs = () if is_magic else (CellOutput(result),)
        outputs += tuple(CellOutput(f"{result}_{name}", True, uri) for name, uri in stores.items())
        options = replace(options, resources=Resources(), inputs=(), outputs=outputs, auto=False)
        above = (f"%%sky {self.line}".rstrip(),) if self.has_line else ()
        return TaskCell(self.code + after, options, values, "\n".join(before), above)


def make_notebook_graph(pipeline: Pipeline, parameters: Mapping[str, Any]) -> RunGraph:
    """Return what is to be run for the cells of a notebook.

    Parameters
    ----------
    pipeline
        Its cells and links.
    parameters
        Values in place of those of the cell that is tagged ``parameters``.

    Raises
    ------
    SkyUsageError
        Something is wrong with the notebook, or there is no such parameter.
    """
    errors = [finding for finding in pipeline.findings if finding.is_error]
    if errors:
        raise SkyUsageError(errors[0].text, hint=errors[0].hint)
    if not pipeline.tasks:
        raise SkyUsageError(_("no cell of the notebook is to be run"))
    _check_parameters(pipeline, parameters)
    return RunGraph(_make_task(pipeline, cell, parameters) for cell in pipeline.tasks)


def _check_parameters(pipeline: Pipeline, parameters: Mapping[str, Any]) -> None:
    cells = [cell for cell in pipeline.cells if cell.kind is Kind.PARAMETERS]
    known = sorted({name for cell in cells for name in cell.makes})
    for name, value in parameters.items():
        if name not in known:
            raise SkyUsageError(
                _("the notebook has no parameter {name}").format(name=name),
                hint=suggest(name, known) if known else _("tag a cell with: parameters"),
            )
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            raise SkyUsageError(
                _(
                    "parameter {name}: {value!r} is not text, a number, or a list or dict of these"
                ).format(name=name, value=value)
            ) from None


def _make_task(pipeline: Pipeline, cell: PipelineCell, parameters: Mapping[str, Any]) -> RunTask:
    links = [link for link in pipeline.links if link.consumer == cell.name]
    kept = [link.producer for link in links if link.kind is not LinkKind.DATA]
    lane = {task.name for task in pipeline.tasks if task.options is None}
    stays = lane if cell.name in lane else set()
    reads = {
        link.name: link.producer
        for link in links
        if link.kind is LinkKind.DATA and link.producer not in stays
    }
    read = {
        link.name
        for link in pipeline.links
        if link.producer == cell.name and link.kind is LinkKind.DATA and link.consumer not in stays
    }
    outputs = cell.options.outputs if cell.options else ()
    given = {output.name for output in outputs}
    need = _need(cell).command_line()
    body = CellBody(
        need,
        need,
        cell.line,
        cell.options is not None,
        cell.body,
        "\n".join(_definition(one, parameters) for one in pipeline.definitions(cell)),
        () if kept else tuple(sorted(_names_of_others(pipeline, cell))),
        reads,
        tuple(sorted(read | given)),
        {output.name: _address(output) for output in outputs if output.uri},
        "" if cell.options else str(Path.cwd()),
        kept[-1] if kept else "",
    )
    after = tuple(dict.fromkeys(link.producer for link in links))
    identity = cell_identity(pipeline, cell, parameters, reads).to_json()
    return RunTask(cell.name, after, body=body.to_json() | {"identity": identity})


def _address(output: CellOutput) -> str:
    """Return where a value is stored, under its own name."""
    return output.uri if output.uri == SCRATCH else str(output_uri(output, Path.cwd()))


def _need(cell: PipelineCell) -> Resources:
    if cell.options is None:
        return Resources.parse(cloud="local")
    return cell.options.resources


def _definition(cell: PipelineCell, parameters: Mapping[str, Any]) -> str:
    """Return the code of a cell of definitions or parameters, with the values of the run."""
    changed = [f"{name} = {value!r}" for name, value in parameters.items() if name in cell.makes]
    return "\n".join([cell.body, *(changed if cell.kind is Kind.PARAMETERS else ())])


def _names_of_others(pipeline: Pipeline, cell: PipelineCell) -> set[str]:
    made = {name for other in pipeline.tasks for name in other.makes if other is not cell}
    return {name for name in made - set(cell.inputs) if not keyword.iskeyword(name)}


def make_notebook_dag(pipeline: Pipeline, name: str) -> Dag:
    """Return the graph of a notebook as plans take it; sizes of its values are not known."""
    with Dag(name) as dag:
        tasks = {cell.name: Task(cell.name).set_resources(_need(cell)) for cell in pipeline.tasks}
        for link in pipeline.links:
            dag.add_edge(tasks[link.producer], tasks[link.consumer], 0.0)
            if link.kind is not LinkKind.DATA:
                dag.same_cluster(tasks[link.producer], tasks[link.consumer])
    return dag
