"""``pipelines-of?path=``: the newest run of a notebook as a graph, with the state of each cell."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.interfaces.server.handler import SkyHandler, authorized

if TYPE_CHECKING:
    from jupyter_sky.interfaces.server.service import SkyService
    from jupyter_sky.workflows.pipelines.run.pipeline_run import PipelineRun


def find_cell_states(service: SkyService, path: str) -> dict[str, Any]:
    """Return the newest run of a notebook as a graph, by its cells.

    Parameters
    ----------
    path
        Of the notebook, absolute.

    Returns
    -------
    dict
        ``path``, without links; ``run``, its name, or None where the notebook has never been run
        as a graph; ``over``; ``cells``, those that are tasks: ``id``, ``source`` as it runs,
        ``task``, ``phase``, and ``words`` with state, time and cost beside those of the plan, place
        and reason.
    """
    from jupyter_sky.workflows.pipelines.run.pipeline_run import PipelineRun
    from jupyter_sky.workflows.pipelines.run.run_storage import open_journal

    with closing(open_journal(Path(service.session.config.data_dir))) as journal:
        name = journal.newest("origin", f"notebook {Path(path).resolve()}")
    found: dict[str, Any] = {"path": str(Path(path).resolve()), "run": name}
    if name is None:
        return {**found, "over": True, "cells": []}
    with closing(PipelineRun(service.session, name)) as run:
        return {**found, "over": run.state.is_over, "cells": _describe_cells(run)}


def _describe_cells(run: PipelineRun) -> list[dict[str, Any]]:
    from jupyter_sky.interfaces.widgets.run_tasks import ShownTask, describe_facts

    reports = {report.name: report for report in run.report()}
    told = []
    for cell_id, source, names in run.cells():
        task = ShownTask(names[0].partition("[")[0], tuple(reports[each] for each in names), ())
        facts = describe_facts(task, run.why(names[0]) if len(names) == 1 else "")
        told.append(
            {
                "id": cell_id,
                "source": source,
                "task": names[0],
                "phase": str(task.phase),
                "words": facts,
            }
        )
    return told


class CellStatesHandler(SkyHandler):
    """Handler of the states of a notebook's cells in its newest run."""

    @authorized
    async def get(self) -> None:
        """Answer for a notebook by its path below the server's root."""
        path = self.get_query_argument("path")
        folder = self.kernel_manager.cwd_for_path(path)
        await self.answer(find_cell_states, self.service, os.path.join(folder, Path(path).name))


HANDLERS = [("pipelines-of", CellStatesHandler)]
