"""Files that a script of this machine needs: itself, and the modules beside it that it imports."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _

MAX_FOLDER_FILES = 2000
"""Most files of a package beside a script that goes along."""


def script_files(script: str) -> tuple[str, ...]:
    """Return a script, and the modules and packages beside it that it imports, and those import.

    Parameters
    ----------
    script
        Path of a file of Python, or of any other, which needs nothing else.

    Raises
    ------
    SkyUsageError
        The script is no Python: found here, it costs no machine.
    """
    path = Path(script)
    if path.suffix != ".py":
        return (script,)
    found, left = {script: None}, [path]
    while left:
        for name in _imports(left.pop(), script):
            for beside in (path.parent / f"{name}.py", path.parent / name):
                if str(beside) in found or not _is_code(beside):
                    continue
                found[str(beside)] = None
                left += [beside] if beside.is_file() else sorted(beside.rglob("*.py"))
    return tuple(found)


def modules_beside(codes: Iterable[str], folder: Path) -> list[Path]:
    """Return the modules and packages of a folder that code of cells imports, and those import."""
    found: dict[Path, None] = {}
    for code in codes:
        try:
            names = list(_imported(ast.parse(code)))
        except SyntaxError:  # magics: what they import is not known
            continue
        for beside in (folder / each for name in names for each in (f"{name}.py", name)):
            if _is_code(beside):
                files = [beside] if beside.is_file() else sorted(beside.rglob("*.py"))
                needed = [Path(each) for file in files for each in script_files(str(file))]
                found |= dict.fromkeys([beside, *(each for each in needed if each not in files)])
    return list(found)


def _is_code(path: Path) -> bool:
    if path.suffix == ".py":
        return path.is_file()
    return path.is_dir() and any(path.glob("*.py")) and _count(path) <= MAX_FOLDER_FILES


def _count(folder: Path) -> int:
    return sum(1 for _path, __ in zip(folder.rglob("*"), range(MAX_FOLDER_FILES + 1), strict=False))


def _imports(path: Path, script: str) -> Iterator[str]:
    """Yield the first parts of the names that a file imports."""
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError as error:
        if str(path) != script:
            return  # a module that is perhaps not reached
        raise SkyUsageError(
            _("{script}, line {line}: {error}").format(
                script=script, line=error.lineno, error=error.msg
            ),
            hint=_("it would fail on any machine"),
        ) from None
    except (OSError, ValueError):
        return
    yield from _imported(tree)


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]
