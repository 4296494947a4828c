"""``runs/ID/...``: state, output, log and stop of a run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.launch_support import runs_here
from jupyter_sky.execution.cells.output_area import Entry, OutputArea
from jupyter_sky.interfaces.server.handler import SkyHandler, authorized
from jupyter_sky.interfaces.server.run_output import lines
from jupyter_sky.interfaces.server.service import NotFound, StateConflict
from jupyter_sky.machines.engines.wire.controller_requests import (
    Interrupt,
    Kill,
    ListEngines,
    ReadJournal,
    ReadMetrics,
)

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import ClusterRow, RunRow
    from jupyter_sky.execution.display import RunStatus, Stage
    from jupyter_sky.interfaces.server.service import SkyService
    from jupyter_sky.workflows.pipelines.run.pipeline_run import PipelineRun


_ID = r"runs/([^/]+)"
STOP_REQUESTER = "in the browser"
STOP_RESPONSE_SECONDS = 5.0
"""Time after which the cluster is asked to stop a cell, when its kernel has not done so."""


def get_run(service: SkyService, run_id: str) -> dict[str, Any]:
    """Return the state of a run."""
    return service.describe(service.run(run_id))


# -- stopping ----------------------------------------------------------------------------------


def request_stop(service: SkyService, run_id: str, restart: bool) -> dict[str, Any]:
    """Request a stop from the kernel of a run, or from its cluster if no kernel answers.

    Parameters
    ----------
    restart
        Whether engines that do not answer are to be restarted, as the user has seen the warning of
        what is lost; without it, a request after the warning changes nothing.
    """
    row = service.run(run_id)
    told = service.describe(row)
    if told["ended"] is not None:
        raise StateConflict(
            _("run {run_id} has ended already: {told}").format(run_id=run_id, told=told["status"])
        )
    if row.warning and not restart:
        return {"run": told}
    service.session.store.request_stop(run_id, STOP_REQUESTER)
    if not row.is_monitored():
        _stop_on_cluster(service, row)
    threading.Thread(
        target=_await_stop, args=(service, row), name=f"sky-stop-{run_id}", daemon=True
    ).start()
    return {"run": service.describe(service.run(run_id))}


def _await_stop(service: SkyService, row: RunRow) -> None:
    """Stop a run on its cluster if its kernel does not; warn where an engine does not answer."""
    from jupyter_sky.execution.cells.run_monitor import ANSWER_SECONDS, describe_loss

    with suppress(SkyError):
        if row.is_monitored():
            if _stops_within(service, row, STOP_RESPONSE_SECONDS):
                return
            _stop_on_cluster(service, row)
        if not _stops_within(service, row, ANSWER_SECONDS):
            ranks = _running_ranks(service, row)
            service.session.store.warn_run(row.run_id, describe_loss(ranks))
    service.poller.reconcile_soon()


def _stops_within(service: SkyService, row: RunRow, seconds: float) -> bool:
    """Return whether a run ends, or its kernel begins to stop it, within some seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        now = service.session.store.run(row.run_id)
        if now is None or now.ended is not None or now.stage == "interrupting":
            return True
        if now.nodes and not _is_running_on_cluster(service, now):
            return True
        time.sleep(0.25)
    return False


def _is_running_on_cluster(service: SkyService, row: RunRow) -> bool:
    with suppress(SkyError):
        return row.run_id in service.ask(service.live_cluster(row.cluster), ReadMetrics()).running
    return False


def _running_ranks(service: SkyService, row: RunRow) -> list[int]:
    """Return the ranks of the engines that execute a run, without those where it waits."""
    engines = service.ask(service.live_cluster(row.cluster), ListEngines()).engines
    return [engine["rank"] for engine in engines if engine["running"] == row.run_id]


def _stop_on_cluster(service: SkyService, row: RunRow) -> None:
    """Interrupt a run on its cluster, or kill its engines if its user was warned of that.

    The row of a run that has no cluster and no kernel is closed.
    """
    cluster = service.session.store.cluster(row.cluster)
    if cluster is not None and cluster.state == "up" and row.nodes:
        why = _("it was stopped {stop_requester}").format(stop_requester=STOP_REQUESTER)
        ranks = list(range(cluster.nodes))
        if row.warning:
            service.ask(cluster, Kill(row.run_id, ranks, why))
        else:
            service.ask(cluster, Interrupt(row.run_id, ranks))
    elif not row.is_monitored():
        service.session.store.close_run_at_heartbeat(
            row.run_id, "cancelled" if not row.nodes else "lost"
        )


# -- what it has printed -----------------------------------------------------------------------


def read_journal(service: SkyService, row: RunRow, since: int) -> tuple[list[Entry], int]:
    """Return entries of a run's journal from a number on, and the number of the next.

    A cluster on this machine keeps it in a file, which can be read while it is written; of others
    the controller is asked, and the file comes home when they end.
    """
    cluster = service.session.store.cluster(row.cluster) if row.nodes else None
    if cluster is not None and cluster.created <= row.started + 1.0:
        if runs_here(cluster.cloud) and "file" in cluster.connection:
            folder = Path(cluster.connection["file"]).parents[1] / "journal"
            if folder.is_dir():
                return service.journals.read(folder / f"{row.run_id}.jsonl", since)
        elif cluster.state == "up":
            answer = service.ask(cluster, ReadJournal(row.run_id, since))
            return answer.entries, answer.next
    file = service.session.history.journal_file(row.run_id)
    if file is not None:
        return service.journals.read(file, since)
    if row.ended is not None and row.nodes:
        raise NotFound(
            _("what run {run_id} has printed is no longer kept").format(run_id=row.run_id),
            hint=_("it is kept for a week after the end of its cluster"),
        )
    return [], since


def get_outputs(service: SkyService, run_id: str, since: int) -> dict[str, Any]:
    """Return the output of a run, as outputs of a notebook."""
    from jupyter_sky.base.settings.settings import Sky
    from jupyter_sky.execution.cells.relay import filter_entries, is_untrusted

    row = service.run(run_id)  # before: what comes between the two is answered the next time
    entries, following = read_journal(service, row, since)
    if not Sky.load().trust or is_untrusted(service.session.store, run_id):
        entries = filter_entries(entries)
    found = OutputArea.of(entries)
    return {
        "outputs": found.shown,
        "cleared": found.cleared,
        "next": following,
        "run": service.describe(row),
    }


def get_log(service: SkyService, run_id: str, since: int) -> dict[str, Any]:
    """Return the output of a run, line by line."""
    row = service.run(run_id)
    entries, following = read_journal(service, row, since)
    return {"lines": lines(entries), "next": following, "run": service.describe(row)}


class RunHandler(SkyHandler):
    """Handler of the state of a run."""

    @authorized
    async def get(self, run_id: str) -> None:
        """Return the state."""
        await self.answer(get_run, self.service, run_id)


class StopHandler(SkyHandler):
    """Handler that stops a run."""

    @authorized
    async def post(self, run_id: str) -> None:
        """Take ``{"restart"}`` and request the stop; the state tells when the run has ended."""
        self.service.poller.touch()
        await self.answer(
            lambda: request_stop(self.service, run_id, self.body().get("restart") is True)
        )


class OutputsHandler(SkyHandler):
    """Handler of the outputs of a run."""

    @authorized
    async def get(self, run_id: str) -> None:
        """Return those from ``?since=N`` on, N the ``next`` of the answer before."""
        self.service.poller.touch()
        await self.answer(lambda: get_outputs(self.service, run_id, self.number("since", 0)))


class RunLogHandler(SkyHandler):
    """Handler of the log of a run."""

    @authorized
    async def get(self, run_id: str) -> None:
        """Return its lines from ``?since=N`` on, N the ``next`` of the answer before."""
        self.service.poller.touch()
        await self.answer(lambda: get_log(self.service, run_id, self.number("since", 0)))


# -- ``pipelines-of?path=``: the newest run of a notebook as a graph, with the state of each ------


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


# -- Runs in their notebooks: runs that a page follows, and the outputs that it puts into ---------

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


HANDLERS = [
    (rf"{_ID}", RunHandler),
    (rf"{_ID}/stop", StopHandler),
    (rf"{_ID}/outputs", OutputsHandler),
    (rf"{_ID}/log", RunLogHandler),
    ("pipelines-of", CellStatesHandler),
    ("notebook", NotebookHandler),
    (r"runs/([^/]+)/follow", FollowHandler),
]
