"""Errors of cells that stand among the outputs already, and that IPython shows no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_sky.execution.cells.failures import RemoteFailure


class ShownError(Exception):
    """Error of a cell that stands among its outputs already.

    It has the name and the text that the engine has given it. It derives from no other class:
    IPython shows some classes in ways of their own, and nothing is left that could catch it.
    """

    def __init__(self, text: str, lines: list[str]) -> None:
        super().__init__(text)
        self._lines = lines

    def _render_traceback_(self) -> list[str]:
        return self._lines

    @classmethod
    def of(cls, error: RemoteFailure) -> ShownError:
        """Return an error of an engine under its own name."""
        kind = type(type(error).__name__, (cls,), {"__module__": type(error).__module__})
        return kind(error.remote_text, error._render_traceback_())


def skip_once(shell: Any, skipped: ShownError) -> ShownError:
    """Keep a shell from showing an error the next time, when its cell raises it; return it."""

    def show(kind: type[BaseException], error: Any, lines: list[str]) -> None:
        vars(shell).pop("_showtraceback", None)
        if error is skipped:
            shell._last_traceback = lines  # the reply of the cell has them, too
        else:
            shell._showtraceback(kind, error, lines)

    # subclasses are to override this method; the class of the shell is not ours to choose
    shell._showtraceback = show
    return skipped
