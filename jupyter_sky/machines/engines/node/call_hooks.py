"""Actions before calls of functions that leave no frame in the tracebacks of the functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class BeforeCall:
    """Callable that carries out an action, in the thread that calls it, and then a function.

    ``__call__`` is a property: its code has returned when the function is called.
    """

    def __init__(self, function: Callable[..., Any], action: Callable[[], object]) -> None:
        self._function, self._action = function, action

    @property
    def __call__(self) -> Callable[..., Any]:
        """The function, once the action has been carried out."""
        self._action()
        return self._function
