"""Errors that IPython shows while a cell runs: the exception that ends the cell, and others.

A notebook shows all of them where they stand among the outputs. Some it must tell apart: of several
engines that fail, one error is enough, and an exception that the notebook's own code handles is
not shown at all.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Literal

from IPython.core.error import InputRejected

from jupyter_sky.machines.engines.node.call_hooks import BeforeCall
from jupyter_sky.machines.engines.wire.error_serialization import describe_origin
from jupyter_sky.machines.engines.wire.messages import Content

ShownBy = Literal["engine", "notebook"]


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
        self._result: Any = None
        self._shown_by: ShownBy = "engine"
        self._show_usage_error = shell.show_usage_error
        shell.show_usage_error = self._show_usage
        # programs look at the name of the shell's class, so it is no subclass
        shell.run_code = BeforeCall(shell.run_code, self._note_result)

    def begin_cell(self, shown_by: ShownBy = "engine") -> None:
        """Forget the last cell.

        Parameters
        ----------
        shown_by
            Where the exception that ends the new one is shown.
        """
        self.final = self._result = None
        self._shown_by = shown_by

    def _show_usage(self, error: BaseException) -> None:
        """Print an error that IPython prints as text, which nobody could take back."""
        if self._shown_by == "engine" or not self._ends_cell(error):
            self._show_usage_error(error)

    def describe(self, content: Content) -> Content:
        """Return the metadata of an error message: whether it ends the cell, and its origin."""
        error = getattr(sys, "last_value", None)  # IPython sets it before it shows an error
        if not isinstance(error, BaseException):
            return {}
        is_final = self._ends_cell(error)
        if is_final:
            self.final = FinalError(error, content["ename"], content["evalue"])
        return {"sky": {"final": is_final, "error": describe_origin(error)}}

    def _note_result(self) -> None:
        """Note the result of the cell when its code begins; magics run further cells within it."""
        if self._result is None:
            self._result = self.shell.displayhook.exec_result

    def _ends_cell(self, error: BaseException) -> bool:
        if self._result is None:  # before the code of the cell has begun
            return isinstance(error, SyntaxError | InputRejected)
        hook = self.shell.displayhook
        is_displaying = getattr(hook, "msg", None) is not None
        return error is self._result.error_in_exec or (
            is_displaying and hook.exec_result is self._result
        )
