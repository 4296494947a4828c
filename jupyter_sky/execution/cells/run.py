"""Life of one cell: placement, sending, execution, monitoring, results, billing."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from jupyter_sky.base.errors import SkyCancelled, SkyError, SkyUsageError
from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.cell_recovery import CellRecovery
from jupyter_sky.execution.cells.failures import RemoteFailure, mending_line
from jupyter_sky.execution.cells.inputs import Replies, Sending, collect_inputs
from jupyter_sky.execution.cells.live_run import LiveRun, QueueWatch
from jupyter_sky.execution.cells.preparation import (
    await_data_engine,
    check_input_sizes,
    describe_decisions,
    engine_code,
    make_reporter,
    prepare_engines,
    run_on,
)
from jupyter_sky.execution.cells.relay import InertDisplay, Relay, mark_untrusted
from jupyter_sky.execution.cells.replay import replay_unfinished
from jupyter_sky.execution.cells.request import CellPosition, parse_ranks, with_settings
from jupyter_sky.execution.cells.results import ResultCollector, filter_payload, first_payload
from jupyter_sky.execution.cells.run_monitor import MonitorCallbacks, RunMonitor
from jupyter_sky.execution.cells.run_record import RunRecord, StatusLine, StopRequests, waiting_row
from jupyter_sky.execution.clusters.cluster import Placement
from jupyter_sky.execution.clusters.cluster_request import ClusterRequest, RunLimits
from jupyter_sky.execution.display import Display, Stage
from jupyter_sky.execution.files.cell_data import CellData
from jupyter_sky.machines.engines.client.waits import wait_callback

if TYPE_CHECKING:
    from jupyter_sky.execution.cells.session_state import SessionState
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.machines.engines.client.cell_execution import CellExecution


# -- Life of one cell: placement, sending, execution, monitoring, results, billing ----------------


class SkyRun(LiveRun):
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
        started = time.time()
        super().__init__(f"{int(started)}-{uuid.uuid4().hex[:8]}", options.name, origin, started)
        self.session, self.display = session, display
        self.options = with_settings(options, session.config)
        self.code = engine_code(code, self.options)
        self.trusted = session.config.trust and not options.untrusted
        self.values = session.namespace if values is None else values
        self.folder = origin.folder or session.folder
        self.cells: list[CellExecution] = []
        self.warning = ""
        self.recovery = CellRecovery(self.options, self.id, Path(session.config.data_dir))
        self.limits = RunLimits(self.options.timeout, self.options.max_cost)
        row = waiting_row(self.id, session, self.options, origin, code, self.started)
        self.record = RunRecord(session.store, row)
        self.status_line = StatusLine(display, self.id, self.record, session.notebook_usd)
        self.stops = StopRequests(self.record)
        self._queue = QueueWatch(self, session.live)
        self._transfers = make_reporter(
            session.config, self.options.yes, self.report, self.status_line.notes.append
        )
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
        return f"<{self.label}: {self.status} {self.record.describe_time()}{where}>"

    @property
    def status(self) -> Stage:
        """Stage of the run."""
        return self.status_line.stage

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
        config, folder, reporter = self.session.config, self.folder, self._transfers
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
        config, folder, reporter = self.session.config, self.folder, self._transfers
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
