"""Shared objects that tasks wait at: queues, barriers and locks."""

from __future__ import annotations

import asyncio
import queue as _queue
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, TypeVar, overload

from jupyter_sky.base.errors import SkyTimeout, SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.shared.key_encoding import dump, load
from jupyter_sky.execution.functions.shared.proxy import SharedProxy
from jupyter_sky.machines.engines.node.instance import instance_info

V = TypeVar("V")


class Queue(SharedProxy, Generic[V]):
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

    def put(self, item: V, block: bool = True, timeout: float | None = None) -> None:
        """Put an item in.

        Raises
        ------
        queue.Full
            There is no room within `timeout` seconds.
        """
        wait = timeout if block else 0.0
        done, __ = self._ask("put", dump(item, self), maxsize=self.maxsize, timeout=wait)
        if not done:
            raise _queue.Full(
                _("{self_value!r} has no room for more than {maxsize}").format(
                    self_value=self, maxsize=self.maxsize
                )
            )

    @overload
    def get(self, block: bool, timeout: float | None = None) -> V: ...
    @overload
    def get(self, block: None = None, timeout: None = None) -> V: ...
    @overload
    def get(self, block: None = None, *, timeout: float) -> V | None: ...
    def get(self, block: bool | None = None, timeout: float | None = None) -> V | None:
        """Remove and return the oldest item; only one task gets it.

        ``get(timeout=5)`` returns None when nothing has come by then; with `block` given, as of
        `queue.Queue`, that is an error.

        Raises
        ------
        queue.Empty
            `block` is given, and nothing comes within `timeout` seconds.
        """
        found, frames = self._ask("get", timeout=0.0 if block is False else timeout)
        if found:
            return load(frames[0])
        if block is None:
            return None
        raise _queue.Empty(_("{self_value!r} is empty").format(self_value=self))

    def put_nowait(self, item: V) -> None:
        """Put an item in if there is room, else raise."""
        self.put(item, block=False)

    def get_nowait(self) -> V:
        """Remove and return an item, or raise if empty."""
        return self.get(block=False)

    def qsize(self) -> int:
        """Return the number of items."""
        return self._ask("len")[0]

    __len__ = qsize

    def empty(self) -> bool:
        """Return whether the queue is empty."""
        return self.qsize() == 0

    def __bool__(self) -> bool:
        return True  # an empty queue is a queue

    def clear(self) -> None:
        """Remove all items."""
        self._ask("clear")

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
        index, frames = self._ask("wait", *brought, parties=self.parties, timeout=timeout)
        if index < 0:
            raise threading.BrokenBarrierError(
                f"{self!r}: not all of {self.parties} tasks came, or one of them is gone"
            )
        return index, frames

    @property
    def n_waiting(self) -> int:
        """Number of waiting tasks."""
        return self._ask("len")[0]

    def reset(self) -> None:
        """Abort waiting tasks."""
        self._ask("reset")

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
        fence, __ = self._ask("acquire", ttl=self.ttl, timeout=None if wait == -1 else wait)
        self.fence = fence or self.fence
        return bool(fence)

    def release(self) -> None:
        """Release the lock.

        Raises
        ------
        SkyUsageError
            This thread does not hold it.
        """
        self._ask("release")

    def locked(self) -> bool:
        """Return whether the lock is held."""
        return self._ask("held")[0]

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
