"""Restart of the calls of an ``@`` whose nodes form a process group, when one of them is lost.

The processes of PyTorch, JAX and MPI wait for each other: a call that is sent again alone would
wait for ever, and so would those that have lost it. As with ``torchrun``, all begin again together,
under a name of their own at the rendezvous.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from jupyter_sky.base.errors import SkyWorldChanged
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.calls.call_queue import Waiting
from jupyter_sky.execution.functions.calls.call_recovery import align_saves
from jupyter_sky.execution.functions.calls.nodes import BatchedCall, SentBatch
from jupyter_sky.execution.functions.calls.retry import AT_MOST_ONCE
from jupyter_sky.execution.functions.calls.tasks import (
    Broadcast,
    CallTask,
    RemoteFuture,
    StopReason,
)

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.nodes import PoolNode

GroupKind = Literal["calls", "processes"]
"""Part that begins again: the calls, or the processes too, where a group is for life."""

KINDS: tuple[GroupKind, ...] = ("processes", "calls")
LOSS_SECONDS = 5.0
"""Time in which the loss of a node is known, after the others have failed because of it."""
MAX_WORLDS = 3
"""Times that processes begin again because they are not of one world."""


class GroupOwner(Protocol):
    """Operations of the dispatcher that a restart needs."""

    lock: threading.RLock
    nodes: dict[int, PoolNode]

    def requeue(self, entries: Iterable[Waiting], /) -> None:
        """Put calls back at the head of the queue."""

    def stop(self, batch: SentBatch, keys: list[int], why: StopReason, /) -> None:
        """Request that calls stop on their nodes."""

    def renew_engine(self, node: PoolNode, notify: Callable[[], None], why: str, /) -> None:
        """Have the engine of a node end, and another take its place."""


class GroupRestarts:
    """Restarts of the broadcasts of a pool.

    Parameters
    ----------
    owner
        Dispatcher of the pool.

    Attributes
    ----------
    kind : GroupKind, optional
        What begins again after a loss; None if calls do not depend on each other.
    """

    def __init__(self, owner: GroupOwner) -> None:
        self.kind: GroupKind | None = None
        self._owner = owner
        self._held: dict[CallTask, Callable[[], None]] = {}

    def restart(self, lost: CallTask, rank: int) -> bool:
        """Send all calls of a broadcast again; return False if it is none that has to be.

        Parameters
        ----------
        lost
            The call that was lost; no node has it.
        rank
            Its node.
        """
        broadcast = lost.group
        if self.kind is None or not isinstance(broadcast, Broadcast):
            return False
        with self._owner.lock:
            others = [task for task in broadcast.tasks if task is not lost]
            if any(not task.replayable or _has_failed(task) for task in broadcast.tasks):
                return False
            self._report(lost, rank)
            broadcast.generation += 1
            waiting = [lost]
            for task in others:
                waiting += self._recall(broadcast, task)
            if self.kind == "processes":
                for task in broadcast.tasks:
                    self._renew(task)
            align_saves([task.recovery for task in broadcast.tasks if task.recovery is not None])
        self._owner.requeue(waiting)
        return True

    def _report(self, lost: CallTask, rank: int) -> None:
        text = _("jupyter_sky: node {rank} has left {call!r}: all nodes begin it again").format(
            rank=rank, call=lost.call
        )
        if self.kind == "processes":
            text += _(", in new processes. The variables of cells there are lost")
        lost.sink.write(rank, "stderr", text + "\n")

    def _recall(self, broadcast: Broadcast, task: CallTask) -> list[CallTask]:
        """Take a call back from its node; return what is to be sent again at once."""
        if self._held.pop(task, None) is not None:
            return [task]
        if task.future.done():  # the others need it once more, and nobody its result
            again = replace(task, future=RemoteFuture())
            broadcast.tasks[broadcast.tasks.index(task)] = again
            return [again]
        sent = task.future.sent
        if isinstance(sent, BatchedCall) and sent.batch.tasks.get(sent.key) is task:
            self._replace_sent(sent, task)
        return []  # it waits for its node

    def recall(self, batch: SentBatch, key: int) -> None:
        """Stop a call on its node, and let it go on elsewhere from its newest save."""
        with self._owner.lock:
            if (task := batch.tasks.get(key)) is not None:
                self._stand_in(batch, key, task)
                self._owner.stop(batch, [key], "cancel")

    def _replace_sent(self, sent: BatchedCall, task: CallTask) -> None:
        """Stop a call on its node, and send it again when it has ended, however it does."""
        self._stand_in(sent.batch, sent.key, task)
        if self.kind == "calls":
            self._owner.stop(sent.batch, [sent.key], "cancel")
        else:  # those that wait in a library for a lost process do not hear
            self._owner.renew_engine(sent.batch.node, _say_nothing, _("its group begins again"))

    def _stand_in(self, batch: SentBatch, key: int, task: CallTask) -> None:
        """Let another take the end of a call on its node, and send the call again then."""
        stand_in = replace(
            task, call=replace(task.call, retry=AT_MOST_ONCE), future=RemoteFuture(), group=None
        )
        stand_in.future.add_done_callback(lambda _: self._owner.requeue([task]))
        stand_in.recovery = None
        batch.tasks[key] = stand_in
        task.future.sent = None

    def _renew(self, task: CallTask) -> None:
        node = self._owner.nodes.get(-1 if task.rank is None else task.rank)
        if node is not None:
            self._owner.renew_engine(node, _say_nothing, _("its group begins again"))

    # -- errors that a loss may have caused --------------------------------------------------------

    def take_error(
        self, batch: SentBatch, task: CallTask, error: BaseException, settle: Callable[[], None]
    ) -> bool:
        """Take the error of a call that may be due to the loss of another node.

        Parameters
        ----------
        settle
            Handles the error, should none be lost.

        Returns
        -------
        bool
            Whether the error is not to be handled now.
        """
        broadcast = task.group
        if self.kind is None or not isinstance(broadcast, Broadcast):
            return False
        if isinstance(error, SkyWorldChanged):
            return broadcast.generation < MAX_WORLDS and self.restart(task, batch.node.rank)
        if not isinstance(error, RuntimeError):  # what these libraries raise
            return False
        with self._owner.lock:
            self._held[task] = settle
            if all(each in self._held or each.future.done() for each in broadcast.tasks):
                due = [each for each in broadcast.tasks if each in self._held]
            else:
                due = []
                timer = threading.Timer(LOSS_SECONDS, lambda: self._settle(task, settle))
                timer.daemon = True
                timer.start()
        for each in due:
            self._settle(each, self._held[each])
        return True

    def _settle(self, task: CallTask, settle: Callable[[], None]) -> None:
        with self._owner.lock:
            if self._held.get(task) is settle:
                del self._held[task]
                settle()


def group_kind(plugins: Iterable[object]) -> GroupKind | None:
    """Return what begins again with the calls of an ``@`` in a pool with some plug-ins.

    Examples
    --------
    >>> from jupyter_sky.execution.functions import plugins
    >>> group_kind([plugins.torch(), plugins.mpi()]), group_kind([plugins.joblib()])
    ('processes', None)
    """
    kinds = {getattr(plugin, "group", None) for plugin in plugins}
    return next((kind for kind in KINDS if kind in kinds), None)


def _has_failed(task: CallTask) -> bool:
    return task.future.done() and not task.future.has_value


def _say_nothing(*__: Any) -> None:
    """Say nothing: all that is lost was said before."""
