"""Identity of the result of a task: its code, inputs, packages, files and parameters.

The machine, its region, its price and the time are no part of it. A result is used again only
where every part is known to be equal; a part that cannot be computed makes a task uncached, it is
never left out.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from ..executor.magic_code import to_plain_python

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
        Digest of the stored bytes of each input, by name.
    parameters
        JSON of each parameter that it reads, by name.
    definitions
        `code_identity` of each function, class and constant that it reads, by name.
    packages
        Version of each package, by name.
    files
        Digest of the content of each file that it is given, by path.
    seed
        Seed of its random numbers; None where it sets none.
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
    files: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    python: str = f"{sys.version_info[0]}.{sys.version_info[1]}"

    @property
    def digest(self) -> str:
        """Name under which the result is stored: 32 hexadecimal digits."""
        return blake2b(self._text().encode(), digest_size=16).hexdigest()

    def _text(self) -> str:
        return json.dumps({"format": FORMAT, **self.to_json()}, sort_keys=True)

    def to_json(self) -> dict[str, Any]:
        """Return values of JSON from which `from_json` makes an equal key."""
        return {
            "code": self.code,
            **{name: dict(getattr(self, name)) for name in _PARTS},
            "seed": self.seed,
            "python": self.python,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TaskKey:
        """Return the key of what `to_json` gave."""
        return cls(**data)

    def differences(self, other: TaskKey) -> tuple[str, ...]:
        """Return the parts in which another key differs, in words of a notebook's author."""
        found = ["code"] if self.code != other.code else []
        for part, word in _PARTS.items():
            mine, theirs = getattr(self, part), getattr(other, part)
            names = [n for n in {**mine, **theirs} if mine.get(n) != theirs.get(n)]
            found += [f"{word} {name}" for name in names]
        found += ["seed"] if self.seed != other.seed else []
        found += ["Python"] if self.python != other.python else []
        return tuple(found)


_PARTS = {
    "inputs": "input",
    "parameters": "parameter",
    "definitions": "definition",
    "packages": "package",
    "files": "file",
}


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
    plain = to_plain_python(code)
    try:
        text = ast.dump(_WithoutDocstrings().visit(ast.parse(plain)))
    except SyntaxError:
        text = code
    return blake2b(text.encode(), digest_size=16).hexdigest()


class _WithoutDocstrings(ast.NodeTransformer):
    def visit_FunctionDef(self, node: Any) -> Any:
        self.generic_visit(node)
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return node

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef
