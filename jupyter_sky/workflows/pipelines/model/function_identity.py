"""Identity of functions and values of this process, from what they are made of.

A function is identified by its compiled code, which comments, layout and docstrings do not change,
and by the values of all names that it reads from elsewhere, functions among them in turn. Its
source is not asked: the file may have been edited since the function was made.
"""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import pickle
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any

from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.cell_names import SHELL_NAMES
from jupyter_sky.workflows.pipelines.model.file_reads import READERS, named_files, unknown_read
from jupyter_sky.workflows.pipelines.model.identity import TaskIdentity, digest_of
from jupyter_sky.workflows.pipelines.model.module_identity import find_modules

_OF_CLASSES = frozenset(
    "__dict__ __doc__ __firstlineno__ __module__ __qualname__ __static_attributes__ __weakref__ "
    "_abc_impl".split()
)
"""Attributes of a class that do not change what it does."""
_SHELL_RESULTS = frozenset({"In", "Out", "_", "__", "___"})
"""Names under which IPython keeps what other cells have given."""
_OF_SHELL = frozenset({"IPython", "ipykernel", "_io", "io", "builtins", "_sitebuiltins"})


@dataclass(frozen=True, slots=True)
class References:
    """Modules, texts and functions of the notebook that values refer to.

    Attributes
    ----------
    modules
        Names of modules.
    texts
        Texts in the values and in the code of functions.
    functions
        Functions of the notebook, by their ids.
    """

    modules: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    functions: dict[int, FunctionType] = field(default_factory=dict)


def function_identity(function: Callable[..., Any], reads_stores: bool = False) -> TaskIdentity:
    """Return the identity of a function's calls, without their arguments.

    Parameters
    ----------
    function
        As it is now, with the values of the names that it reads.
    reads_stores
        Whether it is given paths of data of stores: it may read below them what it likes.

    Examples
    --------
    >>> factor = 2
    >>> one, other = (lambda x: factor * x), (lambda x: (factor * x))  # the same
    >>> function_identity(one) == function_identity(other)
    True
    """
    references, folder = References(), Path.cwd()
    try:
        code, definitions = _identify(function, references)
    except Exception as error:
        words = _("what its function reads cannot be identified: {error}")
        return TaskIdentity(problem=words.format(error=error))
    found = find_modules(references.modules)
    problem = found.problem
    if not problem and not reads_stores:
        problem = _unknown_read(references.functions, folder)
    return TaskIdentity(
        code,
        definitions,
        packages=found.packages,
        modules=found.modules,
        paths=named_files(references.texts, folder),
        problem=problem,
    )


def _identify(
    function: Callable[..., Any], references: References
) -> tuple[str, Mapping[str, str]]:
    """Return the digest of a function's code, and those of the names that it reads."""
    if not isinstance(function, FunctionType) or _is_importable(function):
        return value_digest(function, references), {}
    parts = _function_parts(function, references)
    definitions = {
        name: value_digest(value, references) for name, value in parts.pop("globals").items()
    }
    code = _code_digest(function.__code__, references)
    return value_digest([code, parts], references), definitions


def _unknown_read(functions: Mapping[int, FunctionType], folder: Path) -> str:
    trees = []
    for function in functions.values():
        names = {name for code in _codes(function.__code__) for name in code.co_names}
        if not names & READERS:
            continue
        try:
            trees.append(ast.parse(textwrap.dedent(inspect.getsource(function))))
        except (OSError, TypeError, SyntaxError):
            words = _("{name} reads files, and its source is not at hand")
            return words.format(name=function.__name__)
    return unknown_read(trees, folder)


def _is_importable(thing: Any) -> bool:
    """Whether a function or class is found by its name in a module other than the notebook's."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
    found: Any = sys.modules.get(module) if module not in (None, "__main__") else None
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is thing


def value_digest(value: Any, references: References) -> str:
    """Return the digest of a value, the same in each process for equal values.

    Parameters
    ----------
    value
        Any that can be pickled, also with functions and classes of the notebook in it.
    references
        What it refers to is added here.

    Raises
    ------
    Exception
        As pickle raises it: the value cannot be identified.

    Examples
    --------
    >>> one, other = {"a", "b", "c"}, {"c", "b", "a"}
    >>> value_digest(one, References()) == value_digest(other, References())
    True
    """
    stream = BytesIO()
    _IdentityPickler(stream, references).dump(value)
    return digest_of(stream.getbuffer())


def _stand_in(*parts: Any) -> Any:
    """Stand for a value in a stream that is never opened."""
    raise NotImplementedError


class _IdentityPickler(pickle._Pickler):
    """Pickler of streams that are compared and never opened.

    Functions and classes of the notebook stand as what they are made of, and sets are sorted. The
    pickler that is written in Python is used, since the other does not let its treatment of sets
    and texts be changed; the method `memoize` is part of neither's interface.
    """

    def __init__(self, stream: BytesIO, references: References) -> None:
        super().__init__(stream, protocol=5)
        self._references = references

    def memoize(self, obj: Any) -> None:
        """Remember a value to refer to it again; texts are written again wherever they are."""
        if not isinstance(obj, str | bytes):
            super().memoize(obj)  # type: ignore[misc]

    def persistent_id(self, obj: Any) -> Any:
        """Return what stands for a value whose pickles differ between processes."""
        if isinstance(obj, str):
            self._references.texts.add(obj)
        elif type(obj) in (set, frozenset):
            digests = sorted(value_digest(each, self._references) for each in obj)
            return "set", type(obj).__name__, digests
        elif isinstance(obj, ModuleType):
            self._references.modules.add(obj.__name__)
            return "module", obj.__name__
        return None

    def reducer_override(self, obj: Any) -> Any:
        """Return the parts of a function or class of the notebook."""
        if isinstance(obj, FunctionType) and _is_importable(obj):
            return obj.__qualname__
        if isinstance(obj, FunctionType):
            code = _code_digest(obj.__code__, self._references)
            return _stand_in, ("function", code), _function_parts(obj, self._references)
        if isinstance(obj, type) and not _is_importable(obj):
            body = {
                name: value
                for name, value in sorted(vars(obj).items())
                if name not in _OF_CLASSES and not inspect.ismemberdescriptor(value)
            }
            return _stand_in, ("class", obj.__name__), {"bases": obj.__bases__, "body": body}
        if isinstance(obj, MappingProxyType):
            return _stand_in, ("mapping", dict(obj))
        if isinstance(obj, staticmethod | classmethod):
            return _stand_in, (type(obj).__name__, obj.__func__)
        if isinstance(obj, property):
            return _stand_in, ("property", obj.fget, obj.fset, obj.fdel)
        return NotImplemented

    def save_global(self, obj: Any, name: str | None = None) -> None:
        """Write the name of a thing of a module."""
        if obj is not _stand_in:
            called = name or getattr(obj, "__qualname__", "") or obj.__name__
            module = pickle.whichmodule(obj, called)  # type: ignore[attr-defined]
            self._references.modules.add(str(module))
        super().save_global(obj, name)  # type: ignore[misc]


def _function_parts(function: FunctionType, references: References) -> dict[str, Any]:
    """Return what a function has besides its code."""
    references.functions[id(function)] = function
    names: set[str] = set()
    for code in _codes(function.__code__):
        for each in dis.get_instructions(code):
            if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                names.add(str(each.argval))
            elif each.opname == "IMPORT_NAME":
                references.modules.add(str(each.argval))
    space = function.__globals__
    read = {name: space[name] for name in sorted(names) if name in space}
    read = {name: value for name, value in read.items() if value is not function}
    read = {name: value for name, value in read.items() if not _is_of_shell(name, value)}
    if results := read.keys() & _SHELL_RESULTS:
        raise ValueError(_("{name} is what other cells have given").format(name=min(results)))
    return {
        "defaults": (function.__defaults__, function.__kwdefaults__),
        "closure": [_content(cell) for cell in function.__closure__ or ()],
        "attributes": dict(sorted(function.__dict__.items())),
        "globals": read,
    }


def _is_of_shell(name: str, value: Any) -> bool:
    """Whether a name stands for what Python or IPython gives each notebook."""
    root = str(getattr(value, "__module__", None) or type(value).__module__).partition(".")[0]
    is_of_shell = name in SHELL_NAMES - _SHELL_RESULTS and root in _OF_SHELL
    return is_of_shell or value is getattr(builtins, name, None)


def _codes(code: CodeType) -> list[CodeType]:
    """Return a code object and all in it."""
    inside = [each for each in code.co_consts if isinstance(each, CodeType)]
    return [code, *(found for each in inside for found in _codes(each))]


def _code_digest(code: CodeType, references: References) -> str:
    """Return a digest of compiled code without its positions and docstring."""
    lines: list[str] = []
    constants: list[Any] = []
    for each in dis.get_instructions(code):
        if isinstance(each.argval, CodeType):
            lines.append(f"{each.opname} {_code_digest(each.argval, references)}")
        elif each.opcode in dis.hasconst:
            lines.append(each.opname)
            constants.append(each.argval)
        elif each.opname not in ("NOP", "EXTENDED_ARG"):
            lines.append(f"{each.opname} {each.argval}")
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    names = code.co_name, code.co_varnames, code.co_cellvars, code.co_freevars
    lines += [repr(counts), repr(names), code.co_exceptiontable.hex()]
    return value_digest(["\n".join(lines).encode(), constants], references)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None
