"""Machines that a bag runs on: of clouds, of this machine, or of its Slurm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.workflows.bags.fleet.fleet import Fleet
from jupyter_sky.workflows.bags.fleet.pool_fleet import PoolFleet
from jupyter_sky.workflows.bags.queue.job_queue import JobQueue
from jupyter_sky.workflows.bags.queue.values import BagSettings

if TYPE_CHECKING:
    from jupyter_sky.execution.sessions.session import Session


def make_fleet(
    session: Session,
    name: str,
    settings: BagSettings,
    around: Mapping[str, Any],
    known: Sequence[str] = (),
    queue: JobQueue | None = None,
) -> Fleet:
    """Return the machines that a bag asks for; none is launched yet.

    Parameters
    ----------
    session
        Whose clusters they are.
    name
        Of the bag.
    around
        ``image`` and ``plugins`` of its machines.
    known
        Clusters that the bag has had.
    queue
        Where run times of its app are kept.
    """
    if settings.slurm is not None:
        from jupyter_sky.workflows.bags.fleet.slurm_fleet import SlurmFleet

        return SlurmFleet(name, settings, Path(session.config.data_dir) / "slurm" / name)
    nodes = parse_cell_line(settings.options).resources.nodes
    if nodes > 1 or settings.explore:
        from jupyter_sky.workflows.bags.fleet.group_fleet import GroupFleet

        app = f"{settings.kind} {settings.app}"
        fleet = GroupFleet(session, name, settings, around, known)
        if queue is not None:
            fleet.remember(queue.read_times(app), lambda times: queue.keep_times(app, times))
        return fleet
    return PoolFleet(session, name, settings, around, known)
