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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ...engines.node import instance
from ...engines.wire.error_serialization import describe_error
from ...engines.wire.values import Parcel
from ...errors import SkyError
from ...translation import _
from ..payload import Blob, BlobStore, Payload, dumps, join, plain_pickle, split
from .stream_inputs import WINDOW_BYTES, WINDOW_ITEMS, Stopped, StreamInput

Emit = Callable[[tuple], None]
"""Takes what a call has to say, from any thread: a tuple whose first item says what it is."""


UNREAD_SECONDS = 5.0
"""Time that a generator waits for its reader before the node says so."""


class MissingBlob(Exception):
    """Missing piece of a call's arguments on this node."""


class PoolContext:
    """Context of a pool on a node: instance information, setups and wrappers of calls.

    Parameters
    ----------
    open_blob
        Gives the memory of a blob.
    results
        Takes the large parts of results; None if they travel in messages.
    """

    def __init__(
        self,
        description: dict[str, Any],
        open_blob: Callable[[Blob], memoryview],
        results: BlobStore | None = None,
    ) -> None:
        self.description, self.open_blob, self.results = description, open_blob, results
        self.pool: str = description["pool"]
        self._functions: dict[Payload, tuple[Callable[..., Any], dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._wrappers: list[Callable] | None = None

    def function(self, payload: Payload) -> tuple[Callable[..., Any], dict[str, Any]]:
        """Return a function and its options, unpickled once."""
        key = tuple(
            bytes(s) if not isinstance(s, (bytes, Blob)) else s  # type: ignore[arg-type]
            for s in payload
        )
        function = self._functions.get(key)
        if function is None:
            function = join(payload, self.open_blob)
            if len(self._functions) > 200:
                self._functions.clear()
            self._functions[key] = function
        return function

    def reuse(self, before: PoolContext) -> None:
        """Take over functions and setups of an earlier context of the same pool."""
        self._functions = before._functions
        if before.description["setups"] == self.description["setups"]:
            self._wrappers = before._wrappers

    def run_setups(self) -> None:
        """Run the setups of a fresh process, before its first call."""
        with self._lock:
            if self._wrappers is None:
                setups, around = join(self.description["setups"], self.open_blob)
                for setup in setups:
                    setup()
                self._wrappers = around

    def call_wrapped(self, call: Callable[[], Any]) -> Any:
        """Call a function inside the wrappers of the plug-ins."""
        for wrapper in reversed(self._wrappers or ()):
            call = partial(wrapper, call)
        return call()


class Call:
    """Call on a node, from its command to its last message.

    Parameters
    ----------
    order
        ``key, function, arguments, timeout, stream_inputs, broadcast``: the caller's number, two
        payloads, seconds, the streamed arguments, and the id that calls of one ``@`` share.
    emit
        Takes its messages: ``value``, ``error``, ``stream``, ``item``, ``end``, ``input_consumed``.
    """

    def __init__(self, context: PoolContext, command: tuple, emit: Emit) -> None:
        self.context, self.emit = context, emit
        self.command = command
        self.key: int = command[0]
        self.payload: Payload = command[1]
        self.arguments: Payload = command[2]
        self.timeout: float | None = command[3]
        self.on_mute: Callable[[list[str]], None] = lambda names: None
        """Called with the names of the streams whose output is not shown."""
        self.is_assigned = False
        """Whether an executor has it."""
        self.started_at = 0.0
        self.is_over = False
        self.stop_reason = ""
        """Reason to stop, one of `StopReason`; empty while it may run."""
        self.stopped_at = 0.0
        self._room = threading.Condition()
        self._ahead: deque[int] = deque()
        self._ahead_bytes = 0
        self._thread = 0
        self._forwarder: Callable[[tuple], None] | None = None
        self._early_commands: list[tuple] = []
        self.stream_inputs = {
            number: StreamInput(self, number, *rest) for number, *rest in command[4]
        }

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
                message = ("missing", self.key, str(missing))
            except BaseException as error:
                message = self.failed(error)
            self.is_over = True
        except Stopped as late:  # it came while the end was being written down
            self.is_over = True
            message = self.failed(late)
        self.emit(message)

    def failed(self, error: BaseException, **more: Any) -> tuple:
        """Return the message of an error."""
        return ("error", self.key, {**self._describe(error), **more}, self._seconds())

    def _seconds(self) -> float:
        return time.monotonic() - self.started_at

    def _run(self, worker: int) -> tuple:
        self.context.run_setups()
        function, options = self.context.function(self.payload)
        with self._set_current():
            args, kwargs = join(self.arguments, self.context.open_blob)
        topology = {**self.context.description["topology"], "worker": worker}
        if self.command[5]:
            topology["broadcast"] = self.command[5]
        with _working_directory.restored(), instance.running_task(topology), _no_loop():
            if muted := [name for name, only in options.items() if not is_shown(only, topology)]:
                self.on_mute(muted)
            result = self.context.call_wrapped(partial(function, *args, **kwargs))
            if inspect.iscoroutine(result):
                result = asyncio.run(result)
            if inspect.isgenerator(result):
                return self._stream(result)
        if (plain := plain_pickle((result,), result)) is not None:
            return ("value", self.key, (plain,), self._seconds())
        try:
            payload = split(Parcel.of(result, _("the result")), self.context.results)
        except SkyError as error:
            error.hint = _("return what can be pickled")
            raise
        return ("value", self.key, payload, self._seconds())

    @contextmanager
    def _set_current(self) -> Iterator[None]:
        _current.call = self
        try:
            yield
        finally:
            _current.call = None

    def _stream(self, source: Any) -> tuple:
        """Send the items of a generator, as far as the receiver has room."""
        self.emit(("stream", self.key))
        try:
            for item in source:
                data = dumps(item)
                if not self._make_room(len(data)):
                    break
                self.emit(("item", self.key, data))
        finally:
            source.close()
        return ("end", self.key, self._seconds())

    def _make_room(self, size: int) -> bool:
        """Wait until an item may be sent; return False once the receiver has closed."""
        with self._room:
            since, is_told = time.monotonic(), False
            while not self.stop_reason and (
                len(self._ahead) >= WINDOW_ITEMS
                or (self._ahead and self._ahead_bytes + size > WINDOW_BYTES)
            ):
                self._room.wait(None if is_told else UNREAD_SECONDS)
                if not is_told and time.monotonic() - since >= UNREAD_SECONDS:
                    is_told = True
                    self.emit(("unread", self.key))
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
        with self._room:
            for __ in range(min(count, len(self._ahead))):
                self._ahead_bytes -= self._ahead.popleft()
            self._room.notify_all()

    def stop(self, why: str, raise_in: Callable[[int], None] | None) -> None:
        """Stop the call: wake it if it waits for the caller, else raise `Stopped` inside it."""
        with self._room:
            self.stop_reason = self.stop_reason or why
            self.stopped_at = self.stopped_at or time.monotonic()
            self._room.notify_all()
        for stream_input in list(self.stream_inputs.values()):
            stream_input.close()
        if not self.is_over and self.started_at and raise_in is not None:
            raise_in(self._thread)

    def forward(self, command: tuple) -> None:
        """Forward a command to the process that runs this call, once it does."""
        with self._room:
            if self._forwarder is None:
                self._early_commands.append(command)
            else:
                self._forwarder(command)

    def set_forwarder(self, forwarder: Callable[[tuple], None]) -> None:
        """Set the function that forwards commands to the process of this call."""
        with self._room:
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


class WorkingDirectory:
    """Working directory of the process, restored when the last of concurrent calls has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls, self._path = 0, ""

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Restore the working directory at the end of a call, if no other runs beside it."""
        with self._lock:
            if not self._calls:
                self._path = _current_directory()
            self._calls += 1
        try:
            yield
        finally:
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


@contextmanager
def _no_loop() -> Iterator[None]:
    """Hide the engine's running event loop, so that a function can run its own."""
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)


def _is_ours(filename: str) -> bool:
    return filename.startswith(_PACKAGE_FOLDER)


_PACKAGE_FOLDER = __file__.rpartition("/")[0].rpartition("/")[0]


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return f"<no text: str() of {type(error).__name__} fails>"
