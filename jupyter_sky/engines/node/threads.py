"""Attribution of output from threads to the cell that started them.

ipykernel remembers the parent of a message in context variables, which threads do not inherit
before Python 3.14. Only those variables are handed on: a whole context would also carry the
event loop's affairs into threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import wraps
from typing import Any


class _WithVariables:
    """Callable that sets context variables in its thread before it calls a function.

    ``__call__`` is a property: its code has returned when the function is called, so that
    tracebacks of the function have no frame of it.
    """

    def __init__(
        self,
        function: Callable,
        values: Sequence[tuple[ContextVar, Any]],
        on_call: Callable[[], object] = lambda: None,
    ) -> None:
        self._function, self._values, self._on_call = function, values, on_call

    @property
    def __call__(self) -> Callable:
        self._on_call()
        for variable, value in self._values:
            variable.set(value)
        return self._function


def inherit_parents(holders: Callable[[], Iterable[Any]]) -> None:
    """Let threads and the tasks of thread pools inherit the parents that `holders` keep.

    Parameters
    ----------
    holders
        Gives the streams, display hooks and the like whose context variables are handed on.
    """
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    def current_values() -> list[tuple[ContextVar, Any]]:
        variables = [
            variable
            for holder in holders()
            for variable in getattr(holder, "__dict__", {}).values()
            if isinstance(variable, ContextVar)
        ]
        values = [(variable, variable.get(None)) for variable in variables]
        return [(variable, value) for variable, value in values if value is not None]

    @wraps(start)
    def carrying_start(self: threading.Thread) -> None:
        # once: afterwards it is the class's own method again
        own = vars(self)
        self.run = _WithVariables(self.run, current_values(), lambda: own.pop("run", None))
        start(self)

    @wraps(submit)
    def carrying_submit(pool: ThreadPoolExecutor, task: Callable, /, *args: Any, **kwargs: Any):
        return submit(pool, _WithVariables(task, current_values()), *args, **kwargs)

    threading.Thread.start = carrying_start  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = carrying_submit  # type: ignore[method-assign]
