"""Sent calls: their pickles and the futures of their results."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import linecache
import pickle
import re
import sys
import threading
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from jupyter_sky.base.errors import SkyTaskLost, SkyTimeout
from jupyter_sky.base.requests.resources import format_elapsed
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.failures import RemoteFailure, rebuild_exception
from jupyter_sky.execution.functions.calls.call_recovery import CallRecovery
from jupyter_sky.execution.serialization.local_modules import missing_module_advice
from jupyter_sky.execution.serialization.payload import Blobs, Payload

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.lazy_calls import PendingFunction
    from jupyter_sky.execution.functions.calls.output import OutputSink
    from jupyter_sky.execution.functions.calls.streams import ItemBuffer, StreamSender

T = TypeVar("T")
StopReason = Literal["cancel", "group", "timeout", "close"]
"""Reason to stop a call: its caller, the end of its group, its time limit, its closed stream."""


@dataclass(frozen=True, slots=True)
class SentCall:
    """Call that a node has, without its task and its arguments.

    Attributes
    ----------
    open_calls : dict
        Calls of its batch that have not ended, by key.
    stop_calls : callable
        Requests that calls of the batch stop.
    """

    key: int
    open_calls: Mapping[int, CallTask]
    stop_calls: Callable[[list[int], StopReason], None]

    def is_running(self) -> bool:
        """Return whether its node still has it."""
        return self.key in self.open_calls

    def stop(self, why: StopReason) -> None:
        """Request that it stops."""
        self.stop_calls([self.key], why)


class FutureListener(Protocol):
    """Object that is told of the end of futures."""

    def note(self, future: RemoteFuture[Any]) -> None:
        """Note that a future has ended."""


class RemoteFuture(Future[T]):
    """Future of a sent call: awaitable, and its cancellation stops the call.

    Examples
    --------
    >>> future = train(10) > pool  # doctest: +SKIP
    >>> future.result(), await future  # doctest: +SKIP
    """

    has_value: bool = False
    """Whether it has ended with a result, or is about to."""
    latch: FutureListener | None = None
    """Waits for this future and others."""
    sent: SentCall | None = None
    """The call on its node; None before it is sent and after its end."""
    nbytes = 0
    """Size of the result as it arrived (bytes)."""

    def cancel(self) -> bool:
        """Stop the call, even if running; return False if it has ended."""
        return self.stop("cancel")

    def stop(self, why: StopReason) -> bool:
        """Stop the call for a reason, which says how patiently; return False if it has ended."""
        if self.has_value:
            return False
        cancelled = super().cancel()
        sent, self.sent = self.sent, None
        if cancelled and sent is not None:
            sent.stop(why)
        if self.latch is not None:
            self.latch.note(self)
        return cancelled

    def running(self) -> bool:
        """Return whether a node runs the call."""
        sent = self.sent
        return not self.done() and sent is not None and sent.is_running()

    def resolve(self, value: Any) -> None:
        """Set the result, unless cancelled."""
        self.sent = None
        self.has_value = True  # before those who wait for it can look
        try:
            self.set_result(value)
        except Exception:
            self.has_value = False
        if self.latch is not None:
            self.latch.note(self)

    def fail(self, error: BaseException) -> None:
        """Set the error, unless cancelled."""
        self.sent = None
        with contextlib.suppress(Exception):
            self.set_exception(error)
        if self.latch is not None:
            self.latch.note(self)

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self).__await__()


@dataclass(frozen=True, slots=True)
class PackedCall:
    """Pickles of a call.

    Attributes
    ----------
    blobs : dict
        Large segments of both payloads by name.
    """

    function: Payload
    arguments: Payload
    stream_inputs: tuple[tuple, ...]
    stream_senders: list[StreamSender]
    blobs: Blobs


@dataclass(slots=True, eq=False)
class Broadcast:
    """Calls of one ``@``.

    Attributes
    ----------
    generation : int
        How often they were all sent again, together.
    tasks : list of CallTask
        The calls, while they are waited for.
    """

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    generation: int = 0
    tasks: list[CallTask] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name by which the nodes know it, where they meet."""
        return f"{self.id}.{self.generation}" if self.generation else self.id


@dataclass(slots=True, eq=False)
class CallTask:
    """Call that was sent to a pool.

    Attributes
    ----------
    rank : int or None
        Rank of the only node that may run it; None for any.
    losses : list of str
        Reason of each loss of a node that this call may have caused.
    isolated : bool
        Whether it must run without others: it was running when a node was lost.
    """

    call: PendingFunction[Any]
    packed: PackedCall
    future: RemoteFuture
    sink: OutputSink
    rank: int | None = None
    stream: ItemBuffer | None = None
    attempts: int = 0
    losses: list[str] = field(default_factory=list)
    isolated: bool = False
    key: int = 0
    timeout: float | None = None
    group: object = None
    """Token that the calls of one gather share, or their `Broadcast`."""
    recovery: CallRecovery | None = None
    """Saves from which it goes on elsewhere; None if it begins anew."""

    def __post_init__(self) -> None:
        if self.call.retry.recover:
            self.recovery = CallRecovery()

    @property
    def broadcast(self) -> str:
        """Name that the calls of one ``@`` share; empty for others."""
        return self.group.name if isinstance(self.group, Broadcast) else ""

    @property
    def replayable(self) -> bool:
        """Whether it can be repeated: none of its streams has begun."""
        return not self.packed.stream_senders and self.stream is None

    @property
    def is_saved(self) -> bool:
        """Whether it can go on elsewhere from a save."""
        return self.recovery is not None and bool(self.recovery.saves) and not self.broadcast

    @property
    def count(self) -> int:
        """Number of calls, as an entry of the queue has it."""
        return 1

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.future.done()

    @property
    def can_be_sent_again(self) -> bool:
        """Whether it can begin anew on another node; its stream goes on from where it was."""
        return not self.packed.stream_senders

    def rewind(self) -> None:
        """Have a stream that has begun leave out the items that have arrived."""
        if self.stream is not None:
            self.future = RemoteFuture()  # that of the stream has its result, the stream
            self.stream.rewind(lambda future=self.future: future.cancel())

    def fail(self, error: BaseException) -> None:
        """Set the error."""
        if self.stream is not None:
            self.stream.finish("error", error)
        self.future.fail(error)


def loss_error(task: CallTask, rank: int, why: str) -> SkyTaskLost | None:
    """Return the error of a call that was lost with its node; None if it is to be sent again.

    A call of a broadcast, or one that recovers, waits for the node that takes the place of the
    lost one.
    """
    is_bound = task.rank is not None and not task.broadcast and task.recovery is None
    if not task.can_be_sent_again or is_bound:
        obstacle = _("it streams") if not is_bound else _("it was for this very node")
        text = _("{call!r} was lost with node {rank} ({why}); {obstacle}").format(
            call=task.call, rank=rank, why=why, obstacle=obstacle
        )
        return SkyTaskLost(text, hint=_("send it again"))
    if task.call.retry.losses <= 1:
        text = _("{call!r} was lost with node {rank} ({why}), and may have run").format(
            call=task.call, rank=rank, why=why
        )
        hint = _("retry=0 allows one attempt; without it, a call is sent again after a loss")
        return SkyTaskLost(text, hint=hint)
    if len(task.losses) >= task.call.retry.losses:
        text = _("{call!r} was lost {losses_count} times ({losses})").format(
            call=task.call, losses_count=len(task.losses), losses="; ".join(task.losses)
        )
        hint = _("it seems to end the process that runs it, and is not sent again")
        return SkyTaskLost(text, hint=hint)
    return None


def remote_exception(task: CallTask, said: dict[str, Any], rank: int) -> BaseException:
    """Rebuild the exception that a call has raised on a node.

    It is of the same class, with what it carried; its cause is a `RemoteError` with the traceback
    of the node, and a note says which node that was.
    """
    if said["stopped"] == "timeout":
        return SkyTimeout(
            _(
                "{call!r} ran longer than the {format_elapsed} that it was allowed, on "
                "node {rank}, and was stopped"
            ).format(call=task.call, format_elapsed=format_elapsed(task.timeout or 0), rank=rank),
            hint=_("allow more: .with_timeout(seconds)"),
        )
    error = _unpickle(said.get("pickle"))
    if error is None:
        reply = {"ename": said["name"], "evalue": said["text"], "sky": {"error": said}}
        error = rebuild_exception(reply, rank, _main_names())
    text = _with_sources(said["traceback"])
    notes = [f"in {task.call!r} on node {rank}"]
    if isinstance(error, ModuleNotFoundError) and error.name:
        notes += filter(None, [missing_module_advice(error.name)])
    lines = text.splitlines()
    if isinstance(error, RemoteFailure):
        error.remote_traceback = lines
    with contextlib.suppress(Exception):
        error.rank, error.remote_traceback = rank, lines  # type: ignore[attr-defined]
        # our own frames tell a notebook's author nothing
        shown = [*lines, *notes]
        error._render_traceback_ = lambda: shown  # type: ignore[attr-defined]
    with contextlib.suppress(Exception):
        for note in notes:
            error.add_note(note)
    with contextlib.suppress(Exception):
        error.__cause__ = RemoteError(text, rank)
    return error


_FRAME = re.compile(r'^  File "(.+)", line (\d+), in .*\n(?!    )', re.MULTILINE)


def _with_sources(text: str) -> str:
    """Add the source lines of cells to a traceback: the node lacks them."""

    def sourced(match: re.Match[str]) -> str:
        line = linecache.getline(match[1], int(match[2])).strip()
        return match[0] + (f"    {line}\n" if line else "")

    return _FRAME.sub(sourced, text)


class RemoteError(Exception):
    """Traceback of a node, as the cause of a local exception.

    Attributes
    ----------
    rank : int
        The node.
    """

    def __init__(self, text: str, rank: int) -> None:
        super().__init__(text)
        self.text, self.rank = text, rank

    def __str__(self) -> str:
        return _("on node {rank}:\n{text}").format(rank=self.rank, text=self.text)


def _unpickle(data: bytes | None) -> BaseException | None:
    if data is None:
        return None
    try:
        error = pickle.loads(data)
        if isinstance(error, tuple):
            kind, args, state = error
            error = kind.__new__(kind)
            error.args = args
            error.__dict__.update(state)
    except Exception:
        return None
    return error if isinstance(error, BaseException) else None


def _main_names() -> dict[str, Any]:
    return vars(sys.modules["__main__"])


@contextlib.contextmanager
def paused_collection() -> Iterator[None]:
    """Pause the collection of garbage while many objects are made, none of which is garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Latch:
    """Wait for futures that costs less than `concurrent.futures.wait` where they are many."""

    def __init__(self, futures: Sequence[RemoteFuture[Any]]) -> None:
        self._left = {id(future) for future in futures}
        self._over = threading.Event()
        for future in futures:
            future.latch = self
            if future.has_value or future.done():
                self.note(future)
        if not futures:
            self._over.set()

    def note(self, future: RemoteFuture[Any]) -> None:
        """Note that a future has ended; all is over with the last one, and with a failure."""
        self._left.discard(id(future))
        if not self._left or not future.has_value:
            self._over.set()

    def wait(self, timeout: float | None) -> bool:
        """Wait until all have ended or one has failed; return False if that takes too long."""
        return self._over.wait(timeout)


def results_of(futures: list[RemoteFuture[Any]], timeout: float | None = None) -> list[Any]:
    """Return all results, or raise the first error; wait for at most `timeout` seconds."""
    Latch(futures).wait(timeout)
    if all(future.has_value for future in futures):
        return [future.result() for future in futures]
    unfinished = 0
    for future in futures:
        if not future.done():
            unfinished += 1
        elif not future.has_value:
            future.result()
    if unfinished:
        raise SkyTimeout(
            _(
                "{unfinished} of {futures_count} calls had not ended after "
                "{format_elapsed}, and were stopped"
            ).format(
                unfinished=unfinished,
                futures_count=len(futures),
                format_elapsed=format_elapsed(timeout or 0),
            ),
            hint=_("allow more: timeout=SECONDS, or None to wait for all"),
        )
    return [future.result() for future in futures]
