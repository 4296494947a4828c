"""From a machine that answers to one that can run engines: Python and packages, by uv.

What is there is kept by what is in it, so the second cluster of a kind finds all of it. A machine
that reaches no package index gets what it needs through the connection, resolved and downloaded
here for its kind of processor.
"""

from __future__ import annotations

import hashlib
import io
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from .. import ssh
from ..clouds.keeper import Node, failed
from ..errors import SkyBootstrapError
from ..together import at_once
from .package import Recipe, archive, recipe

NEEDED_KB = 300_000
"""Free disk that a new environment needs: Python, its packages, and room to work."""
INSTALL_SECONDS = 1800.0
KEPT_ARCHIVES = 4
"""How many packed environments are kept on this machine for hosts without an index."""

Stage = Callable[[str], None]
"""Called with what is being done, again and again."""

_FIND = """
[ -e "$1/complete" ] && echo ready
command -v uv || command -v "$HOME/.local/bin/uv" || command -v "$2/uv"
"""
_PUSH_UV = 'cat >"$1/uv.$2" && chmod 755 "$1/uv.$2" && mv "$1/uv.$2" "$1/uv"'
_VENV = """
set -e
environment=$1 work=$1.$2 uv=$3 python=$4 base=$5
rm -rf "$work"
"$uv" venv -q --no-project --python "${base:-$python}" "$work"
found=$("$work/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[ "$found" = "$python" ] || { echo "Python $found is not $python" >&2; exit 68; }
site=$work/lib/python$python/site-packages
tar -xf - -C "$site"
[ -z "$base" ] || "$base" -c 'import site, sys; print("\\n".join(
  path for path in sys.path if path.endswith(("site-packages", "dist-packages"))))' \\
  >"$site/zz_machine.pth"
"""
_INSTALL = """
environment=$1 work=$1.$2 uv=$3
shift 3
"$uv" pip install -q --python "$work/bin/python" "$@"
"""
_UNPACK = 'tar -xzf - -C "$1.$2/lib/python$3/site-packages"'
_SETTLE = """
touch "$1.$2/complete"
mv -T "$1.$2" "$1" 2>/dev/null || rm -rf "$1.$2"
[ -e "$1/complete" ]
"""

_NETWORK = re.compile(
    "error sending request|dns error|failed to fetch|failed to download|network is unreachable|"
    "network was disabled|connection refused|timed out|could not connect|tls|certificate",
    re.IGNORECASE,
)


def prepare(nodes: Sequence[Node], stage: Stage) -> dict[int, str]:
    """Make all nodes ready, all at once; return the Python of each rank.

    Raises
    ------
    SkyBootstrapError
        A machine cannot be made ready; says what is in the way.
    """
    said: dict[int, str] = {}
    ended = threading.Event()

    def one(node: Node) -> str:
        return _Bootstrap(node, lambda what: said.__setitem__(node.rank, what), ended).run()

    jobs = [partial(one, node) for node in nodes]
    pythons = at_once(jobs, lambda: stage(_slowest(said, len(nodes))), ended)
    return {node.rank: python for node, python in zip(nodes, pythons, strict=True)}


STAGES = ("bringing uv", "Python", "packages", "packages, through the connection")


def _slowest(said: dict[int, str], nodes: int) -> str:
    """Return what the nodes that are behind the others are at, and how many those are."""
    if not said:
        return ""
    first = min(said.values(), key=STAGES.index)
    at_it = sum(what == first for what in said.values())
    return first if nodes == 1 else f"{first} ({at_it} of {nodes} nodes)"


class _Bootstrap:
    """The way of one node."""

    def __init__(self, node: Node, say: Callable[[str], None], ended: threading.Event) -> None:
        self.node, self.say, self._ended = node, say, ended
        self.recipe: Recipe = recipe(node)
        self.environment = f"{node.base}/env/{self.recipe.key}-{node.machine}"

    def run(self) -> str:
        """Go all of it; return the path of the Python there."""
        python = f"{self.environment}/bin/python"
        found = self._sh(_FIND, self.environment, self.node.base).text.split()
        if "ready" in found:
            return python
        if self.node.free < NEEDED_KB:
            raise SkyBootstrapError(
                f"{self.node.host} ({self.node.address.name}): the disk is full: "
                f"{self.node.free // 1000} MB are free, an environment needs {NEEDED_KB // 1000}",
                hint=f"make room below {self.node.base}",
            )
        uv = found[-1] if found else self._push_uv()
        self._venv(uv)
        self._packages(uv)
        answer = self._sh(_SETTLE, self.environment, self.node.token)
        if answer.code:
            raise failed(self.node, "the environment cannot be put in its place", answer.err)
        return python

    def _push_uv(self) -> str:
        self.say("bringing uv")
        data = uv_for(self.node).read_bytes()
        answer = self._sh(_PUSH_UV, self.node.base, self.node.token, data=data)
        if answer.code:
            raise failed(self.node, "uv cannot be put there", answer.err)
        return f"{self.node.base}/uv"

    def _venv(self, uv: str) -> None:
        self.say("Python")
        words = (self.recipe.python, self.recipe.base)
        answer = self._sh(_VENV, self.environment, self.node.token, uv, *words, data=archive())
        if answer.code == 0:
            return
        if "No space left" in answer.err or "quota" in answer.err:
            raise failed(self.node, "an environment cannot be made", answer.err)
        error = failed(
            self.node,
            f"Python {self.recipe.python}, that of this notebook, is not there and cannot be had",
            answer.err,
        )
        error.hint = (
            f"install Python {self.recipe.python} there, or name one in the list of machines: "
            f'python = "/path/to/python{self.recipe.python}"'
        )
        raise error

    def _packages(self, uv: str) -> None:
        words = (self.environment, self.node.token)
        if not self.node.offline:
            self.say("packages")
            answer = self._sh(_INSTALL, *words, uv, *self.recipe.requirements)
            if answer.code == 0:
                return
            if not _NETWORK.search(answer.err):
                raise failed(self.node, "packages cannot be installed", answer.err)
        self.say("packages, through the connection")
        answer = self._sh(_UNPACK, *words, self.recipe.python, data=wheelhouse(self.node))
        if answer.code:
            raise failed(self.node, "packages cannot be unpacked", answer.err)

    def _sh(self, script: str, *words: str, data: bytes = b"") -> ssh.Answer:
        script = f"export UV_NO_PROGRESS=1\n{self.node.exports()}{script}"
        return ssh.run(
            self.node.address,
            script,
            *words,
            data=data,
            timeout=INSTALL_SECONDS,
            meanwhile=self._go_on,
            patience=ssh.HEAL_SECONDS,
        )

    def _go_on(self) -> None:
        if self._ended.is_set():
            raise SkyBootstrapError(f"{self.node.host}: given up for another's sake")


# -- what is made here ------------------------------------------------------------------------


def uv_here() -> str:
    """Return the path of this machine's uv.

    Raises
    ------
    SkyBootstrapError
        There is none.
    """
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise SkyBootstrapError(
            "machines reached by SSH are made ready by uv, and it is not installed here",
            hint='pip install "jupyter_sky[ssh]"',
        )
    return found


def uv_for(node: Node) -> Path:
    """Return a uv that runs on a node: this machine's, or one downloaded for it."""
    here = (platform.system(), platform.machine())
    if here == (node.system, node.machine) and node.libc == "gnu":
        return Path(uv_here())
    target = Path(tempfile.mkdtemp(prefix="sky-uv-"))
    install_here(node, target, ["uv"])
    return target / "bin" / "uv"


def wheelhouse(node: Node) -> bytes:
    """Return the installed packages of a node's environment as a tar file, made here once."""
    wanted = recipe(node)
    kind = f"{node.machine}-{node.libc}-{wanted.python}"
    digest = hashlib.blake2b("\n".join(wanted.requirements).encode(), digest_size=8).hexdigest()
    folder = Path.home() / ".cache" / "jupyter_sky" / "wheels"
    path = folder / f"{kind}-{digest}.tar.gz"
    with _packing:
        if not path.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for old in sorted(folder.glob("*.tar.gz"), key=os.path.getmtime)[:-KEPT_ARCHIVES]:
                old.unlink(missing_ok=True)
            partial = path.with_suffix(f".{os.getpid()}")
            partial.write_bytes(_pack(node, wanted.requirements))
            partial.replace(path)
        return path.read_bytes()


_packing = threading.Lock()


def _pack(node: Node, requirements: Sequence[str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="sky-wheels-") as folder:
        install_here(node, Path(folder), requirements)
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
            tar.add(folder, ".")
        return buffer.getvalue()


def install_here(node: Node, target: Path, requirements: Sequence[str]) -> None:
    """Install packages for a node's kind of machine into a folder of this one."""
    wanted = recipe(node)
    libc = "unknown-linux-musl" if node.libc == "musl" else "unknown-linux-gnu"
    outcome = subprocess.run(
        [
            *(uv_here(), "pip", "install", "-q", "--target", str(target)),
            *("--python-platform", f"{node.machine}-{libc}", "--python-version", wanted.python),
            *("--only-binary", ":all:", *requirements),
        ],
        capture_output=True,
        text=True,
    )
    if outcome.returncode:
        raise failed(
            replace(node, base=tempfile.gettempdir()),
            "what it needs cannot be downloaded here either",
            outcome.stderr,
        )
