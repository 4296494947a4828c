"""Events of a transfer, taken by one thread, and requests to stores that end as events."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import Empty, SimpleQueue
from threading import Semaphore
from typing import TypeAlias, TypeVar

from jupyter_sky.machines.storage.stores.errors import SkyStorageError

Result = TypeVar("Result")
Failable: TypeAlias = Result | SkyStorageError


def attempt(work: Callable[[], Result]) -> Failable[Result]:
    """Return what a call returns, or its error."""
    try:
        return work()
    except SkyStorageError as error:
        return error
    except Exception as error:  # a defect must end the transfer, not a thread of it
        return SkyStorageError(repr(error))


class Events:
    """Queue of events, and threads that ask the stores.

    Parameters
    ----------
    threads : int
        Requests at once.

    Attributes
    ----------
    asking : int
        Requests whose answers have not been taken yet.
    """

    def __init__(self, threads: int) -> None:
        self.asking = 0
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._threads = ThreadPoolExecutor(threads, "sky-store")

    def put(self, handle: Callable[..., None], *values: object) -> None:
        """Let the thread that takes events call `handle`; from any thread."""
        self._queue.put(partial(handle, *values))

    def ask(self, work: Callable[[], Result], then: Callable[[Failable[Result]], None]) -> None:
        """Run `work` in another thread, and `then` with its result in that of the events."""
        self.asking += 1

        def end(result: Failable[Result]) -> None:
            self.asking -= 1
            then(result)

        unclaimed = Semaphore(1)

        def run() -> None:
            if unclaimed.acquire(blocking=False):
                self.put(end, attempt(work))

        try:
            self._threads.submit(run)
        except RuntimeError:  # no thread can be started; an earlier one may have it nevertheless
            run()

    def take(self, seconds: float | None = None) -> None:
        """Handle the events that are there; wait for the first, at most for `seconds`."""
        try:
            self._queue.get(timeout=seconds)()
        except Empty:
            return
        while not self._queue.empty():
            self._queue.get()()

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()
