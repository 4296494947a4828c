"""Record of a run in the store, and stop requests of other processes read from it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyCancelled, SkyError
from jupyter_sky.base.remote import processes
from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.base.requests.resources import format_run_time
from jupyter_sky.base.store.run_records import MAX_CODE_CHARACTERS
from jupyter_sky.base.store.store import ClusterRow, RunRow, Store
from jupyter_sky.base.translation import N_, _
from jupyter_sky.execution.cells.request import CellPosition
from jupyter_sky.execution.clusters.cluster_records import describe_place
from jupyter_sky.execution.display import Display, RunStatus, Stage
from jupyter_sky.knowledge.catalog.price_origin import describe_origin
from jupyter_sky.knowledge.ledger.lines import run_usd

if TYPE_CHECKING:
    from jupyter_sky.execution.cells.session_state import SessionState
    from jupyter_sky.execution.clusters.cluster import ClusterHandle


ENDED_WITH_KERNEL = N_("with its kernel, which was restarted or shut down; cells with --bg go on")
REPEAT_SECONDS = 0.9
"""Time for which a stage that does not change is not shown again."""

CODE_CHARACTERS = 200
"""Length of the code in a record, unless its first telling line comes later."""
STOP_CHECK_SECONDS = 1.0
HEARTBEAT_SECONDS = 10.0
"""Period at which a run that waits for its cluster shows that its kernel lives."""
_STATUS: dict[str, str] = {"done": "ok", "failed": "error"}
"""Status in the store of stages that have another name there."""


def recorded_code(code: str) -> str:
    """Return the beginning of a cell, up to its first line that is no import, comment or magic.

    By that line lists of runs name it; an editor finds the cell by the beginning.

    Examples
    --------
    >>> lines = [*["import time"] * 30, "train(10)", "plot()"]
    >>> recorded_code(chr(10).join(lines)).endswith("train(10)")
    True
    """
    end = 0
    for line in code.splitlines(keepends=True):
        end += len(line)
        if not re.match(r"\s*($|[%#!]|import\s|from\s|[\w,.\s]*\)?$)", line):
            break
    return code[: min(max(CODE_CHARACTERS, end), MAX_CODE_CHARACTERS)].rstrip("\n")


def digest_code(code: str) -> str:
    r"""Return the digest by which runs of the same code are known.

    Examples
    --------
    >>> digest_code("fit(X)\n") == digest_code("fit(X)") != digest_code("fit(Y)")
    True
    """
    return hashlib.blake2b(code.strip().encode(errors="surrogatepass"), digest_size=8).hexdigest()


def waiting_row(
    run_id: str,
    session: SessionState,
    options: CellOptions,
    origin: CellPosition,
    code: str,
    started: float,
) -> RunRow:
    """Return the record of a run while it waits for a cluster."""
    return RunRow(
        run_id=run_id,
        notebook=session.notebook,
        session=session.id,
        cell=origin.number,
        name=options.name,
        cluster="",
        code=recorded_code(code),
        price=None,
        nodes=0,
        started=started,
        ended=None,
        last_beat=started,
        status="waiting",
        shown=0,
        cell_id=origin.cell_id,
        stage="placing",
        outputs=",".join([*(output.name for output in options.outputs), *options.files]),
        code_digest=digest_code(code),
    )


class RunRecord:
    """Store record of a run; written only once the run lasts longer than one tick.

    A cell that is over at once is written when it is over, together with what is written next:
    nothing waits for a disk for its sake.

    Parameters
    ----------
    waiting
        Row of the run while it waits for a cluster.

    Attributes
    ----------
    row : RunRow or None
        Present state; None before the first `write` or `begin`.
    """

    def __init__(self, store: Store, waiting: RunRow) -> None:
        self.store, self._waiting = store, waiting
        self.row: RunRow | None = None
        self._written: RunRow | None = None
        self._stop_checked_at = self._heartbeat_at = 0.0
        self._stop_requests = ("", 0)
        self._closed = False
        self._usd_before: float | None = 0.0
        """USD of the machines that the run has lost."""

    @property
    def end_time(self) -> float | None:
        """Time of the run's end, unix seconds."""
        return self.row.ended if self.row else None

    def describe_time(self) -> str:
        """Return how long it has waited and run, as text."""
        return format_run_time(*self.times(time.time()))

    def times(self, now: float) -> tuple[float, float]:
        """Return how long the run has taken since it was sent, and how long before, in seconds.

        One that was not sent has only waited: that is then the first of the two.
        """
        row = self.row or self._waiting
        return max(0.0, (row.ended or now) - row.started), row.waited

    def spent_usd(self) -> float | None:
        """Return the cost of the run so far in USD; None when the price is unknown."""
        now = run_usd(self.row, time.time()) if self.row and self.row.nodes else 0.0
        return None if now is None or self._usd_before is None else self._usd_before + now

    def begin(self, cluster: ClusterRow, limit: float | None) -> None:
        """Note that the run is sent to its nodes now: from here on it costs.

        One that others have seen waiting is written at once: if its kernel is killed when the cell
        has just been sent, they know that it goes on.

        Parameters
        ----------
        limit
            Seconds that the run may take; None without a limit.
        """
        self._usd_before = self.spent_usd()
        now, row = time.time(), self.row or self._begun()
        self.row = replace(
            row,
            cluster=cluster.name,
            price=cluster.price,
            nodes=cluster.nodes,
            started=now,
            waited=max(0.0, now - self._waiting.started),
            last_beat=now,
            status="running",
            stage="running",
            allowed=limit,
        )
        if self._written is not None:
            self.write("running")

    def write(self, stage: Stage, cluster: str = "", warning: str = "") -> None:
        """Write the stage of the run, its cluster, and why it does not stop, if that is new."""
        if self._closed:
            return
        row = self.row or self._begun()
        if not row.nodes and cluster:
            row = replace(row, cluster=cluster)
        self.row = row = replace(row, stage=stage, warning=warning)
        if row != self._written:
            put = self.store.update_run if self._written else self.store.begin_run
            self._written = row
            put(row)
            self._heartbeat_at = time.monotonic()
        elif time.monotonic() - self._heartbeat_at > HEARTBEAT_SECONDS:
            self._heartbeat_at = time.monotonic()
            self.store.record_run_heartbeat(row.run_id, time.time(), row.shown)

    def note_stop(self, who: str) -> None:
        """Write why the run is stopped, for front ends that show its end."""
        if self._written is not None:
            with contextlib.suppress(SkyError):
                self.store.request_stop(self._waiting.run_id, who)

    def end(self, stage: Stage) -> None:
        """Write the end of the run, unless it ended before anything took its time."""
        if self._closed or self.row is None:
            return
        self._closed = True
        status = _STATUS.get(stage, stage)
        # its values have been brought, or there are none
        self.row = replace(self.row, ended=time.time(), status=status, stage=stage, outputs="")
        (self.store.update_run if self._written else self.store.insert_ended_run)(self.row)

    def detach(self, stage: Stage) -> None:
        """Leave the run to the next session, which finds it running; end one that was not sent."""
        if self.row is not None and self.row.nodes:
            self.write(stage)
        else:
            self.end("cancelled")
        self._closed = True

    def stop_requests(self) -> tuple[str, int]:
        """Return the latest author of stop requests, such as ``in the browser``, and their number.

        It asks now and then.
        """
        now = time.monotonic()
        if self._written is not None and now - self._stop_checked_at >= STOP_CHECK_SECONDS:
            self._stop_checked_at = now
            with contextlib.suppress(SkyError):  # a store that cannot be read is no reason to stop
                self._stop_requests = self.store.stop_requests(self._waiting.run_id)
        return self._stop_requests

    def _begun(self) -> RunRow:
        """Return the row of the waiting run, with the owner that keeps it alive."""
        owner = json.dumps(processes.identity())
        return replace(self._waiting, last_beat=time.time(), owner=owner)


class StopRequests:
    """Requests to stop one run, other than interrupts of its kernel.

    Parameters
    ----------
    record
        Record of the run, in which other processes request its stop.
    """

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._cancelled = threading.Event()
        self._cancels, self._requester = 0, ""

    @property
    def is_cancelled(self) -> bool:
        """Whether the run is to stop."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Request a stop in this process."""
        self._cancels += 1
        self._cancelled.set()

    def count(self) -> int:
        """Return how many requests there were."""
        return self._cancels + self._record.stop_requests()[1]

    def check(self) -> str:
        """Take note of a request of another process; return a note on the first one."""
        requester = self._record.stop_requests()[0]
        if not requester or self.is_cancelled:
            return ""
        self._requester = requester
        self._cancelled.set()
        return _("stopped {who}").format(who=requester)

    def end_with_kernel(self) -> str:
        """Record that the run stops because its kernel ends; return a note on that."""
        self._record.note_stop(ENDED_WITH_KERNEL)
        return _("stopped {who}").format(who=_(ENDED_WITH_KERNEL))

    def error(self, label: str) -> SkyCancelled | None:
        """Return the error of a run that is to stop, with the author; None otherwise."""
        if not self.is_cancelled:
            return None
        how = f"stopped {self._requester}" if self._requester else "cancelled"
        return SkyCancelled(_("{label} was {how}").format(label=label, how=how))


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
