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

from jupyter_sky.base.errors import SkyCancelled, SkyClusterLost, SkyEngineLost, SkyError
from jupyter_sky.base.translation import _, ngettext
from jupyter_sky.execution.cells.failures import rebuild_exception
from jupyter_sky.execution.cells.inputs import Replies, Reply
from jupyter_sky.execution.clusters.cluster import Placement
from jupyter_sky.machines.engines.wire.controller_requests import Interrupt, Kill

if TYPE_CHECKING:
    from jupyter_sky.machines.engines.client.cell_execution import CellExecution

TICK_SECONDS = 1.0
STOPPING_TICK_SECONDS = 0.1
RECORD_SECONDS = 0.005
"""A cell that ends within this time is recorded once, as done: nothing waits for a disk."""
QUICK_SECONDS = 0.02
"""A cell that ends within this time shows its status line once, as done."""
ANSWER_SECONDS = 2.0
"""Time after an interrupt for an engine to end its cell; then the user is told that it does not."""
GRACE_SECONDS = 5.0
"""Longest time that a cell beyond its limits may take to end before its engine is killed."""
SHOWN_NAMES = 5


@dataclass(frozen=True, slots=True)
class MonitorCallbacks:
    """Callbacks of a monitor to the run that it watches.

    Attributes
    ----------
    check_stop
        Looks whether another process has requested a stop.
    cancellation
        Returns the error of a run that has been cancelled, or None.
    stop_requests
        Returns how often the run was asked to stop, interrupts of this kernel not counted.
    remote_names
        Returns names of variables on the engines.
    exceeded_limit
        Returns the error of a run that has exceeded its time or money, or None.
    show_running
        Shows that the run goes on, or what it waits for.
    show_interrupting
        Shows that the run is being interrupted, and why it goes on where that is known.
    record
        Writes the state of the run to the store.
    note
        Called with a sentence for the user.
    """

    check_stop: Callable[[], None]
    cancellation: Callable[[], SkyCancelled | None]
    stop_requests: Callable[[], int]
    remote_names: Callable[[], Sequence[str]]
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
        self.warning = ""
        """Loss by a further request to stop; empty as long as it has no effect."""
        self._requests = 0

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
        tick = RECORD_SECONDS
        while True:
            try:
                self._obey_requests()
                if wait_all(futures, tick):
                    break
                if tick == RECORD_SECONDS:  # if its kernel is killed, the cell is followed now
                    self.callbacks.record()
                    tick = QUICK_SECONDS
                    continue
                self.callbacks.check_stop()
                self._check()
                self.callbacks.record()
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
        from ipyparallel.error import EngineError

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

    def _obey_requests(self) -> None:
        """Interrupt the cell at the first request to stop; kill at one that follows the warning.

        Others in between have no effect: what would be lost has not been said yet.
        """
        if self.interrupts:
            self.reason = self.reason or _InterruptPressed(_("interrupted"))
        requests = self.interrupts + self.callbacks.stop_requests()
        if requests <= self._requests:
            return
        self._requests = requests
        if not self.stopped_at:
            self._interrupt()
        elif self.warning:
            self._kill()

    def _check(self) -> None:
        """Check time, money and cancellation; go on with what was begun; show the state."""
        if not self._is_stopping():
            self._check_limits()
        elif self._is_beyond_limit() and self._stopping_seconds() > GRACE_SECONDS:
            self._kill()
            self.stopped_at = time.monotonic()
        elif self._not_interrupted():
            self._interrupt()
        if not self.stopped_at:
            self.callbacks.show_running()
            return
        if not self._is_beyond_limit() and self._stopping_seconds() > ANSWER_SECONDS:
            self.warning = self._describe_loss()
        self.callbacks.show_interrupting(self.warning)

    def _is_beyond_limit(self) -> bool:
        """Return whether the cell has to end, whatever is lost."""
        return self.reason is not None and not isinstance(self.reason, _InterruptPressed)

    def _stopping_seconds(self) -> float:
        return time.monotonic() - self.stopped_at if self.stopped_at else 0.0

    def _describe_loss(self) -> str:
        """Return why the cell goes on and what is lost by another request; empty if it waits."""
        ranks = [cell.rank for cell in self.cells if not cell.reply.done()]
        return describe_loss(
            [rank for rank in ranks if rank in self.interrupted_cells],
            self.callbacks.remote_names(),
        )

    def _check_limits(self) -> None:
        dead = [cell for cell in self.cells if _is_engine_lost(cell)]
        # the other engines would go on without a dead one
        self.reason = self._engine_lost(dead[0]) if dead else self.callbacks.exceeded_limit()
        if self.reason is not None:
            self._interrupt()

    # -- stopping ----------------------------------------------------------------------------

    def _interrupt(self) -> None:
        """Interrupt the cell on engines that run it; take it back where it waits.

        Called again every tick for the engines that it has not reached: a cell that is between
        the two when the first call comes would go on otherwise.
        """
        self.stopped_at = self.stopped_at or time.monotonic()
        self.callbacks.show_interrupting(self.warning)
        left = self._not_interrupted()
        with contextlib.suppress(SkyClusterLost):
            link, ranks = self.placement.cluster.connection, [cell.rank for cell in left]
            told = link.ask_controller(Interrupt(self.run_id, ranks), wait_reconnect=False)
            self.interrupted_cells |= set(told.interrupted)
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
                Kill(self.run_id, ranks, why), wait_reconnect=False
            )
            if killed := told.killed:
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


def describe_loss(ranks: Sequence[int], names: Sequence[str] = ()) -> str:
    """Return a warning of engines that do not answer to an interrupt; empty without any.

    Parameters
    ----------
    names
        Known names of variables on the engines.

    Examples
    --------
    >>> describe_loss([0], ["X", "model"])
    'engine 0 does not answer: stop again to restart it, its variables (X, model) would be lost'
    """
    if not ranks:
        return ""
    shown = [*names[:SHOWN_NAMES], *(["…"] if len(names) > SHOWN_NAMES else [])]
    return ngettext(
        "engine {ranks} does not answer: stop again to restart it, its variables{names} would be "
        "lost",
        "engines {ranks} do not answer: stop again to restart them, their variables{names} would "
        "be lost",
        len(ranks),
    ).format(ranks=", ".join(map(str, ranks)), names=f" ({', '.join(shown)})" if shown else "")


class _InterruptPressed(SkyError):
    """The user has pressed interrupt."""


def _is_engine_lost(cell: CellExecution) -> bool:
    from ipyparallel.error import EngineError

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
