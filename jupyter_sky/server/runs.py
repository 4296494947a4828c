"""``runs/ID/...``: how a run is, what it has printed, its end."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SkyError
from .handler import NotFound, SkyHandler, StateConflict, authorized
from .replay import Entry, lines, outputs

if TYPE_CHECKING:
    from ..store import RunRow
    from .desk import SkyService

_ID = r"runs/([^/]+)"
STOP_REQUESTER = "in the browser"
STOP_RESPONSE_SECONDS = 5.0
"""A kernel that has not stopped its cell by then does not listen: the cluster is told."""
GRACE_SECONDS = 5.0


def get_run(desk: SkyService, run_id: str) -> dict[str, Any]:
    """Say how a run is."""
    return desk.describe(desk.run(run_id))


# -- stopping ----------------------------------------------------------------------------------


def request_stop(desk: SkyService, run_id: str) -> dict[str, Any]:
    """Ask the kernel of a run to stop it; where it is gone, or does not listen, its cluster."""
    row = desk.run(run_id)
    told = desk.describe(row)
    if told["ended"] is not None:
        raise StateConflict(f"run {run_id} has ended already: {told['status']}")
    desk.session.store.request_stop(run_id, STOP_REQUESTER)
    if row.is_monitored():
        wait = STOP_RESPONSE_SECONDS
    else:
        wait = 0.0
        _stop_on_cluster(desk, row, "interrupt")
    threading.Thread(
        target=_escalate_stop, args=(desk, row, wait), name=f"sky-stop-{run_id}", daemon=True
    ).start()
    return {"run": desk.describe(desk.run(run_id))}


def _escalate_stop(desk: SkyService, row: RunRow, wait: float) -> None:
    """Go on to stronger means while it runs."""
    with suppress(SkyError):
        if wait:
            if _stops_within(desk, row, wait):
                return
            _stop_on_cluster(desk, row, "interrupt")
        if not _stops_within(desk, row, GRACE_SECONDS):
            _stop_on_cluster(desk, row, "kill")
    desk.poller.reconcile_soon()


def _stops_within(desk: SkyService, row: RunRow, seconds: float) -> bool:
    """Wait for its end, or for its kernel to take the matter up."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        now = desk.session.store.run(row.run_id)
        if now is None or now.ended is not None or now.stage == "interrupting":
            return True
        if now.nodes and not _is_running_on_cluster(desk, now):
            return True
        time.sleep(0.25)
    return False


def _is_running_on_cluster(desk: SkyService, row: RunRow) -> bool:
    with suppress(SkyError):
        return row.run_id in desk.ask(desk.live_cluster(row.cluster), "vitals")["running"]
    return False


def _stop_on_cluster(desk: SkyService, row: RunRow, op: str) -> None:
    """Tell its cluster; what waited for one, or whose cluster is gone, has ended."""
    cluster = desk.session.store.cluster(row.cluster)
    if cluster is not None and cluster.state == "up" and row.nodes:
        why = f"it was stopped {STOP_REQUESTER}"
        desk.ask(cluster, op, run=row.run_id, ranks=list(range(cluster.nodes)), why=why)
    elif not row.is_monitored():
        desk.session.store.close_run_at_heartbeat(
            row.run_id, "cancelled" if not row.nodes else "lost"
        )


# -- what it has printed -----------------------------------------------------------------------


def read_journal(desk: SkyService, row: RunRow, since: int) -> tuple[list[Entry], int]:
    """Return entries of a run's journal from a number on, and the number of the next.

    A cluster on this machine keeps it in a file, which can be read while it is written; of others
    the head is asked, and the file comes home when they end.
    """
    cluster = desk.session.store.cluster(row.cluster) if row.nodes else None
    if cluster is not None and cluster.created <= row.started + 1.0:
        if cluster.cloud == "local" and "file" in cluster.connection:
            folder = Path(cluster.connection["file"]).parents[1] / "journal"
            if folder.is_dir():
                return desk.journals.read(folder / f"{row.run_id}.jsonl", since)
        elif cluster.state == "up":
            answer = desk.ask(cluster, "journal", run=row.run_id, start=since)
            return answer["entries"], answer["next"]
    file = desk.session._journal_file(row.run_id)
    if file is not None:
        return desk.journals.read(file, since)
    if row.ended is not None and row.nodes:
        raise NotFound(
            f"what run {row.run_id} has printed is no longer kept",
            hint="it is kept for a week after the end of its cluster",
        )
    return [], since


def get_outputs(desk: SkyService, run_id: str, since: int) -> dict[str, Any]:
    """Return what a run has printed, as outputs of a notebook."""
    from ..config import Sky
    from ..executor.untrusted import filter_entries, is_untrusted

    row = desk.run(run_id)  # before: what comes between the two is answered the next time
    entries, following = read_journal(desk, row, since)
    if not Sky.load().trust or is_untrusted(desk.session.store, run_id):
        entries = filter_entries(entries)
    found = outputs(entries)
    return {
        "outputs": found.shown,
        "cleared": found.cleared,
        "next": following,
        "run": desk.describe(row),
    }


def get_log(desk: SkyService, run_id: str, since: int) -> dict[str, Any]:
    """Return what a run has printed, line by line."""
    row = desk.run(run_id)
    entries, following = read_journal(desk, row, since)
    return {"lines": lines(entries), "next": following, "run": desk.describe(row)}


class RunHandler(SkyHandler):
    """One run."""

    @authorized
    async def get(self, run_id: str) -> None:
        """Say how it is."""
        await self.answer(get_run, self.desk, run_id)


class StopHandler(SkyHandler):
    """Its end."""

    @authorized
    async def post(self, run_id: str) -> None:
        """Ask for it; the state tells when it has come."""
        self.desk.poller.touch()
        await self.answer(request_stop, self.desk, run_id)


class OutputsHandler(SkyHandler):
    """Its outputs."""

    @authorized
    async def get(self, run_id: str) -> None:
        """Return those from ``?since=N`` on, N the ``next`` of the answer before."""
        self.desk.poller.touch()
        await self.answer(lambda: get_outputs(self.desk, run_id, self.number("since", 0)))


class RunLogHandler(SkyHandler):
    """Its log."""

    @authorized
    async def get(self, run_id: str) -> None:
        """Return its lines from ``?since=N`` on, N the ``next`` of the answer before."""
        self.desk.poller.touch()
        await self.answer(lambda: get_log(self.desk, run_id, self.number("since", 0)))


HANDLERS = [
    (rf"{_ID}", RunHandler),
    (rf"{_ID}/stop", StopHandler),
    (rf"{_ID}/outputs", OutputsHandler),
    (rf"{_ID}/log", RunLogHandler),
]
