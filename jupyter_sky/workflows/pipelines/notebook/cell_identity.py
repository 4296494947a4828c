"""Identity of the cells of a notebook, with the definitions and parameters that they read."""

from __future__ import annotations

import ast
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.cell_names import is_result, read_names, reads_all_results
from jupyter_sky.execution.cells.magic_code import parse_cell, to_plain_python
from jupyter_sky.workflows.pipelines.model.file_reads import (
    constants_of,
    named_files,
    unknown_read,
    written_files,
)
from jupyter_sky.workflows.pipelines.model.identity import (
    TaskIdentity,
    code_identity,
    digest_of,
    tree_identity,
)
from jupyter_sky.workflows.pipelines.model.module_identity import find_modules
from jupyter_sky.workflows.pipelines.notebook.cells import Kind, PipelineCell
from jupyter_sky.workflows.pipelines.notebook.links import LinkKind, Pipeline

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
