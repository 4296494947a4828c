"""Record of a run in the store, and stop requests of other processes read from it."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import SkyError
from ..ledger.lines import run_usd
from ..remote import processes
from ..store.store import RunRow, Store
from .display import Stage

if TYPE_CHECKING:
    from .run import SkyRun

STOP_CHECK_SECONDS = 1.0
HEARTBEAT_SECONDS = 10.0
"""Period at which a run that waits for its cluster shows that its kernel lives."""
_STATUS: dict[str, str] = {"done": "ok", "failed": "error"}
"""How the store calls what has ended so; other ends are called the same."""


class RunRecord:
    """Store record of a run; written only once the run lasts longer than one tick.

    A cell that is over at once is written when it is over, together with what is written next:
    nothing waits for a disk for its sake.

    Attributes
    ----------
    row : RunRow or None
        How it is now; None while nothing is to be known of it.
    """

    def __init__(self, run: SkyRun, store: Store) -> None:
        self.run, self.store = run, store
        self.row: RunRow | None = None
        self._written: RunRow | None = None
        self._stop_checked_at = self._heartbeat_at = 0.0
        self._closed = False

    @property
    def end_time(self) -> float | None:
        """When the run ended, unix seconds."""
        return self.row.ended if self.row else None

    def spent_usd(self) -> float | None:
        """Return what the run has cost so far in USD; None when the price is unknown."""
        return run_usd(self.row, time.time()) if self.row and self.row.nodes else 0.0

    def begin(self) -> None:
        """Note that the run is sent to its nodes now: from here on it costs."""
        run, now = self.run, time.time()
        assert run.cluster is not None
        row = run.cluster.row
        self.row = replace(
            self.row or self._waiting(),
            cluster=row.name,
            price=row.price,
            nodes=row.nodes,
            started=now,
            last_beat=now,
            status="running",
            stage="running",
            allowed=run.time_limit(),
        )

    def write(self) -> None:
        """Write down how far it has come, if that is new."""
        if self._closed:
            return
        row = self.row or self._waiting()
        if not row.nodes and self.run.cluster is not None:
            row = replace(row, cluster=self.run.cluster.row.name)
        self.row = row = replace(row, stage=self.run.status)
        if row != self._written:
            put = self.store.update_run if self._written else self.store.begin_run
            self._written = row
            put(row)
            self._heartbeat_at = time.monotonic()
        elif time.monotonic() - self._heartbeat_at > HEARTBEAT_SECONDS:
            self._heartbeat_at = time.monotonic()
            self.store.record_run_heartbeat(row.run_id, time.time(), row.shown)

    def end(self, stage: Stage) -> None:
        """Write down how it has ended, unless it ended before anything took its time."""
        if self._closed or self.row is None:
            return
        self._closed = True
        status = _STATUS.get(stage, stage)
        self.row = replace(self.row, ended=time.time(), status=status, stage=stage)
        (self.store.update_run if self._written else self.store.insert_ended_run)(self.row)

    def detach(self) -> None:
        """Leave it to the next session, which finds it running; what was not sent has ended."""
        if self.row is not None and self.row.nodes:
            self.write()
        else:
            self.end("cancelled")
        self._closed = True

    def stop_requester(self) -> str:
        """Say who wants the run to stop, such as ``in the browser``; asks now and then."""
        now = time.monotonic()
        if self._written is None or now - self._stop_checked_at < STOP_CHECK_SECONDS:
            return ""
        self._stop_checked_at = now
        with contextlib.suppress(SkyError):  # a store that cannot be read is no reason to stop
            return self.store.stop_requester(self.run.id)
        return ""

    def _waiting(self) -> RunRow:
        run = self.run
        return RunRow(
            run_id=run.id,
            notebook=run.session.notebook,
            session=run.session.id,
            cell=run.origin.number,
            name=run.name,
            cluster="",
            code=run.code[:200],
            price=None,
            nodes=0,
            started=run.started,
            ended=None,
            last_beat=time.time(),
            status="waiting",
            shown=0,
            cell_id=run.origin.cell_id,
            stage=run.status,
            owner=json.dumps(processes.identity()),
        )
