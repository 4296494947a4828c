"""Identity of the result of a task: its code, inputs, packages, files and parameters.

The machine, its region, its price and the time are no part of it. A result is used again only
where every part is known to be equal; a part that cannot be computed makes a task uncached, it is
never left out.
"""

from __future__ import annotations

import ast
import glob
import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.magic_code import to_plain_python
from jupyter_sky.machines.storage.stores.listing import list_objects
from jupyter_sky.machines.storage.stores.stores import open_store
from jupyter_sky.machines.storage.stores.uri import StorageUri

FORMAT = 1
"""Version of the parts; another makes all results stale."""


@dataclass(frozen=True, slots=True)
class TaskKey:
    """Parts that identify the result of a task, each by text or digest.

    Attributes
    ----------
    code
        `code_identity` of the task.
    inputs
        Digest of the stored bytes of each input, by name; of a variable that stays on the engine
        the digest of the key of the task that left it there.
    parameters
        JSON of each parameter that it reads, by name.
    definitions
        `code_identity` of each function, class and constant that it reads, by name.
    packages
        Version of each package that it imports, by name.
    modules
        Digest of the content of each imported module that is no package, by name.
    files
        Digest of the content of each file and of each address of a store that it reads, by name.
    python
        Version of the language, such as ``"3.11"``.

    Examples
    --------
    >>> key = TaskKey(code_identity("y = f(x)"), inputs={"x": "5e3f"}, python="3.11")
    >>> other = TaskKey(code_identity("y = f( x )  # again"), inputs={"x": "77aa"}, python="3.11")
    >>> key.differences(other)
    ('input x',)
    """

    code: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    definitions: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    python: str = f"{sys.version_info[0]}.{sys.version_info[1]}"

    @property
    def digest(self) -> str:
        """Name under which the result is stored: 32 hexadecimal digits."""
        text = json.dumps({"format": FORMAT, **self.to_json()}, sort_keys=True)
        return digest_of(text.encode())

    def to_json(self) -> dict[str, Any]:
        """Return values of JSON from which `from_json` makes an equal key."""
        return {
            "code": self.code,
            **{name: dict(getattr(self, name)) for name in _PARTS},
            "python": self.python,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TaskKey:
        """Return the key of what `to_json` gave."""
        return cls(**data)

    def differences(self, other: TaskKey) -> tuple[str, ...]:
        """Return the parts in which a later key differs, in words of a notebook's author.

        Parameters
        ----------
        other
            The later key: of a package both versions are told, the earlier one first.
        """
        found = [_("code")] if self.code != other.code else []
        for part, label in _PARTS.items():
            mine, theirs = getattr(self, part), getattr(other, part)
            for name in {**mine, **theirs}:
                if mine.get(name) != theirs.get(name):
                    words = _(label).format(name=name)
                    if part == "packages":
                        none = _("none")
                        words += f" {mine.get(name, none)} -> {theirs.get(name, none)}"
                    found.append(words)
        found += [_("Python")] if self.python != other.python else []
        return tuple(found)


_PARTS = {
    "inputs": "input {name}",
    "parameters": "parameter {name}",
    "definitions": "definition {name}",
    "packages": "package {name}",
    "modules": "module {name}",
    "files": "file {name}",
}


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Parts of a task's key that are known before it runs, and places of the others.

    Attributes
    ----------
    code, definitions, parameters, packages
        As `TaskKey` has them.
    modules
        Names of the imported modules whose content counts.
    paths
        Absolute path of each file or folder of this machine that it reads, by the name that its
        code gives it.
    addresses
        Data that it reads from stores.
    products
        Addresses of stores, and absolute paths of this machine, that it writes for its user.
    values
        Task from which each input comes, by name, and the name of that task's value: its stored
        bytes count.
    tasks
        Task that leaves each variable on its engine, by name: the key of the task counts.
    problem
        Why no key can be made; empty where it can.
    """

    code: str = ""
    definitions: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    paths: Mapping[str, str] = field(default_factory=dict)
    addresses: tuple[str, ...] = ()
    products: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    tasks: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return values of JSON from which `from_json` makes an equal identity."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TaskIdentity:
        """Return the identity of what `to_json` gave.

        Examples
        --------
        >>> identity = TaskIdentity("c0de", modules=("mine",), values={"x": ("load", "x")})
        >>> TaskIdentity.from_json(json.loads(json.dumps(identity.to_json()))) == identity
        True
        """
        fields = dict(data)
        fields |= {name: tuple(data[name]) for name in ("modules", "addresses", "products")}
        fields["values"] = {name: tuple(source) for name, source in data["values"].items()}
        return cls(**fields)


def code_identity(code: str) -> str:
    """Return a digest of code that comments, blank lines, quotes and docstrings do not change.

    Parameters
    ----------
    code
        Of a cell or a function, with magics. Code with errors is identified by its text.

    Examples
    --------
    >>> code_identity("x = 1e-1  # a comment") == code_identity("x = (0.1)")
    True
    >>> code_identity("print(x)") == code_identity("print(y)")
    False
    """
    try:
        return tree_identity(ast.parse(to_plain_python(code)))
    except SyntaxError:
        return digest_of(code.encode())


def tree_identity(tree: ast.AST) -> str:
    """Return the digest of a syntax tree without its positions and docstrings."""
    return digest_of(ast.dump(_WithoutDocstrings().visit(tree)).encode())


def digest_of(data: bytes | memoryview) -> str:
    """Return the digest of bytes: 32 hexadecimal digits."""
    return blake2b(data, digest_size=16).hexdigest()


class _WithoutDocstrings(ast.NodeTransformer):
    def visit_FunctionDef(self, node: Any) -> Any:
        self.generic_visit(node)
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return node

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef


# -- Content of files and of data in stores, by digests that change whenever it does --------------


def path_digest(path: Path) -> str:
    """Return the digest of a file, or of all files in a folder.

    Raises
    ------
    OSError
        It is not there, or cannot be read.
    """
    if not path.is_dir():
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    lines = [
        f"{each.relative_to(path)}\n{path_digest(each)}"
        for each in sorted(path.rglob("*"))
        if each.is_file()
    ]
    return digest_of("\n".join(lines).encode())


def address_version(address: str) -> str:
    """Return what identifies the data at an address: of files the content, else their versions.

    Raises
    ------
    SkyError
        There is nothing, or the store cannot be asked.
    OSError
        It is not there, or cannot be read.
    """
    uri = StorageUri.parse(address)
    if uri.is_local:
        return path_digest(uri.path)
    return list_objects(open_store(uri), uri).id


def product_version(address: str) -> str:
    """Return the version of what a task has written; empty where it cannot be found.

    Parameters
    ----------
    address
        Of a store, or a path or pattern of paths of this machine.
    """
    try:
        if not Path(address).is_absolute():
            return address_version(address)
        paths = sorted(glob.glob(address)) if glob.has_magic(address) else [address]
        return " ".join(path_digest(Path(path)) for path in paths)
    except (OSError, SkyError):
        return ""
