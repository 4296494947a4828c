"""Bootstrap of machines: Python and packages, as engines need them.

What engines need is the same on all machines of a kind: it is packed here once, and unpacked there
in a moment. uv is sent where no such Python is, or where further packages are wanted. Environments
are kept by the digest of their contents, so the second cluster of a kind finds its own.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from jupyter_sky.base.concurrency import run_parallel
from jupyter_sky.base.errors import SkyBootstrapError, SkyClusterLost
from jupyter_sky.base.remote import ssh
from jupyter_sky.base.remote.environment_spec import (
    EnvironmentSpec,
    environment_spec,
    package_archive,
)
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.ssh_slot import Slot, slot_error
from jupyter_sky.machines.provisioner.package_archive import build_archive, tar_option
from jupyter_sky.machines.provisioner.uv import uv_for_slot

NEEDED_KB = 300_000
"""Free disk that a new environment needs: Python, its packages, and room to work."""
INSTALL_SECONDS = 1800.0
WHEELS_GLIBC = (2, 28)
"""Least version of glibc that packages packed here need."""
NOT_STARTED = 74
"""Exit code of a start command that has failed."""

Stage = Callable[[str], None]
"""Receives the name of the current stage, repeatedly."""

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
    commands: Mapping[int, str] = MappingProxyType({}),
    on_ready: Callable[[Slot], None] = lambda node: None,
) -> None:
    """Make all nodes ready, concurrently.

    Parameters
    ----------
    commands
        Shell text by rank, run there as soon as that node is ready; it ends with exit code
        `NOT_STARTED` if it fails.
    on_ready
        Called, in a thread of its own, for each node that is ready and has run its command.

    Raises
    ------
    SkyBootstrapError
        A machine cannot be made ready; the message says why.
    SkyClusterLost
        A command has failed.
    """
    stages: dict[int, str] = {}
    ended = threading.Event()

    def bootstrap_node(node: Slot) -> None:
        say = partial(stages.__setitem__, node.rank)
        _NodeBootstrap(node, commands.get(node.rank, ""), say, ended).run()
        on_ready(node)

    jobs = [partial(bootstrap_node, node) for node in nodes]
    run_parallel(jobs, lambda: stage(_slowest_stage(stages, len(nodes))), ended)


def ensure_uv(node: Slot) -> None:
    """Send uv to a node that lacks it: further packages are to be installed there."""
    bootstrap = _NodeBootstrap(node, "", lambda stage: None, threading.Event())
    if not node.uv and bootstrap.lacks_uv():
        bootstrap.push_uv()


STAGES = ("packing", "sending uv", "Python and packages", "packages", "packages from here")


def _slowest_stage(stages: dict[int, str], nodes: int) -> str:
    """Return the earliest stage of the nodes, and how many are at it."""
    if not stages:
        return ""
    first = min(stages.values(), key=STAGES.index)
    count = sum(stage == first for stage in stages.values())
    return first if nodes == 1 else f"{first} ({count} of {nodes} nodes)"


class _NodeBootstrap:
    """Bootstrap of one node."""

    def __init__(
        self, node: Slot, command: str, say: Callable[[str], None], ended: threading.Event
    ) -> None:
        self.node, self.command, self.say, self._ended = node, command, say, ended
        self.recipe: EnvironmentSpec = environment_spec(node.python, node.packages)

    def run(self) -> None:
        """Run all steps."""
        node = self.node
        if node.ready:
            if self.command:
                self._report_start(self._run_script(self.command))
            return
        if node.free < NEEDED_KB:
            raise SkyBootstrapError(
                _(
                    "{host} ({name}): the disk is full: {free} MB are free, an environment "
                    "needs {needed_kb}"
                ).format(
                    host=node.host,
                    name=node.address.name,
                    free=node.free // 1000,
                    needed_kb=NEEDED_KB // 1000,
                ),
                hint=_("make room below {base}").format(base=node.base),
            )
        archive = self._prebuilt_archive() if _accepts_wheels(node.glibc) else None
        needs_index = archive is None or (node.packages and not node.offline)
        uv = node.uv
        if not uv and (needs_index or not node.found):
            uv = self.push_uv()
        self._create_environment(uv, archive or package_archive(), settle=not needs_index)
        if needs_index:
            self._install_from_index(uv)

    def lacks_uv(self) -> bool:
        """Return whether the node still lacks uv: another launch may have sent it meanwhile."""
        return self._run_script('[ -x "$1/uv" ]', self.node.base).code != 0

    def push_uv(self) -> str:
        """Send uv to the node; return its path there."""
        self.say("sending uv")
        data = uv_for_slot(self.node).read_bytes()
        answer = self._run_script(_PUSH_UV_SCRIPT, self.node.base, self.node.token, data=data)
        if answer.code:
            raise slot_error(self.node, "uv cannot be put there", answer.err)
        return f"{self.node.base}/uv"

    def _prebuilt_archive(self) -> Path | None:
        """Return an archive of all its packages; None if they cannot be downloaded here."""
        self.say("packing")
        try:
            return build_archive(self.node)
        except SkyBootstrapError:  # the machine may reach an index that this one does not
            if self.node.offline:
                raise
            return None

    def _create_environment(self, uv: str, packages: bytes | Path, settle: bool) -> None:
        self.say("Python and packages")
        node = self.node
        arguments = (node.environment, node.token, uv, self.recipe.python, node.python, node.found)
        unpack = tar_option(node) if isinstance(packages, Path) else "-z"
        script = f"{_CREATE_SCRIPT}{_FINISH_SCRIPT}{self.command}" if settle else _CREATE_SCRIPT
        answer = self._report_start(self._run_script(script, *arguments, unpack, data=packages))
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
        arguments = (self.node.environment, self.node.token)
        self.say("packages")
        answer = self._run_script(_INSTALL_SCRIPT, *arguments, uv, *self.recipe.requirements)
        if answer.code and not _NETWORK_ERRORS.search(answer.err):
            raise slot_error(self.node, "packages cannot be installed", answer.err)
        if answer.code:
            self.say("packages from here")
            data = build_archive(replace(self.node, offline=True))
            options = (self.recipe.python, tar_option(self.node))
            answer = self._run_script(_UNPACK_MORE_SCRIPT, *arguments, *options, data=data)
            if answer.code:
                raise slot_error(self.node, "packages cannot be unpacked", answer.err)
        answer = self._report_start(self._run_script(f"{_FINISH_SCRIPT}{self.command}", *arguments))
        if answer.code:
            raise slot_error(self.node, "the environment cannot be put in its place", answer.err)

    def _report_start(self, answer: ssh.CommandResult) -> ssh.CommandResult:
        """Return a result, unless it says that the start command has failed."""
        if answer.code == NOT_STARTED:
            raise SkyClusterLost(
                _("{host}: the cluster cannot be started: {err}").format(
                    host=self.node.host, err=answer.err
                )
            )
        return answer

    def _run_script(
        self, script: str, *arguments: str, data: bytes | Path = b""
    ) -> ssh.CommandResult:
        script = f"export UV_NO_PROGRESS=1\n{self.node.exports()}{script}"
        return ssh.run(
            self.node.address,
            script,
            *arguments,
            data=data,
            timeout=INSTALL_SECONDS,
            meanwhile=self._check_cancelled,
            patience=ssh.RECONNECT_SECONDS,
        )

    def _check_cancelled(self) -> None:
        if self._ended.is_set():
            raise SkyBootstrapError(
                _("{host}: given up because another node has failed").format(host=self.node.host)
            )


def _accepts_wheels(glibc: str) -> bool:
    """Return whether compiled packages of this machine run on another; if unknown, they may."""
    version = re.fullmatch(r"glibc (\d+)\.(\d+).*", glibc)
    return not version or (int(version[1]), int(version[2])) >= WHEELS_GLIBC
