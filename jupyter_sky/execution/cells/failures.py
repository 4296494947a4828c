"""Exceptions of remote code, raised here as what they are.

They come as JSON: names of classes, texts and data. Nothing is unpickled and nothing is imported
for them, so an error cannot run code here: a class that is not loaded here cannot be caught by its
name either.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib.util
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.wire.error_serialization import MAX_NESTED, decode_attributes

_KNOWN_DISTRIBUTIONS = {
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "distutils": "setuptools",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "git": "gitpython",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "pkg_resources": "setuptools",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Distributions of modules that are named otherwise, for modules that are not installed here."""


class RemoteFailure:
    """Mixed into every exception that a cell raised on an engine.

    Attributes
    ----------
    remote_traceback : list of str
        The engine's traceback, with the notebook's own cell and line numbers.
    rank : int
        The engine.
    hint : str
        Next step for the user, where one is known.
    is_shown_by_engine : bool
        Whether it stands among the outputs of the engine.
    is_shown : bool
        Whether it stands among the outputs of its cell.
    """

    remote_traceback: list[str]
    rank: int = 0
    hint: str = ""
    remote_text: str = ""
    is_shown_by_engine: bool = False
    is_shown: bool = False

    def _render_traceback_(self) -> list[str]:
        lines = list(self.remote_traceback)
        return [*lines, self.hint] if self.hint else lines


def rebuild_exception(
    reply: Mapping[str, Any], rank: int, namespace: Mapping[str, Any], hint: str = ""
) -> BaseException:
    """Build the local exception for an error reply of an engine.

    Its class has the remote class's name and derives from the same class here, where there is
    one: a builtin, one of a module that is imported here, or of the notebook itself. So ``except
    ValueError`` catches a remote ValueError.

    Parameters
    ----------
    reply
        Content of the ``execute_reply``.
    namespace
        The notebook's variables, where its own exception classes are.
    """
    described = (reply.get("sky") or {}).get("error") or {}
    name, text = _class_name(reply["ename"]), str(reply["evalue"])
    error = _rebuild(name, text, described, namespace, 0)
    lines = reply.get("traceback") or [f"{name}: {text}"]
    error.remote_traceback = [str(line) for line in lines]
    error.rank, error.hint = rank, hint
    error.is_shown_by_engine = bool((reply.get("sky") or {}).get("shown"))
    return error


def _rebuild(name: str, text: str, described: Any, namespace: Mapping[str, Any], depth: int) -> Any:
    def nested(told: Any) -> BaseException:
        if depth >= MAX_NESTED or not isinstance(told, Mapping):
            return Exception("an exception that was nested too deeply")
        classes = told.get("classes") or [["builtins", "Exception"]]
        inner = _rebuild(
            _class_name(classes[0][-1]), str(told.get("text", "")), told, namespace, depth + 1
        )
        inner.remote_traceback = [f"{type(inner).__name__}: {inner.remote_text}"]
        return inner

    known = described if isinstance(described, Mapping) else {}
    carried: dict[str, Any] = {}
    with contextlib.suppress(TypeError, ValueError, LookupError, AttributeError, RecursionError):
        carried = decode_attributes(known, nested)
    base = _local_class(known.get("classes", ()), namespace)
    error = _instantiate(_combine_classes(name, base), carried.get("args", (text,)))
    for key, value in carried.get("dict", {}).items():
        with contextlib.suppress(Exception):
            error.__dict__.setdefault(key, value)
    for key, value in carried.get("more", {}).items():
        with contextlib.suppress(Exception):
            if getattr(error, key, None) is None:
                setattr(error, key, value)
    error.remote_text = text
    return error


def _class_name(told: Any) -> str:
    """Return a valid name of a class for any value that a machine sends."""
    name = str(told)
    return name if name.isidentifier() else "RemoteError"


def _instantiate(kind: Any, args: Sequence[Any]) -> Any:
    """Return an exception of a class, by the way of the builtin class that it derives from.

    Its own ``__new__`` and ``__init__`` are not called: they may want anything.
    """
    builtin = next(base for base in kind.__mro__ if base.__module__ == builtins.__name__)
    try:
        error = builtin.__new__(kind, *args)
    except TypeError:  # an exception group whose exceptions have stayed on the engine
        return _instantiate(_combine_classes(kind.__name__, Exception), args)
    with contextlib.suppress(Exception):
        builtin.__init__(error, *args)
    error.args = tuple(args)
    return error


def _combine_classes(name: str, base: type[BaseException]) -> Any:
    text = {"__module__": base.__module__, "__str__": lambda self: self.remote_text}
    try:
        return type(name, (RemoteFailure, base), text)
    except Exception:  # a class that cannot be combined; its name is kept
        return type(name, (RemoteFailure, Exception), text)


def _local_class(classes: Any, namespace: Mapping[str, Any]) -> type[BaseException]:
    """Return the nearest class of a remote exception's ancestry that is loaded here."""
    for told in classes if isinstance(classes, list | tuple) else ():
        if not (isinstance(told, list | tuple) and len(told) == 2):
            continue
        module, qualname = map(str, told)
        names = namespace if module == "__main__" else vars(sys.modules.get(module) or _NotLoaded)
        found: Any = None
        for part in qualname.split("."):
            # not getattr: a module may import others when it is asked
            found = names.get(part)
            names = vars(found) if isinstance(found, type) else {}
        if isinstance(found, type) and issubclass(found, BaseException):
            return found
    return Exception


class _NotLoaded:
    """Stands for a module that is not loaded."""


def mending_line(described: Mapping[str, Any], local_names: Mapping[str, Any], line: str) -> str:
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
    if ["IPython.core.error", "StdinNotImplementedError"] in described.get("classes", ()):
        return _("nobody can answer input() on a cluster: ask here, and send the answer with -i")
    said = (described.get(key) for key in ("name", "module", "filename"))
    name, module, filename = (each if isinstance(each, str) else "" for each in said)
    if module and all(part.isidentifier() for part in module.split(".")):
        return _advise_on_module(module, line)
    if name in local_names:
        return _line(
            _("{name} is a local variable: add -i {name}").format(name=name), line, "-i", name
        )
    return _advise_on_file(filename, line) if filename else ""


def _line(why: str, line: str, option: str, value: str) -> str:
    """Return a reason and the cell's line with one more option; nothing where it has it."""
    if value in re.split(r"[\s,]+", line):
        return ""
    return f"{why}\n    {f'%%sky {line}'.strip()} {option} {shlex.quote(value)}"


def _advise_on_module(module: str, line: str) -> str:
    top = module.partition(".")[0]
    if file := next((file for file in (f"{top}.py", top) if Path(file).exists()), None):
        return _line(
            _("{top} is in the notebook's folder: add --sync").format(top=top), line, "--sync", file
        )
    if top != module:  # the package itself was found
        return _advise_on_version(module, top, line)
    if top in sys.stdlib_module_names:
        return _("{top} belongs to Python, and the engine's Python was built without it").format(
            top=top
        )
    package = _distribution(top) or _KNOWN_DISTRIBUTIONS.get(top, top)
    why = _("{top} is not installed on the engine: add --pip {package}").format(
        top=top, package=package
    )
    return _line(why, line, "--pip", package)


def _advise_on_version(module: str, top: str, line: str) -> str:
    """Advise on a module that a package here has, and that on the engine has not."""
    from importlib import metadata

    package = _distribution(top)
    if not package or not _has_module(module):
        return ""
    version = metadata.version(package)
    why = _("{package} on the engine has no {module}, unlike {version} here: add --pip").format(
        package=package, module=module, version=version
    )
    return _line(why, line, "--pip", f"{package}=={version}")


def _has_module(module: str) -> bool:
    """Return whether a module is installed here, without an import of its packages."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return False
    folders = [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    for part in module.split(".")[1:]:
        found = [path for folder in folders for path in folder.glob(f"{part}*")]
        if not any(path.name.partition(".")[0] == part for path in found):
            return False
        folders = [path for path in found if path.name == part]
    return True


def _distribution(module: str) -> str:
    """Return the installed distribution of a module here, or nothing."""
    from jupyter_sky.machines.packages.plan import distributions_of

    return distributions_of([module]).get(module, "")


def _advise_on_file(filename: str, line: str) -> str:
    path = Path(filename)
    if path.is_absolute() or not path.exists():
        return ""
    if not path.resolve().is_relative_to(Path.cwd().resolve()):
        return _(
            "{filename} lies outside the notebook's folder, and only files below "
            "it are sent: copy it there, or read it here and send the value with -i"
        ).format(filename=filename)
    why = _("{filename} is in the notebook's folder, not on the cluster: add --sync").format(
        filename=filename
    )
    return _line(why, line, "--sync", filename)
