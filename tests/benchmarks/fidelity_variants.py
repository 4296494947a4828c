"""Variants of a notebook: plain, all cells under `%%sky`, every second one under `--auto`."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import nbformat
from IPython.core.inputtransformer2 import TransformerManager

from jupyter_sky.execution.cells.cell_names import read_names

Mode = Literal["plain", "remote", "mixed"]

CLUSTER = "fidelity"
SKY_LINE = f"%%sky -c {CLUSTER}"


@dataclass(frozen=True)
class Source:
    """Code cell of a notebook: its text and its tags."""

    text: str
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Variant:
    """Notebook to run.

    Attributes
    ----------
    compared
        Indices of the cells that stand for those of the notebook, in their order.
    remote
        Those of them that run under `%%sky`.
    """

    notebook: Any
    compared: tuple[int, ...]
    remote: frozenset[int]


def read_sources(path: Path) -> list[Source]:
    """Return the code cells of a notebook that are not empty and not to be skipped."""
    sources = [
        Source(cell.source, tuple(cell.metadata.get("tags", ())))
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "code" and cell.source.strip()
    ]
    return [source for source in sources if "skip-execution" not in source.tags]


_MACRO = re.compile(r"^\s*%macro\s+(?:-\w+\s+)*(\w+)", re.MULTILINE)
_COMMAND = re.compile(r"[A-Za-z_]\w* +[\w\"'/.~-].*")
_SETUP = re.compile(
    r"^\s*%(config|precision|env|set_env|matplotlib|load_ext|pylab|reset)\b"
    r"|register_\w*magic|\bfor_type|ast_transformers|input_transformers|ast_node_interactivity"
    r"|set_custom_exc"
    r"|sys\.(meta_path|path_hooks|excepthook|displayhook)|rcParams"
    r"|os\.environ\[|warnings\.(simple)?filter|set_printoptions|set_option|init_printing",
    re.MULTILINE,
)
"""Cells that set up the process in which they run."""


def make_variant(sources: list[Source], mode: Mode, sync: bool, other: Mode = "remote") -> Variant:
    """Return the variant of a notebook.

    Settings and registrations stay in their process, so a cell that makes some is run in the
    other one as well where cells of both are mixed.

    Parameters
    ----------
    sync
        Whether the notebook has files beside it, which its cluster needs too.
    other
        Mode of the run that a plain one is compared with: both have as many cells.
    """
    new = nbformat.v4.new_code_cell
    start = f"{SKY_LINE}{' --sync .' if sync else ''}\npass"
    cells = [new("%load_ext jupyter_sky"), new(f"# {start}" if mode == "plain" else start)]
    compared, remote = [], set()
    macros = {name for source in sources for name in _MACRO.findall(source.text)}
    for position, source in enumerate(sources):
        line = _sky_line(sources, position, mode)
        if line is not None:
            remote.add(len(cells))
        compared.append(len(cells))
        is_bare = mode == "plain" and is_command(source.text, macros)
        text = source.text if is_bare else _with_line(source.text, line)
        cells.append(new(text, metadata={"tags": list(source.tags)}))
        if "mixed" in (mode, other) and _SETUP.search(source.text):
            cells.append(new(_repeated(source.text, line, mode)))
    if mode != "plain":
        cells.append(new(f"%sky down {CLUSTER}"))
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    return Variant(notebook, tuple(compared), frozenset(remote))


def _sky_line(sources: list[Source], position: int, mode: Mode) -> str | None:
    if mode == "remote":
        return SKY_LINE
    text = sources[position].text
    if mode == "plain" or position % 2 == 0 or text.lstrip().startswith("%") or has_import(text):
        return None
    later: set[str] = set().union(*(_needed_names(s.text) for s in sources[position + 1 :]))
    outputs = ",".join(sorted(changed_names(text) & later))
    return f"{SKY_LINE} --auto" + (f" -o {outputs}" if outputs else "")


def _with_line(text: str, line: str | None) -> str:
    if line is not None:
        return f"{line}\n{text}"
    # a comment in the place of the line, so that lines have the same numbers in tracebacks
    return text if text.lstrip().startswith("%%") else f"# {SKY_LINE}\n{text}"


def is_command(text: str, macros: Collection[str]) -> bool:
    """Return whether IPython takes a cell of one line for a macro, an alias, a magic or a call.

    It does so only where that line is the whole cell.

    Examples
    --------
    >>> [is_command(text, {"mac"}) for text in ("mac", "ls docs", 'len "abc"', "x = 1", "1 +")]
    [True, True, True, False, False]
    """
    line = text.strip()
    return line in macros or (_parse(line) is None and bool(_COMMAND.fullmatch(line)))


def _repeated(text: str, line: str | None, mode: Mode) -> str:
    """Return a cell for the process in which a cell has not run; it has no result."""
    if mode == "plain":
        return "pass"
    return _with_line(f"{text}\npass", f"{SKY_LINE} --auto" if line is None else None)


def has_import(text: str) -> bool:
    """Return whether a cell imports a module, which the notebook itself may need later."""
    tree = _parse(text)
    return tree is not None and any(
        isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(tree)
    )


def mentioned_names(text: str) -> set[str]:
    """Return the names that a cell mentions."""
    tree = _parse(text)
    if tree is None:
        return set(re.findall(r"\w+", text))
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _needed_names(text: str) -> set[str]:
    """Return the names that a cell mentions but for those that it makes before it reads them."""
    return mentioned_names(text) - (changed_names(text) - read_names(text))


def changed_names(text: str) -> set[str]:
    """Return the names that a cell binds, or whose values it changes, at the top level.

    Examples
    --------
    >>> sorted(changed_names("a = 1; b.c = 2; d[0] = [e for e in a]"))
    ['a', 'b', 'd']
    """
    tree = _parse(text)
    return set() if tree is None else _changed(tree)


def _changed(node: ast.AST) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    scoped = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    if isinstance(node, scoped):
        return set()
    names = set().union(*map(_changed, ast.iter_child_nodes(node)))
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        base: ast.AST = node
        while isinstance(base, ast.Attribute | ast.Subscript):
            base = base.value
        if isinstance(node.ctx, ast.Store) and isinstance(base, ast.Name):
            names.add(base.id)
    return names


def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(TransformerManager().transform_cell(text))
    except SyntaxError:
        return None
