"""Functions that run in another Python than the engine's, in worker processes beside it."""

from __future__ import annotations

import builtins
import contextlib
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyBootstrapError, SkyTransferError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.node import python_worker
from jupyter_sky.machines.engines.node import environment
from jupyter_sky.machines.engines.node.file_cache import cache_folder

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.node.image_install import PackageRequest

START_SECONDS = 60.0
POLL_SECONDS = 0.2
"""Period in which a thread that waits for a worker sees that its call is stopped."""


@dataclass(frozen=True, slots=True)
class PortableFunction:
    """Function as its source and the data that it uses, for another Python.

    Attributes
    ----------
    name, source : str
        Name of the function, and the code that defines it.
    data : bytes
        Plain pickle of the values of its globals.
    packages : PackageRequest
        Its Python, and the packages of its environment.
    trees : tuple of str
        Digests of folders that it may import from.
    is_generator : bool
        Whether its calls yield items.
    """

    name: str
    source: str
    data: bytes
    packages: PackageRequest
    trees: tuple[str, ...] = ()
    is_generator: bool = False

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run a call in a worker."""
        try:
            arguments = pickle.dumps((args, kwargs), python_worker.PROTOCOL)
        except Exception as error:
            raise SkyTransferError(
                _("the arguments of {name} cannot go to Python {python}: {error}").format(
                    name=self.name, python=self.packages.python, error=error
                ),
                hint=_("plain values and classes of installed packages can"),
            ) from None
        answers = self._answers(arguments)
        if self.is_generator:
            return answers
        (result,) = answers
        return result

    def _answers(self, arguments: bytes) -> Iterator[Any]:
        """Yield the items of a call, or its result."""
        definition = self.name, self.source, self.data
        key = blake2b(repr(definition).encode(), digest_size=16).hexdigest()
        with _worker(self.packages, self.trees) as worker:
            worker.send((key, definition, arguments))
            while True:
                kind, *content = worker.receive()
                if kind == "text":
                    print(content[1], end="", file=getattr(sys, content[0]), flush=True)
                elif kind == "item":
                    yield pickle.loads(content[0])
                    worker.send(())
                elif kind == "error":
                    worker.is_free = True
                    raise _rebuild(self.packages.python, *content)
                else:
                    worker.is_free = True
                    if not self.is_generator:
                        yield pickle.loads(content[0])
                    return


def _rebuild(python: str, name: str, text: str, trace: str, data: bytes) -> BaseException:
    """Return an error of a worker, of the same class where it can be opened here."""
    error: BaseException | None = None
    with contextlib.suppress(Exception):
        error = pickle.loads(data)
    if error is None:
        kind = getattr(builtins, name, None)
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            kind, text = RuntimeError, f"{name}: {text}"
        error = kind(text)
    error.add_note(f"Python {python}:\n{trace}")
    return error


class PythonWorker:
    """Process of another Python.

    Attributes
    ----------
    is_free : bool
        Whether its last call has ended: it may take another.
    """

    def __init__(self, python: str, trees: tuple[str, ...]) -> None:
        self.is_free = False
        here, there = socket.socketpair()
        paths = [str(cache_folder() / "trees" / tree) for tree in trees]
        env = {k: v for k, v in os.environ.items() if k not in ("PYTHONHOME", "VIRTUAL_ENV")}
        with there:
            self.process = subprocess.Popen(
                [python, python_worker.__file__, str(there.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[there.fileno()],
                env=env | {"PYTHONPATH": os.pathsep.join(paths)},
            )
        self._line = here
        self.receive()  # it is there

    def send(self, message: tuple) -> None:
        """Send a message."""
        python_worker.send(self._line, message)

    def receive(self) -> tuple:
        """Return the next message.

        Raises
        ------
        SkyTransferError
            The process has died.
        """
        self._line.settimeout(POLL_SECONDS)
        while True:
            try:
                self._line.recv(1, socket.MSG_PEEK)
                break
            except TimeoutError:
                continue
        self._line.settimeout(None)
        try:
            return python_worker.receive(self._line)
        except (EOFError, OSError):
            code = self.process.wait()
            raise SkyTransferError(
                _("the process of the other Python has ended with exit code {code}").format(
                    code=code
                )
            ) from None

    def end(self) -> None:
        """End the process."""
        self._line.close()
        self.process.kill()
        self.process.wait()


_free: dict[tuple[str, tuple[str, ...]], list[PythonWorker]] = {}
_lock = threading.Lock()


@contextlib.contextmanager
def _worker(packages: PackageRequest, trees: tuple[str, ...]) -> Iterator[PythonWorker]:
    """Take a free worker, or start one; one whose call did not end is ended."""
    key = prepare_python(packages), trees
    with _lock:
        free = _free.setdefault(key, [])
        worker = free.pop() if free else None
    worker = worker or PythonWorker(*key)
    worker.is_free = False
    try:
        yield worker
    finally:
        if worker.is_free:
            with _lock:
                free.append(worker)
        else:
            worker.end()


def end_workers() -> None:
    """End the processes that have no call."""
    with _lock:
        for free in _free.values():
            while free:
                free.pop().end()


# -- the other Python ------------------------------------------------------------------------------


def prepare_python(request: PackageRequest) -> str:
    """Return the interpreter of an environment with packages, which is made if it is not there.

    Raises
    ------
    SkyBootstrapError
        There is no such Python, or the packages cannot be installed.
    """
    base = find_python(request.python)
    if not request.packages:
        return base
    parts = [base, *sorted(request.packages), *request.without]
    name = blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()
    home = cache_folder() / f"python-{request.python}-{name}"
    if not (home / "complete").exists():
        with environment.exclusive_lock(home.with_suffix(".lock")):
            if not (home / "complete").exists():
                command = [base, "-m", "venv", "--clear", "--without-pip", str(home)]
                subprocess.run(command, check=True, env=_clean_environment())
                environment.install_into(
                    home, request.packages, "image:", request.without, request.settings
                )
                (home / "complete").touch()
    return str(home / "bin" / "python")


@cache
def find_python(python: str) -> str:
    """Return the path of an interpreter of a minor version; uv installs it if there is none.

    Raises
    ------
    SkyBootstrapError
        There is none, and it cannot be installed.
    """
    for path in _candidates(python):
        if _is_python(path, python):
            return path
    uv, reason = environment.find_uv(), _("uv, which installs it, is not there")
    if uv is not None:
        command = [uv, "python", "install", "--quiet", python]
        result = subprocess.run(command, capture_output=True, text=True, env=_clean_environment())
        reason = "\n".join(result.stderr.strip().splitlines()[-3:])
        found = subprocess.run(
            [uv, "python", "find", "--managed-python", python], capture_output=True, text=True
        ).stdout.strip()
        if found and _is_python(found, python):
            return found
    raise SkyBootstrapError(
        _("image: there is no Python {python} on this machine: {reason}").format(
            python=python, reason=reason
        ),
        hint=_('install it there, or python="auto"'),
    )


def _candidates(python: str) -> Iterator[str]:
    for folder in os.get_exec_path():
        yield str(Path(folder, f"python{python}"))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for folder in sorted(pyenv.glob(f"versions/{python}.*/bin"), reverse=True):
        yield str(folder / "python")


def _is_python(path: str, python: str) -> bool:
    """Return whether a file is an interpreter of a version, and no shim that leads nowhere."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    with contextlib.suppress(OSError):
        command = [path, "-c", code]
        result = subprocess.run(command, capture_output=True, text=True, env=_clean_environment())
        return result.stdout.strip() == python
    return False


def _clean_environment() -> dict[str, str]:
    left_out = ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in left_out}
