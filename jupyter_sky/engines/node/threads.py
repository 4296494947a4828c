"""Attribution of output from threads to the cell that started them.

ipykernel remembers the parent of a message in context variables, which threads do not inherit
before Python 3.14. Only those variables are handed on: a whole context would also carry the
event loop's affairs into threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import wraps
from typing import Any


def inherit_parents(holders: Callable[[], Iterable[Any]]) -> None:
    """Let threads and the tasks of thread pools inherit the parents that `holders` keep.

    Parameters
    ----------
    holders
        Gives the streams, display hooks and the like whose context variables are handed on.
    """
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    def carry(function: Callable) -> Callable:
        values = [
            (value, value.get(None))
            for holder in holders()
            for value in getattr(holder, "__dict__", {}).values()
            if isinstance(value, ContextVar)
        ]

        def carried(*args: Any, **kwargs: Any) -> Any:
            for variable, value in values:
                if value is not None:
                    variable.set(value)
            return function(*args, **kwargs)

        return carried

    @wraps(start)
    def carrying_start(self: threading.Thread) -> None:
        run = carry(self.run)

        def once() -> None:
            del self.run  # the class's own again
            run()

        self.run = once
        start(self)

    @wraps(submit)
    def carrying_submit(pool: ThreadPoolExecutor, task: Callable, /, *args: Any, **kwargs: Any):
        return submit(pool, carry(task), *args, **kwargs)

    threading.Thread.start = carrying_start  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = carrying_submit  # type: ignore[method-assign]
