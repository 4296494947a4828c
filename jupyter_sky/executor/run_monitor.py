"""Monitor of a cell on its engines: interrupts, time and money, cancellation, lost engines."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ipyparallel.error import EngineError

from ..errors import SkyCancelled, SkyClusterLost, SkyEngineLost, SkyError
from ..translation import _
from .failures import rebuild_exception
from .values import Placement, Replies, Reply

if TYPE_CHECKING:
    from ..engines.client.cell_execution import CellExecution

TICK_SECONDS = 1.0
STOPPING_TICK_SECONDS = 0.1
QUICK_SECONDS = 0.02
"""A cell that ends within this time shows its status line once, as done."""
GRACE_SECONDS = 5.0
"""Longest time that a stopped cell may take to end before its engine is killed."""


@dataclass(frozen=True, slots=True)
class MonitorCallbacks:
    """Callbacks of a monitor to the run that it watches.

    Attributes
    ----------
    check_stop
        Looks whether another process has requested a stop.
    cancellation
        Returns the error of a run that has been cancelled, or None.
    exceeded_limit
        Returns the error of a run that has exceeded its time or money, or None.
    show_running
        Shows that the run goes on, or what it waits for.
    show_interrupting
        Shows that the run is being interrupted, with a hint for the user.
    record
        Writes the state of the run to the store.
    note
        Called with a sentence for the user.
    """

    check_stop: Callable[[], None]
    cancellation: Callable[[], SkyCancelled | None]
    exceeded_limit: Callable[[], SkyError | None]
    show_running: Callable[[], None]
    show_interrupting: Callable[[str], None]
    record: Callable[[], None]
    note: Callable[[str], None]


class RunMonitor:
    """Monitor of a cell from its sending to its end.

    Parameters
    ----------
    placement
        Engines of the cell.
    run_id
        Id of the run, by which the controller knows it.
    label
        Name of the cell in messages.
    namespace
        Variables of the notebook, among which classes of exceptions are looked up.
    """

    def __init__(
        self,
        placement: Placement,
        run_id: str,
        label: str,
        namespace: Mapping[str, Any],
        callbacks: MonitorCallbacks,
    ) -> None:
        self.placement, self.run_id, self.label = placement, run_id, label
        self.namespace, self.callbacks = namespace, callbacks
        self.cells: Sequence[CellExecution] = ()
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

        def count(*__: Any) -> None:
            self.interrupts += 1

        before = signal.signal(signal.SIGINT, count)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def wait_replies(self, cells: Sequence[CellExecution]) -> Replies:
        """Wait for the reply of every engine that a cell was sent to.

        Raises
        ------
        KeyboardInterrupt
            The cell was interrupted; has the engine's traceback.
        SkyTimeout, SkyBudget
            The cell was stopped at its limit.
        SkyEngineLost, SkyClusterLost
            Nothing runs the cell any more.
        """
        self.cells = cells
        # outputs end last as a rule: waiting for them first wakes this thread once
        futures = [cell.output for cell in cells] + [cell.reply for cell in cells]
        acted, tick = 0, QUICK_SECONDS
        while True:
            try:
                if self.interrupts > acted:
                    acted = self.interrupts
                    self.reason = self.reason or _InterruptPressed(_("interrupted"))
                    (self._interrupt if acted == 1 else self._kill)()
                if wait_all(futures, tick):
                    break
                self.callbacks.record()  # first: a kernel that is killed from here on is followed
                self.callbacks.check_stop()
                self._check()
                tick = STOPPING_TICK_SECONDS if self.stopped_at else TICK_SECONDS
            except KeyboardInterrupt:
                self.interrupts, tick = self.interrupts + 1, STOPPING_TICK_SECONDS
        replies = [self._reply(cell) for cell in cells]
        if isinstance(self.reason, _InterruptPressed):
            raise self._interrupted(replies)
        if stop := self.callbacks.cancellation() or self.reason:
            raise stop
        return replies

    def _is_stopping(self) -> bool:
        return self.reason is not None or self.callbacks.cancellation() is not None

    def _reply(self, cell: CellExecution) -> Reply:
        message = cell.reply.result()  # raises SkyClusterLost when all is gone
        if not isinstance(message, EngineError):
            return Reply.parse(cell.rank, message["content"])
        if self._is_stopping():
            return Reply(cell.rank, "killed")
        raise self._engine_lost(cell)

    def _engine_lost(self, cell: CellExecution) -> SkyEngineLost:
        cluster = self.placement.cluster
        if gone := cluster.lost_nodes().get(cell.rank):
            cluster.check_ended()
            return cluster.node_lost_error(cell.rank, gone, self.label)
        why = cluster.exit_reason(cell.rank)
        return SkyEngineLost(
            _("engine {rank} of cluster {name} died while it ran {label}: {why}").format(
                rank=cell.rank, name=cluster.row.name, label=self.label, why=why
            ),
            hint=_("its variables are gone; a new engine takes its place for the next cell"),
        )

    # -- every tick --------------------------------------------------------------------------

    def _check(self) -> None:
        """Check time, money and cancellation; go on with what was begun; show the state."""
        if not self._is_stopping():
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
            self.callbacks.show_running()
        else:
            self.callbacks.show_interrupting(self._stop_hint())

    def _check_limits(self) -> None:
        dead = [cell for cell in self.cells if _is_engine_lost(cell)]
        # the other engines would go on without a dead one
        self.reason = self._engine_lost(dead[0]) if dead else self.callbacks.exceeded_limit()
        if self.reason is not None:
            self._interrupt()

    def _stop_hint(self) -> str:
        waited = time.monotonic() - self.stopped_at > GRACE_SECONDS
        pressed = isinstance(self.reason, _InterruptPressed)
        return _("interrupt again to kill the engine") if pressed and waited else ""

    # -- stopping ----------------------------------------------------------------------------

    def _interrupt(self) -> None:
        """Interrupt the cell on engines that run it; take it back where it waits.

        Called again every tick for the engines that it has not reached: a cell that is between
        the two when the first call comes would go on otherwise.
        """
        self.stopped_at = self.stopped_at or time.monotonic()
        self.callbacks.show_interrupting(self._stop_hint())
        left = self._not_interrupted()
        with contextlib.suppress(SkyClusterLost):
            link, ranks = self.placement.cluster.connection, [cell.rank for cell in left]
            told = link.ask_controller(
                "interrupt", wait_reconnect=False, run=self.run_id, ranks=ranks
            )
            self.interrupted_cells |= set(told["interrupted"])
            link.abort_cells(cell for cell in left if cell.rank not in self.interrupted_cells)

    def _not_interrupted(self) -> list[CellExecution]:
        """Return the cells that run and that no interrupt has reached."""
        return [
            c for c in self.cells if c.rank not in self.interrupted_cells and not c.reply.done()
        ]

    def _kill(self) -> None:
        """Kill the engines that do not react; their variables go with them."""
        with contextlib.suppress(SkyClusterLost):
            why = _("{label} did not stop when it was interrupted").format(label=self.label)
            ranks = [cell.rank for cell in self.cells if not cell.reply.done()]
            told = self.placement.cluster.connection.ask_controller(
                "kill", wait_reconnect=False, run=self.run_id, ranks=ranks, why=why
            )
            if killed := told["killed"]:
                names = ", ".join(map(str, killed))
                self.callbacks.note(f"engine {names} was restarted: its variables are gone")

    def _interrupted(self, replies: Replies) -> BaseException:
        """Return the KeyboardInterrupt to raise: the engine's own, where it got that far."""
        for reply in replies:
            if reply.status == "error" and reply.error["ename"] == "KeyboardInterrupt":
                return rebuild_exception(reply.error, reply.rank, self.namespace)
        gone = any(reply.status == "killed" for reply in replies)
        text = _("the engine was restarted: its variables are gone") if gone else "interrupted"
        content = {
            "ename": "KeyboardInterrupt",
            "evalue": text,
            "traceback": [_("KeyboardInterrupt: {text}").format(text=text)],
            "sky": {"error": {"classes": [["builtins", "KeyboardInterrupt"]]}},
        }
        return rebuild_exception(content, self.placement.ranks[0], {})


class _InterruptPressed(SkyError):
    """The user has pressed interrupt."""


def _is_engine_lost(cell: CellExecution) -> bool:
    done = cell.reply.done() and cell.reply.exception() is None
    return done and isinstance(cell.reply.result(), EngineError)


def wait_all(futures: Sequence[Future], seconds: float) -> bool:
    """Wait some seconds for `futures`; return whether all are done."""
    deadline = time.monotonic() + seconds
    for future in futures:
        try:
            future.exception(max(deadline - time.monotonic(), 0))
        except FutureTimeout:
            return False
    return True
