"""Calls on a node: unpickling of arguments, execution, results and streams."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import inspect
import os
import pickle
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import GeneratorType, MappingProxyType
from typing import Any

from jupyter_sky.base.errors import SkyError, SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.node.messages import (
    Arguments,
    CallCommand,
    Failed,
    InputConsumed,
    Item,
    MissingPart,
    Order,
    PlainResult,
    Report,
    Saved,
    StreamBegun,
    StreamEnded,
    StreamItem,
    StreamUnread,
    Value,
)
from jupyter_sky.execution.functions.node.pool_context import (
    LoadedFunction,
    MissingBlob,
    PoolContext,
)
from jupyter_sky.execution.serialization.payload import Payload, dumps, is_plain, join, split
from jupyter_sky.machines.engines.node import instance
from jupyter_sky.machines.engines.wire.error_serialization import describe_error
from jupyter_sky.machines.engines.wire.values import Parcel

Emit = Callable[[Report], None]
"""Takes the reports of a call, from any thread."""

_NOTHING = contextlib.nullcontext()
UNREAD_SECONDS = 5.0
"""Time that a generator waits for its reader before the node says so."""


class Call:
    """Call on a node, from its command to its last message.

    Parameters
    ----------
    command
        ``key, function, arguments, timeout, stream_inputs, broadcast, saves``: the caller's number,
        two payloads, seconds, the streamed arguments, the id that calls of one ``@`` share, and the
        id, generation and saves of a call that recovers.
    emit
        Takes its reports.
    """

    # class attributes: most calls are quick, and need no values of their own
    on_mute: Callable[[list[str]], None] = staticmethod(lambda names: None)
    """Called with the names of the streams whose output is not shown."""
    started_at = 0.0
    is_over = False
    stop_reason = ""
    """Reason to stop, one of `StopReason`; empty while it may run."""
    stopped_at = 0.0
    stream_inputs: Mapping[int, StreamInput] = MappingProxyType({})
    broadcast = ""
    saves: tuple | None = None
    _thread = 0
    _room: threading.Condition | None = None
    _ahead_bytes = 0
    _forwarder: Callable[[Order], None] | None = None
    _early_commands: Sequence[Order] = ()

    def __init__(self, context: PoolContext, command: CallCommand, emit: Emit) -> None:
        self.context, self.emit = context, emit
        self.key: int = command[0]
        self.payload: Payload = command[1]
        self.arguments: Payload = command[2]
        self.timeout: float | None = command[3]
        if command[4]:
            self.stream_inputs = {
                number: StreamInput(self, number, *rest) for number, *rest in command[4]
            }
        self.broadcast = command[5]
        self.saves = command[6]
        self._command = command
        self._lock = threading.Lock()

    @property
    def command(self) -> CallCommand:
        """Command from which another process makes this call."""
        return self._command

    # -- in the thread that runs it ----------------------------------------------------------

    def run(self, worker: int) -> None:
        """Run the call to its end, in the thread of an executor."""
        self.started_at = time.monotonic()
        self._thread = threading.get_ident()
        try:
            try:
                if self.stop_reason:
                    raise Stopped
                message = self._run(worker)
            except MissingBlob as missing:
                message = MissingPart(self.key, str(missing))
            except BaseException as error:
                message = self.failed(error)
            self.is_over = True
        except Stopped as late:  # it came while the end was being written down
            self.is_over = True
            message = self.failed(late)
        self.emit(message)

    def failed(self, error: BaseException, stuck: bool = False) -> Failed:
        """Return the report of an error; `stuck` if the call cannot be stopped."""
        failure = self._describe(error)
        if stuck:
            failure["stuck"] = True
        return Failed(self.key, failure, self._seconds())

    def _seconds(self) -> float:
        return time.monotonic() - self.started_at

    def _load(self) -> tuple[LoadedFunction, tuple[Any, ...], dict[str, Any]]:
        """Return the function with its options, and the arguments."""
        function = self.context.function(self.payload)
        with self._set_current():
            args, kwargs = join(self.arguments, self.context.open_blob)
        return function, args, kwargs

    def _run(self, worker: int) -> Report:
        context = self.context
        context.run_setups()
        (function, options), args, kwargs = self._load()
        topology = context.topology(worker, self.broadcast)
        with CallSurroundings(topology):
            if options and (muted := [n for n, o in options.items() if not is_shown(o, topology)]):
                self.on_mute(muted)
            with self._keeping_saves():
                result = context.call_wrapped(function, args, kwargs)
                if inspect.iscoroutine(result):
                    result = asyncio.run(result)
            if is_plain(result):
                return PlainResult(self.key, result, self._seconds())
            if inspect.isgenerator(result):
                return self._stream(result)
        try:
            payload = split(Parcel.of(result, _("the result")), context.results)
        except SkyError as error:
            error.hint = _("return what can be pickled")
            raise
        return Value(self.key, payload, self._seconds())

    def _keeping_saves(self) -> contextlib.AbstractContextManager[None]:
        """Give the states of this call a place in the notebook, if it recovers."""
        if self.saves is None:
            return _NOTHING
        from jupyter_sky.execution.checkpoints.call_saves import CallSaves

        owner, generation, received = self.saves

        def send(state: str, name: str, data: bytes) -> None:
            self.emit(Saved(self.key, state, name, data))

        return CallSaves(owner, generation, received, send).in_use()

    @contextmanager
    def _set_current(self) -> Iterator[None]:
        _current.call = self
        try:
            yield
        finally:
            _current.call = None

    def _stream(self, source: GeneratorType[Any, Any, Any]) -> Report:
        """Send the items of a generator, as far as the receiver has room."""
        self._ahead: deque[int] = deque()
        with self._lock:
            self._room = threading.Condition(self._lock)
        self.emit(StreamBegun(self.key))
        try:
            for item in source:
                data = dumps(item)
                if not self._make_room(len(data)):
                    break
                self.emit(Item(self.key, data))
        finally:
            source.close()
        return StreamEnded(self.key, self._seconds())

    def _make_room(self, size: int) -> bool:
        """Wait until an item may be sent; return False once the receiver has closed."""
        assert self._room is not None
        with self._room:
            since, is_told = time.monotonic(), False
            while not self.stop_reason and (
                len(self._ahead) >= WINDOW_ITEMS
                or (self._ahead and self._ahead_bytes + size > WINDOW_BYTES)
            ):
                self._room.wait(None if is_told else UNREAD_SECONDS)
                if not is_told and time.monotonic() - since >= UNREAD_SECONDS:
                    is_told = True
                    self.emit(StreamUnread(self.key))
            self._ahead.append(size)
            self._ahead_bytes += size
            if self.stop_reason and self.stop_reason != "close":
                raise Stopped
            return not self.stop_reason

    def _describe(self, error: BaseException) -> dict[str, Any]:
        """Return a description of this error, from which the caller raises it."""
        trace = error.__traceback__
        while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
            trace = trace.tb_next
        text = "".join(traceback.format_exception(type(error), error, trace or None))
        described: dict[str, Any] = {
            "name": type(error).__name__,
            "text": _text(error),
            "traceback": text,
            "stopped": self.stop_reason if isinstance(error, KeyboardInterrupt) else "",
        }
        described |= describe_error(error)
        error.__traceback__ = error.__cause__ = error.__context__ = None
        # an exception whose __init__ wants anything pickles, and then cannot be opened
        for value in (error, (type(error), error.args, vars(error))):
            with contextlib.suppress(Exception):
                described["pickle"] = dumps(value)
                pickle.loads(described["pickle"])
                break
        return described

    # -- from other threads ------------------------------------------------------------------

    def acknowledge(self, count: int) -> None:
        """Record that the caller has consumed items of the stream."""
        if self._room is None:
            return
        with self._room:
            for __ in range(min(count, len(self._ahead))):
                self._ahead_bytes -= self._ahead.popleft()
            self._room.notify_all()

    def stop(self, why: str, raise_in: Callable[[int], None] | None) -> None:
        """Stop the call: wake it if it waits for the caller, else raise `Stopped` inside it."""
        with self._lock:
            self.stop_reason = self.stop_reason or why
            self.stopped_at = self.stopped_at or time.monotonic()
            if self._room is not None:
                self._room.notify_all()
        for stream_input in list(self.stream_inputs.values()):
            stream_input.close()
        if not self.is_over and self.started_at and raise_in is not None:
            raise_in(self._thread)

    def forward(self, command: Order) -> None:
        """Forward a command to the process that runs this call, once it does."""
        with self._lock:
            if self._forwarder is None:
                self._early_commands = (*self._early_commands, command)
            else:
                self._forwarder(command)

    def set_forwarder(self, forwarder: Callable[[Order], None]) -> None:
        """Set the function that forwards commands to the process of this call."""
        with self._lock:
            for command in self._early_commands:
                forwarder(command)
            self._forwarder = forwarder

    @property
    def is_overdue(self) -> bool:
        """Return whether its time limit has passed."""
        return bool(
            self.timeout is not None
            and self.started_at
            and not self.is_over
            and time.monotonic() - self.started_at > self.timeout
        )


class PlainCall(Call):
    """Call of a gather, whose arguments are numbers and short texts.

    Parameters
    ----------
    arguments
        Positional and keyword arguments.
    """

    def __init__(
        self,
        context: PoolContext,
        key: int,
        function: Payload,
        arguments: Arguments,
        timeout: float | None,
        emit: Emit,
    ) -> None:
        self.context, self.emit = context, emit
        self.key, self.payload, self.timeout = key, function, timeout
        self._plain_arguments = arguments
        self._lock = threading.Lock()

    @property
    def command(self) -> CallCommand:
        """Command from which another process makes this call."""
        return (
            self.key,
            self.payload,
            (pickle.dumps(self._plain_arguments, protocol=5),),
            self.timeout,
            (),
            "",
            None,
        )

    def _load(self) -> tuple[LoadedFunction, tuple[Any, ...], dict[str, Any]]:
        return self.context.function(self.payload), *self._plain_arguments


class _Current(threading.local):
    call: Call | None = None


_current = _Current()


def stream_input(number: int) -> StreamInput:
    """Return the receiver of a streamed argument, while its call is unpickled."""
    assert _current.call is not None
    return _current.call.stream_inputs[number]


def is_shown(only: Any, topology: dict[str, Any]) -> bool:
    """Return whether this node shows a stream: ``"head"``, ranks, or a function of the info."""
    rank = topology.get("node", 0)
    if only == "head":
        return rank == 0
    if callable(only):
        return bool(only(instance.instance_info()))
    return rank in ((only,) if isinstance(only, int) else only)


def raise_in_thread(thread: int) -> None:
    """Raise `Stopped` in a thread, at its next step in Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Stopped))


def clear_stopped(thread: int) -> None:
    """Clear a pending `Stopped` of a thread."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)


def _is_ours(filename: str) -> bool:
    return filename.startswith(_PACKAGE_FOLDER)


_PACKAGE_FOLDER = str(Path(__file__).parents[2])


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return f"<no text: str() of {type(error).__name__} fails>"


# -- Streamed arguments on the node, received item by item ----------------------------------------

WINDOW_ITEMS = 512
WINDOW_BYTES = 4 * 2**20
"""Most of a stream that is on its way, or has arrived and is not consumed yet."""


class Stopped(KeyboardInterrupt):
    """Exception raised inside a call that is stopped by its caller or its time limit."""


class StreamInput:
    """Argument that arrives item by item, as the function consumes it.

    Parameters
    ----------
    number
        Which of the call's streams it is.
    label
        The argument, for messages.
    again
        Whether the function was promised something that it can go through twice.
    """

    def __init__(self, call: Call, number: int, label: str, is_reiterable: bool) -> None:
        self.call, self.number, self.label, self.again = call, number, label, is_reiterable
        self._items: deque[StreamItem] = deque()
        self._wake = threading.Condition()
        self._consumed = 0
        self._ended = False
        self._closed = False

    def __iter__(self) -> StreamInput:
        if self._ended and self.again:
            raise SkyUsageError(
                _("{label} came as a stream and is used up: it can be gone through once").format(
                    label=self.label
                ),
                hint=_("annotate it as a list to have all of it on the node"),
            )
        return self

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        with self._wake:
            while not self._items and not self._closed:
                self._wake.wait()
            if self._closed and not self._items:
                raise Stopped
            kind, data = self._items.popleft()
            left = len(self._items)
        if kind == "item":
            self._consumed += 1
            if not left or self._consumed >= WINDOW_ITEMS // 4:
                self.call.emit(InputConsumed(self.call.key, self.number, self._consumed))
                self._consumed = 0
            return join((data,), self.call.context.open_blob)
        self._ended = True
        if kind == "error":
            raise join((data,), self.call.context.open_blob)
        raise StopIteration

    def feed(self, items: list[StreamItem]) -> None:
        """Add items that have arrived."""
        with self._wake:
            self._items.extend(items)
            self._wake.notify()

    def close(self) -> None:
        """End the iteration."""
        with self._wake:
            self._closed = True
            self._wake.notify()


# -- Surroundings of calls: working directory, instance information and event loop ----------------


class WorkingDirectory:
    """Working directory of the process, restored when the last of concurrent calls has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls, self._path = 0, ""

    def __enter__(self) -> None:
        with self._lock:
            if not self._calls:
                self._path = _current_directory()
            self._calls += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._calls -= 1
            if not self._calls and self._path and self._path != _current_directory():
                with contextlib.suppress(OSError):
                    os.chdir(self._path)


_working_directory = WorkingDirectory()


def _current_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return ""


class CallSurroundings:
    """Context of one call, written as a class: it is entered for every quick call.

    It restores the working directory, sets the instance information, and hides the engine's
    running event loop, so that a function can run its own.

    Parameters
    ----------
    topology
        Topology of the node, as `instance.running_task` takes it.
    """

    __slots__ = ("_loop", "_task")

    def __init__(self, topology: dict[str, Any]) -> None:
        self._task = instance.running_task(topology)

    def __enter__(self) -> None:
        _working_directory.__enter__()
        try:
            self._task.__enter__()
        except BaseException:  # the call was stopped at its beginning
            _working_directory.__exit__()
            raise
        self._loop = asyncio._get_running_loop()
        asyncio._set_running_loop(None)

    def __exit__(self, *_: object) -> None:
        asyncio._set_running_loop(self._loop)
        self._task.__exit__()
        _working_directory.__exit__()
