"""Status line of a run: its stage, place and cost, with notes for the user."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.run_record import RunRecord
from jupyter_sky.execution.clusters.cluster_records import describe_place
from jupyter_sky.execution.display import Display, RunStatus, Stage
from jupyter_sky.knowledge.catalog.price_origin import describe_origin

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import ClusterHandle

REPEAT_SECONDS = 0.9
"""Time for which a stage that does not change is not shown again."""


class StatusLine:
    """Status line of a run.

    Parameters
    ----------
    display
        Display of its cell.
    run_id
        Id of the run.
    record
        Its times and cost.
    notebook_usd
        Returns the cost of the notebook so far in USD, or None.

    Attributes
    ----------
    stage : str
        Stage that the line shows, or shows next.
    detail : str
        What the run waits for.
    notes : list of str
        Sentences for the user.
    shown : RunStatus or None
        Status that was shown last.
    """

    def __init__(
        self,
        display: Display,
        run_id: str,
        record: RunRecord,
        notebook_usd: Callable[[], float | None],
    ) -> None:
        self.stage: Stage = "placing"
        self.detail, self.notes = "", list[str]()
        self.shown: RunStatus | None = None
        self._display, self._run_id, self._record = display, run_id, record
        self._notebook_usd = notebook_usd
        self._shown_at = 0.0

    def enter(self, stage: Stage) -> None:
        """Enter a stage, which the next `show` shows at once."""
        self.stage, self._shown_at = stage, 0.0

    def show(
        self,
        stage: Stage,
        cluster: ClusterHandle | None,
        detail: str = "",
        warning: str = "",
        force: bool = False,
    ) -> bool:
        """Show a stage, at most once a second while it does not change; return whether it did.

        Parameters
        ----------
        cluster
            Cluster of the run, as soon as it has one.
        warning
            Why it goes on although it is stopped.
        """
        now = time.monotonic()
        if not force and stage == self.stage and now - self._shown_at < REPEAT_SECONDS:
            return False
        self.stage, self.detail, self._shown_at = stage, detail, now
        row = cluster.row if cluster else None
        if cluster is not None and (why := cluster.connection.down_reason()):
            detail = _("reconnecting: {why}").format(why=why)
        elif cluster is not None:
            detail = cluster.notices.describe(time.time()) or detail
        seconds, boot = self._record.times(time.time())
        self.shown = RunStatus(
            stage=stage,
            seconds=seconds,
            boot=boot,
            cluster=row.name if row else None,
            place=describe_place(row) if row else None,
            price=row.price if row else None,
            cell_usd=self._record.spent_usd() if row else None,
            notebook_usd=self._notebook_usd() if row else None,
            detail=detail,
            notes=tuple(self.notes),
            run_id=self._run_id,
            warning=warning if stage == "interrupting" else "",
            price_from=describe_origin(row.price_source, row.price_date).text if row else "",
        )
        self._display.status(self.shown)
        return True
