"""``pipelines`` and ``pipelines/NAME/...``: runs of graphs, their tasks, and what users wish."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.interfaces.server.handler import SkyHandler, authorized

if TYPE_CHECKING:
    from jupyter_sky.interfaces.server.service import SkyService
    from jupyter_sky.workflows.pipelines.run.pipeline_run import PipelineRun

MAX_LISTED = 50
"""Runs that are listed, the newest first."""
_RUN = r"pipelines/([^/]+)"


def list_runs(service: SkyService) -> dict[str, Any]:
    """Return the newest runs with the number of tasks in each state.

    Returns
    -------
    dict
        ``runs``: name, unix time of the begin, counts by state, USD, whether it is over and whether
        some process carries it out; ``more``: number of older ones.
    """
    from jupyter_sky.workflows.pipelines.run.pipeline_run import PipelineRun
    from jupyter_sky.workflows.pipelines.run.run_storage import open_journal

    folder = Path(service.session.config.data_dir)
    with closing(open_journal(folder)) as journal:
        names = journal.names()
    found = []
    for name in names[: -MAX_LISTED - 1 : -1]:
        with closing(PipelineRun(service.session, name)) as run:
            state = run.state
            found.append(
                {
                    "name": name,
                    "made": run.made,
                    "states": Counter(str(task.phase) for task in state.tasks.values()),
                    "usd": sum(task.usd for task in state.tasks.values()),
                    "over": state.is_over,
                    "carried_out": run.is_carried_out(),
                }
            )
    return {"runs": found, "more": len(names) - len(found)}


class ListHandler(SkyHandler):
    """Handler of the list of runs."""

    @authorized
    async def get(self) -> None:
        """Answer the newest."""
        await self.answer(list_runs, self.service)


class _RunHandler(SkyHandler):
    """Base of the handlers of one run."""

    def run(self, name: str) -> PipelineRun:
        """Return a run.

        Raises
        ------
        SkyUsageError
            There is none of that name.
        """
        from jupyter_sky.workflows.pipelines.run.pipeline_run import PipelineRun

        return PipelineRun(self.service.session, name)


class RunHandler(_RunHandler):
    """Handler of a run's pictures and figures."""

    @authorized
    async def get(self, name: str) -> None:
        """Answer it as its view shows it."""
        await self.answer(self._describe, name)

    def _describe(self, name: str) -> dict[str, Any]:
        from jupyter_sky.interfaces.widgets.run_view import describe_run

        with closing(self.run(name)) as run:
            return describe_run(run)


class TaskHandler(_RunHandler):
    """Handler of a task of a run."""

    @authorized
    async def get(self, name: str) -> None:
        """Answer ``?task=NAME``: its facts, and what it has printed."""
        await self.answer(self._describe, name, self.get_query_argument("task", ""))

    def _describe(self, name: str, task: str) -> dict[str, Any]:
        from jupyter_sky.interfaces.widgets.run_view import describe_task

        with closing(self.run(name)) as run:
            return describe_task(run, task)


class ActHandler(_RunHandler):
    """Handler of what users wish of a run."""

    @authorized
    async def post(self, name: str) -> None:
        """Do ``{"verb": "cancel"}``, pause or resume; answer the run."""
        await self.answer(self._act, name, str(self.body().get("verb", "")))

    def _act(self, name: str, verb: str) -> dict[str, Any]:
        from jupyter_sky.interfaces.widgets.run_view import act

        with closing(self.run(name)) as run:
            return act(run, verb)


HANDLERS = [
    ("pipelines", ListHandler),
    (_RUN, RunHandler),
    (rf"{_RUN}/task", TaskHandler),
    (rf"{_RUN}/act", ActHandler),
]
