"""MPI world of a pool's nodes without mpiexec: the engines are its ranks.

An MPI library that finds a process manager's line in its environment asks there for its rank and
for the addresses of the others. A small process beside each engine answers, in the words of
PMI-1, from what tasks share:

    python -m jupyter_sky.execution.functions.plugins.mpi_world FD < TOPOLOGY
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from jupyter_sky.base.errors import SkyError, SkyWorldChanged
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.plugins.rendezvous import (
    SINGLE_NODE,
    broadcast_id,
    must_create,
    require_single_slot,
)
from jupyter_sky.execution.functions.shared import collections
from jupyter_sky.machines.engines.node import instance

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.group_restart import GroupKind
    from jupyter_sky.execution.functions.pools.pool import Pool

T = TypeVar("T")

RENDEZVOUS_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Mpi:
    """Plug-in, see `plugins.mpi`."""

    group: ClassVar[GroupKind] = "processes"
    """The ranks of a world are for the life of their processes."""
    world: ClassVar[list[str]] = []
    """The world that this process is in, by the broadcast that made it."""

    def setup(self, pool: Pool) -> None:
        """Raise SkyUsageError for pools that are not supported."""
        require_single_slot(pool, "mpi")

    def around(self, call: Callable[[], T]) -> T:
        """Run a call in one world with all nodes that were sent it."""
        if (name := broadcast_id()) and name != SINGLE_NODE:  # a library alone makes a world of one
            self._join(name)
        return call()

    def _join(self, name: str) -> None:
        size = instance.instance_info().total_nodes
        if must_create("MPI", "".join(self.world)):
            self._enter(name, size)
        from mpi4py import MPI

        if size == MPI.COMM_WORLD.size:
            return
        text = _("the MPI world has {size} ranks, the pool {size2} nodes").format(
            size=MPI.COMM_WORLD.size, size2=size
        )
        if self.world != [name]:
            raise SkyWorldChanged(text)
        hint = _("an MPI library that speaks PMI-1 is needed: MPICH, or Intel's")
        raise SkyError(text, hint=hint)

    def _enter(self, name: str, size: int) -> None:
        """Set up the environment from which mpi4py finds the other ranks."""
        if find_spec("mpi4py") is None:
            raise SkyError(
                _("plugins.mpi(): there is no mpi4py on the node"),
                hint=_('have it installed: Image(pip=["mpi4py", "mpich"])'),
            )
        if "mpi4py.MPI" in sys.modules:
            raise SkyError(
                _("mpi4py was imported before the nodes met: it makes a world of its own then"),
                hint=_("import it in functions that are sent by @ only"),
            )
        number = str(start_pmi_server(name))  # the library's from now on
        rank = str(instance.instance_info().node)
        os.environ.update(PMI_FD=number, PMI_RANK=rank, PMI_SIZE=str(size))
        try:
            from mpi4py import MPI  # noqa: F401 - that is what enters
        finally:
            for variable in ("PMI_FD", "PMI_RANK", "PMI_SIZE"):
                os.environ.pop(variable, None)
        self.world[:] = [name]


# -- PMI server process ----------------------------------------------------------------------------


def start_pmi_server(world: str) -> int:
    """Start the PMI server of one MPI library; return the file descriptor that leads to it.

    Parameters
    ----------
    world
        Identifier that the ranks share.
    """
    parent_end, child_end = socket.socketpair()
    with child_end:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(child_end.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[child_end.fileno()],
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    assert process.stdin is not None
    with process.stdin as stdin:
        topology = {part: instance.pool_facts()[part] for part in ("instance", "shared_state")}
        stdin.write(json.dumps({"world": world, "topology": topology}).encode())
    return parent_end.detach()


class PmiServer:
    """PMI server of one MPI library.

    Parameters
    ----------
    world
        Identifier that the ranks share.
    size
        Number of ranks.
    """

    def __init__(self, world: str, size: int) -> None:
        self.size = size
        self._values: collections.Dict[str, str] = collections.Dict(f"jupyter_sky.mpi.{world}")
        self._barrier = collections.Barrier(f"jupyter_sky.mpi.{world}", size)
        self._waiting = {
            # one rank a node; the library itself finds out what they share
            "PMI_process_mapping": f"(vector,(0,{size},1))",
        }

    def answer(self, line: str) -> str:
        """Answer a line, such as ``cmd=get kvsname=world key=address``.

        Examples
        --------
        >>> PmiServer("w", 2).answer("cmd=get_universe_size")
        'cmd=universe_size rc=0 size=2'
        """
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        handlers: dict[str, Callable[[], str]] = {
            "init": lambda: "response_to_init rc=0 pmi_version=1 pmi_subversion=1",
            "get_maxes": lambda: "maxes rc=0 kvsname_max=256 keylen_max=256 vallen_max=1024",
            "get_appnum": lambda: "appnum rc=0 appnum=0",
            "get_my_kvsname": lambda: "my_kvsname rc=0 kvsname=world",
            "get_universe_size": lambda: f"universe_size rc=0 size={self.size}",
            "barrier_in": self._wait_barrier,
            "put": lambda: self._put(fields["key"], fields["value"]),
            "get": lambda: self._get(fields["key"]),
            "finalize": lambda: "finalize_ack rc=0",
        }
        command = fields.get("cmd", "")
        handler = handlers.get(command, lambda: f"{command}_result rc=-1 msg=unknown")
        return f"cmd={handler()}"

    def _wait_barrier(self) -> str:
        self._barrier.wait(RENDEZVOUS_SECONDS)
        return "barrier_out rc=0"

    def _put(self, key: str, value: str) -> str:
        self._values[key] = value
        return "put_result rc=0"

    def _get(self, key: str) -> str:
        value = self._waiting.get(key) or self._values.get(key)
        if value is None:
            return "get_result rc=-1 msg=key_not_found value=unknown"
        return f"get_result rc=0 value={value}"


def serve(line: socket.socket, config: dict[str, Any]) -> None:
    """Serve requests until the library disconnects."""
    with instance.running_task(config["topology"]), line, line.makefile("rw", newline="\n") as file:
        server = PmiServer(config["world"], instance.instance_info().total_nodes)
        for request in file:
            file.write(server.answer(request.strip()) + "\n")
            file.flush()


def main(argv: list[str]) -> None:
    """Serve the file descriptor given as argument."""
    config = json.load(sys.stdin)
    serve(socket.socket(fileno=int(argv[0])), config)


if __name__ == "__main__":
    main(sys.argv[1:])
