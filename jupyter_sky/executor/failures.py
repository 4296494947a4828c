"""Exceptions of remote code, raised here as what they are."""

from __future__ import annotations

import builtins
import contextlib
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..engines.values import Parcel


class RemoteFailure:
    """Mixed into every exception that a cell raised on an engine.

    Attributes
    ----------
    remote_traceback : list of str
        The engine's traceback, with the notebook's own cell and line numbers.
    rank : int
        The engine.
    hint : str
        What to do next, where we know.
    """

    remote_traceback: list[str]
    rank: int = 0
    hint: str = ""

    def _render_traceback_(self) -> list[str]:
        lines = list(self.remote_traceback)
        return [*lines, self.hint] if self.hint else lines


def rebuild(
    reply: Mapping[str, Any], rank: int, namespace: Mapping[str, Any], hint: str = ""
) -> BaseException:
    """Build the local exception for an error reply of an engine.

    Its class has the remote class's name and derives from the same class here, where there is
    one: of a builtin module, an importable module, or the notebook itself. So ``except
    ValueError`` catches a remote ValueError.

    Parameters
    ----------
    reply
        Content of the ``execute_reply``.
    namespace
        The notebook's variables, where its own exception classes are.
    """
    described = (reply.get("sky") or {}).get("error") or {}
    base = _local_class(described.get("classes", ()), namespace)
    name = reply["ename"]
    carried = _carried(described)
    error = _made(_combine(name, base), carried.get("args", (reply["evalue"],)))
    with contextlib.suppress(Exception):
        error.__dict__.update(carried.get("dict", {}))
    for key, value in carried.get("more", {}).items():
        with contextlib.suppress(Exception):
            if getattr(error, key, None) is None:
                setattr(error, key, value)
    error.remote_traceback = list(reply.get("traceback") or [f"{name}: {reply['evalue']}"])
    error.rank, error.hint = rank, hint
    return error


def _made(kind: Any, args: Sequence[Any]) -> Any:
    """Return an exception of a class, by the way of the builtin class that it derives from.

    Its own ``__new__`` and ``__init__`` are not called: they may want anything.
    """
    builtin = next(base for base in kind.__mro__ if base.__module__ == builtins.__name__)
    try:
        error = builtin.__new__(kind, *args)
    except TypeError:  # an exception group whose exceptions have stayed on the engine
        return _made(_combine(kind.__name__, Exception), args)
    with contextlib.suppress(Exception):
        builtin.__init__(error, *args)
    error.args = tuple(args)
    return error


def _combine(name: str, base: type[BaseException]) -> Any:
    text = {"__module__": base.__module__, "__str__": _plain_str}
    try:
        return type(name, (RemoteFailure, base), text)
    except TypeError:  # a class that cannot be combined; its name is kept
        return type(name, (RemoteFailure, Exception), text)


def _plain_str(self: BaseException) -> str:
    for base in type(self).__mro__[2:]:
        if "__str__" in vars(base):
            with contextlib.suppress(Exception):
                return base.__str__(self)  # type: ignore[call-arg]
    return str(self.args[0]) if len(self.args) == 1 else str(self.args)


def _local_class(
    classes: Sequence[Sequence[str]], namespace: Mapping[str, Any]
) -> type[BaseException]:
    """Return the nearest class of a remote exception's ancestry that exists here."""
    for module, qualname in classes:
        if module == "__main__":
            found = namespace.get(qualname)
        elif module == "builtins":
            found = getattr(builtins, qualname, None)
        else:
            found = None
            with contextlib.suppress(Exception):
                found = importlib.import_module(module)
                for part in qualname.split("."):
                    found = getattr(found, part)
        if isinstance(found, type) and issubclass(found, BaseException):
            return found
    return Exception


def _carried(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the exception carries, where that can be opened here."""
    with contextlib.suppress(Exception):
        return Parcel.from_inline(described).load()
    return {}


def advice(described: Mapping[str, Any], local_names: Mapping[str, Any], line: str) -> str:
    """Return the line that would mend a remote error, or an empty string.

    Parameters
    ----------
    described
        The engine's description of the error.
    local_names
        The notebook's variables.
    line
        The cell's own ``%%sky`` line.
    """
    from pathlib import Path

    line = f"%%sky {line}".strip()
    if ["IPython.core.error", "StdinNotImplementedError"] in described.get("classes", ()):
        return "nobody can answer input() on a cluster: ask here, and send the answer with -i"
    name, module, filename = (described.get(key) for key in ("name", "module", "filename"))
    if module:
        top = module.partition(".")[0]
        file = next((file for file in (f"{top}.py", top) if Path(file).exists()), None)
        if file:
            return f"{top} is in the notebook's folder: add --sync\n    {line} --sync {file}"
        return f"{top} is not installed on the engine: add --pip {top}\n    {line} --pip {top}"
    if name in local_names:
        return f"{name} is a local variable: add -i {name}\n    {line} -i {name}"
    if filename and not Path(filename).is_absolute() and Path(filename).exists():
        return (
            f"{filename} is in the notebook's folder, not on the cluster: add --sync\n"
            f"    {line} --sync {filename}"
        )
    return ""
