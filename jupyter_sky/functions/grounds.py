"""What an image is made of on a node: packages, and files kept by their content.

Below ``~/.cache/jupyter_sky``: ``env-KEY`` environments of packages, ``files/DIGEST`` the
contents of files, ``trees/DIGEST`` folders that are made of them.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import importlib.util
import os
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engines import environment
from ..engines.files import SKIPPED
from ..errors import SkyBootstrapError, SkyUsageError

if TYPE_CHECKING:
    from ..clouds.keeper import Node

SHOWN_LINES = 12
Known = dict[str, tuple[str, int]]
"""Files by the path that they get: what is in them, by its digest, and their mode."""


def digest(parts: Iterable[str | bytes]) -> str:
    """Return sixteen digits that tell these parts from others."""
    state = hashlib.blake2b(digest_size=8)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "big") + data)
    return state.hexdigest()


@dataclass(frozen=True, slots=True)
class Layout:
    """Files of this machine as they are to lie on a node."""

    files: dict[str, Path]
    known: Known

    @classmethod
    def of(cls, root: Path, paths: Sequence[str], excludes: Sequence[str]) -> Layout:
        """Find files: each folder under its own name, with all below it.

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
                    f"Image(includes={text!r}): there is no such file or folder in {root}"
                )
            for file, name in _below(path, excludes):
                if files.setdefault(name, file) != file:
                    raise SkyUsageError(
                        f"Image(includes=...): {files[name]} and {file} would both be {name}"
                    )
        known = {
            name: (_of_file(file), file.stat().st_mode & 0o777) for name, file in files.items()
        }
        return cls(files, known)

    @property
    def digest(self) -> str:
        """Tells this tree from every other."""
        return tree_digest(self.known)

    def read(self, wanted: str) -> bytes:
        """Return the content of the files of a digest."""
        name = next(name for name, (found, _) in self.known.items() if found == wanted)
        return self.files[name].read_bytes()


def tree_digest(known: Known) -> str:
    """Tell a tree of files from every other."""
    return digest(f"{name}\n{found}\n{mode:o}" for name, (found, mode) in sorted(known.items()))


def _below(path: Path, excludes: Sequence[str]) -> Iterator[tuple[Path, str]]:
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
        names[:] = sorted(n for n in names if n not in SKIPPED and not left_out(f"{below}/{n}"))
        for name in sorted(files):
            if not left_out(f"{below}/{name}") and Path(folder, name).is_file():
                yield Path(folder, name), f"{below}/{name}"


def _of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


@cache
def unresolvable(packages: tuple[str, ...]) -> str:
    """Say why packages cannot be had, as far as that is known here; empty where it is not known."""
    from ..provisioner.uv import uv_here

    try:
        uv = uv_here()
    except SkyBootstrapError:
        return ""
    # nodes are Linux, or this machine: elsewhere what matters is whether it is to be had at all
    anywhere = [] if sys.platform == "linux" else ["--universal"]
    compiled = subprocess.run(
        [uv, "pip", "compile", "-q", "--no-header", "--python", sys.executable, *anywhere, "-"],
        input="\n".join(packages),
        capture_output=True,
        text=True,
        env=os.environ | {"NO_COLOR": "1"},
    )
    if compiled.returncode == 0 or "No solution found" not in compiled.stderr:
        return ""
    if importlib.util.find_spec("pip"):  # it may know an index from files that uv does not read
        dry = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "-q"]
        if subprocess.run([*dry, *packages], capture_output=True).returncode == 0:
            return ""
    return _last(compiled.stderr)


@contextlib.contextmanager
def packed(node: Node, packages: Sequence[str]) -> Iterator[Path]:
    """Install packages for a node's kind of machine into a folder of this one."""
    from ..provisioner.packed import install_here

    with tempfile.TemporaryDirectory(prefix="sky-packed-") as folder:
        install_here(node, Path(folder), packages)
        yield Path(folder)


def _last(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-SHOWN_LINES:])


# -- on the node -----------------------------------------------------------------------------


def home() -> Path:
    """Return where things are kept on this machine."""
    return Path.home() / ".cache" / "jupyter_sky"


def missing(known: Known) -> list[str]:
    """Return the digests of files whose content is not here."""
    if (home() / "trees" / tree_digest(known)).exists():
        return []
    wanted = dict.fromkeys(found for found, _ in known.values())
    return [each for each in wanted if not (home() / "files" / each).exists()]


def keep(contents: dict[str, bytes]) -> None:
    """Keep contents of files under their digests."""
    folder = home() / "files"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, data in contents.items():
        if hashlib.blake2b(data, digest_size=16).hexdigest() != name:
            raise SkyBootstrapError("a file has changed while it was sent", hint="try again")
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(data)
        os.replace(file.name, folder / name)


def lay_out(known: Known, tree: str, packages: Sequence[str] = ()) -> str:
    """Make a folder of files that are here, unless there is one; return its path.

    With `packages` it is what they are installed as.
    """
    target = home() / "trees" / tree
    if not target.exists():
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=target.parent))
        for name, (found, mode) in known.items():
            path = work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            # a copy: what a function writes there must not change what is kept
            shutil.copyfile(home() / "files" / found, path)
            path.chmod(mode)
        try:
            work.rename(target)
        except OSError:  # another engine of this machine was quicker
            shutil.rmtree(work)
    if packages:
        link = home() / f"packed-{digest(sorted(packages))}"
        partial = link.with_suffix(f".{os.getpid()}")
        partial.symlink_to(target)
        partial.replace(link)
    return str(target)


def make(apt: Sequence[str], packages: Sequence[str]) -> None:
    """Install what is not there yet.

    Raises
    ------
    SkyBootstrapError
        It cannot be installed; has the installer's last lines.
    """
    if apt:
        _apt(apt)
    if packages:
        _packages(packages)


def _packages(packages: Sequence[str]) -> str:
    """Return the folder that packages are installed in, here and now if need be."""
    link = home() / f"packed-{digest(sorted(packages))}"
    return str(link.resolve()) if link.exists() else environment.ensure(packages, what="image:")


def _apt(packages: Sequence[str]) -> None:
    names = [package.partition("=")[0] for package in packages]
    if shutil.which("apt-get") is None:
        raise SkyBootstrapError(
            f"image: apt={[*packages]!r}: this machine has no apt-get",
            hint="take a machine with Debian or Ubuntu, or leave apt out",
        )
    with environment.alone(home() / "apt.lock"):
        wanted = [p for p, name in zip(packages, names, strict=True) if "=" in p or not _has(name)]
        if not wanted:
            return
        become = [] if os.geteuid() == 0 else ["sudo", "-n"]
        if become and (
            shutil.which("sudo") is None or subprocess.run([*become, "true"]).returncode
        ):
            raise SkyBootstrapError(
                f"image: {' '.join(wanted)} must be installed by root, which we are not",
                hint="have the owner of the machine install it, or allow sudo without a password",
            )
        install = [*become, "apt-get", "install", "-y", "-q", "--no-install-recommends", *wanted]
        env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        outcome = _ran(install, env)
        if outcome.returncode:  # its lists may be old, or not there at all
            _ran([*become, "apt-get", "update", "-q"], env)
            outcome = _ran(install, env)
        if outcome.returncode:
            last = _last(outcome.stdout)
            raise SkyBootstrapError(f"image: apt {' '.join(wanted)} cannot be installed:\n{last}")


def _has(name: str) -> bool:
    command = ["dpkg-query", "-W", "-f", "${db:Status-Abbrev}", name]
    return subprocess.run(command, capture_output=True, text=True).stdout.startswith("ii")


def _ran(command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=env,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@dataclass(frozen=True, slots=True)
class Setup:
    """What every new process of a node runs before its first call.

    Attributes
    ----------
    trees : tuple of str
        Digests of folders to import from.
    """

    env: dict[str, str]
    packages: tuple[str, ...]
    trees: tuple[str, ...]

    def __call__(self) -> None:
        os.environ.update(self.env)
        paths = [str(home() / "trees" / tree) for tree in self.trees]
        if self.packages:
            paths.append(_packages(self.packages))
        for path in reversed(paths):
            _import_first(path)
        importlib.invalidate_caches()


def _import_first(path: str) -> None:
    if path in sys.path:
        return
    before: list[Any] = [*sys.path]
    site.addsitedir(path)  # honours .pth files
    added = [each for each in sys.path if each not in before]
    sys.path[:] = [*added, *before]
