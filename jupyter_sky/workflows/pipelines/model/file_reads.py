"""Files that code reads: those that it names, and reads of which nothing is known before.

A result may be used again only where all that its task reads is known. What calls of common readers
are given is looked at; a path that is no text in the code, a folder's list and the network count as
unknown.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.magic_code import shell_call

OPENERS = frozenset(
    "open read_text read_bytes read_csv read_table read_fwf read_parquet read_json read_excel "
    "read_pickle read_feather read_hdf read_orc read_stata read_xml read_html loadtxt genfromtxt "
    "fromfile memmap imread".split()
)
"""Functions and methods that read the file that they are given, of common libraries."""
LOADERS = frozenset({"np", "numpy", "torch", "joblib"})
"""Modules whose ``load`` takes a path."""
LISTERS = frozenset("listdir scandir glob iglob rglob".split())
"""Functions and methods that read the list of a folder."""
ASKERS = frozenset(
    "urlopen urlretrieve read_sql read_sql_query read_sql_table load_dataset".split()
)
"""Functions that ask a server."""
CLIENTS = frozenset({"requests", "httpx"})
"""Modules whose functions ask a server."""
WRITERS = frozenset("imsave imwrite save savefig savetxt savez".split())
"""Functions and methods that write the file that they are given, besides those named ``to_...``."""
READERS = OPENERS | LISTERS | ASKERS | CLIENTS | {"load"}
"""Names without which code reads nothing that is known here."""
LONGEST_PATH = 4096
"""Characters of a longest path."""
LONGEST_COMMAND = 65_536
"""Characters of a longest command in which words are looked at."""
_WORD = re.compile(r"""[^\s'"<>|;&()=,]+""")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def named_files(texts: Iterable[str], folder: Path) -> dict[str, str]:
    """Return the files of this machine that texts of code name, and words of commands in it.

    Parameters
    ----------
    texts
        Constants of the code.
    folder
        To which paths are relative.

    Returns
    -------
    dict
        Absolute path of each, by its name in the code.
    """
    files: dict[str, str] = {}
    for text in sorted(set(texts)):
        for word in (text, *_words(text)):
            if word.strip("./") and len(word) <= LONGEST_PATH and "\0" not in word:
                path = folder / Path(word)
                try:
                    if path.is_file():
                        files[word] = str(path)
                except OSError:
                    continue
    return files


def _words(text: str) -> list[str]:
    """Return the words of a command."""
    is_command = " " in text.strip() and len(text) <= LONGEST_COMMAND
    return _WORD.findall(text) if is_command else []


def constants_of(tree: ast.AST) -> set[str]:
    """Return the texts in code.

    Examples
    --------
    >>> constants_of(ast.parse("f('a.csv', b'x', [1, 'b'])")) == {"a.csv", "b"}
    True
    """
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def unknown_read(
    trees: Iterable[ast.AST], folder: Path, given: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return the first read in code of which nothing is known before; empty without one.

    Parameters
    ----------
    trees
        Code of a task and of its definitions.
    folder
        To which paths are relative.
    given
        Texts that names are bound to before the code.

    Examples
    --------
    >>> unknown_read([ast.parse("table = read_csv(path)")], Path("."))
    'read_csv(path) reads what is not known before'
    >>> unknown_read([ast.parse("open(path, 'w').write(text)")], Path("."))
    ''
    """
    trees = list(trees)
    texts = {**given, **_named_texts(trees, given)}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (
                _is_unknown(node, texts, folder) or any(map(asks_network, _command_of(node)))
            ):
                words = ast.unparse(node)
                shown = words if len(words) <= 60 else f"{words[:57]}..."
                return _("{call} reads what is not known before").format(call=shown)
    return ""


def asks_network(command: str) -> bool:
    """Return whether a command names an address.

    Examples
    --------
    >>> asks_network("curl https://example.org"), asks_network("sort a.csv")
    (True, False)
    """
    return any(_ADDRESS.match(word) for word in _words(command))


def _command_of(call: ast.Call) -> list[str]:
    """Return the texts of a call that runs a command or magic of the notebook."""
    method, texts = shell_call(call) or ("", [])
    return texts if method in ("system", "getoutput", "run_cell_magic", "run_line_magic") else []


def written_files(
    trees: Iterable[ast.AST], folder: Path, given: Mapping[str, str] = MappingProxyType({})
) -> set[str]:
    """Return the absolute paths of the files that code writes and does not read.

    Parameters
    ----------
    trees, folder, given
        As `unknown_read` has them.

    Examples
    --------
    >>> code = ast.parse("table.to_csv('a.csv'); open('b', 'w'); open('c')")
    >>> sorted(written_files([code], Path("/")))
    ['/a.csv', '/b']
    """
    trees = list(trees)
    texts = {**given, **_named_texts(trees, given)}
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    written = {text for call in calls if (text := _text(_target(call), texts))}
    others = [call for call in calls if _target(call) is None and _called(call) in OPENERS]
    read = {text for call in others if call.args and (text := _text(call.args[0], texts))}
    return {str(folder / text) for text in written - read}


def _called(call: ast.Call) -> str:
    function = call.func
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _target(call: ast.Call) -> ast.expr | None:
    """Return the path that a call writes anew; None where it writes none."""
    name = _called(call)
    if name in ("write_text", "write_bytes") and isinstance(call.func, ast.Attribute):
        return call.func.value
    is_writer = name in WRITERS or name.startswith("to_") or _mode(call)[:1] in ("w", "x")
    return call.args[0] if is_writer and call.args else None


def _named_texts(trees: Iterable[ast.AST], given: Mapping[str, str]) -> dict[str, str | None]:
    """Return the texts that names are bound to; None for names that are bound otherwise too."""
    texts: dict[str, str | None] = {}
    for name, value in _bindings(trees):
        text = value.value if isinstance(value, ast.Constant) else None
        is_only = isinstance(text, str) and name not in texts and name not in given
        texts[name] = str(text) if is_only else None
    return texts


def _bindings(trees: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr | None]]:
    for tree in trees:
        plain: set[ast.AST] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        plain.add(target)
                        yield target.id, node.value
            elif isinstance(node, ast.arg):
                yield node.arg, None
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield from () if node in plain else ((node.id, None),)


def _is_unknown(call: ast.Call, texts: Mapping[str, str | None], folder: Path) -> bool:
    function, name = call.func, _called(call)
    root = _root(function) if isinstance(function, ast.Attribute) else ""
    if (
        name in ASKERS
        or name in LISTERS
        or (root in CLIENTS and isinstance(function, ast.Attribute))
    ):
        return True
    if name == "load" and root in LOADERS:
        return not _is_known(call.args[0] if call.args else None, texts, folder)
    if name not in OPENERS or (_mode(call)[:1] in ("w", "x", "a") and "+" not in _mode(call)):
        return False
    if name in ("read_text", "read_bytes") or (name == "open" and _is_method_of_path(function)):
        assert isinstance(function, ast.Attribute)
        return not _is_known(function.value, texts, folder)
    return not _is_known(call.args[0] if call.args else None, texts, folder)


def _is_method_of_path(function: ast.expr) -> bool:
    """Whether ``open`` is a method of a path, and not a function of a module such as gzip."""
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _mode(call: ast.Call) -> str:
    """Return the mode in which a call opens a file; empty for other calls and unknown modes."""
    if _called(call) != "open":
        return ""
    modes = [part.value for part in call.keywords if part.arg == "mode"]
    modes += call.args[:1] if _is_method_of_path(call.func) else call.args[1:2]
    found = [mode.value for mode in modes if isinstance(mode, ast.Constant)]
    return found[0] if found and isinstance(found[0], str) else ""


def _is_known(argument: ast.expr | None, texts: Mapping[str, str | None], folder: Path) -> bool:
    """Whether an argument is the path of a file that is here."""
    text = _text(argument, texts)
    return bool(text) and not _ADDRESS.match(text) and (folder / text).is_file()


def _text(argument: ast.expr | None, texts: Mapping[str, str | None]) -> str:
    """Return the text of a path; empty where it is not in the code."""
    if isinstance(argument, ast.Call) and len(argument.args) == 1:  # Path("a.csv")
        argument = argument.args[0]
    text: object = None
    if isinstance(argument, ast.Constant):
        text = argument.value
    elif isinstance(argument, ast.Name):
        text = texts.get(argument.id)
    return text if isinstance(text, str) else ""
