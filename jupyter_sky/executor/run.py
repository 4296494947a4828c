"""Life of one cell: placement, sending, execution, monitoring, results, billing."""

from __future__ import annotations

import concurrent.futures
import threading
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..cell_options.values import CellOptions
from ..engines.client.connection import wait_callback
from ..errors import SkyBudget, SkyCancelled, SkyError, SkyTimeout
from ..resources import format_duration
from .display import Display, RunStatus, Stage
from .inputs import PackedInputs, collect_inputs
from .preparation import check_input_sizes, prepare_engines
from .relay import Relay
from .request import CellPosition, parse_ranks, with_settings
from .results import collect_results
from .run_monitor import TICK_SECONDS, RunMonitor
from .run_record import RunRecord
from .untrusted_output import InertDisplay, mark_untrusted

if TYPE_CHECKING:
    from ..engines.client.cell_execution import CellExecution
    from .clusters import ClusterHandle
    from .session import Session


class SkyRun:
    """A cell on a cluster: what ``--bg`` returns, and what a cell in the foreground is inside.

    Attributes
    ----------
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
        self.ranks: list[int] = []
        self.cells: list[CellExecution] = []
        self.detail, self.notes = "", list[str]()
        self.cancelled = threading.Event()
        self.stopped_by = ""
        self.record = RunRecord(self, session.store)
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
            raise SkyTimeout(f"{self.label} is still {self.status} after {timeout:g} s") from None

    def done(self) -> bool:
        """Whether it has ended, one way or another."""
        return self._future.done()

    def cancel(self) -> None:
        """Interrupt it; an engine that does not listen is killed after a few seconds."""
        if not self.done():
            self.cancelled.set()

    def logs(self) -> str:
        """Return everything that it has printed so far, from the journal on the cluster."""
        return self.session.log_text(self.id)

    def __await__(self) -> Any:
        import asyncio

        return asyncio.wrap_future(self._future).__await__()

    def __repr__(self) -> str:
        where = f" on {self.cluster.row.name}" if self.cluster else ""
        spent = format_duration(self.seconds)
        return f"<{self.label}: {self.status} {spent}{where}>"

    @property
    def label(self) -> str:
        """How it is called in messages."""
        return self.name or f"cell {self.origin.number}"

    @property
    def seconds(self) -> float:
        """Seconds since it began, or that it took."""
        return (self.record.end_time or time.time()) - self.started

    # -- the way of a cell -----------------------------------------------------------------

    def execute(self) -> Any:
        """Go all the way; return the value of the last expression."""
        try:
            value = self._execute()
        except BaseException as error:
            self._finish_with_error(error)
            raise
        self._future.set_result(value)
        return value

    def start(self) -> None:
        """Go all the way in a thread of its own."""

        def go() -> None:
            try:
                self.execute()
            except SkyCancelled:
                pass  # somebody knows
            except BaseException as error:  # in the future, for whoever asks; here for who does not
                self._show_error(error)

        threading.Thread(target=go, name=f"sky-run-{self.label}", daemon=True).start()

    def _execute(self) -> Any:
        # what can fail here fails before any money is spent
        sending = collect_inputs(self.options, self.code, self.values, self.session.config)
        check_input_sizes(self, sending)
        if (
            self.session.clusters.find_connected(self.options.resources, self.options.cluster)
            is None
        ):
            self.record.write()  # it takes its time, and can be seen and stopped from elsewhere
        self.cluster, notes = self.session.clusters.obtain(
            self.options.resources,
            self.options.cluster,
            self.options.idle,
            self.report,
            self.options.retry_until_up,
        )
        self.notes += notes
        self.session.replay_runs(self.cluster, self.notes, self.display)
        self._check_price()
        self.ranks = parse_ranks(self.options.on, self.cluster.row.nodes)
        self.cluster.await_engines(self.ranks)
        self.session.live[self.id] = self
        waiting = wait_callback.set(self._keep_status_alive)
        try:
            prepare_engines(self, sending)
        finally:
            wait_callback.reset(waiting)
        watch = RunMonitor(self)
        with watch.count_interrupts():  # a cell that has been sent must be watched
            self._send(sending)
        value = collect_results(self, watch.replies())
        self._end("done")
        self._finish("done")
        return value

    def _finish_with_error(self, error: BaseException) -> None:
        """End in an error."""
        if self.cancelled.is_set() or isinstance(error, SkyCancelled):
            stage: Stage = "cancelled"
        elif isinstance(error, KeyboardInterrupt):
            stage = "interrupted"
        else:
            stage = "failed"
        self._end(stage)
        self._finish(stage)
        if not self._future.done():
            self._future.set_exception(error)

    def _send(self, sending: PackedInputs) -> None:
        assert self.cluster is not None
        link, engines = self.cluster.connection, self.cluster.connection.client.engines_by_rank
        cap = int(self.session.config.max_output_mb * 1e6)
        where = f"%sky logs {self.name or self.origin.number}"
        display = self.display
        if not self.trusted:
            mark_untrusted(self.session.store, self.id)
            display = InertDisplay(display, self.id)
        self._relay = relay = Relay(display, self.ranks, cap, where)
        self.cluster.running[self.id] = lambda: relay.shown
        self.session.codes.append(self.code)
        facts = {
            "run": self.id,
            "ranks": self.ranks,
            "cell": self.origin.number,
            "notebook": self.session.notebook,
            "name": self.name,
            "limit": self.time_limit(),
        }
        request = {
            "cell": self.origin.number,
            "inputs": sending.inline,
            "outputs": [[output.name, output.keep] for output in self.options.outputs],
            "env": sending.env,
            "as_data": not self.trusted,
        }
        code = self.origin.number_lines(self.code)
        self.status, self._shown_at = "running", 0.0  # to be shown at once, and outputs below it
        self.record.begin()
        # last, and nothing after it: the thread that sends needs the interpreter, too
        for rank in self.ranks:
            sink = relay.engine_receiver(rank, engines.get(rank, ""), link.client)
            self.cells.append(link.execute(rank, code, facts, request, sink))

    # -- limits and account ------------------------------------------------------------------

    def _check_price(self) -> None:
        assert self.cluster is not None
        price, most = self.cluster.row.price, self.options.max_cost
        if most is not None and price is None:
            raise SkyBudget(
                f"--max-cost {most:g}: the price of {self.cluster.row.instance_type} is not known"
            )
        if note := self.session.clusters.budget_monitor.check_start(
            price, f"{self.label} was not started"
        ):
            self.notes.append(note)

    def time_limit(self) -> float | None:
        """Return the most seconds that time and money leave the cell; its end is enforced then."""
        assert self.cluster is not None
        price, most = self.cluster.row.price, self.options.max_cost
        by_money = most / price * 3600 if most is not None and price else None
        limits = [limit for limit in (self.options.timeout, by_money) if limit is not None]
        return min(limits, default=None)

    def detach(self) -> None:
        """End here and now; on its cluster the cell goes on, for the next session to follow."""
        self.record.detach()
        error = SkyError(
            f"{self.label} goes on, but this notebook has closed its connection to the cluster",
            hint="%load_ext jupyter_sky: the next %%sky cell shows the rest",
        )
        for future in [f for cell in self.cells for f in (cell.reply, cell.output)]:
            if not future.done():
                future.set_exception(error)

    def _show_error(self, error: BaseException) -> None:
        render = getattr(error, "_render_traceback_", lambda: [f"{type(error).__name__}: {error}"])
        named = {"ename": type(error).__name__, "evalue": str(error)}
        self.display.send("error", {**named, "traceback": render()})

    def _end(self, stage: Stage) -> None:
        self.session.live.pop(self.id, None)
        if self.cluster is not None:
            self.cluster.running.pop(self.id, None)
        self.record.end(stage)

    # -- showing -----------------------------------------------------------------------------

    def report(self, stage: str, detail: str) -> None:
        """Say what the cell is waiting for; raise SkyCancelled once it has been cancelled."""
        self.check_stop_request()
        if self.cancelled.is_set():
            raise self.cancelled_error()
        self.show(stage, detail)  # type: ignore[arg-type]
        self.record.write()

    def check_stop_request(self) -> None:
        """Look whether another process wants it to stop."""
        if not self.cancelled.is_set() and (who := self.record.stop_requester()):
            self.stopped_by = who
            self.notes.append(f"stopped {who}")
            self.cancelled.set()

    def cancelled_error(self) -> SkyCancelled:
        """Return the error of a cell that was cancelled, with who did it."""
        how = f"stopped {self.stopped_by}" if self.stopped_by else "cancelled"
        return SkyCancelled(f"{self.label} was {how}")

    def show(self, stage: Stage, detail: str = "", force: bool = False) -> None:
        """Show a stage in the status line, at most once a second while it does not change."""
        now = time.monotonic()
        if not force and stage == self.status and now - self._shown_at < TICK_SECONDS * 0.9:
            return
        self.status, self.detail, self._shown_at = stage, detail, now
        row = self.cluster.row if self.cluster else None
        if self.cluster is not None and (why := self.cluster.connection.down_reason()):
            detail = f"reconnecting: {why}"
        self._shown = RunStatus(
            stage=stage,
            seconds=self.seconds,
            cluster=row.name if row else None,
            place=self.session.describe_place(row) if row else None,
            price=row.price if row else None,
            cell_usd=self.record.spent_usd() if row else None,
            notebook_usd=self.session.notebook_usd() if row else None,
            detail=detail,
            notes=tuple(self.notes),
            run_id=self.id,
            price_from=f"{row.price_source} {row.price_date}".strip() if row else "",
        )
        self.display.status(self._shown)
        if self._relay is not None:
            self._relay.release()

    def waiting_for(self) -> str:
        """Say behind which other cell of this session this one waits, if it does."""
        for other in list(self.session.live.values()):
            if (
                other.cluster is self.cluster
                and other.started < self.started
                and set(other.ranks) & set(self.ranks)
            ):
                return f"behind {other.label}"
        return ""

    def _keep_status_alive(self) -> None:
        """Keep the status line alive while an engine is waited for before the cell itself."""
        behind = self.waiting_for()
        self.report("queued" if behind else "syncing", behind or self.detail)

    def _finish(self, stage: Stage) -> None:
        """Show the last state, and after it whatever is still to be shown."""
        self.show(stage, force=True)
        if self._relay is not None:
            self._relay.finish()
        if self.cluster is not None and self._shown is not None:
            self.cluster.idleness.remember(self.display, self._shown)
