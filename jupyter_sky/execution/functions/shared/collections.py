"""Shared objects of a pool by name: dict, set, counter, queue, barrier, lock.

Inside a function they are the pool's; in the notebook those of the pool that is up; without any
pool they are this process's own, so that ``train.local()`` works. Operations are atomic. Every
method has a coroutine beside it, for functions that are one: ``await jobs.get_async()``.
"""

from __future__ import annotations

import asyncio
import builtins
import contextvars
import io
import itertools
import numbers
import pickle
import queue as _queue
import threading
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, MutableSet
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from jupyter_sky.base.errors import SkyTimeout, SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.shared.messages import (
    Acquire,
    AddAmount,
    AddElement,
    Clear,
    GetEntry,
    GetItem,
    HasEntry,
    IsHeld,
    Length,
    ListItems,
    ListKeys,
    PopEntry,
    PutEntries,
    PutItem,
    Release,
    ResetBarrier,
    ResetCounter,
    SetDefault,
    SharedRequest,
    Wait,
)
from jupyter_sky.machines.engines.node.instance import instance_info
from jupyter_sky.machines.engines.wire.values import Parcel

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.shared.shared_client import SharedStateClient


# -- Proxy of an object that tasks share ----------------------------------------------------------


class SharedProxy:
    """Proxy of a shared object, found by name."""

    kind = ""
    _async_methods: Mapping[str, str] = MappingProxyType({})
    """Methods whose coroutine has a name of its own."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise SkyUsageError(
                _("sky.{kind}({name!r}): not a name").format(kind=self.kind, name=name),
                hint=_('tasks find it by a text, such as sky.{kind}("progress")').format(
                    kind=self.kind
                ),
            )
        self.name = name

    def _ask(self, request: SharedRequest, *frames: bytes) -> tuple[Any, list[bytes]]:
        from jupyter_sky.execution.functions.shared.shared_client import current_client

        client: SharedStateClient = current_client()
        return client.ask(request, frames)

    def __getattr__(self, name: str) -> Any:
        """Return ``METHOD_async``: the method as a coroutine, run in a thread beside the loop."""
        plain = name.removesuffix("_async")
        plain = self._async_methods.get(plain, plain)
        if plain == name or not hasattr(type(self), plain):
            raise AttributeError(f"sky.{type(self).kind} has no attribute {name!r}")

        async def run(*args: Any, **kwargs: Any) -> Any:
            def call() -> Any:
                attribute = getattr(self, plain)
                return attribute(*args, **kwargs) if callable(attribute) else attribute

            context = contextvars.copy_context()
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread(), context.run, call)

        return run

    def _thread(self) -> ThreadPoolExecutor | None:
        """Return the threads in which coroutines run; those of the loop for None."""
        return None

    def __repr__(self) -> str:
        return f"sky.{self.kind}({self.name!r})"

    def __reduce__(self) -> Any:
        return type(self), (self.name,)


CONSISTENCIES = ("strong", "eventual")


def check_consistency(what: str, consistency: str) -> None:
    """Raise SkyUsageError for a consistency that is not known.

    Every operation is strongly consistent, so whoever is content with less has it, too.
    """
    if consistency not in CONSISTENCIES:
        raise SkyUsageError(
            _("{what}(consistency={consistency!r}): not a consistency").format(
                what=what, consistency=consistency
            ),
            hint=_("'strong' or 'eventual'; all operations are strongly consistent"),
        )


# -- Shared objects that tasks wait at: queues, barriers and locks --------------------------------

Item = TypeVar("Item")


class Queue(SharedProxy, Generic[Item]):
    """FIFO queue between tasks.

    Parameters
    ----------
    maxsize
        Most items; further puts wait. 0 for no bound.

    Examples
    --------
    >>> jobs = Queue("jobs")
    >>> jobs.put({"rate": 0.1})
    >>> jobs.get()
    {'rate': 0.1}
    """

    kind = "queue"

    def __init__(self, name: str, maxsize: int = 0) -> None:
        super().__init__(name)
        self.maxsize = maxsize

    def put(self, item: Item, block: bool = True, timeout: float | None = None) -> None:
        """Put an item in.

        Raises
        ------
        queue.Full
            There is no room within `timeout` seconds.
        """
        wait = timeout if block else 0.0
        done, __ = self._ask(PutItem(self.kind, self.name, wait, self.maxsize), dump(item, self))
        if not done:
            raise _queue.Full(
                _("{self_value!r} has no room for more than {maxsize}").format(
                    self_value=self, maxsize=self.maxsize
                )
            )

    @overload
    def get(self, block: bool, timeout: float | None = None) -> Item: ...
    @overload
    def get(self, block: None = None, timeout: None = None) -> Item: ...
    @overload
    def get(self, block: None = None, *, timeout: float) -> Item | None: ...
    def get(self, block: bool | None = None, timeout: float | None = None) -> Item | None:
        """Remove and return the oldest item; only one task gets it.

        ``get(timeout=5)`` returns None when nothing has come by then; with `block` given, as of
        `queue.Queue`, that is an error.

        Raises
        ------
        queue.Empty
            `block` is given, and nothing comes within `timeout` seconds.
        """
        found, frames = self._ask(GetItem(self.kind, self.name, 0.0 if block is False else timeout))
        if found:
            return load(frames[0])
        if block is None:
            return None
        raise _queue.Empty(_("{self_value!r} is empty").format(self_value=self))

    def put_nowait(self, item: Item) -> None:
        """Put an item in if there is room, else raise."""
        self.put(item, block=False)

    def get_nowait(self) -> Item:
        """Remove and return an item, or raise if empty."""
        return self.get(block=False)

    def qsize(self) -> int:
        """Return the number of items."""
        return self._ask(Length(self.kind, self.name))[0]

    __len__ = qsize

    def empty(self) -> bool:
        """Return whether the queue is empty."""
        return self.qsize() == 0

    def __bool__(self) -> bool:
        return True  # an empty queue is a queue

    def clear(self) -> None:
        """Remove all items."""
        self._ask(Clear(self.kind, self.name))

    def __reduce__(self) -> Any:
        return type(self), (self.name, self.maxsize)


class Barrier(SharedProxy):
    """Barrier at which tasks wait for each other.

    Parameters
    ----------
    parties, n
        How many meet, by either name; all nodes of the pool unless given.
    """

    kind = "barrier"

    def __init__(self, name: str, parties: int | None = None, *, n: int | None = None) -> None:
        super().__init__(name)
        if n is not None and parties is not None:
            raise SkyUsageError(
                _(
                    "sky.barrier({name!r}): parties and n are the same thing: give one of them"
                ).format(name=name)
            )
        parties = n if parties is None else parties
        if parties is not None and (isinstance(parties, bool) or not isinstance(parties, int)):
            raise SkyUsageError(
                _("sky.barrier({name!r}, {parties!r}): not a number of tasks").format(
                    name=name, parties=parties
                )
            )
        if parties is not None and parties < 1:
            raise SkyUsageError(
                _("sky.barrier({name!r}, {parties}): at least one task must meet").format(
                    name=name, parties=parties
                )
            )
        self.parties = parties or instance_info().total_nodes

    def wait(self, timeout: float | None = None) -> int:
        """Wait until all have arrived; return the index of arrival of this task.

        Raises
        ------
        threading.BrokenBarrierError
            Not all came within `timeout` seconds, or one of them is gone: for all who waited.
        """
        return self._arrive(timeout)[0]

    def exchange(self, value: Any, timeout: float | None = None) -> list[Any]:
        """Wait until all have arrived; return the values of all, in order of arrival."""
        return [load(frame) for frame in self._arrive(timeout, dump(value, self))[1]]

    def _arrive(self, timeout: float | None, *brought: bytes) -> tuple[int, list[bytes]]:
        index, frames = self._ask(Wait(self.kind, self.name, timeout, self.parties), *brought)
        if index < 0:
            raise threading.BrokenBarrierError(
                f"{self!r}: not all of {self.parties} tasks came, or one of them is gone"
            )
        return index, frames

    @property
    def n_waiting(self) -> int:
        """Number of waiting tasks."""
        return self._ask(Length(self.kind, self.name))[0]

    def reset(self) -> None:
        """Abort waiting tasks."""
        self._ask(ResetBarrier(self.kind, self.name))

    def __reduce__(self) -> Any:
        return type(self), (self.name, self.parties)


class Lock(SharedProxy):
    """Lock that one task of the pool holds at a time.

    It belongs to the thread that has taken it, and is free when that thread's process ends.

    Parameters
    ----------
    ttl
        Seconds after which it is taken from a task that still holds it; never unless given.
    timeout
        Seconds that ``with`` and `acquire` wait for it; for ever unless given.

    Attributes
    ----------
    fence : int
        Number of the last time that it was taken through this object; a later holder's is
        higher, so storage can refuse a writer that has lost it.

    Examples
    --------
    >>> with Lock("model"):
    ...     pass
    """

    kind = "lock"

    def __init__(
        self, name: str, ttl: float | None = None, *, timeout: float | None = None
    ) -> None:
        super().__init__(name)
        self.ttl, self.timeout = ttl, timeout
        self.fence = 0
        self._async_thread: ThreadPoolExecutor | None = None

    def _thread(self) -> ThreadPoolExecutor:
        """Return one thread, as the thread that has taken a lock must release it."""
        if self._async_thread is None:
            self._async_thread = ThreadPoolExecutor(1, f"sky-lock-{self.name}")
        return self._async_thread

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Acquire the lock; return whether that succeeded within `timeout` seconds."""
        timeout = self.timeout if timeout is None else timeout
        wait = timeout if blocking else 0.0
        fence, __ = self._ask(Acquire(self.kind, self.name, None if wait == -1 else wait, self.ttl))
        self.fence = fence or self.fence
        return bool(fence)

    def release(self) -> None:
        """Release the lock.

        Raises
        ------
        SkyUsageError
            This thread does not hold it.
        """
        self._ask(Release(self.kind, self.name))

    def locked(self) -> bool:
        """Return whether the lock is held."""
        return self._ask(IsHeld(self.kind, self.name))[0]

    def __enter__(self) -> Lock:
        if not self.acquire():
            raise SkyTimeout(
                _("{self_value!r} was not free within {timeout:g} s").format(
                    self_value=self, timeout=self.timeout
                ),
                hint=_("allow more: sky.lock({name!r}, timeout=60)").format(name=self.name),
            )
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    async def __aenter__(self) -> Lock:
        return await asyncio.get_running_loop().run_in_executor(self._thread(), self.__enter__)

    async def __aexit__(self, *error: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread(), self.release)

    def __reduce__(self) -> Any:
        return partial(type(self), timeout=self.timeout), (self.name, self.ttl)


# -- Shared objects of a pool by name: dict, set, counter, queue, barrier, lock -------------------

Consistency = Literal["strong", "eventual"]
"""Consistency of a collection. All operations are strongly consistent, whatever is asked for."""
K = TypeVar("K")
V = TypeVar("V")

_MISSING: Any = object()


class Dict(SharedProxy, MutableMapping[K, V], Generic[K, V]):
    """Dict that all tasks share.

    Keys are compared by what they are worth, as in any dict. A value that is changed in place is
    changed here only: assign it again.

    Examples
    --------
    >>> best = Dict("best")
    >>> best["loss"] = 0.25
    >>> best.setdefault("loss", 1.0), len(best), best.get("accuracy")
    (0.25, 1, None)
    """

    kind = "dict"
    _async_methods = MappingProxyType({"set": "__setitem__", "contains": "__contains__"})

    def __init__(self, name: str, consistency: Consistency = "strong") -> None:
        super().__init__(name)
        check_consistency(f"sky.dict({name!r})", consistency)

    def __getitem__(self, key: K) -> V:
        found, frames = self._ask(GetEntry(self.kind, self.name), encode_key(key))
        if not found:
            raise KeyError(key)
        return load(frames[0])

    def __setitem__(self, key: K, value: V) -> None:
        self._ask(
            PutEntries(self.kind, self.name), encode_key(key), dump(key, self), dump(value, self)
        )

    def __delitem__(self, key: K) -> None:
        if not self._ask(PopEntry(self.kind, self.name), encode_key(key))[0]:
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return self._ask(HasEntry(self.kind, self.name), encode_key(key))[0]

    def __len__(self) -> int:
        return self._ask(Length(self.kind, self.name))[0]

    def __iter__(self) -> Iterator[K]:
        return map(load, self._ask(ListKeys(self.kind, self.name))[1])

    def pop(self, key: K, default: Any = _MISSING) -> Any:
        """Remove a key and return its value; only one task gets it."""
        found, frames = self._ask(PopEntry(self.kind, self.name), encode_key(key))
        if found:
            return load(frames[0])
        if default is _MISSING:
            raise KeyError(key)
        return default

    def setdefault(self, key: K, default: Any = None) -> Any:
        """Return the value of a key, after setting it if missing; the first task wins."""
        frames = self._ask(
            SetDefault(self.kind, self.name), encode_key(key), dump(key, self), dump(default, self)
        )[1]
        return load(frames[0])

    def update(self, *others: Any, **more: V) -> None:
        """Set many keys atomically."""
        made = builtins.dict(*others, **more)
        frames = [
            frame
            for key, value in made.items()
            for frame in (encode_key(key), dump(key, self), dump(value, self))
        ]
        if frames:
            self._ask(PutEntries(self.kind, self.name), *frames)

    def snapshot(self) -> Any:
        """Return a consistent copy as a plain dict."""
        frames = self._ask(ListItems(self.kind, self.name))[1]
        pairs = zip(frames[::2], frames[1::2], strict=True)
        return {load(key): load(value) for key, value in pairs}

    def items(self) -> Any:
        """Return a consistent copy of keys and values."""
        return self.snapshot().items()

    def values(self) -> Any:
        """Return a consistent copy of the values."""
        return self.snapshot().values()

    def clear(self) -> None:
        """Remove all entries."""
        self._ask(Clear(self.kind, self.name))


class Set(SharedProxy, MutableSet[K], Generic[K]):
    """Set that all tasks share.

    Examples
    --------
    >>> seen = Set("seen")
    >>> seen.add("a"), seen.add("a")
    (True, False)
    """

    kind = "set"
    _async_methods = MappingProxyType({"contains": "__contains__"})

    def __init__(self, name: str, consistency: Consistency = "strong") -> None:
        super().__init__(name)
        check_consistency(f"sky.set({name!r})", consistency)

    def add(self, value: K) -> bool:  # type: ignore[override]
        """Add an element; return True to the one task that added it."""
        frames = encode_key(value), dump(value, self), dump(value, self)
        return self._ask(AddElement(self.kind, self.name), *frames)[0]

    def discard(self, value: K) -> bool:  # type: ignore[override]
        """Remove an element; return whether it was present."""
        return self._ask(PopEntry(self.kind, self.name), encode_key(value))[0]

    def __contains__(self, value: object) -> bool:
        return self._ask(HasEntry(self.kind, self.name), encode_key(value))[0]

    def __len__(self) -> int:
        return self._ask(Length(self.kind, self.name))[0]

    def __iter__(self) -> Iterator[K]:
        return map(load, self._ask(ListKeys(self.kind, self.name))[1])

    def update(self, *others: Iterable[K]) -> None:
        """Add many elements atomically."""
        frames = [
            frame
            for value in itertools.chain(*others)
            for frame in (encode_key(value), dump(value, self), dump(value, self))
        ]
        if frames:
            self._ask(PutEntries(self.kind, self.name), *frames)

    def snapshot(self) -> Any:
        """Return a consistent copy as a plain set."""
        return {*self}

    def clear(self) -> None:
        """Remove all entries."""
        self._ask(Clear(self.kind, self.name))

    @classmethod
    def _from_iterable(cls, values: Iterable[Any]) -> Any:
        return {*values}


class Counter(SharedProxy):
    """Counter that all tasks share.

    Examples
    --------
    >>> done = Counter("done")
    >>> done.add(), done.add(4), done.value
    (1, 5, 5)
    """

    kind = "counter"

    def __init__(self, name: str, consistency: Consistency = "strong") -> None:
        super().__init__(name)
        check_consistency(f"sky.counter({name!r})", consistency)

    def add(self, amount: float = 1) -> Any:
        """Add to it and return the new value, unique to this task."""
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            raise SkyUsageError(
                _("{self_value!r}.add({amount!r}): not a number").format(
                    self_value=self, amount=amount
                )
            )
        return self._ask(AddAmount(self.kind, self.name, amount))[0]

    increment = add

    def decrement(self, amount: float = 1) -> Any:
        """Subtract from it and return the new value."""
        return self.add(-amount)

    @property
    def value(self) -> Any:
        """Current value."""
        return self._ask(AddAmount(self.kind, self.name, 0))[0]

    def reset(self, value: float = 0) -> Any:
        """Set the value, and return the previous one."""
        return self._ask(ResetCounter(self.kind, self.name, value))[0]

    def __int__(self) -> int:
        return int(self.value)

    def __iadd__(self, amount: float) -> Counter:
        self.add(amount)
        return self


# the names under which `sky` has them
dict, set, counter, queue, barrier, lock = Dict, Set, Counter, Queue, Barrier, Lock


# -- Encoding of values and keys as bytes: equal keys have equal bytes in every process -----------


def dump(value: Any, whose: object) -> bytes:
    """Serialize a value to bytes.

    Raises
    ------
    SkyTransferError
        It cannot be pickled; says which part of it.
    """
    try:
        return pickle.dumps(value, protocol=5) if type(value) in _PLAIN else _parcel(value, whose)
    except RecursionError:
        return _parcel(value, whose)


_PLAIN = {int, float, str, bytes, bool, type(None)}


def _parcel(value: Any, whose: object) -> bytes:
    parcel = Parcel.of(value, _("a value for {whose!r}").format(whose=whose))
    if len(parcel.segments) == 1:
        return parcel.to_bytes()
    # arrays: their memory behind the stream, and how much of it each has
    return pickle.dumps((_LARGE, parcel.sizes), protocol=5) + parcel.to_bytes()


_LARGE = "jupyter_sky.parcel"


def load(data: bytes) -> Any:
    """Deserialize bytes to their value."""
    stream = io.BytesIO(data)
    value = pickle.load(stream)
    if isinstance(value, tuple) and len(value) == 2 and value[0] == _LARGE:
        return Parcel.from_bytes(value[1], data[stream.tell() :]).load()
    return value


def encode_key(key: Any) -> bytes:
    """Return bytes that are equal for equal keys.

    Raises
    ------
    TypeError
        The key is not hashable, as for any dict.

    Examples
    --------
    >>> encode_key((1, "a")) == encode_key((1.0, "a")), encode_key("1") == encode_key(1)
    (True, False)
    """
    hash(key)
    if key is None:
        return b"n"
    if isinstance(key, str):
        return b"s" + str(key).encode("utf-8", "surrogatepass")
    if isinstance(key, bytes):
        return b"b" + key
    if isinstance(key, numbers.Number):
        return b"i" + _encode_number(key)
    if type(key) is tuple:
        return b"t" + _join_parts(encode_key(part) for part in key)
    if isinstance(key, frozenset):
        return b"f" + _join_parts(sorted(encode_key(part) for part in key))
    return b"p" + _pickle_key(key)


def _encode_number(key: Any) -> bytes:
    number = key.item() if hasattr(key, "item") else key
    whole = isinstance(number, float) and number.is_integer()
    return repr(int(number) if whole or isinstance(number, bool) else number).encode()


def _join_parts(parts: Any) -> bytes:
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def _pickle_key(key: Any) -> bytes:
    """Pickle a key independently of references shared within it."""
    import cloudpickle

    stream = io.BytesIO()
    try:
        pickler = pickle.Pickler(stream, protocol=5)
        pickler.fast = True  # no memo: "the same object again" is not written down
        pickler.dump(key)
    except Exception:
        return cloudpickle.dumps(key)
    return stream.getvalue()
