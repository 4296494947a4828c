"""Runs in their notebooks: runs that a page follows, and the outputs that it puts into cells."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.server.handler import SkyHandler, authorized

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import ClusterRow, RunRow
    from jupyter_sky.execution.display import RunStatus, Stage
    from jupyter_sky.interfaces.server.service import SkyService

LATEST = 500
LEASE_SECONDS = 20.0
"""Time after which a silent page loses its claim of a run."""
FINAL_DELAY_SECONDS = 10.0
"""Time for which a new run is left to the page that has started it."""

_STAGES: dict[str, Any] = {"ok": "done", "error": "failed", "lost": "failed"}


class PageClaims:
    """Claims of pages to write a run into its notebook, so that not two of them save one file."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._claims: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def claim(self, run_id: str, page: str, fed: bool, age: float) -> bool:
        """Return whether a page may write a run; it has to ask again within `LEASE_SECONDS`.

        Parameters
        ----------
        fed
            Whether the kernel itself feeds this page; it then takes the claim from any other.
        age
            Seconds since the run began.
        """
        now = self._clock()
        with self._lock:
            self._claims = {k: v for k, v in self._claims.items() if now - v[1] < LEASE_SECONDS}
            holder = self._claims.get(run_id, ("", 0.0))[0]
            if not fed and ((holder and holder != page) or age < FINAL_DELAY_SECONDS):
                return False
            self._claims[run_id] = (page, now)
            return True


def latest_runs(service: SkyService, path: str) -> dict[str, Any]:
    """Return the latest run of each cell of a notebook.

    A notebook that was given another name is known by its cells: those of files that are no longer
    there are told, too.
    """
    store = service.session.store
    recent = store.runs(limit=100, unsent=True)
    moved = [run for run in recent if not Path(run.notebook).exists()]
    found: dict[str, RunRow] = {}
    for run in [*store.runs(notebook=path, limit=LATEST, unsent=True), *moved]:
        known = found.get(run.cell_id) if run.cell_id else run
        if run.cell_id and (known is None or known.started < run.started):
            found[run.cell_id] = run
    return {"at": time.time(), "runs": [service.describe(run) for run in found.values()]}


def follow_run(
    service: SkyService, pages: PageClaims, run_id: str, page: str, fed: bool
) -> dict[str, Any]:
    """Return a run's status line as an output of its cell, and whether this page saves it."""
    from jupyter_sky.execution.cells.replay import ALL_SHOWN
    from jupyter_sky.interfaces.widgets.status_line import mimebundle, output_metadata

    row = service.run(run_id)
    about = service.describe(row)
    orphaned = row.ended is None and not row.is_monitored()
    if orphaned and not fed and row.shown < ALL_SHOWN:
        # the next kernel need not show it: it stands where it belongs
        service.session.store.record_run_heartbeat(run_id, 0.0, ALL_SHOWN)
    status = _status(service, row, about)
    return {
        "writer": pages.claim(run_id, page, fed, time.time() - row.started),
        "over": status.is_final,
        "output": {
            "output_type": "display_data",
            "data": mimebundle(status),
            "metadata": output_metadata(status),
        },
    }


def _status(service: SkyService, row: RunRow, about: dict[str, Any]) -> RunStatus:
    """Return the status line of a run as its kernel would show it."""
    from jupyter_sky.execution.clusters.cluster_records import describe_place
    from jupyter_sky.execution.display import RunStatus

    session = service.session
    cluster = session.store.cluster(row.cluster) if row.cluster else None
    ended = about["ended"]
    stage: Stage = about["stage"] or "running"
    if ended is not None:
        stage = _STAGES.get(about["status"]) or about["status"]
    return RunStatus(
        stage=stage,
        seconds=max(0.0, (ended or time.time()) - row.started),
        cluster=cluster.name if cluster else None,
        place=describe_place(cluster) if cluster else None,
        price=row.price,
        cell_usd=about["usd"] if row.nodes else None,
        notebook_usd=session.ledger.notebook_usd(row.notebook),
        notes=_notes(row, about),
        run_id=row.run_id,
        price_from=_price_origin(cluster),
        warning=about["warning"],
        boot=row.waited,
    )


def _notes(row: RunRow, about: dict[str, Any]) -> tuple[str, ...]:
    """Return the sentences below the status line of a run that has ended."""
    if about["ended"] is None:
        return ()
    from jupyter_sky.execution.cells.earlier_run import describe_outputs

    notes = [_("stopped {who}").format(who=_(row.stop))] if row.stop else []
    if about["status"] == "lost":
        unsent = _("lost: its kernel ended before it was sent to a cluster")
        notes.append(_("lost: its cluster ended before it did") if row.nodes else unsent)
    if about["status"] == "ok" and (left := describe_outputs(row)):
        notes.append(left)
    return tuple(notes)


def _price_origin(cluster: ClusterRow | None) -> str:
    from jupyter_sky.knowledge.catalog.price_origin import describe_origin

    return describe_origin(cluster.price_source, cluster.price_date).text if cluster else ""


class NotebookHandler(SkyHandler):
    """``GET notebook?path=``: the latest run of each of its cells."""

    @authorized
    async def get(self) -> None:
        """Answer for a notebook by its path below the server's root."""
        path = self.get_query_argument("path")
        # as the server names a kernel's notebook to it
        folder = self.kernel_manager.cwd_for_path(path)
        await self.answer(latest_runs, self.service, os.path.join(folder, Path(path).name))


class FollowHandler(SkyHandler):
    """Handler of ``POST runs/ID/follow``: the output that a page puts below a run's cell."""

    pages = PageClaims()

    @authorized
    async def post(self, run_id: str) -> None:
        """Take ``{"page", "fed"}``; answer ``{"writer", "over", "output"}``."""

        def work() -> dict[str, Any]:
            asked = self.body()
            page, fed = str(asked.get("page", "")), bool(asked.get("fed"))
            return follow_run(self.service, self.pages, run_id, page, fed)

        await self.answer(work)


HANDLERS = [("notebook", NotebookHandler), (r"runs/([^/]+)/follow", FollowHandler)]
