"""``runs/ID/...``: state, output, log and stop of a run."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.launch_support import runs_here
from jupyter_sky.execution.cells.output_area import Entry, OutputArea
from jupyter_sky.interfaces.server.handler import SkyHandler, authorized
from jupyter_sky.interfaces.server.run_output import lines
from jupyter_sky.interfaces.server.service import NotFound, StateConflict

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import RunRow
    from jupyter_sky.interfaces.server.service import SkyService

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
        return row.run_id in service.ask(service.live_cluster(row.cluster), "metrics")["running"]
    return False


def _running_ranks(service: SkyService, row: RunRow) -> list[int]:
    """Return the ranks of the engines that execute a run, without those where it waits."""
    engines = service.ask(service.live_cluster(row.cluster), "engines")["engines"]
    return [engine["rank"] for engine in engines if engine["running"] == row.run_id]


def _stop_on_cluster(service: SkyService, row: RunRow) -> None:
    """Interrupt a run on its cluster, or kill its engines if its user was warned of that.

    The row of a run that has no cluster and no kernel is closed.
    """
    op = "kill" if row.warning else "interrupt"
    cluster = service.session.store.cluster(row.cluster)
    if cluster is not None and cluster.state == "up" and row.nodes:
        why = _("it was stopped {stop_requester}").format(stop_requester=STOP_REQUESTER)
        service.ask(cluster, op, run=row.run_id, ranks=list(range(cluster.nodes)), why=why)
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
            answer = service.ask(cluster, "journal", run=row.run_id, start=since)
            return answer["entries"], answer["next"]
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
    from jupyter_sky.execution.cells.untrusted_output import filter_entries, is_untrusted

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


HANDLERS = [
    (rf"{_ID}", RunHandler),
    (rf"{_ID}/stop", StopHandler),
    (rf"{_ID}/outputs", OutputsHandler),
    (rf"{_ID}/log", RunLogHandler),
]
