"""From a machine that answers to one that can run engines: Python and packages.

What engines need is the same on all machines of a kind: it is packed here once, and unpacked there
in a moment. uv is brought where no such Python is, or where more is wanted than that. What is there
is kept by what is in it, so the second cluster of a kind finds all of it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from .. import ssh
from ..clouds.keeper import Node, failed
from ..engines.package import EnvironmentSpec, environment_spec, package_archive
from ..errors import SkyBootstrapError, SkyClusterLost
from ..together import at_once
from .packed import packed, tar_option
from .uv import uv_for

NEEDED_KB = 300_000
"""Free disk that a new environment needs: Python, its packages, and room to work."""
INSTALL_SECONDS = 1800.0
WHEELS_GLIBC = (2, 28)
"""What packages that are packed here ask of a machine."""
NOT_BEGUN = 74
"""Exit code of an order that could not be carried out."""

Stage = Callable[[str], None]
"""Called with what is being done, again and again."""

_PUSH_UV = 'cat >"$1/uv.$2" && chmod 755 "$1/uv.$2" && mv "$1/uv.$2" "$1/uv"'
_UNPACK = """
cat >"$work/packages.tar" # whole first: while it is unpacked, sshd would hold more and more of it
tar "$unpack" -xf "$work/packages.tar" -C "$site"
rm "$work/packages.tar"
"""
_MAKE = (
    """
set -e
work=$1.$2 uv=$3 version=$4 base=$5 found=$6 unpack=$7
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
"""
    + _UNPACK
    + """
[ -z "$base" ] || "$base" -c 'import site, sys; print("\\n".join(
  path for path in sys.path if path.endswith(("site-packages", "dist-packages"))))' \\
  >"$site/zz_machine.pth"
"""
)
_INSTALL = """
work=$1.$2 uv=$3
shift 3
"$uv" pip install -q --python "$work/bin/python" "$@"
"""
_UNPACK_MORE = f"""
set -e
work=$1.$2 unpack=$4
site=$work/lib/python$3/site-packages
{_UNPACK}
"""
_SETTLE = """
touch "$1.$2/complete"
mv -T "$1.$2" "$1" 2>/dev/null || rm -rf "$1.$2"
[ -e "$1/complete" ] || exit 1
"""
_NETWORK = re.compile(
    "error sending request|dns error|failed to fetch|failed to download|network is unreachable|"
    "network was disabled|connection refused|timed out|could not connect|tls|certificate",
    re.IGNORECASE,
)


def prepare(
    nodes: Sequence[Node],
    stage: Stage,
    orders: Mapping[int, str] = MappingProxyType({}),
    begun: Callable[[Node], None] = lambda node: None,
) -> None:
    """Make all nodes ready, all at once.

    Parameters
    ----------
    orders
        Shell text for ranks, run there as soon as that node is ready; it ends with exit code
        `NOT_BEGUN` if it fails.
    begun
        Called, in a thread of its own, for each node that is ready and has carried out its order.

    Raises
    ------
    SkyBootstrapError
        A machine cannot be made ready; says what is in the way.
    SkyClusterLost
        An order cannot be carried out.
    """
    said: dict[int, str] = {}
    ended = threading.Event()

    def one(node: Node) -> None:
        say = partial(said.__setitem__, node.rank)
        _Bootstrap(node, orders.get(node.rank, ""), say, ended).run()
        begun(node)

    jobs = [partial(one, node) for node in nodes]
    at_once(jobs, lambda: stage(_slowest(said, len(nodes))), ended)


def bring_uv(node: Node) -> None:
    """See that a node has uv: it is asked for more packages than engines need."""
    bootstrap = _Bootstrap(node, "", lambda what: None, threading.Event())
    if not node.uv and bootstrap.lacks_uv():
        bootstrap.push_uv()


STAGES = ("packing", "bringing uv", "Python and packages", "packages", "packages from here")


def _slowest(said: dict[int, str], nodes: int) -> str:
    """Return what the nodes that are behind the others are at, and how many those are."""
    if not said:
        return ""
    first = min(said.values(), key=STAGES.index)
    at_it = sum(what == first for what in said.values())
    return first if nodes == 1 else f"{first} ({at_it} of {nodes} nodes)"


class _Bootstrap:
    """The way of one node."""

    def __init__(
        self, node: Node, order: str, say: Callable[[str], None], ended: threading.Event
    ) -> None:
        self.node, self.order, self.say, self._ended = node, order, say, ended
        self.recipe: EnvironmentSpec = environment_spec(node.python, node.packages)

    def run(self) -> None:
        """Go all of it."""
        node = self.node
        if node.ready:
            if self.order:
                self._begun(self._sh(self.order))
            return
        if node.free < NEEDED_KB:
            raise SkyBootstrapError(
                f"{node.host} ({node.address.name}): the disk is full: {node.free // 1000} MB are "
                f"free, an environment needs {NEEDED_KB // 1000}",
                hint=f"make room below {node.base}",
            )
        whole = self._packed() if _takes_wheels(node.glibc) else None
        more = whole is None or (node.packages and not node.offline)
        uv = node.uv
        if not uv and (more or not node.found):
            uv = self.push_uv()
        self._make(uv, whole or package_archive(), settle=not more)
        if more:
            self._install(uv)

    def lacks_uv(self) -> bool:
        """Whether nobody has put uv there since the node was taken."""
        return self._sh('[ -x "$1/uv" ]', self.node.base).code != 0

    def push_uv(self) -> str:
        """Put uv there; return its path."""
        self.say("bringing uv")
        data = uv_for(self.node).read_bytes()
        answer = self._sh(_PUSH_UV, self.node.base, self.node.token, data=data)
        if answer.code:
            raise failed(self.node, "uv cannot be put there", answer.err)
        return f"{self.node.base}/uv"

    def _packed(self) -> Path | None:
        """Return all its packages; None where they cannot be had here."""
        self.say("packing")
        try:
            return packed(self.node)
        except SkyBootstrapError:  # the machine may reach what we do not
            if self.node.offline:
                raise
            return None

    def _make(self, uv: str, packages: bytes | Path, settle: bool) -> None:
        self.say("Python and packages")
        node = self.node
        words = (node.environment, node.token, uv, self.recipe.python, node.python, node.found)
        unpack = tar_option(node) if isinstance(packages, Path) else "-z"
        script = f"{_MAKE}{_SETTLE}{self.order}" if settle else _MAKE
        answer = self._begun(self._sh(script, *words, unpack, data=packages))
        if answer.code == 0:
            return
        if "No space left" in answer.err or "quota" in answer.err or node.found:
            raise failed(node, "an environment cannot be made", answer.err)
        error = failed(
            node,
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
        words = (self.node.environment, self.node.token)
        self.say("packages")
        answer = self._sh(_INSTALL, *words, uv, *self.recipe.requirements)
        if answer.code and not _NETWORK.search(answer.err):
            raise failed(self.node, "packages cannot be installed", answer.err)
        if answer.code:
            self.say("packages from here")
            data = packed(replace(self.node, offline=True))
            how = (self.recipe.python, tar_option(self.node))
            answer = self._sh(_UNPACK_MORE, *words, *how, data=data)
            if answer.code:
                raise failed(self.node, "packages cannot be unpacked", answer.err)
        answer = self._begun(self._sh(f"{_SETTLE}{self.order}", *words))
        if answer.code:
            raise failed(self.node, "the environment cannot be put in its place", answer.err)

    def _begun(self, answer: ssh.Answer) -> ssh.Answer:
        """Pass on an answer, unless it says that an order could not be carried out."""
        if answer.code == NOT_BEGUN:
            raise SkyClusterLost(f"{self.node.host}: the cluster cannot be started: {answer.err}")
        return answer

    def _sh(self, script: str, *words: str, data: bytes | Path = b"") -> ssh.Answer:
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


def _takes_wheels(glibc: str) -> bool:
    """Whether compiled packages that are packed here run on a machine; if unknown, they may."""
    found = re.fullmatch(r"glibc (\d+)\.(\d+).*", glibc)
    return not found or (int(found[1]), int(found[2])) >= WHEELS_GLIBC
