"""Life of one cell: placement, sending, execution, monitoring, results, billing."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import math
import re
import shlex
import sys
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, MutableMapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from jupyter_sky.base.clouds.index import MANAGED
from jupyter_sky.base.concurrency import result_within
from jupyter_sky.base.errors import SkyCancelled, SkyError, SkyTransferError, SkyUsageError
from jupyter_sky.base.requests.cell_options.values import CellOptions, CellOutput
from jupyter_sky.base.requests.resources import format_run_time
from jupyter_sky.base.store.rows import run_label
from jupyter_sky.base.translation import N_, _
from jupyter_sky.clouds.launches.launch_support import runs_here
from jupyter_sky.execution.cells.cell_recovery import CellRecovery
from jupyter_sky.execution.cells.engine_queue import QueueWatch
from jupyter_sky.execution.cells.failures import RemoteFailure, rebuild_exception
from jupyter_sky.execution.cells.inputs import collect_inputs
from jupyter_sky.execution.cells.payloads import filter_payload, first_payload
from jupyter_sky.execution.cells.preparation import (
    check_input_sizes,
    describe_decisions,
    prepare_engines,
)
from jupyter_sky.execution.cells.relay import Relay
from jupyter_sky.execution.cells.replay import replay_unfinished
from jupyter_sky.execution.cells.request import CellPosition, parse_ranks, with_settings
from jupyter_sky.execution.cells.run_monitor import MonitorCallbacks, RunMonitor
from jupyter_sky.execution.cells.run_record import RunRecord, waiting_row
from jupyter_sky.execution.cells.sending import Replies, Reply, Sending
from jupyter_sky.execution.cells.untrusted_output import InertDisplay, mark_untrusted
from jupyter_sky.execution.clusters.cluster_records import describe_place
from jupyter_sky.execution.clusters.cluster_request import ClusterRequest, Placement, RunLimits
from jupyter_sky.execution.display import Display, RunStatus, Stage
from jupyter_sky.execution.files import transfer
from jupyter_sky.execution.files.cell_data import CellData
from jupyter_sky.execution.files.transfer import RemoteValue
from jupyter_sky.execution.files.transfer_progress import TransferReporter
from jupyter_sky.knowledge.catalog.price_origin import describe_origin
from jupyter_sky.machines.engines.client.waits import wait_callback
from jupyter_sky.machines.provisioner import Report

if TYPE_CHECKING:
    from jupyter_sky.execution.cells.session_state import SessionState
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.machines.engines.client.cell_execution import CellExecution
    from jupyter_sky.machines.engines.wire.messages import Content


# -- Result of a run that can be waited for -------------------------------------------------------


class PendingResult(ABC):
    """Result of a run: the value of its last expression, or its error."""

    def __init__(self) -> None:
        self._future: Future[Any] = Future()

    @property
    @abstractmethod
    def label(self) -> str:
        """Name of the run in messages."""

    @property
    @abstractmethod
    def status(self) -> str:
        """State of the run."""

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end and return the value of the last expression, or raise its error.

        Parameters
        ----------
        timeout
            Seconds to wait.

        Raises
        ------
        SkyTimeout
            It has not ended by then; it goes on.
        """
        return result_within(
            self._future,
            timeout,
            lambda: _("{label} is still {status} after {timeout:g} s").format(
                label=self.label, status=self.status, timeout=timeout
            ),
        )

    def done(self) -> bool:
        """Return whether the run has ended, with or without success."""
        return self._future.done()

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self._future).__await__()


# -- Life of one cell: placement, sending, execution, monitoring, results, billing ----------------


class SkyRun(PendingResult):
    """Run of a cell on a cluster, in the foreground or, with ``--bg``, in the background.

    Attributes
    ----------
    warning : str
        Why it goes on although it was stopped, and what is lost if it is stopped again.
    status : str
        ``placing``, ``booting``, ``syncing``, ``queued``, ``running``, then ``done``,
        ``failed``, ``interrupted`` or ``cancelled``.

    Examples
    --------
    >>> run = sky.run("train()", background=True)  # doctest: +SKIP
    >>> run.result()  # doctest: +SKIP
    """

    def __init__(
        self,
        session: SessionState,
        code: str,
        options: CellOptions,
        display: Display,
        origin: CellPosition,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.session, self.display = session, display
        self.options = with_settings(options, session.config)
        self.code = engine_code(code, self.options)
        self.origin = origin
        self.trusted = session.config.trust and not options.untrusted
        self.values = session.namespace if values is None else values
        self.name, self.started = options.name, time.time()
        self.folder = origin.folder or session.folder
        self.id = f"{int(self.started)}-{uuid.uuid4().hex[:8]}"
        self.cluster: ClusterHandle | None = None
        self.ranks: tuple[int, ...] = ()
        self.cells: list[CellExecution] = []
        self.warning = ""
        self.recovery = CellRecovery(self.options, self.id, Path(session.config.data_dir))
        self.limits = RunLimits(self.options.timeout, self.options.max_cost)
        row = waiting_row(self.id, session, self.options, origin, code, self.started)
        self.record = RunRecord(session.store, row)
        self.status_line = StatusLine(display, self.id, self.record, session.notebook_usd)
        self.stops = StopRequests(self.record)
        self._queue = QueueWatch(self, session.live)
        self._relay: Relay | None = None
        self._engine_page = ""

    # -- for users -------------------------------------------------------------------------

    def cancel(self) -> None:
        """Interrupt it.

        An engine that does not answer, for one in compiled code, goes on: `warning` says so after
        a few seconds, and what is lost if this is called again, which restarts the engine.
        """
        if not self.done():
            self.stops.cancel()

    def logs(self) -> str:
        """Return everything that it has printed so far, from the journal on the cluster."""
        return self.session.history.log_text(self.id)

    def __repr__(self) -> str:
        where = f" on {self.cluster.row.name}" if self.cluster else ""
        spent = format_run_time(*self.record.times(time.time()))
        return f"<{self.label}: {self.status} {spent}{where}>"

    @property
    def status(self) -> Stage:
        """Stage of the run."""
        return self.status_line.stage

    @property
    def label(self) -> str:
        """Name of the run in messages."""
        return run_label(self.name, self.origin.number)

    @property
    def seconds(self) -> float:
        """Seconds since it began, or from its begin to its end."""
        return (self.record.end_time or time.time()) - self.started

    # -- steps -----------------------------------------------------------------------------

    def execute(self) -> Any:
        """Run the cell from placement to result; return the value of the last expression."""
        try:
            value = self._execute()
        except BaseException as error:
            self._finish_with_error(error)
            raise
        self._future.set_result(value)
        return value

    def start(self) -> None:
        """Run the cell in a thread of its own."""

        def go() -> None:
            try:
                self.execute()
            except SkyCancelled:
                pass  # whoever cancelled it knows
            except BaseException as error:  # the future has it, too; it may never be asked
                if not (isinstance(error, RemoteFailure) and error.is_shown):
                    self._show_error(error)

        threading.Thread(target=go, name=f"sky-run-{self.label}", daemon=True).start()

    def _execute(self) -> Any:
        # what can fail here fails before any money is spent
        self.recovery.check(self.values)
        sending = collect_inputs(
            self.options, self.code, self.values, self.session.config, self.origin.history
        )
        config, folder, reporter = self.session.config, self.folder, self._reporter()
        check_input_sizes(sending, reporter)
        data = CellData(self.options, folder, config, reporter)
        placement, replies = self._run_on_machines(sending, data)
        self._settle_widgets()
        payloads = [filter_payload(reply.payload, self.trusted) for reply in replies]
        self.display.payload(first_payload(payloads))
        self.status_line.notes += describe_decisions(sending, replies)
        results = ResultCollector(
            placement, self.origin, self.label, self.session.namespace, self.trusted, reporter
        )
        with data.after_cell(self._show_uploading):
            value = results.collect(replies, self.options.outputs)
        self._end("done")
        self._finish("done")
        return value

    def _run_on_machines(self, sending: Sending, data: CellData) -> tuple[Placement, Replies]:
        """Run the cell, with ``--recover`` on one machine after the other until it has ended."""
        while True:
            try:
                return self._run_once(self.recovery.prepare(sending), data)
            except SkyError as error:
                self.status_line.notes.append(self.recovery.take_loss(error))
                self._leave_lost_cluster()

    def _run_once(self, sending: Sending, data: CellData) -> tuple[Placement, Replies]:
        """Run the cell on a cluster until it has ended, or the cluster is lost."""
        config, folder, reporter = self.session.config, self.folder, self._reporter()
        placement = self._place(data)
        self.session.live[self.id] = self
        waiting = wait_callback.set(self._keep_status_alive)
        try:
            with placement.cluster.connection.use.going_on(self.label):
                prepare_engines(sending, placement, folder, config.sync_packages, reporter)
                self.recovery.restore(placement, reporter.progress("saves"))
                data.bring(placement)
        finally:
            wait_callback.reset(waiting)
        names, callbacks = self.session.namespace, self._monitor_callbacks()
        monitor = RunMonitor(placement, self.id, self.label, names, callbacks)
        with monitor.count_interrupts():  # a cell that has been sent must be watched
            self._send(sending, placement)
        with self.recovery.fetching(placement):
            replies = monitor.wait_replies(self.cells)
            self.recovery.check_replies(replies)
            return placement, replies

    def _leave_lost_cluster(self) -> None:
        """Show what came from a cluster that is gone, and forget it."""
        if self._relay is not None:
            self._relay.finish()
        if self.cluster is not None:
            self.cluster.running.pop(self.id, None)
            self.recovery.leave(self.cluster.row, self.session.clusters)
        self.cluster, self.cells, self._relay = None, [], None
        self.show("placing", force=True)

    def _place(self, data: CellData) -> Placement:
        """Return the engines of the cell, on a cluster that is up or that is launched now."""
        clusters, options = self.session.clusters, self.options
        if clusters.find_connected(options.resources, options.cluster) is None:
            self._write_record()  # a launch takes its time, and is seen and stopped from elsewhere
        request = ClusterRequest.of_cell(options, data.planned, data.areas)
        self.cluster, notes = self.recovery.obtain(
            request, lambda request: clusters.obtain(request, self.report, self._announce)
        )
        self.status_line.notes += notes
        if self.cluster.awaits_replay:  # also where `%sky vars` has connected before
            self._replay_earlier(self.cluster)
        row = self.cluster.row
        self.limits.check_price(row)
        what = _("{label} was not started").format(label=self.label)
        if note := clusters.budget_monitor.check_start(row.price, what):
            self.status_line.notes.append(note)
        self.ranks = tuple(parse_ranks(run_on(options), row.nodes))
        with self.cluster.connection.use.going_on(self.label):
            self.cluster.await_engines(self.ranks)
            self._engine_page = await_data_engine(self.cluster, options, self.report)
        return Placement(self.cluster, self.ranks)

    def _announce(self, note: str) -> None:
        """Show a note at once: what it is about begins to cost."""
        self.status_line.notes.append(note)
        self.show(self.status, force=True)

    def _replay_earlier(self, cluster: ClusterHandle) -> None:
        """Show what cells of earlier kernels have printed; wait for those that go on."""

        def wait(label: str) -> None:
            ahead = _("behind {cell}, which goes on from an earlier kernel").format(cell=label)
            self.report("queued", ahead)

        records, config = self.session.clusters.records, self.session.config
        self.status_line.notes += replay_unfinished(cluster, records, self.display, config, wait)
        cluster.awaits_replay = False  # a replay that was stopped is gone on with by the next cell

    def _finish_with_error(self, error: BaseException) -> None:
        """End in an error."""
        if self.stops.is_cancelled or isinstance(error, SkyCancelled):
            stage: Stage = "cancelled"
        elif isinstance(error, KeyboardInterrupt):
            stage = "interrupted"
            if self.session.is_kernel_ending():  # then it was interrupted first
                self.status_line.notes.append(self.stops.end_with_kernel())
        else:
            stage = "failed"
        if isinstance(error, RemoteFailure):
            error.is_shown = error.is_shown_by_engine and self.origin.is_outermost
        self._end(stage)
        if self.status_line.shown is not None or not isinstance(error, SkyUsageError):
            self._finish(stage)  # a request that cannot be read is no run
        if not self._future.done():
            self._future.set_exception(error)

    def _send(self, sending: Sending, placement: Placement) -> None:
        cluster, session = placement.cluster, self.session
        link, engines = cluster.connection, cluster.connection.client.engines_by_rank
        cap = int(session.config.max_output_mb * 1e6)
        where = f"%sky logs {self.name or self.origin.number}"
        display = self.display
        if not self.trusted:
            mark_untrusted(session.store, self.id)
            display = InertDisplay(display, self.id)
        # without the run, whose value would be kept as long as threads of the cell may print
        advise = partial(mending_line, local_names=session.namespace, line=self.origin.line)
        self._relay = relay = Relay(
            display, placement.ranks, cap, where, self.origin.is_outermost, advise
        )
        cluster.running[self.id] = lambda: relay.shown
        session.variables.remember_cell(self.code)
        limit = self.limits.seconds(cluster.row.price)
        facts = {
            "run": self.id,
            "ranks": list(placement.ranks),
            "cell": self.origin.number,
            "notebook": session.notebook,
            "name": self.name,
            "limit": limit,
        }
        origin = self.origin
        request = sending.request(origin.number, session.id, origin.history, self.trusted)
        request["engine_page"] = self._engine_page
        request["error_shown_by"] = "engine" if origin.is_outermost else "notebook"
        code = self.origin.number_lines(self.code)
        self.status_line.enter("running")  # to be shown at once, and outputs below it
        self.record.begin(cluster.row, limit)
        if self.options.background:
            self.record.write("running")  # a process that follows this one asks for it by name
        # last, and nothing after it: the thread that sends needs the interpreter, too
        for rank in placement.ranks:
            engine = engines.get(rank, "")
            display.share_widgets(sending.models, engine, link.client)
            sink = relay.engine_receiver(rank, engine, link.client)
            self.cells.append(link.execute(rank, code, facts, request, sink))

    def _show_uploading(self) -> None:
        self.show("syncing", "uploading", force=True)

    def _settle_widgets(self) -> None:
        """Register the widgets that engines have made, before values that contain them come."""
        if self._relay is not None and self._relay.holds_widgets():
            self.show(self.status, force=True)  # and what waits for the status line after it
        self.display.settle_widgets()

    # -- callbacks of the steps ----------------------------------------------------------------

    def _reporter(self) -> TransferReporter:
        config = self.session.config
        refuse_bytes = math.inf if self.options.yes else config.refuse_gb * 1e9
        return TransferReporter(
            self.report, self.status_line.notes.append, config.announce_mb * 1e6, refuse_bytes
        )

    def _monitor_callbacks(self) -> MonitorCallbacks:
        return MonitorCallbacks(
            check_stop=self._check_stop_request,
            cancellation=self._cancellation,
            stop_requests=self.stops.count,
            remote_names=self.session.variables.remote_names,
            exceeded_limit=self._exceeded_limit,
            show_running=self._show_running,
            show_interrupting=self._show_interrupting,
            record=self._write_record,
            note=self.status_line.notes.append,
        )

    def _exceeded_limit(self) -> SkyError | None:
        """Return the error of a cell beyond its own limits or the day's budget."""
        assert self.cluster is not None
        monitor, price = self.session.clusters.budget_monitor, self.cluster.row.price
        what = _("{label} was stopped").format(label=self.label)
        error = self.limits.exceeded(self.label, self.seconds, self.record.spent_usd())
        error = error or monitor.stop_reason(price, what)
        if error is not None:
            self._hide_final_error()
        elif price:
            self.status_line.notes += monitor.pop_notice()
        return error

    def _write_record(self) -> None:
        cluster = self.cluster.row.name if self.cluster else ""
        self.record.write(self.status, cluster, self.warning)

    # -- the end -------------------------------------------------------------------------------

    def detach(self) -> None:
        """End here and now; on its cluster the cell goes on, for the next session to follow."""
        self.record.detach(self.status)
        error = SkyError(
            _("{label} goes on, but this notebook has closed its connection to the cluster").format(
                label=self.label
            ),
            hint=_("%load_ext jupyter_sky: the next %%sky cell shows the rest"),
        )
        for future in [f for cell in self.cells for f in (cell.reply, cell.output)]:
            if not future.done():
                future.set_exception(error)

    def _hide_final_error(self) -> None:
        """Do not show the interrupt of the engine, by which the cell is stopped."""
        if self._relay is not None:
            self._relay.hide_final_error()

    def _show_error(self, error: BaseException) -> None:
        render = getattr(error, "_render_traceback_", lambda: [f"{type(error).__name__}: {error}"])
        named = {"ename": type(error).__name__, "evalue": str(error)}
        self.display.send("error", {**named, "traceback": render()})

    def _end(self, stage: Stage) -> None:
        self.session.live.pop(self.id, None)
        if self.cluster is not None:
            self.cluster.running.pop(self.id, None)
        self.record.end(stage)
        self.recovery.forget()

    # -- showing -----------------------------------------------------------------------------

    def report(self, stage: str, detail: str) -> None:
        """Show what the cell is waiting for; raise SkyCancelled once it has been cancelled."""
        self._check_stop_request()
        if error := self._cancellation():
            raise error
        self.show(cast("Stage", stage), detail)
        self._write_record()

    def _check_stop_request(self) -> None:
        if note := self.stops.check():
            self.status_line.notes.append(note)

    def _cancellation(self) -> SkyCancelled | None:
        error = self.stops.error(self.label)
        if error is not None:
            self._hide_final_error()
        return error

    def show(self, stage: Stage, detail: str = "", force: bool = False) -> None:
        """Show a stage in the status line, and the outputs that wait for it."""
        is_shown = self.status_line.show(stage, self.cluster, detail, self.warning, force)
        if is_shown and self._relay is not None:
            self._relay.release()

    def _show_interrupting(self, warning: str) -> None:
        is_new, self.warning = warning != self.warning, warning
        self.show("interrupting", force=is_new)

    def _show_running(self) -> None:
        behind = self._queue.describe_ahead()
        progress = self._relay.progress if self._relay is not None else ""
        self.show("queued" if behind else "running", behind or progress)

    def _keep_status_alive(self) -> None:
        """Keep the status line alive while an engine is waited for before the cell itself."""
        behind = self._queue.describe_ahead()
        self.report("queued" if behind else "syncing", behind or self.status_line.detail)

    def _finish(self, stage: Stage) -> None:
        """Show the last state, and after it the remaining outputs."""
        self.show(stage, force=True)
        if self._relay is not None:
            self._relay.finish()
        if self.cluster is not None and self.status_line.shown is not None:
            self.cluster.idleness.remember(self.display, self.status_line.shown)


# -- Requests to stop a run: by its notebook, by other processes, and with its kernel -------------

ENDED_WITH_KERNEL = N_("with its kernel, which was restarted or shut down; cells with --bg go on")


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


# -- Status line of a run: its stage, place and cost, with notes for the user ---------------------

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


# -- Results of a cell in the notebook: outputs bound, errors raised, the value returned ----------

_RESULT = "the result"


@dataclass(frozen=True, slots=True)
class ResultCollector:
    """Collector of the results of one cell.

    Attributes
    ----------
    cell
        Position of the cell.
    label
        Name of the cell in messages.
    namespace
        Variables of the notebook, where outputs are bound.
    trusted
        Whether pickles of the cluster may be opened.
    """

    placement: Placement
    cell: CellPosition
    label: str
    namespace: MutableMapping[str, Any]
    trusted: bool
    reporter: TransferReporter

    def collect(self, replies: Replies, outputs: Sequence[CellOutput]) -> Any:
        """Bind ``-o`` names and return the last expression's value; a list by rank for several.

        Raises
        ------
        Exception
            The exception of the cell, of its own class.
        SkyCancelled
            The cell was taken back before it ran.
        SkyTransferError, SkyUsageError
            A value could not come; the others are bound.
        """
        for reply in replies:
            if reply.status in ("aborted", "killed"):
                raise SkyCancelled(_("{label} was cancelled").format(label=self.label))
            if reply.status != "ok":
                self._bind_made(replies, outputs)
                raise self._error(reply)
        self._bind_outputs(replies, outputs)
        values = [self._value(reply) for reply in replies]
        if len(values) == 1:
            return values[0]
        return None if all(value is None for value in values) else values

    def _error(self, reply: Reply) -> BaseException:
        if reply.refused is not None:
            return SkyTransferError(reply.refused)
        described = (reply.error.get("sky") or {}).get("error") or {}
        hint = mending_line(described, self.namespace, self.cell.line)
        return rebuild_exception(reply.error, reply.rank, self.namespace, hint)

    def _bind_outputs(self, replies: Replies, outputs: Sequence[CellOutput]) -> None:
        """Bind every name that can be bound, then raise the first error of the others."""
        failed: list[SkyError] = []
        for output in outputs:
            try:
                values = [self._output(reply, output) for reply in replies]
            except SkyError as error:
                failed.append(error)
                values = self._handles(replies, output)
            if values:
                self.namespace[output.name] = values[0] if len(values) == 1 else values
        if failed:
            raise failed[0]

    def _bind_made(self, replies: Replies, outputs: Sequence[CellOutput]) -> None:
        """Bind what a cell that failed had made on every engine, as far as it can be sent."""
        made = [each for each in outputs if all(each.name in reply.outputs for reply in replies)]
        with contextlib.suppress(SkyError):  # the error of the cell matters more
            self._bind_outputs(replies, made)

    def _handles(self, replies: Replies, output: CellOutput) -> list[RemoteValue]:
        """Return handles of values that cannot be sent, so that later cells there can use them."""
        cluster, name = self.placement.cluster, output.name
        described = [(reply.rank, reply.outputs[name]) for reply in replies]
        if not all("unpicklable" in each and "ref" in each for _, each in described):
            return []
        return [RemoteValue(cluster, rank, name, each, self.trusted) for rank, each in described]

    def _output(self, reply: Reply, output: CellOutput) -> Any:
        cluster, name, described = self.placement.cluster, output.name, reply.outputs[output.name]
        if described.get("missing"):
            raise SkyUsageError(
                _("-o {name}: the cell has not made a variable {name!r}").format(name=name),
                hint=_("what else it made is still on the cluster: %sky vars"),
            )
        if output.uri:
            from jupyter_sky.execution.files.stored_values import store_value

            reference = RemoteValue(cluster, reply.rank, name, described, self.trusted)
            place = self.placement, reply.rank
            kept = store_value(*place, output, described, self.trusted, self.reporter)
            del reference  # which lets the engine go of its own
            return kept
        if output.keep:
            return RemoteValue(cluster, reply.rank, name, described, self.trusted)
        try:
            self.reporter.announce(name, transfer.wire_size(described), "from")
        except SkyTransferError:
            transfer.release_packed(cluster, reply.rank, described)
            raise
        progress = self.reporter.progress(name)
        return transfer.receive_value(cluster, reply.rank, name, described, progress, self.trusted)

    def _value(self, reply: Reply) -> Any:
        cluster, rank, described = self.placement.cluster, reply.rank, reply.value
        if described is None:
            return None
        if "ref" not in described:
            try:
                return transfer.receive_value(
                    cluster, rank, _RESULT, described, trusted=self.trusted
                )
            except SkyTransferError:  # it stays there, as values that are not sent at all do
                described = cluster.connection.ask_engine(rank, "result", cell=self.cell.number)
        return RemoteValue(cluster, rank, _RESULT, described, self.trusted)


# -- Data engine of a cell: the code that it runs, its node, and the wait until Spark is ----------


def engine_code(code: str, options: CellOptions) -> str:
    """Return the code that engines run: of a cell of SQL, what runs its statement.

    Examples
    --------
    >>> engine_code("1 + 1", CellOptions())
    '1 + 1'
    """
    if not options.sql:
        return code
    from jupyter_sky.machines.services.sql import cell_code

    names = [output.name for output in options.outputs]
    return cell_code(code, names, [value.name for value in options.inputs])


def run_on(options: CellOptions) -> str | None:
    """Return the ranks on which a cell runs, as ``--on`` names them; None for all.

    Examples
    --------
    >>> run_on(CellOptions(engine="spark")), run_on(CellOptions())
    ('0', None)
    """
    # the driver of a data engine is on the head node
    return options.on or (None if options.engine is None else "0")


def await_data_engine(cluster: ClusterHandle, options: CellOptions, report: Report) -> str:
    """Wait until the data engine of a cell is ready, if it has one.

    Returns
    -------
    str
        Address of its web page on this machine; empty where it has none.

    Raises
    ------
    SkyError
        It cannot be started.
    """
    if options.engine is None:
        return ""
    from jupyter_sky.machines.services.requests import await_engine, check_client

    if runs_here(cluster.row.cloud):
        check_client(options.engine)
    if cluster.row.cloud in MANAGED:  # its session was waited for as it was launched
        if options.engine != "spark":
            raise SkyError(
                _("{name} is a session of {cloud}, without machines for --engine {engine}").format(
                    name=cluster.row.name, cloud=cluster.row.cloud, engine=options.engine
                ),
                hint=_("take another cluster: -c NAME"),
            )
        return ""
    ask = cluster.connection.ask_controller
    facts = await_engine(ask, options.engine, partial(report, "booting"))
    return page_link(cluster, facts)


def page_link(cluster: ClusterHandle, facts: Content) -> str:
    """Return the address of a data engine's web page on this machine; empty where it has none."""
    from jupyter_sky.machines.engines.node.service_orders import page_url

    port, token, path = facts.get("page", (0, "", ""))
    if not port:
        return ""
    here = cluster.tunnel.forward(port) if cluster.tunnel else port
    return page_url(here, token, path)


# -- Advice below a remote error: the line that would mend it -------------------------------------

_KNOWN_DISTRIBUTIONS = {
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "distutils": "setuptools",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "git": "gitpython",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "pkg_resources": "setuptools",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Distributions of modules that are named otherwise, for modules that are not installed here."""


def mending_line(described: Mapping[str, Any], local_names: Mapping[str, Any], line: str) -> str:
    """Return the line that would mend a remote error, or an empty string.

    Parameters
    ----------
    described
        The engine's description of the error.
    local_names
        The notebook's variables.
    line
        The cell's own ``%%sky`` line.
    """
    if ["IPython.core.error", "StdinNotImplementedError"] in described.get("classes", ()):
        return _("nobody can answer input() on a cluster: ask here, and send the answer with -i")
    said = (described.get(key) for key in ("name", "module", "filename"))
    name, module, filename = (each if isinstance(each, str) else "" for each in said)
    if module and all(part.isidentifier() for part in module.split(".")):
        return _advise_on_module(module, line)
    if name in local_names:
        return _line(
            _("{name} is a local variable: add -i {name}").format(name=name), line, "-i", name
        )
    return _advise_on_file(filename, line) if filename else ""


def _line(why: str, line: str, option: str, value: str) -> str:
    """Return a reason and the cell's line with one more option; nothing where it has it."""
    if value in re.split(r"[\s,]+", line):
        return ""
    return f"{why}\n    {f'%%sky {line}'.strip()} {option} {shlex.quote(value)}"


def _advise_on_module(module: str, line: str) -> str:
    top = module.partition(".")[0]
    if file := next((file for file in (f"{top}.py", top) if Path(file).exists()), None):
        return _line(
            _("{top} is in the notebook's folder: add --sync").format(top=top), line, "--sync", file
        )
    if top != module:  # the package itself was found
        return _advise_on_version(module, top, line)
    if top in sys.stdlib_module_names:
        return _("{top} belongs to Python, and the engine's Python was built without it").format(
            top=top
        )
    package = _distribution(top) or _KNOWN_DISTRIBUTIONS.get(top, top)
    why = _("{top} is not installed on the engine: add --pip {package}").format(
        top=top, package=package
    )
    return _line(why, line, "--pip", package)


def _advise_on_version(module: str, top: str, line: str) -> str:
    """Advise on a module that a package here has, and that on the engine has not."""
    from importlib import metadata

    package = _distribution(top)
    if not package or not _has_module(module):
        return ""
    version = metadata.version(package)
    why = _("{package} on the engine has no {module}, unlike {version} here: add --pip").format(
        package=package, module=module, version=version
    )
    return _line(why, line, "--pip", f"{package}=={version}")


def _has_module(module: str) -> bool:
    """Return whether a module is installed here, without an import of its packages."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return False
    folders = [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    for part in module.split(".")[1:]:
        found = [path for folder in folders for path in folder.glob(f"{part}*")]
        if not any(path.name.partition(".")[0] == part for path in found):
            return False
        folders = [path for path in found if path.name == part]
    return True


def _distribution(module: str) -> str:
    """Return the installed distribution of a module here, or nothing."""
    from jupyter_sky.machines.packages.plan import distributions_of

    return distributions_of([module]).get(module, "")


def _advise_on_file(filename: str, line: str) -> str:
    path = Path(filename)
    if path.is_absolute() or not path.exists():
        return ""
    if not path.resolve().is_relative_to(Path.cwd().resolve()):
        return _(
            "{filename} lies outside the notebook's folder, and only files below "
            "it are sent: copy it there, or read it here and send the value with -i"
        ).format(filename=filename)
    why = _("{filename} is in the notebook's folder, not on the cluster: add --sync").format(
        filename=filename
    )
    return _line(why, line, "--sync", filename)
