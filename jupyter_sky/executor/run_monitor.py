"""Monitor of a cell on its engines: interrupts, time and money, cancellation, lost engines."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any

from ipyparallel.error import EngineError

from ..errors import (
    SkyBudget,
    SkyClusterLost,
    SkyEngineLost,
    SkyError,
    SkyStoreError,
    SkyTimeout,
)
from ..resources import format_duration
from .failures import rebuild_exception

if TYPE_CHECKING:
    from ..engines.client.cell_execution import CellExecution
    from .run import SkyRun

TICK_SECONDS = 1.0
STOPPING_TICK_SECONDS = 0.1
QUICK_SECONDS = 0.02
"""A cell that ends within this time shows its status line once, as done."""
GRACE_SECONDS = 5.0
"""How long a stopped cell may take to end before its engine is killed."""


class RunMonitor:
    """Monitor of a cell from its sending to its end."""

    def __init__(self, run: SkyRun) -> None:
        self.run = run
        self.interrupts = 0
        self.reason: SkyError | None = None
        self.stopped_at = 0.0
        self.interrupted_cells: set[int] = set()

    @contextlib.contextmanager
    def count_interrupts(self) -> Iterator[None]:
        """Count interrupts instead of letting them break in."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def count(*_: Any) -> None:
            self.interrupts += 1

        before = signal.signal(signal.SIGINT, count)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def replies(self) -> list[dict[str, Any]]:
        """Wait for every engine's reply.

        Raises
        ------
        KeyboardInterrupt
            The cell was interrupted; has the engine's traceback.
        SkyTimeout, SkyBudget
            The cell was stopped at its limit.
        SkyEngineLost, SkyClusterLost
            Nothing runs the cell any more.
        """
        cells = self.run.cells
        # outputs end last as a rule: waiting for them first wakes this thread once
        futures = [cell.output for cell in cells] + [cell.reply for cell in cells]
        acted, tick = 0, QUICK_SECONDS
        while True:
            try:
                if self.interrupts > acted:
                    acted = self.interrupts
                    self.reason = self.reason or _InterruptPressed("interrupted")
                    (self._interrupt if acted == 1 else self._kill)()
                if wait_all(futures, tick):
                    break
                self.run.check_stop_request()
                self._check()
                self.run.record.write()
                tick = STOPPING_TICK_SECONDS if self.stopped_at else TICK_SECONDS
            except KeyboardInterrupt:
                self.interrupts, tick = self.interrupts + 1, STOPPING_TICK_SECONDS
        replies = [self._reply(cell) for cell in cells]
        if isinstance(self.reason, _InterruptPressed):
            raise self._interrupted(replies)
        if self.run.cancelled.is_set():
            raise self.run.cancelled_error()
        if self.reason is not None:
            raise self.reason
        return replies

    def _reply(self, cell: CellExecution) -> dict[str, Any]:
        run = self.run
        assert run.cluster is not None
        reply = cell.reply.result()  # raises SkyClusterLost when all is gone
        if not isinstance(reply, EngineError):
            return reply["content"]
        if self.reason is not None or run.cancelled.is_set():
            return {"status": "killed"}
        raise self._engine_lost(cell)

    def _engine_lost(self, cell: CellExecution) -> SkyEngineLost:
        run = self.run
        assert run.cluster is not None
        if gone := run.cluster.lost_nodes().get(cell.rank):
            run.cluster.check_ended()
            return run.cluster.node_lost_error(cell.rank, gone, run.label)
        why = run.cluster.exit_reason(cell.rank)
        return SkyEngineLost(
            f"engine {cell.rank} of cluster {run.cluster.row.name} died while it ran {run.label}: "
            f"{why}",
            hint="its variables are gone; a new engine takes its place for the next cell",
        )

    # -- every tick --------------------------------------------------------------------------

    def _check(self) -> None:
        """Look at time, money and cancellation; go on with what was begun; show the state."""
        asked = self.reason is not None or self.run.cancelled.is_set()
        if not asked:
            self._check_limits()
        elif (
            self.stopped_at
            and time.monotonic() - self.stopped_at > GRACE_SECONDS
            and not isinstance(self.reason, _InterruptPressed)
        ):
            self._kill()
            self.stopped_at = time.monotonic()
        elif self._not_interrupted():
            self._interrupt()
        if not self.stopped_at:
            behind = self.run.waiting_for()
            self.run.show("queued" if behind else "running", behind)
        else:
            self.run.show("interrupting", self._stop_hint())

    def _check_limits(self) -> None:
        run, options = self.run, self.run.options
        spent = run.record.spent_usd()
        dead = [cell for cell in run.cells if _is_engine_lost(cell)]
        if dead:  # the others would go on without it
            self.reason = self._engine_lost(dead[0])
        elif options.timeout and run.seconds > options.timeout:
            limit = format_duration(options.timeout)
            self.reason = SkyTimeout(f"{run.label} was stopped: --timeout {limit} has passed")
        elif options.max_cost is not None and spent is not None and spent > options.max_cost:
            self.reason = SkyBudget(
                f"{run.label} was stopped: it has cost more than --max-cost {options.max_cost:g}"
            )
        else:
            self.reason = self._over_budget()
        if self.reason is not None:
            self._interrupt()

    def _over_budget(self) -> SkyBudget | None:
        """Return why the cell must stop, when it costs and the day's budget is spent."""
        run = self.run
        assert run.cluster is not None
        try:
            run.session.clusters.budget_monitor.check_start(
                run.cluster.row.price, f"{run.label} was stopped"
            )
            if run.cluster.row.price:
                run.notes += run.session.clusters.budget_monitor.pop_notice()
        except SkyBudget as over:
            return over
        except SkyStoreError:
            pass  # it is locked for a moment
        return None

    def _stop_hint(self) -> str:
        waited = time.monotonic() - self.stopped_at > GRACE_SECONDS
        pressed = isinstance(self.reason, _InterruptPressed)
        return "interrupt again to kill the engine" if pressed and waited else ""

    # -- stopping ----------------------------------------------------------------------------

    def _interrupt(self) -> None:
        """Interrupt the cell on engines that run it; take it back where it waits.

        Called again every tick for the engines that it has not reached: a cell that is between
        the two when the first call comes would go on otherwise.
        """
        run = self.run
        assert run.cluster is not None
        self.stopped_at = self.stopped_at or time.monotonic()
        run.show("interrupting", self._stop_hint())
        left = self._not_interrupted()
        with contextlib.suppress(SkyClusterLost):
            link, ranks = run.cluster.connection, [cell.rank for cell in left]
            told = link.ask_controller("interrupt", wait_reconnect=False, run=run.id, ranks=ranks)
            self.interrupted_cells |= set(told["interrupted"])
            link.abort_cells(cell for cell in left if cell.rank not in self.interrupted_cells)

    def _not_interrupted(self) -> list[CellExecution]:
        """Return the cells that run and that no interrupt has reached."""
        return [
            c for c in self.run.cells if c.rank not in self.interrupted_cells and not c.reply.done()
        ]

    def _kill(self) -> None:
        """Kill the engines that do not listen; their variables go with them."""
        run = self.run
        assert run.cluster is not None
        with contextlib.suppress(SkyClusterLost):
            why = f"{run.label} did not stop when it was interrupted"
            ranks = [cell.rank for cell in run.cells if not cell.reply.done()]
            told = run.cluster.connection.ask_controller(
                "kill", wait_reconnect=False, run=run.id, ranks=ranks, why=why
            )
            if killed := told["killed"]:
                names = ", ".join(map(str, killed))
                run.notes.append(f"engine {names} was restarted: its variables are gone")

    def _interrupted(self, replies: Sequence[dict[str, Any]]) -> BaseException:
        """Return the KeyboardInterrupt to raise: the engine's own, where it got that far."""
        for rank, reply in zip(self.run.ranks, replies, strict=True):
            if reply["status"] == "error" and reply["ename"] == "KeyboardInterrupt":
                return rebuild_exception(reply, rank, self.run.session.namespace)
        gone = any(reply["status"] == "killed" for reply in replies)
        text = "the engine was restarted: its variables are gone" if gone else "interrupted"
        reply = {
            "ename": "KeyboardInterrupt",
            "evalue": text,
            "traceback": [f"KeyboardInterrupt: {text}"],
            "sky": {"error": {"classes": [["builtins", "KeyboardInterrupt"]]}},
        }
        return rebuild_exception(reply, self.run.ranks[0], {})


class _InterruptPressed(SkyError):
    """The user has pressed interrupt."""


def _is_engine_lost(cell: CellExecution) -> bool:
    done = cell.reply.done() and cell.reply.exception() is None
    return done and isinstance(cell.reply.result(), EngineError)


def wait_all(futures: Sequence[Future], seconds: float) -> bool:
    """Wait some seconds for `futures`; say whether all are done."""
    deadline = time.monotonic() + seconds
    for future in futures:
        try:
            future.exception(max(deadline - time.monotonic(), 0))
        except FutureTimeout:
            return False
    return True
