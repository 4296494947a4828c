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

from ..clouds.ssh_slot import Slot, slot_error
from ..concurrency import run_parallel
from ..errors import SkyBootstrapError, SkyClusterLost
from ..remote import ssh
from ..remote.environment_spec import EnvironmentSpec, environment_spec, package_archive
from .package_archive import build_archive, tar_option
from .uv import uv_for_slot

NEEDED_KB = 300_000
"""Free disk that a new environment needs: Python, its packages, and room to work."""
INSTALL_SECONDS = 1800.0
WHEELS_GLIBC = (2, 28)
"""What packages that are packed here ask of a machine."""
NOT_STARTED = 74
"""Exit code of an order that could not be carried out."""

Stage = Callable[[str], None]
"""Called with what is being done, again and again."""

_PUSH_UV_SCRIPT = 'cat >"$1/uv.$2" && chmod 755 "$1/uv.$2" && mv "$1/uv.$2" "$1/uv"'
_UNPACK_SCRIPT = """
cat >"$work/packages.tar" # whole first: while it is unpacked, sshd would hold more and more of it
tar "$unpack" -xf "$work/packages.tar" -C "$site"
rm "$work/packages.tar"
"""
_CREATE_SCRIPT = (
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
    + _UNPACK_SCRIPT
    + """
[ -z "$base" ] || "$base" -c 'import site, sys; print("\\n".join(
  path for path in sys.path if path.endswith(("site-packages", "dist-packages"))))' \\
  >"$site/zz_machine.pth"
"""
)
_INSTALL_SCRIPT = """
work=$1.$2 uv=$3
shift 3
"$uv" pip install -q --python "$work/bin/python" "$@"
"""
_UNPACK_MORE_SCRIPT = f"""
set -e
work=$1.$2 unpack=$4
site=$work/lib/python$3/site-packages
{_UNPACK_SCRIPT}
"""
_FINISH_SCRIPT = """
touch "$1.$2/complete"
mv -T "$1.$2" "$1" 2>/dev/null || rm -rf "$1.$2"
[ -e "$1/complete" ] || exit 1
"""
_NETWORK_ERRORS = re.compile(
    "error sending request|dns error|failed to fetch|failed to download|network is unreachable|"
    "network was disabled|connection refused|timed out|could not connect|tls|certificate",
    re.IGNORECASE,
)


def prepare(
    nodes: Sequence[Slot],
    stage: Stage,
    orders: Mapping[int, str] = MappingProxyType({}),
    begun: Callable[[Slot], None] = lambda node: None,
) -> None:
    """Make all nodes ready, all at once.

    Parameters
    ----------
    orders
        Shell text for ranks, run there as soon as that node is ready; it ends with exit code
        `NOT_STARTED` if it fails.
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

    def one(node: Slot) -> None:
        say = partial(said.__setitem__, node.rank)
        _NodeBootstrap(node, orders.get(node.rank, ""), say, ended).run()
        begun(node)

    jobs = [partial(one, node) for node in nodes]
    run_parallel(jobs, lambda: stage(_slowest_stage(said, len(nodes))), ended)


def ensure_uv(node: Slot) -> None:
    """See that a node has uv: it is asked for more packages than engines need."""
    bootstrap = _NodeBootstrap(node, "", lambda what: None, threading.Event())
    if not node.uv and bootstrap.lacks_uv():
        bootstrap.push_uv()


STAGES = ("packing", "bringing uv", "Python and packages", "packages", "packages from here")


def _slowest_stage(said: dict[int, str], nodes: int) -> str:
    """Return what the nodes that are behind the others are at, and how many those are."""
    if not said:
        return ""
    first = min(said.values(), key=STAGES.index)
    at_it = sum(what == first for what in said.values())
    return first if nodes == 1 else f"{first} ({at_it} of {nodes} nodes)"


class _NodeBootstrap:
    """The way of one node."""

    def __init__(
        self, node: Slot, order: str, say: Callable[[str], None], ended: threading.Event
    ) -> None:
        self.node, self.order, self.say, self._ended = node, order, say, ended
        self.recipe: EnvironmentSpec = environment_spec(node.python, node.packages)

    def run(self) -> None:
        """Go all of it."""
        node = self.node
        if node.ready:
            if self.order:
                self._report_start(self._run_script(self.order))
            return
        if node.free < NEEDED_KB:
            raise SkyBootstrapError(
                f"{node.host} ({node.address.name}): the disk is full: {node.free // 1000} MB are "
                f"free, an environment needs {NEEDED_KB // 1000}",
                hint=f"make room below {node.base}",
            )
        whole = self._prebuilt_archive() if _accepts_wheels(node.glibc) else None
        more = whole is None or (node.packages and not node.offline)
        uv = node.uv
        if not uv and (more or not node.found):
            uv = self.push_uv()
        self._create_environment(uv, whole or package_archive(), settle=not more)
        if more:
            self._install_from_index(uv)

    def lacks_uv(self) -> bool:
        """Whether nobody has put uv there since the node was taken."""
        return self._run_script('[ -x "$1/uv" ]', self.node.base).code != 0

    def push_uv(self) -> str:
        """Put uv there; return its path."""
        self.say("bringing uv")
        data = uv_for_slot(self.node).read_bytes()
        answer = self._run_script(_PUSH_UV_SCRIPT, self.node.base, self.node.token, data=data)
        if answer.code:
            raise slot_error(self.node, "uv cannot be put there", answer.err)
        return f"{self.node.base}/uv"

    def _prebuilt_archive(self) -> Path | None:
        """Return all its packages; None where they cannot be had here."""
        self.say("packing")
        try:
            return build_archive(self.node)
        except SkyBootstrapError:  # the machine may reach what we do not
            if self.node.offline:
                raise
            return None

    def _create_environment(self, uv: str, packages: bytes | Path, settle: bool) -> None:
        self.say("Python and packages")
        node = self.node
        words = (node.environment, node.token, uv, self.recipe.python, node.python, node.found)
        unpack = tar_option(node) if isinstance(packages, Path) else "-z"
        script = f"{_CREATE_SCRIPT}{_FINISH_SCRIPT}{self.order}" if settle else _CREATE_SCRIPT
        answer = self._report_start(self._run_script(script, *words, unpack, data=packages))
        if answer.code == 0:
            return
        if "No space left" in answer.err or "quota" in answer.err or node.found:
            raise slot_error(node, "an environment cannot be made", answer.err)
        error = slot_error(
            node,
            f"Python {self.recipe.python}, that of this notebook, is not there and cannot be had",
            answer.err,
        )
        error.hint = (
            f"install Python {self.recipe.python} there, or name one in the list of machines: "
            f'python = "/path/to/python{self.recipe.python}"'
        )
        raise error

    def _install_from_index(self, uv: str) -> None:
        """Install what was not packed, from an index that the machine reaches."""
        words = (self.node.environment, self.node.token)
        self.say("packages")
        answer = self._run_script(_INSTALL_SCRIPT, *words, uv, *self.recipe.requirements)
        if answer.code and not _NETWORK_ERRORS.search(answer.err):
            raise slot_error(self.node, "packages cannot be installed", answer.err)
        if answer.code:
            self.say("packages from here")
            data = build_archive(replace(self.node, offline=True))
            how = (self.recipe.python, tar_option(self.node))
            answer = self._run_script(_UNPACK_MORE_SCRIPT, *words, *how, data=data)
            if answer.code:
                raise slot_error(self.node, "packages cannot be unpacked", answer.err)
        answer = self._report_start(self._run_script(f"{_FINISH_SCRIPT}{self.order}", *words))
        if answer.code:
            raise slot_error(self.node, "the environment cannot be put in its place", answer.err)

    def _report_start(self, answer: ssh.CommandResult) -> ssh.CommandResult:
        """Pass on an answer, unless it says that an order could not be carried out."""
        if answer.code == NOT_STARTED:
            raise SkyClusterLost(f"{self.node.host}: the cluster cannot be started: {answer.err}")
        return answer

    def _run_script(self, script: str, *words: str, data: bytes | Path = b"") -> ssh.CommandResult:
        script = f"export UV_NO_PROGRESS=1\n{self.node.exports()}{script}"
        return ssh.run(
            self.node.address,
            script,
            *words,
            data=data,
            timeout=INSTALL_SECONDS,
            meanwhile=self._check_cancelled,
            patience=ssh.RECONNECT_SECONDS,
        )

    def _check_cancelled(self) -> None:
        if self._ended.is_set():
            raise SkyBootstrapError(f"{self.node.host}: given up for another's sake")


def _accepts_wheels(glibc: str) -> bool:
    """Whether compiled packages that are packed here run on a machine; if unknown, they may."""
    found = re.fullmatch(r"glibc (\d+)\.(\d+).*", glibc)
    return not found or (int(found[1]), int(found[2])) >= WHEELS_GLIBC
