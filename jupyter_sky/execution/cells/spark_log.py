"""Stages of Spark's queries in a cell, from the event log of its cluster."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.base import is_reached_by_ssh
from jupyter_sky.clouds.launches.journals import collect_event_logs

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import RunRow
    from jupyter_sky.execution.cells.session_state import SessionState


def spark_stages(session: SessionState, run: RunRow) -> Table:
    """Return the stages of the queries of a run, so far or in all.

    The log is read where it is: on this machine, on that of the cluster, or among its remains.

    Raises
    ------
    SkyError
        There is no log, or its machine cannot be reached.
    """
    from jupyter_sky.machines.services.event_log import find_logs

    for journal in _journals_here(session, run):
        if logs := find_logs(journal):
            return _table(logs, run)
    row = session.store.cluster(run.cluster)
    cloud = clouds.get(row.cloud) if row is not None and row.state == "up" else None
    if is_reached_by_ssh(cloud):
        (node, *__) = cloud.await_slots(session.clusters.find(run.cluster).machines)
        with tempfile.TemporaryDirectory() as folder:
            collect_event_logs(node, Path(folder))
            if logs := find_logs(Path(folder)):
                return _table(logs, run)
    raise SkyError(
        _("there is no event log of Spark for {label}").format(label=run.label),
        hint=_("cells with --engine spark have one; it is kept for a week after their cluster"),
    )


def _journals_here(session: SessionState, run: RunRow) -> list[Path]:
    """Return folders on this machine that may have the journal of a run's cluster."""
    found = []
    if (file := session.history.journal_file(run.run_id)) is not None:
        found.append(file.parent)
    row = session.store.cluster(run.cluster)
    # another cluster may have had its name since
    if row is not None and row.created <= run.started + 1.0 and "file" in row.connection:
        found += [folder / "journal" for folder in Path(row.connection["file"]).parents[:2]]
    return found


def _table(logs: list[Path], run: RunRow) -> Table:
    from jupyter_sky.machines.services.event_log import read_stages, stage_table

    stages = read_stages(logs, f"cell-{run.cell}", run.started, run.ended)
    return stage_table(stages, run.label)
