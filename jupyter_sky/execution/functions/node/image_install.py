"""Installation of an image on a node: system packages, Python packages and files.

Below ``~/.cache/jupyter_sky``: ``env-KEY`` environments of packages, and `file_cache`.
"""

from __future__ import annotations

import builtins
import contextlib
import fnmatch
import importlib.util
import os
import pickle
import shutil
import site
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyBootstrapError, SkyTransferError, SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.node import python_worker
from jupyter_sky.machines.engines.node import environment, file_cache
from jupyter_sky.machines.engines.node.file_cache import FileEntries, FileTree, cache_folder, digest
from jupyter_sky.machines.engines.node.files import SKIPPED, is_secret, points_inside

if TYPE_CHECKING:
    from jupyter_sky.clouds.launches.ssh_slot import Slot


SHOWN_LINES = 12


def included_files(root: Path, paths: Sequence[str], excludes: Sequence[str]) -> FileTree:
    """Return the files that an image includes: each folder under its own name, with its contents.

    Raises
    ------
    SkyUsageError
        Something is not there, or two of them have one name.
    """
    files: dict[str, Path] = {}
    for text in paths:
        path = (root / Path(text).expanduser()).resolve()
        if not path.exists():
            raise SkyUsageError(
                _("Image(includes={text!r}): there is no such file or folder in {root}").format(
                    text=text, root=root
                )
            )
        for file, name in _files_below(path, excludes):
            if files.setdefault(name, file) != file:
                raise SkyUsageError(
                    _("Image(includes=...): {files} and {file} would both be {name}").format(
                        files=files[name], file=file, name=name
                    )
                )
    return FileTree.of(files)


def _files_below(path: Path, excludes: Sequence[str]) -> Iterator[tuple[Path, str]]:
    def left_out(name: str) -> bool:
        parts = Path(name).parts
        return any(
            fnmatch.fnmatch(name, pattern.rstrip("/"))
            or any(fnmatch.fnmatch(part, pattern.rstrip("/")) for part in parts)
            for pattern in (*excludes, "*.pyc")
        )

    if path.is_file():
        yield path, path.name
        return
    for folder, names, files in os.walk(path):
        below = Path(folder).relative_to(path.parent).as_posix()
        names[:] = sorted(
            n for n in names if not (n in SKIPPED or is_secret(n) or left_out(f"{below}/{n}"))
        )
        for name in sorted(files):
            file = Path(folder, name)
            if left_out(f"{below}/{name}") or not file.is_file():
                continue
            if is_secret(name) or (file.is_symlink() and not points_inside(file, path)):
                warnings.warn(
                    _(
                        "Image(includes=...) leaves out {below}/{name}: a key or password by "
                        "its name, or a link that leads out of the folder; name it to send it"
                    ).format(below=below, name=name),
                    stacklevel=2,
                )
                continue
            yield file, f"{below}/{name}"


@cache
def resolution_error(
    packages: tuple[str, ...],
    without: tuple[str, ...] = (),
    settings: tuple[tuple[str, str], ...] = (),
    python: str = "",
) -> str:
    """Return why packages cannot be resolved; empty if they can, or if unknown.

    Parameters
    ----------
    without
        Names that no index is asked for, though packages depend on them.
    settings
        Variables for the resolver, beside those of this machine.
    python
        Minor version of another Python than this one, if that is to have them.
    """
    from jupyter_sky.machines.provisioner.uv import run_uv

    # nodes are Linux, or this machine: elsewhere what matters is whether it is to be had at all
    anywhere = [] if sys.platform == "linux" else ["--universal"]
    anywhere += ["--python-version", python] if python else []
    requirements = (
        str(Path(package).resolve()) if Path(package).exists() else package for package in packages
    )
    with tempfile.TemporaryDirectory(prefix="sky-resolve-") as folder:
        overrides = Path(folder) / "without.txt"
        overrides.write_text(environment.dependency_overrides(without))
        try:
            result = run_uv(
                *("compile", "-q", "--no-header", "--python", sys.executable, *anywhere),
                *("--overrides", str(overrides), "-"),
                input="\n".join(requirements),
                env=os.environ | {"NO_COLOR": "1"} | dict(settings),
            )
        except SkyBootstrapError:
            return ""
    if result.returncode == 0 or "No solution found" not in result.stderr:
        return ""
    # it may know an index from files that uv does not read
    if importlib.util.find_spec("pip") and not without and not settings and not python:
        dry = [sys.executable, "-P", "-m", "pip", "install", "--dry-run", "--ignore-installed"]
        if subprocess.run([*dry, "-q", *packages], capture_output=True).returncode == 0:
            return ""
    return _last(result.stderr)


@contextlib.contextmanager
def install_for_platform(node: Slot, packages: Sequence[str]) -> Iterator[FileTree]:
    """Install packages for another platform into a local folder; yield its files."""
    from jupyter_sky.machines.provisioner.package_archive import install_locally

    with tempfile.TemporaryDirectory(prefix="sky-packed-") as folder:
        install_locally(node, Path(folder), packages)
        paths = [path for path in Path(folder).rglob("*") if path.is_file()]
        yield FileTree.of({path.relative_to(folder).as_posix(): path for path in paths})


def _last(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-SHOWN_LINES:])


# -- on the node -----------------------------------------------------------------------------


def build_folder(entries: FileEntries, packages: Sequence[str] = ()) -> None:
    """Build a folder of cached files; `packages` names them if they are installed packages."""
    target = file_cache.build_folder(entries)
    if packages:
        link = cache_folder() / f"packed-{digest(sorted(packages))}"
        partial = link.with_suffix(f".{os.getpid()}")
        partial.symlink_to(target)
        partial.replace(link)


@dataclass(frozen=True, slots=True)
class PackageRequest:
    """Packages from an index: see `environment.install_packages`."""

    packages: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict, repr=False)
    python: str = ""
    """Minor version of another Python than the engine's; empty for that."""


def install_image(apt: Sequence[str], request: PackageRequest) -> None:
    """Install missing parts of an image.

    Raises
    ------
    SkyBootstrapError
        It cannot be installed; has the installer's last lines.
    """
    if apt:
        _apt(apt)
    if request.python:
        prepare_python(request)
    elif request.packages:
        _packages(request)


def _packages(request: PackageRequest) -> str:
    """Return the folder of installed packages, after installing them if needed."""
    link = cache_folder() / f"packed-{digest(sorted(request.packages))}"
    if link.exists():
        return str(link.resolve())
    return environment.install_packages(
        request.packages, "image:", request.without, request.settings
    )


def _apt(packages: Sequence[str]) -> None:
    names = [package.partition("=")[0] for package in packages]
    if shutil.which("apt-get") is None:
        raise SkyBootstrapError(
            _("image: apt={value!r}: this machine has no apt-get").format(value=[*packages]),
            hint=_("take a machine with Debian or Ubuntu, or leave apt out"),
        )
    with environment.exclusive_lock(cache_folder() / "apt.lock"):
        missing = [
            p
            for p, name in zip(packages, names, strict=True)
            if "=" in p or not _is_installed(name)
        ]
        if not missing:
            return
        root_prefix = _root_prefix(missing)
        install = [*root_prefix, "apt-get", "install", "-y", "-q", "--no-install-recommends"]
        install += missing
        env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        result = _run_command(install, env)
        if result.returncode:  # its lists may be old, or not there at all
            _run_command([*root_prefix, "apt-get", "update", "-q"], env)
            result = _run_command(install, env)
        if result.returncode:
            last = _last(result.stdout)
            raise SkyBootstrapError(
                _("image: apt {missing} cannot be installed:\n{last}").format(
                    missing=" ".join(missing), last=last
                )
            )


def _root_prefix(missing: Sequence[str]) -> list[str]:
    """Return what a command needs before it to run as root."""
    if os.geteuid() == 0:
        return []
    prefix = ["sudo", "-n"]
    if shutil.which("sudo") is None or subprocess.run([*prefix, "true"]).returncode:
        raise SkyBootstrapError(
            _("image: {missing} must be installed by root, which we are not").format(
                missing=" ".join(missing)
            ),
            hint=_("have the owner of the machine install it, or allow sudo without a password"),
        )
    return prefix


def _is_installed(name: str) -> bool:
    command = ["dpkg-query", "-W", "-f", "${db:Status-Abbrev}", name]
    return subprocess.run(command, capture_output=True, text=True).stdout.startswith("ii")


def _run_command(command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=env,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@dataclass(frozen=True, slots=True)
class ProcessSetup:
    """Setup that every new process of a node runs before its first call.

    Attributes
    ----------
    trees : tuple of str
        Digests of folders to import from.
    shell_vars : dict of str to str
        Commands whose output is the value of a variable, by its name.
    """

    env: dict[str, str]
    request: PackageRequest
    trees: tuple[str, ...]
    shell_vars: dict[str, str] = field(default_factory=dict)

    def __call__(self) -> None:
        """Set the environment of this process, and the paths that it imports from."""
        os.environ.update(self.env)
        os.environ.update({name: _output(name, each) for name, each in self.shell_vars.items()})
        paths = [str(cache_folder() / "trees" / tree) for tree in self.trees]
        if self.request.packages and not self.request.python:
            paths.append(_packages(self.request))
        for path in reversed(paths):
            _import_first(path)
        importlib.invalidate_caches()


def _output(name: str, command: str) -> str:
    """Return the output of a shell command, without the line ends after it."""
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    if result.returncode:
        raise SkyBootstrapError(
            _("image: shell_vars: {name}: {command!r} ended with {returncode}:\n").format(
                name=name, command=command, returncode=result.returncode
            )
            + _last(result.stderr)
        )
    return result.stdout.rstrip("\n")


def _import_first(path: str) -> None:
    if path in sys.path:
        return
    before: list[Any] = [*sys.path]
    site.addsitedir(path)  # honours .pth files
    added = [path_entry for path_entry in sys.path if path_entry not in before]
    sys.path[:] = [*added, *before]


# -- Functions that run in another Python than the engine's, in worker processes beside it --------

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
