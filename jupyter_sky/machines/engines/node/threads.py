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

from jupyter_sky.machines.engines.node.call_hooks import BeforeCall


def inherit_parents(holders: Callable[[], Iterable[Any]]) -> None:
    """Let threads and the tasks of thread pools inherit the parents that `holders` keep.

    Parameters
    ----------
    holders
        Gives the streams, display hooks and the like whose context variables are handed on.
    """
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    def carry(function: Callable, done: Callable[[], object] = lambda: None) -> Any:
        variables = [
            variable
            for holder in holders()
            for variable in getattr(holder, "__dict__", {}).values()
            if isinstance(variable, ContextVar)
        ]
        values = [(variable, variable.get(None)) for variable in variables]

        def set_values() -> None:
            done()
            for variable, value in values:
                if value is not None:
                    variable.set(value)

        return BeforeCall(function, set_values)

    @wraps(start)
    def carrying_start(self: threading.Thread) -> None:
        # once: afterwards it is the class's own method again
        own = vars(self)
        self.run = carry(self.run, lambda: own.pop("run", None))
        start(self)

    @wraps(submit)
    def carrying_submit(pool: ThreadPoolExecutor, task: Callable, /, *args: Any, **kwargs: Any):
        return submit(pool, carry(task), *args, **kwargs)

    threading.Thread.start = carrying_start  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = carrying_submit  # type: ignore[method-assign]
