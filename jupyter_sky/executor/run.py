"""Life of one cell: placement, sending, execution, monitoring, results, billing."""

from __future__ import annotations

import concurrent.futures
import math
import threading
import time
import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..catalog.price_origin import describe_origin
from ..cell_options.values import CellOptions
from ..engines.client.connection import wait_callback
from ..errors import (
    SkyBudget,
    SkyCancelled,
    SkyError,
    SkyStoreError,
    SkyTimeout,
    SkyUsageError,
)
from ..resources import format_run_time
from ..store.store import RunRow
from ..translation import _
from .advice import mending_line
from .cell_data import CellData
from .cell_recovery import CellRecovery
from .cluster_records import describe_place
from .display import Display, RunStatus, Stage
from .engine_queue import QueueWatch
from .failures import RemoteFailure
from .inputs import collect_inputs
from .payloads import filter_payload, first_payload
from .preparation import check_input_sizes, describe_decisions, prepare_engines
from .relay import Relay
from .replay import replay_unfinished
from .request import CellPosition, parse_ranks, with_settings
from .results import ResultCollector
from .run_monitor import TICK_SECONDS, MonitorCallbacks, RunMonitor
from .run_record import RunRecord, recorded_code
from .stop_requests import StopRequests
from .transfer_progress import TransferReporter
from .untrusted_output import InertDisplay, mark_untrusted
from .values import ClusterRequest, Placement, Replies, RunLimits, Sending

if TYPE_CHECKING:
    from ..engines.client.cell_execution import CellExecution
    from .cluster import ClusterHandle
    from .session import Session


class SkyRun:
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
        session: Session,
        code: str,
        options: CellOptions,
        display: Display,
        origin: CellPosition,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        self.session, self.code, self.display = session, code, display
        self.options = with_settings(options, session.config)
        self.origin = origin
        self.trusted = session.config.trust and not options.untrusted
        self.values = session.namespace if values is None else values
        self.id = f"{int(time.time())}-{uuid.uuid4().hex[:8]}"
        self.name = options.name
        self.status: Stage = "placing"
        self.started = time.time()
        self.cluster: ClusterHandle | None = None
        self.ranks: tuple[int, ...] = ()
        self.cells: list[CellExecution] = []
        self.detail, self.warning, self.notes = "", "", list[str]()
        self.recovery = CellRecovery(self.options, self.id, Path(session.config.data_dir))
        self.limits = RunLimits(self.options.timeout, self.options.max_cost)
        self.record = RunRecord(session.store, self._waiting_row())
        self.stops = StopRequests(self.record)
        self._queue = QueueWatch(self)
        self._relay: Relay | None = None
        self._shown_at = 0.0
        self._shown: RunStatus | None = None
        self._future: concurrent.futures.Future = concurrent.futures.Future()

    # -- for users -------------------------------------------------------------------------

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
        try:
            return self._future.result(timeout)
        except concurrent.futures.TimeoutError:
            if self._future.done():
                raise
            raise SkyTimeout(
                _("{label} is still {status} after {timeout:g} s").format(
                    label=self.label, status=self.status, timeout=timeout
                )
            ) from None

    def done(self) -> bool:
        """Return whether the run has ended, with or without success."""
        return self._future.done()

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

    def __await__(self) -> Any:
        import asyncio

        return asyncio.wrap_future(self._future).__await__()

    def __repr__(self) -> str:
        where = f" on {self.cluster.row.name}" if self.cluster else ""
        spent = format_run_time(*self.record.times(time.time()))
        return f"<{self.label}: {self.status} {spent}{where}>"

    @property
    def label(self) -> str:
        """Name of the run in messages."""
        return self.name or f"cell {self.origin.number}"

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
        config, folder, reporter = self.session.config, self.session.folder, self._reporter()
        check_input_sizes(sending, reporter)
        data = CellData(self.options, folder, config, reporter)
        placement, replies = self._run_on_machines(sending, data)
        self._settle_widgets()
        payloads = [filter_payload(reply.payload, self.trusted) for reply in replies]
        self.display.payload(first_payload(payloads))
        self.notes += describe_decisions(sending, replies)
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
                self.notes.append(self.recovery.take_loss(error))
                self._leave_lost_cluster()

    def _run_once(self, sending: Sending, data: CellData) -> tuple[Placement, Replies]:
        """Run the cell on a cluster until it has ended, or the cluster is lost."""
        config, folder, reporter = self.session.config, self.session.folder, self._reporter()
        placement = self._place(data)
        self.session.live[self.id] = self
        waiting = wait_callback.set(self._keep_status_alive)
        try:
            prepare_engines(sending, placement, folder, config.sync_packages, reporter)
            self.recovery.restore(placement, reporter.progress("saves"))
            data.bring(placement)
        finally:
            wait_callback.reset(waiting)
        namespace = self.session.namespace
        monitor = RunMonitor(placement, self.id, self.label, namespace, self._monitor_callbacks())
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
        connected = clusters.find_connected(options.resources, options.cluster)
        if connected is None:
            if note := clusters.second_cluster_note(options.resources, options.cluster):
                self.notes.append(note)
                self.show(self.status, force=True)  # before it costs anything
            # a launch takes its time, and can be seen and stopped from elsewhere
            self._write_record()
        request = ClusterRequest(
            options.resources,
            options.cluster,
            options.idle,
            until_up=options.retry_until_up,
            inputs=data.planned,
            areas=data.areas,
        )
        self.cluster, notes = self.recovery.obtain(
            request, lambda request: clusters.obtain(request, self.report)
        )
        self.notes += notes
        if self.cluster.awaits_replay:  # also where `%sky vars` has connected before
            self._replay_earlier(self.cluster)
        row = self.cluster.row
        self.limits.check_price(row)
        what = _("{label} was not started").format(label=self.label)
        if note := clusters.budget_monitor.check_start(row.price, what):
            self.notes.append(note)
        self.ranks = tuple(parse_ranks(options.on, row.nodes))
        self.cluster.await_engines(self.ranks)
        return Placement(self.cluster, self.ranks)

    def _replay_earlier(self, cluster: ClusterHandle) -> None:
        """Show what cells of earlier kernels have printed; wait for those that go on."""

        def wait(label: str) -> None:
            ahead = _("behind {cell}, which goes on from an earlier kernel").format(cell=label)
            self.report("queued", ahead)

        records, config = self.session.clusters.records, self.session.config
        self.notes += replay_unfinished(cluster, records, self.display, config, wait)
        cluster.awaits_replay = False  # a replay that was stopped is gone on with by the next cell

    def _finish_with_error(self, error: BaseException) -> None:
        """End in an error."""
        if self.stops.is_cancelled or isinstance(error, SkyCancelled):
            stage: Stage = "cancelled"
        elif isinstance(error, KeyboardInterrupt):
            stage = "interrupted"
            if self.session.is_kernel_ending():  # then it was interrupted first
                self.notes.append(self.stops.end_with_kernel())
        else:
            stage = "failed"
        if isinstance(error, RemoteFailure):
            error.is_shown = error.is_shown_by_engine and self.origin.is_outermost
        self._end(stage)
        if self._shown is not None or not isinstance(error, SkyUsageError):
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
        request["error_shown_by"] = "engine" if origin.is_outermost else "notebook"
        code = self.origin.number_lines(self.code)
        self.status, self._shown_at = "running", 0.0  # to be shown at once, and outputs below it
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
            self.report, self.notes.append, config.announce_mb * 1e6, refuse_bytes
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
            note=self.notes.append,
        )

    def _exceeded_limit(self) -> SkyError | None:
        """Return the error of a cell beyond its own limits or the day's budget."""
        assert self.cluster is not None
        monitor, price = self.session.clusters.budget_monitor, self.cluster.row.price
        if error := self.limits.exceeded(self.label, self.seconds, self.record.spent_usd()):
            self._hide_final_error()
            return error
        try:
            monitor.check_start(price, _("{label} was stopped").format(label=self.label))
            if price:
                self.notes += monitor.pop_notice()
        except SkyBudget as over:
            self._hide_final_error()
            return over
        except SkyStoreError:
            pass  # it is locked for a moment
        return None

    def _write_record(self) -> None:
        cluster = self.cluster.row.name if self.cluster else ""
        self.record.write(self.status, cluster, self.warning)

    def _waiting_row(self) -> RunRow:
        """Return the record of the run while it waits for a cluster."""
        options = self.options
        return RunRow(
            run_id=self.id,
            notebook=self.session.notebook,
            session=self.session.id,
            cell=self.origin.number,
            name=self.name,
            cluster="",
            code=recorded_code(self.code),
            price=None,
            nodes=0,
            started=self.started,
            ended=None,
            last_beat=self.started,
            status="waiting",
            shown=0,
            cell_id=self.origin.cell_id,
            stage=self.status,
            outputs=",".join([*(output.name for output in options.outputs), *options.files]),
        )

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
            self.notes.append(note)

    def _cancellation(self) -> SkyCancelled | None:
        error = self.stops.error(self.label)
        if error is not None:
            self._hide_final_error()
        return error

    def show(self, stage: Stage, detail: str = "", force: bool = False) -> None:
        """Show a stage in the status line, at most once a second while it does not change."""
        now = time.monotonic()
        if not force and stage == self.status and now - self._shown_at < TICK_SECONDS * 0.9:
            return
        self.status, self.detail, self._shown_at = stage, detail, now
        row = self.cluster.row if self.cluster else None
        if self.cluster is not None and (why := self.cluster.connection.down_reason()):
            detail = _("reconnecting: {why}").format(why=why)
        elif self.cluster is not None:
            detail = self.cluster.notices.describe(time.time()) or detail
        seconds, boot = self.record.times(time.time())
        self._shown = RunStatus(
            stage=stage,
            seconds=seconds,
            boot=boot,
            cluster=row.name if row else None,
            place=describe_place(row) if row else None,
            price=row.price if row else None,
            cell_usd=self.record.spent_usd() if row else None,
            notebook_usd=self.session.notebook_usd() if row else None,
            detail=detail,
            notes=tuple(self.notes),
            run_id=self.id,
            warning=self.warning if stage == "interrupting" else "",
            price_from=describe_origin(row.price_source, row.price_date).text if row else "",
        )
        self.display.status(self._shown)
        if self._relay is not None:
            self._relay.release()

    def _show_interrupting(self, warning: str) -> None:
        is_new, self.warning = warning != self.warning, warning
        self.show("interrupting", force=is_new)

    def _show_running(self) -> None:
        behind = self._queue.describe_ahead()
        self.show("queued" if behind else "running", behind)

    def _keep_status_alive(self) -> None:
        """Keep the status line alive while an engine is waited for before the cell itself."""
        behind = self._queue.describe_ahead()
        self.report("queued" if behind else "syncing", behind or self.detail)

    def _finish(self, stage: Stage) -> None:
        """Show the last state, and after it the remaining outputs."""
        self.show(stage, force=True)
        if self._relay is not None:
            self._relay.finish()
        if self.cluster is not None and self._shown is not None:
            self.cluster.idleness.remember(self.display, self._shown)
