"""From a machine that answers to one that can run engines: Python and packages.

What engines need is the same on all machines of a kind: it is packed here once, and unpacked there
in a moment. uv is brought where no such Python is, or where more is wanted than that. What is there
is kept by what is in it, so the second cluster of a kind finds all of it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from .. import ssh
from ..clouds.keeper import Node, failed
from ..errors import SkyBootstrapError
from ..together import at_once
from .package import Recipe, recipe, sources
from .packed import packed, uv_for

NEEDED_KB = 300_000
"""Free disk that a new environment needs: Python, its packages, and room to work."""
INSTALL_SECONDS = 1800.0
WHEELS_GLIBC = (2, 28)
"""What packages that are packed here ask of a machine."""

Stage = Callable[[str], None]
"""Called with what is being done, again and again."""

_FIND = """
[ -e "$1/complete" ] && echo ready=yes
uv=$(command -v uv || command -v "$HOME/.local/bin/uv" || command -v "$2/uv") && echo "uv=$uv"
echo "glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null)"
python=${4:-$(command -v "python$3")} && "$python" -I -c '
import sys
if sys.argv[1] == "%d.%d" % sys.version_info[:2]:
    print("python=" + getattr(sys, "_base_executable", sys.executable))' "$3" 2>/dev/null
exit 0
"""
_PUSH_UV = 'cat >"$1/uv.$2" && chmod 755 "$1/uv.$2" && mv "$1/uv.$2" "$1/uv"'
_MAKE = """
set -e
work=$1.$2 uv=$3 version=$4 base=$5 found=$6
rm -rf "$work"
site=$work/lib/python$version/site-packages
if [ -n "$found" ]; then
  mkdir -p "$work/bin" "$site"
  for name in python python3 "python$version"; do ln -s "$found" "$work/bin/$name"; done
  printf 'home = %s\\ninclude-system-site-packages = false\\n' "${found%/*}" >"$work/pyvenv.cfg"
else
  "$uv" venv -q --no-project --python "${base:-$version}" "$work"
  found=$("$work/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  [ "$found" = "$version" ] || { echo "Python $found is not $version" >&2; exit 68; }
fi
tar -xzf - -C "$site"
[ -z "$base" ] || "$base" -c 'import site, sys; print("\\n".join(
  path for path in sys.path if path.endswith(("site-packages", "dist-packages"))))' \\
  >"$site/zz_machine.pth"
"""
_INSTALL = """
work=$1.$2 uv=$3
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


def bring_uv(node: Node) -> None:
    """See that a node has uv: it is asked for more packages than engines need."""
    bootstrap = _Bootstrap(node, lambda what: None, threading.Event())
    if not bootstrap.find().uv:
        bootstrap.push_uv()


STAGES = ("packing", "bringing uv", "Python and packages", "packages", "packages from here")


def _slowest(said: dict[int, str], nodes: int) -> str:
    """Return what the nodes that are behind the others are at, and how many those are."""
    if not said:
        return ""
    first = min(said.values(), key=STAGES.index)
    at_it = sum(what == first for what in said.values())
    return first if nodes == 1 else f"{first} ({at_it} of {nodes} nodes)"


@dataclass(frozen=True, slots=True)
class Found:
    """What a node has already.

    Attributes
    ----------
    ready : str
        Not empty if its environment is complete.
    uv, python : str
        Paths of them; the Python is one of the wanted minor version.
    glibc : str
        Such as ``glibc 2.36``.
    """

    ready: str = ""
    uv: str = ""
    python: str = ""
    glibc: str = ""

    @property
    def takes_wheels(self) -> bool:
        """Whether compiled packages that are packed here run there."""
        found = re.fullmatch(r"glibc (\d+)\.(\d+).*", self.glibc)
        return not found or (int(found[1]), int(found[2])) >= WHEELS_GLIBC


class _Bootstrap:
    """The way of one node."""

    def __init__(self, node: Node, say: Callable[[str], None], ended: threading.Event) -> None:
        self.node, self.say, self._ended = node, say, ended
        self.recipe: Recipe = recipe(node)
        self.environment = f"{node.base}/env/{self.recipe.key}-{node.machine}"

    def run(self) -> str:
        """Go all of it; return the path of the Python there."""
        python = f"{self.environment}/bin/python"
        found = self.find()
        if found.ready:
            return python
        if self.node.free < NEEDED_KB:
            raise SkyBootstrapError(
                f"{self.node.host} ({self.node.address.name}): the disk is full: "
                f"{self.node.free // 1000} MB are free, an environment needs {NEEDED_KB // 1000}",
                hint=f"make room below {self.node.base}",
            )
        whole = self._packed() if found.takes_wheels else b""
        more = not whole or (self.node.packages and not self.node.offline)
        if not found.uv and (more or not found.python):
            found = replace(found, uv=self.push_uv())
        self._make(found, whole or sources(), settle=not more)
        if more:
            self._install(found.uv)
        return python

    def find(self) -> Found:
        """Look what is there."""
        words = (self.environment, self.node.base, self.recipe.python, self.recipe.base)
        text = self._sh(_FIND, *words).text
        said: dict[str, str] = {}
        for line in text.splitlines():
            name, _, value = line.partition("=")
            said[name] = value
        return Found(**{name: said.get(name, "") for name in Found.__slots__})

    def push_uv(self) -> str:
        """Put uv there; return its path."""
        self.say("bringing uv")
        data = uv_for(self.node).read_bytes()
        answer = self._sh(_PUSH_UV, self.node.base, self.node.token, data=data)
        if answer.code:
            raise failed(self.node, "uv cannot be put there", answer.err)
        return f"{self.node.base}/uv"

    def _packed(self) -> bytes:
        """Return all its packages; nothing where they cannot be had here."""
        self.say("packing")
        try:
            return packed(self.node)
        except SkyBootstrapError:  # the machine may reach what we do not
            if self.node.offline:
                raise
            return b""

    def _make(self, found: Found, packages: bytes, settle: bool) -> None:
        self.say("Python and packages")
        words = (self.recipe.python, self.recipe.base, found.python)
        script = f"{_MAKE}{_SETTLE if settle else ''}"
        answer = self._sh(
            script, self.environment, self.node.token, found.uv, *words, data=packages
        )
        if answer.code == 0:
            return
        if "No space left" in answer.err or "quota" in answer.err or found.python:
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

    def _install(self, uv: str) -> None:
        """Install what was not packed, from an index that the machine reaches."""
        words = (self.environment, self.node.token)
        self.say("packages")
        answer = self._sh(_INSTALL, *words, uv, *self.recipe.requirements)
        if answer.code and not _NETWORK.search(answer.err):
            raise failed(self.node, "packages cannot be installed", answer.err)
        if answer.code:
            self.say("packages from here")
            data = packed(replace(self.node, offline=True))
            answer = self._sh(_UNPACK, *words, self.recipe.python, data=data)
            if answer.code:
                raise failed(self.node, "packages cannot be unpacked", answer.err)
        answer = self._sh(_SETTLE, *words)
        if answer.code:
            raise failed(self.node, "the environment cannot be put in its place", answer.err)

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
