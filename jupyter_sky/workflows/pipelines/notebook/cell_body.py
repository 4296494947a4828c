"""Bodies of the tasks of a notebook's pipeline: cells, as values of JSON that a journal keeps."""

from __future__ import annotations

import ast
import json
import keyword
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.cell_options.sweep import most_failures
from jupyter_sky.base.requests.cell_options.values import SCRATCH, CellOptions, CellOutput
from jupyter_sky.base.requests.dag.dag import Dag, Task
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import N_, _
from jupyter_sky.execution.cells.cell_names import is_result, read_names, reads_all_results
from jupyter_sky.execution.cells.magic_code import parse_cell, to_plain_python
from jupyter_sky.execution.files.stored_values import output_uri
from jupyter_sky.workflows.pipelines.model.file_reads import (
    constants_of,
    named_files,
    unknown_read,
    written_files,
)
from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask
from jupyter_sky.workflows.pipelines.model.identity import (
    TaskIdentity,
    code_identity,
    digest_of,
    tree_identity,
)
from jupyter_sky.workflows.pipelines.model.module_identity import find_modules
from jupyter_sky.workflows.pipelines.model.task_body import Address, LoadValue, TaskCell
from jupyter_sky.workflows.pipelines.notebook.cells import Kind, PipelineCell
from jupyter_sky.workflows.pipelines.notebook.conditions import make_condition, optional_producers
from jupyter_sky.workflows.pipelines.notebook.links import LinkKind, Pipeline
from jupyter_sky.workflows.pipelines.notebook.sweeps import (
    AT_ONCE,
    CellTask,
    expand_cells,
    written_value,
)

_BLANK = "\n" * 8
"""Lines before what is added to a cell, so that no traceback shows it beside the cell's own."""


@dataclass(frozen=True, slots=True)
class CellBody:
    """Code of a cell, with all that it needs from the others.

    Attributes
    ----------
    request
        Resources as they were asked for, as a line of options.
    line, has_line
        Text after ``%%sky``, and whether the cell has that line.
    code
        Of the cell.
    definitions
        Code of the cells of definitions and parameters that it needs, and its values of a sweep.
    hidden
        Names of other cells, which it must not see although they ran on its engine.
    reads
        Producer of each name that it reads from another task; a list where a sweep gives it.
    gives
        Names that other tasks may read.
    stores
        Address of each value that stays in a store, by its name.
    folder
        Folder of this machine in which it works; empty for that of its cluster.
    kept_by
        Task on whose cluster it must run, for the variables there or as one of a sweep; empty for
        any cluster.
    condition
        What `TaskCondition.to_json` gives; None for a cell that always runs.
    """

    request: str = ""
    line: str = ""
    has_line: bool = False
    code: str = ""
    definitions: str = ""
    hidden: tuple[str, ...] = ()
    reads: Mapping[str, str | Sequence[str]] | None = None
    gives: tuple[str, ...] = ()
    stores: Mapping[str, str] | None = None
    folder: str = ""
    kept_by: str = ""
    condition: Mapping[str, Any] | None = None

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

    def as_cell(
        self, task: str, result: str, load: LoadValue, address: Address | None = None
    ) -> TaskCell:
        """Return the cell that runs it; its values stay in a dict under the name `result`.

        One that goes to a store is given back apart, under that name with its own behind it. With
        `address`, which returns where a large value of a name goes, all of them are.

        Definitions and inputs have a cell of their own before it, so that lines in tracebacks are
        those of the notebook.
        """
        options = parse_cell_line(self.line)
        values = {
            name: load(producer, name)
            if isinstance(producer, str)
            else [load(each, name) for each in producer]
            for name, producer in (self.reads or {}).items()
        }
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
        kept = {name: CellOutput(f"{result}_{name}", True, uri) for name, uri in stores.items()}
        if address is not None and not is_magic:
            kept |= {
                name: CellOutput(f"{result}_{name}", True, address(name), large_only=True)
                for name in self.gives
                if name not in stores
            }
        given = ", ".join(f"{name!r}: {name}" for name in self.gives if name not in kept)
        after = "" if is_magic else f"{_BLANK}{result} = {{{given}}}"
        after += "".join(f"\n{result}_{name} = {name}" for name in kept)
        outputs = () if is_magic else (CellOutput(result), *kept.values())
        options = replace(options, resources=Resources(), inputs=(), outputs=outputs, auto=False)
        above = (f"%%sky {self.line}".rstrip(),) if self.has_line else ()
        return TaskCell(self.code + after, options, values, "\n".join(before), above)


def make_notebook_graph(
    pipeline: Pipeline, parameters: Mapping[str, Any], strict: bool = False
) -> RunGraph:
    """Return what is to be run for the cells of a notebook.

    Parameters
    ----------
    pipeline
        Its cells and links.
    parameters
        Values in place of those of the cell that is tagged ``parameters``.
    strict
        Refuse cells whose changes of an input would be lost.

    Raises
    ------
    SkyUsageError
        Something is wrong with the notebook, or there is no such parameter.
    """
    for finding in pipeline.findings:
        if finding.is_error:
            raise SkyUsageError(finding.text, hint=finding.hint)
    for finding in pipeline.findings:
        if finding.loses_work and strict:
            hint = _("{hint}; or run it so, with --no-strict").format(hint=finding.hint)
            raise SkyUsageError(finding.text, hint=hint)
    if not pipeline.tasks:
        raise SkyUsageError(_("no cell of the notebook is to be run"))
    _check_parameters(pipeline, parameters)
    expanded = expand_cells(pipeline, parameters)
    return RunGraph(
        _make_task(pipeline, cell, place, expanded, parameters)
        for cell in pipeline.tasks
        for place in range(len(expanded[cell.name]))
    )


def _check_parameters(pipeline: Pipeline, parameters: Mapping[str, Any]) -> None:
    cells = [cell for cell in pipeline.cells if cell.kind is Kind.PARAMETERS]
    swept = {each.name for cell in pipeline.tasks for each in cell.maps}
    known = sorted(swept.union(*(cell.makes for cell in cells)))
    for name, value in parameters.items():
        if name not in known:
            raise SkyUsageError(
                _("the notebook has no parameter {name}").format(name=name),
                hint=suggest(name, known) if known else _("tag a cell with: parameters"),
            )
        if name in swept:  # its values are checked one by one
            continue
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            raise SkyUsageError(
                _(
                    "parameter {name}: {value!r} is not text, a number, or a list or dict of these"
                ).format(name=name, value=value)
            ) from None
        _check_kind(cells, name, value)


_KINDS = (
    (bool, N_("True or False")),
    (int | float, N_("a number")),
    (str, N_("text")),
    (dict, N_("a dict")),
)


def _check_kind(cells: Sequence[PipelineCell], name: str, value: Any) -> None:
    """Refuse a value of another kind than that which the notebook has for a parameter."""
    cell = next(cell for cell in reversed(cells) if name in cell.makes)
    try:
        written = written_value(cell.body, name)
    except (TypeError, ValueError):  # it is computed
        return
    kind, words = next((each for each in _KINDS if isinstance(written, each[0])), (object, ""))
    is_other = not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
    if words and value is not None and is_other:
        raise SkyUsageError(
            _("parameter {name} is {kind}, not {value!r}").format(
                name=name, kind=_(words), value=value
            ),
            hint=_("the notebook has {name} = {written!r}").format(name=name, written=written),
        )


def _make_task(
    pipeline: Pipeline,
    cell: PipelineCell,
    place: int,
    expanded: Mapping[str, Sequence[CellTask]],
    parameters: Mapping[str, Any],
) -> RunTask:
    task = expanded[cell.name][place]
    earlier = place - _at_once(pipeline, cell)
    links = [link for link in pipeline.links if link.consumer == cell.name]
    kept = [link.producer for link in links if link.kind.is_of_one_cluster]
    local_cells = {task.name for task in pipeline.tasks if task.options is None}
    stays = local_cells if cell.name in local_cells else set()
    reads = {
        link.name: _producers(pipeline, link.producer, expanded)
        for link in links
        if link.kind is LinkKind.DATA and link.producer not in stays and link.name in cell.sent
    }
    read = {
        link.name
        for link in pipeline.links
        if link.producer == cell.name and link.kind is LinkKind.DATA and link.consumer not in stays
    }
    outputs = cell.options.outputs if cell.options else ()
    given = {output.name for output in outputs}
    condition = make_condition(
        pipeline, cell, task, parameters, lambda name: _producers(pipeline, name, expanded)
    )
    body = CellBody(
        _need(cell).command_line(),
        cell.line,
        cell.options is not None,
        cell.body,
        "\n".join(
            [
                *(_definition(one, parameters) for one in pipeline.definitions(cell)),
                *(f"{name} = {value!r}" for name, value in task.values.items()),
            ]
        ),
        () if kept else tuple(sorted(_names_of_others(pipeline, cell))),
        reads,
        tuple(sorted(read | given)),
        {output.name: _address(output) for output in outputs if output.uri},
        "" if cell.options else str(Path.cwd()),
        expanded[cell.name][earlier].name if earlier >= 0 else kept[-1] if kept else "",
        condition.to_json() if condition else None,
    )
    after = dict.fromkeys(link.producer for link in links)
    producers = tuple(each.name for producer in after for each in expanded[producer])
    identity = cell_identity(pipeline, cell, parameters, reads, task.values).to_json()
    optional = optional_producers(pipeline, cell)
    return RunTask(
        task.name,
        producers,
        cell.options.retries if cell.options else 0,
        optional=tuple(each.name for producer in optional for each in expanded[producer]),
        group=cell.name,
        most_failures=most_failures(
            cell.options.allow_failures if cell.options else "", len(expanded[cell.name])
        ),
        body=body.to_json() | {"identity": identity},
    )


def _producers(
    pipeline: Pipeline, producer: str, expanded: Mapping[str, Sequence[CellTask]]
) -> str | tuple[str, ...]:
    """Return the task that a cell is, or all where it is swept."""
    is_swept = any(cell.maps for cell in pipeline.tasks if cell.name == producer)
    return tuple(task.name for task in expanded[producer]) if is_swept else producer


def _at_once(pipeline: Pipeline, cell: PipelineCell) -> int:
    """Return the number of clusters of a swept cell; on each, its tasks run one after the other."""
    is_bound = any(
        link.kind.is_of_one_cluster for link in pipeline.links if link.consumer == cell.name
    )
    return 1 if is_bound else (cell.options.at_once if cell.options else None) or AT_ONCE


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
    return {name for name in made - set(cell.sent) if not keyword.iskeyword(name)}


def make_notebook_dag(pipeline: Pipeline, name: str, parameters: Mapping[str, Any]) -> Dag:
    """Return the graph of a notebook as plans take it; sizes of its values are not known."""
    expanded = expand_cells(pipeline, parameters)
    with Dag(name) as dag:
        tasks = {
            cell.name: [Task(each.name).set_resources(_need(cell)) for each in expanded[cell.name]]
            for cell in pipeline.tasks
        }
        for link in pipeline.links:
            for producer, consumer in product(tasks[link.producer], tasks[link.consumer]):
                dag.add_edge(producer, consumer, 0.0)
                if link.kind.is_of_one_cluster:
                    dag.same_cluster(producer, consumer)
        for cell in pipeline.tasks:
            for place, task in enumerate(tasks[cell.name]):
                if (earlier := place - _at_once(pipeline, cell)) >= 0:
                    # its cluster is up; to plan the same cluster for both takes quadratic time
                    dag.add_edge(tasks[cell.name][earlier], task.set_spin_up(0.0), 0.0)
    return dag


# -- Identity of the cells of a notebook, with the definitions and parameters that they read ------

_SETTERS = frozenset(
    "basicConfig chdir filterwarnings manual_seed putenv seed setLevel set_default_dtype "
    "set_option set_options set_printoptions set_seed set_theme setlocale simplefilter use".split()
)
"""Functions of common libraries that set something for a whole process, such as a seed."""


def cell_identity(
    pipeline: Pipeline,
    cell: PipelineCell,
    parameters: Mapping[str, Any],
    values: Mapping[str, str | Sequence[str]],
    swept: Mapping[str, Any] = MappingProxyType({}),
) -> TaskIdentity:
    """Return what is known of the key of a cell's result before it runs.

    Parameters
    ----------
    pipeline
        The cells and links of its notebook.
    cell
        A task of it.
    parameters
        Values in place of those of the cell that is tagged ``parameters``.
    values
        Task from which each name comes that is sent to it, or several that give a list.
    swept
        Its values of a sweep, by name.
    """
    if cell.options and cell.options.sql:
        return TaskIdentity(problem=_("the tables of its query may change"))
    body = ast.parse(to_plain_python(cell.body))
    read = _read_definitions(pipeline, cell, parameters)
    trees = [body, *read.trees]
    options = cell.options or CellOptions()
    found, folder = find_modules(_imported(trees), options.pip), Path.cwd()
    texts = {text for tree in trees for text in constants_of(tree)} | set(read.texts.values())
    # what comes from stores and from --sync is known: paths below it may be made by the code
    brings = options.data or options.mounts or options.sync
    problem = (
        found.problem
        or _read_results(cell)
        or _unpinned(options)
        or ("" if brings else unknown_read(trees, folder, read.texts))
    )
    made = [str(folder / path) for path in options.files]
    if cell.options is None:  # of the kernel: it works in this folder
        made += sorted(written_files(trees, folder, read.texts))
    files = named_files(texts, folder)
    files = {name: path for name, path in files.items() if path not in made}
    files |= {path: str(folder / path) for path in options.sync}
    return TaskIdentity(
        code_identity(cell.body),
        read.definitions,
        read.parameters | _options(options) | {name: repr(swept[name]) for name in swept},
        found.packages,
        found.modules,
        files,
        tuple(data.uri for data in (*options.data, *options.mounts)),
        (*(upload.uri for upload in options.uploads), *made),
        _sources(values),
        _left_variables(pipeline, cell, values),
        problem,
    )


class _ReadDefinitions:
    """Statements of definitions that a cell reads.

    Attributes
    ----------
    definitions
        Digest of the statements that make each name.
    parameters
        JSON of each parameter.
    trees
        The statements.
    texts
        Parameters that are texts.
    """

    def __init__(self) -> None:
        self.definitions: dict[str, str] = {}
        self.parameters: dict[str, str] = {}
        self.trees: list[ast.AST] = []
        self.texts: dict[str, str] = {}


def _read_definitions(
    pipeline: Pipeline, cell: PipelineCell, parameters: Mapping[str, Any]
) -> _ReadDefinitions:
    statements: dict[str, list[ast.stmt]] = {}
    given: dict[str, Any] = {}
    for one in pipeline.definitions(cell):
        for statement in ast.parse(to_plain_python(one.body)).body:
            for name in _made(statement):
                statements.setdefault(name, []).append(statement)
                given.pop(name, None)
                if one.kind is Kind.PARAMETERS:
                    given |= _literal(name, statement)
        if one.kind is Kind.PARAMETERS:
            given |= {name: value for name, value in parameters.items() if name in one.makes}
    read, waiting, seen = _ReadDefinitions(), {*cell.reads, *cell.sent}, set[str]()
    while waiting := (waiting - seen) & (statements.keys() | given.keys()):
        name = waiting.pop()
        seen.add(name)
        if name in given:
            read.parameters[name] = json.dumps(given[name], sort_keys=True)
            read.texts |= {name: given[name]} if isinstance(given[name], str) else {}
            continue
        found = statements[name]
        read.definitions[name] = digest_of(" ".join(map(tree_identity, found)).encode())
        read.trees += found
        waiting |= {each for tree in found for each in read_names(ast.unparse(tree))}
    return read


def _made(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {(alias.asname or alias.name).partition(".")[0] for alias in names}
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
    found = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
    return {node.id for node in found if isinstance(node.ctx, ast.Store)}


def _literal(name: str, statement: ast.stmt) -> dict[str, Any]:
    """Return the value of a parameter, where JSON can tell it from any other."""
    if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
        try:
            value = ast.literal_eval(statement.value)
            if json.loads(json.dumps(value)) == value and not isinstance(value, tuple):
                return {name: value}
        except (ValueError, TypeError):
            pass
    return {}


def _imported(trees: Iterable[ast.AST]) -> set[str]:
    names: set[str] = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def _read_results(cell: PipelineCell) -> str:
    names = [name for name in sorted(cell.reads) if is_result(name)]
    if not names and not reads_all_results(cell.body):
        return ""
    return _("{name} is what other cells have given").format(name=(*names, "Out")[0])


def _unpinned(options: CellOptions) -> str:
    for text in options.pip:
        if "==" not in text:
            words = _("--pip {text} does not say which version: {text}==...")
            return words.format(text=text)
    return ""


def _options(options: CellOptions) -> dict[str, str]:
    """Return the options of a cell that count, each as a parameter."""
    renamed = {
        p.name: code_identity(p.expression) for p in options.inputs if p.name != p.expression
    }
    nodes = options.resources.nodes if options.resources.nodes > 1 else None
    counted = {
        "-i": renamed,
        "--nodes": nodes,
        "--on": options.on,
        "--pip": sorted(options.pip),
        "--data": [[data.uri, data.path] for data in (*options.data, *options.mounts)],
        "--out": [[upload.path, upload.uri] for upload in options.uploads],
        "-o": sorted(options.files) + [f"{o.name}@{o.uri}" for o in options.outputs if o.uri],
    }
    return {name: json.dumps(value, sort_keys=True) for name, value in counted.items() if value}


def _sources(values: Mapping[str, str | Sequence[str]]) -> dict[str, tuple[str, str]]:
    """Return task and name of each value that is sent; those of a list by their places."""
    sources: dict[str, tuple[str, str]] = {}
    for name, producers in values.items():
        if isinstance(producers, str):
            sources[name] = (producers, name)
        else:
            sources |= {f"{name}[{place}]": (each, name) for place, each in enumerate(producers)}
    return sources


def _left_variables(pipeline: Pipeline, cell: PipelineCell, sent: Container[str]) -> dict[str, str]:
    """Return the tasks whose variables a cell finds on its engine.

    On the engine of the kernel's cells values are shared: what one of them changes in place, or
    sets for the whole process, may be seen by all later ones, also under another name.
    """
    links = [link for link in pipeline.links if link.consumer == cell.name]
    left = {
        link.name: link.producer
        for link in links
        if link.name not in sent
        and (link.kind is LinkKind.KEPT or (link.kind is LinkKind.DATA and link.name in cell.sent))
    }
    if cell.options is None:
        local_cells = [task for task in pipeline.tasks if task.options is None]
        for one in local_cells[: local_cells.index(cell)]:
            if changed := sorted(one.changes) or _process_settings(one):
                left[f"{one.name}: {', '.join(changed)}"] = one.name
    return left


def _process_settings(cell: PipelineCell) -> list[str]:
    """Return the functions that a cell calls to set something for its whole process."""
    tree = parse_cell(cell.body)
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree else []
    names = {getattr(function, "attr", getattr(function, "id", "")) for function in calls}
    return sorted(names & _SETTERS)
