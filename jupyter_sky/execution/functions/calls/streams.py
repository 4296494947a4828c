"""Streams: results that come item by item, and arguments that go item by item.

Both have a window: no more than so many items and bytes are on their way or wait to be consumed.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import threading
import typing
from collections import abc, deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from jupyter_sky.base.errors import SkyTransferError, SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.node.calls import WINDOW_BYTES, WINDOW_ITEMS, stream_input
from jupyter_sky.execution.functions.node.messages import StreamItem
from jupyter_sky.execution.serialization.local_modules import LocalModules, dumps_with_modules
from jupyter_sky.execution.serialization.payload import dumps, pickled_by_value

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.lazy_calls import PendingFunction

T = TypeVar("T")


CallPlace = tuple[str, int]
"""Id of a batch and key of a call in it."""


class ItemStream(Generic[T]):
    """Items of a generator on a node, as they arrive.

    Closing it, or letting go of it, ends the generator.

    Examples
    --------
    >>> for loss in train(10) >> pool:  # doctest: +SKIP
    ...     print(loss)
    """

    def __init__(self, buffer: ItemBuffer) -> None:
        self._buffer = buffer
        self._unreported = 0

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        kind, value = self._buffer.take()
        if kind == "item":
            self._unreported += 1
            if self._unreported >= WINDOW_ITEMS // 4 or self._buffer.empty():
                self._buffer.on_consumed(self._unreported)
                self._unreported = 0
            return value
        if kind == "error":
            raise value
        raise StopIteration

    def close(self) -> None:
        """Close the generator on the node, as its own ``close()`` would."""
        if self._buffer.close():
            self._buffer.on_close()

    def __enter__(self) -> ItemStream[T]:
        return self

    def __exit__(self, *__: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


class ItemBuffer:
    """Buffer of items that have arrived.

    Attributes
    ----------
    on_consumed
        Tells the node that items were read.
    on_close
        Ends the generator on the node.
    """

    def __init__(self) -> None:
        self.on_consumed: Callable[[int], None] = lambda count: None
        self.on_close: Callable[[], object] = lambda: None
        self._arrived = self._repeated = 0
        self.items: deque[Any] = deque()
        self.wake = threading.Condition()
        self.end: StreamItem | None = None
        self.unread_on: int | None = None
        """Rank of the node that waits until items are read; None while none does."""

    def add(self, items: list[Any]) -> None:
        """Add items that have arrived."""
        with self.wake:
            self.items.extend(items)
            self.wake.notify()

    def rewind(self, on_close: Callable[[], object]) -> None:
        """Expect all items anew, from another node; leave out those that have arrived."""
        with self.wake:
            self._repeated = self._arrived
            self.on_consumed, self.on_close = lambda count: None, on_close

    def is_repeated(self) -> bool:
        """Take note of the next item; return whether it has arrived before, from another node."""
        with self.wake:
            if self._repeated:
                self._repeated -= 1
                return True
            self._arrived += 1
            return False

    def finish(self, kind: str, value: Any = None) -> None:
        """Record the end of the stream: ``end``, or ``error`` with the error."""
        with self.wake:
            self.end = self.end or (kind, value)
            self.wake.notify_all()

    def take(self) -> StreamItem:
        """Wait for the next item, or the end."""
        with self.wake:
            while not self.items and self.end is None:
                self.wake.wait()
            self.unread_on = None
            if self.items:
                return "item", self.items.popleft()
            assert self.end is not None
            end, self.end = self.end, ("end", None)  # an error is raised once
            return end

    def empty(self) -> bool:
        """Whether no item waits."""
        return not self.items

    def close(self) -> bool:
        """Drop buffered items; return whether the stream was open."""
        with self.wake:
            self.items.clear()
            self.unread_on = None
            open_ = self.end is None
            self.end = ("end", None)
            self.wake.notify_all()
        return open_


class StreamPlaceholder:
    """Placeholder of an iterator among the pickled arguments of a call."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple:
        return stream_input, (self.number,)


class StreamSender:
    """Sender of the items of a local iterator, as fast as every receiver consumes them.

    Parameters
    ----------
    source
        The iterator, or what gives one.
    label
        The argument, for messages.
    module
        The module of the function: what it defines travels along.
    modules
        Local modules, which items that need them carry.
    """

    def __init__(
        self, source: Any, number: int, label: str, module: str | None, modules: LocalModules
    ) -> None:
        self._modules = modules
        self._sent_modules: set[str] = set()
        self.source, self.number, self.label, self.module = source, number, label, module
        self._receivers: dict[CallPlace, Callable[[StreamItem], None]] = {}
        self._ahead: dict[CallPlace, deque[int]] = {}
        self._bytes: dict[CallPlace, int] = {}
        self.expected = 0
        """Number of receivers to come; it starts when all have joined."""
        self._wake = threading.Condition()
        self._context = contextvars.copy_context()

    def join(self, receiver: CallPlace, send: Callable[[StreamItem], None]) -> None:
        """Add a receiver; start the thread with the last one."""
        self._receivers[receiver], self._ahead[receiver] = send, deque()
        self._bytes[receiver] = 0
        if len(self._receivers) == self.expected:
            threading.Thread(
                target=lambda: self._context.run(self._run), name="sky-stream-sender", daemon=True
            ).start()

    def acknowledge(self, receiver: CallPlace, count: int) -> None:
        """Record that a receiver has consumed some items."""
        with self._wake:
            ahead = self._ahead.get(receiver, deque[int]())
            for __ in range(min(count, len(ahead))):
                self._bytes[receiver] -= ahead.popleft()
            self._wake.notify()

    def leave(self, receiver: CallPlace) -> None:
        """Remove a receiver."""
        with self._wake:
            self._receivers.pop(receiver, None)
            self._ahead.pop(receiver, None)
            self._wake.notify()

    def _run(self) -> None:
        iterator = iter(())
        try:
            iterator = iter(self.source)
            for item in iterator:
                data = self._pickle_item(item)
                if not self._make_room(len(data)):
                    return
                self._send("item", data)
            self._send("end", None)
        except BaseException as error:
            self._send("error", self._error(error))
        finally:
            self._receivers.clear()
            with contextlib.suppress(Exception):
                getattr(iterator, "close", lambda: None)()

    def _pickle_item(self, item: Any) -> bytes:
        try:
            data = dumps(item)
        except Exception:
            with pickled_by_value(self.module):
                data = dumps(item)
        needed = self._modules.needed_by(data)
        unsent = tuple(each for each in needed if each.tree not in self._sent_modules)
        self._sent_modules |= {archive.tree for archive in unsent}
        return dumps_with_modules(data, unsent)

    def _error(self, error: BaseException) -> bytes:
        try:
            return self._pickle_item(error)
        except Exception:
            return dumps(SkyTransferError(f"{self.label}: {type(error).__name__}: {error}"))

    def _send(self, kind: str, data: bytes | None) -> None:
        for send in list(self._receivers.values()):
            send((kind, data))

    def _make_room(self, size: int) -> bool:
        """Wait until every receiver has room; return whether any is left."""
        with self._wake:
            while any(
                len(ahead) >= WINDOW_ITEMS or (ahead and self._bytes[name] + size > WINDOW_BYTES)
                for name, ahead in self._ahead.items()
            ):
                self._wake.wait()
            for name, ahead in self._ahead.items():
                ahead.append(size)
                self._bytes[name] += size
            return bool(self._ahead)


_STREAMED = {abc.Iterator, abc.Iterable, abc.Generator, typing.Iterator, typing.Iterable}


@lru_cache(1000)
def streamed_parameters(function: Callable[..., Any]) -> dict[str, bool]:
    """Return the parameters that are annotated as iterators, and whether as iterables only."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # names that exist where a type checker looks
        hints = dict(getattr(function, "__annotations__", {}))
    parameters = {}
    for name, hint in hints.items():
        origin = typing.get_origin(hint) or hint
        if isinstance(origin, str):
            word = origin.partition("[")[0].rpartition(".")[2].strip()
            origin = {"Iterator": abc.Iterator, "Iterable": abc.Iterable}.get(word)
        if name != "return" and origin in _STREAMED:
            parameters[name] = origin is abc.Iterable
    return parameters


def streams_arguments(function: Callable[..., Any]) -> bool:
    """Return whether a function has parameters that are streamed to the node."""
    return bool(_streamed_parameters_of(function))


def _streamed_parameters_of(function: Callable[..., Any]) -> dict[str, bool]:
    plain = getattr(function, "__func__", function)  # a cache must not keep a method's object
    return streamed_parameters(plain) if _hashable(plain) else {}


def streamed(
    function: Callable[..., Any], call: PendingFunction[Any], modules: LocalModules
) -> tuple[tuple[Any, ...], dict[str, Any], tuple, list[StreamSender]]:
    """Return the arguments of a call with placeholders for iterators, and their senders.

    Raises
    ------
    TypeError
        Something else is in the place of an iterator.
    SkyUsageError
        A generator is where no iterator is expected.
    """
    parameters = _streamed_parameters_of(function)
    if not parameters:
        _refuse_generators(function, call)
        return call.args, call.kwargs, (), []
    try:
        bound = inspect.signature(function).bind(*call.args, **call.kwargs)
    except TypeError as error:
        raise TypeError(f"{call.function.name}: {error}") from None
    stream_inputs, stream_senders = [], []
    module = getattr(function, "__module__", None)
    for number, (name, again) in enumerate(parameters.items()):
        if name not in bound.arguments or bound.arguments[name] is None:
            continue
        value, label = bound.arguments[name], f"argument {name} of {call.function.name}"
        if not isinstance(value, abc.Iterable) or isinstance(value, (str, bytes)):
            raise TypeError(
                f"{label} is annotated as an {'Iterable' if again else 'Iterator'} and is streamed "
                f"to the node, but what was given is a {type(value).__name__}"
            )
        bound.arguments[name] = StreamPlaceholder(number)
        stream_inputs.append((number, label, again))
        stream_senders.append(StreamSender(value, number, label, module, modules))
    return bound.args, bound.kwargs, tuple(stream_inputs), stream_senders


def _refuse_generators(function: Callable[..., Any], call: PendingFunction[Any]) -> None:
    for value in (*call.args, *call.kwargs.values()):
        if inspect.isgenerator(value):
            raise SkyUsageError(
                _("{name} was given a generator, and nothing says that it is streamed").format(
                    name=call.function.name
                ),
                hint=_("annotate the parameter as Iterator[...], or give a list"),
            )


def _hashable(function: Any) -> bool:
    try:
        hash(function)
    except TypeError:
        return False
    return True
