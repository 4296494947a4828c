"""Errors that IPython shows while a cell runs: the exception that ends the cell, and others.

A notebook shows all of them where they stand among the outputs. Some it must tell apart: of several
engines that fail, one error is enough, and an exception that the notebook's own code handles is
not shown at all.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import wraps
from typing import Any

from IPython.core.error import InputRejected

from ..wire.error_serialization import describe_origin
from ..wire.messages import Content


@dataclass(frozen=True, slots=True)
class FinalError:
    """Exception that ends a cell, with its name and its text as they were shown.

    The text of an exception may be another one each time that it is asked for.
    """

    error: BaseException
    name: str
    text: str


class ShownErrors:
    """Recognition of the exception that ends a cell, when an error is about to be shown.

    Parameters
    ----------
    shell
        The shell of the engine.

    Attributes
    ----------
    final : FinalError or None
        The exception that ends the current cell, once it has been shown.
    """

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.final: FinalError | None = None
        self._running: list[Any] = []
        # programs look at the name of the shell's class, so it is no subclass
        shell.run_code = self._follow(shell.run_code)

    def begin_cell(self) -> None:
        """Forget the last cell."""
        self.final = None

    def describe(self, content: Content) -> Content:
        """Return the metadata of an error message: whether it ends the cell, and its origin."""
        error = getattr(sys, "last_value", None)  # IPython sets it before it shows an error
        is_final = error is not None and self._ends_cell(error)
        if is_final:
            self.final = FinalError(error, content["ename"], content["evalue"])
        origin = {} if error is None else describe_origin(error)
        return {"sky": {"final": is_final, "error": origin}}

    def _ends_cell(self, error: BaseException) -> bool:
        if not self._running:  # before a cell has begun to run, or in a hook
            return isinstance(error, SyntaxError | InputRejected)
        is_displaying = getattr(self.shell.displayhook, "msg", None) is not None
        outermost = self._running[0]
        return error is getattr(outermost, "error_in_exec", None) or (
            is_displaying and len(self._running) == 1
        )

    def _follow(self, run_code: Any) -> Any:
        """Remember the results of the cells that run; magics run further ones within them."""

        @wraps(run_code)
        async def followed(code: Any, result: Any = None, **options: Any) -> bool:
            __tracebackhide__ = "__ipython_bottom__"  # as in the method itself
            self._running.append(result)
            try:
                return await run_code(code, result, **options)
            finally:
                self._running.pop()

        return followed
