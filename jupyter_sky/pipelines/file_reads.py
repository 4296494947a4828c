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

from ..translation import _

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
            if isinstance(node, ast.Call) and _is_unknown(node, texts, folder):
                words = ast.unparse(node)
                shown = words if len(words) <= 60 else f"{words[:57]}..."
                return _("{call} reads what is not known before").format(call=shown)
    return ""


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
    function = call.func
    name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
    root = _root(function) if isinstance(function, ast.Attribute) else ""
    if (
        name in ASKERS
        or name in LISTERS
        or (root in CLIENTS and isinstance(function, ast.Attribute))
    ):
        return True
    if name == "load" and root in LOADERS:
        return not _is_known(call.args[0] if call.args else None, texts, folder)
    if name not in OPENERS or _writes(call, name):
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


def _writes(call: ast.Call, name: str) -> bool:
    if name != "open":
        return False
    modes = [part.value for part in call.keywords if part.arg == "mode"]
    modes += call.args[:1] if _is_method_of_path(call.func) else call.args[1:2]
    found = [mode.value for mode in modes if isinstance(mode, ast.Constant)]
    return any(isinstance(m, str) and m[:1] in tuple("wxa") and "+" not in m for m in found)


def _is_known(argument: ast.expr | None, texts: Mapping[str, str | None], folder: Path) -> bool:
    """Whether an argument is the path of a file that is here."""
    if isinstance(argument, ast.Call) and len(argument.args) == 1:  # Path("a.csv")
        argument = argument.args[0]
    text: object = None
    if isinstance(argument, ast.Constant):
        text = argument.value
    elif isinstance(argument, ast.Name):
        text = texts.get(argument.id)
    if not isinstance(text, str) or _ADDRESS.match(text):
        return False
    return (folder / text).is_file()
