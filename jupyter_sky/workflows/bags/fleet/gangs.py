"""Jobs that several machines run together, such as the ranks of an MPI program.

All nodes of a group are sent the job. Where a command is run, each of them finds the line of a
process manager in its environment (PMI-1, as MPICH and Intel MPI speak it), so that the programs
meet as one MPI world without ``mpiexec`` and without SSH between the nodes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

from jupyter_sky.machines.engines.node.instance import instance_info
from jupyter_sky.workflows.bags.fleet.node import Call, run_jobs
from jupyter_sky.workflows.bags.queue.application import App, FunctionApp
from jupyter_sky.workflows.bags.queue.values import JobOutcome

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.group_restart import GroupKind

T = TypeVar("T")


class GangFailed(Exception):
    """A rank of a job has failed; the others are stopped, since they would wait for it.

    Attributes
    ----------
    outcome : JobOutcome
        Of this rank.
    """

    @property
    def outcome(self) -> JobOutcome:
        """Outcome of the rank."""
        return self.args[0]


@dataclass(frozen=True, slots=True)
class CommandWorld:
    """Plug-in that makes the commands which nodes run together one MPI world."""

    group: ClassVar[GroupKind] = "calls"
    """After a loss all of them begin again."""

    def around(self, call: Callable[[], T]) -> T:
        """Run a call whose commands find the others."""
        from jupyter_sky.execution.functions.plugins.mpi_world import start_pmi_server
        from jupyter_sky.execution.functions.plugins.rendezvous import SINGLE_NODE, broadcast_id

        name = broadcast_id()
        if not name or name == SINGLE_NODE:
            return call()
        info = instance_info()
        line = start_pmi_server(name)
        own = {"PMI_FD": line, "PMI_RANK": info.node, "PMI_SIZE": info.total_nodes}
        os.environ.update({key: str(value) for key, value in own.items()})
        try:
            return call()
        finally:
            for key in own:
                os.environ.pop(key, None)
            os.close(line)


def make_gang_runner(app: App) -> Callable[..., list[JobOutcome]]:
    """Return the function that all nodes of a group call; modules of the app travel with it."""

    def run(calls: Sequence[Call], seconds: float) -> list[JobOutcome]:
        outcomes = run_jobs(app, calls, seconds)
        if instance_info().total_nodes > 1:
            for outcome in outcomes:
                if outcome.error:
                    raise GangFailed(outcome)
        return outcomes

    if isinstance(app, FunctionApp):
        run.__module__ = getattr(app.function, "__module__", run.__module__)
    run.__qualname__ = app.name  # notices name it
    return run
