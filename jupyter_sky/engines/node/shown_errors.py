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


@dataclass(frozen=True, slots=True)
class ShownError:
    """Exception that ends a cell, with its name and its text as they were shown.

    The text of an exception may be another one each time that it is asked for.
    """

    error: BaseException
    name: str
    text: str


class ErrorDisplay:
    """Publisher of errors of IPython's shell, in place of the shell's own.

    Attributes
    ----------
    final : ShownError or None
        The exception that ends the current cell, once it has been shown.
    """

    def __init__(self, shell: Any) -> None:
        self.shell, self.final = shell, None
        self._running: list[Any] = []
        # subclasses are to override this method; but programs look at the name of the shell's class
        shell._showtraceback = self.show
        shell.run_code = self._follow(shell.run_code)

    def begin_cell(self) -> None:
        """Forget the last cell."""
        self.final: ShownError | None = None

    def show(self, kind: type[BaseException], error: Any, lines: list[str]) -> None:
        """Publish an error as ipykernel does, with facts about it in the metadata."""
        from ipykernel.jsonutil import json_clean

        sys.stdout.flush()
        sys.stderr.flush()
        name, text, is_final = str(kind.__name__), str(error), self._ends_cell(error)
        if is_final:
            self.final = ShownError(error, name, text)
        hook = self.shell.displayhook
        if getattr(hook, "msg", None) is not None:
            self.shell._last_traceback_during_displayhook = True
        hook.session.send(
            hook.pub_socket,
            "error",
            json_clean({"ename": name, "evalue": text, "traceback": lines}),
            hook.parent_header,
            ident=hook.topic.replace(b"execute_result", b"error") if hook.topic else None,
            metadata={"sky": {"final": is_final, "error": describe_origin(error)}},
        )
        self.shell._last_traceback = lines

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
            self._running.append(result)
            try:
                return await run_code(code, result, **options)
            finally:
                self._running.pop()

        return followed
