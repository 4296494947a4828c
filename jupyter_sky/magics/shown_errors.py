"""Errors of cells that stand among the outputs already, and that IPython shows no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..executor.failures import RemoteFailure


class ShownError(Exception):
    """Error of a cell that stands among its outputs already.

    It has the name and the text that the engine has given it. It derives from no other class:
    IPython shows some classes in ways of their own, and nothing is left that could catch it.
    """

    def __init__(self, text: str, lines: list[str]) -> None:
        super().__init__(text)
        self._lines, self._is_new = lines, True

    def _render_traceback_(self) -> list[str]:
        return self._lines

    def skip_once(self) -> bool:
        """Return True the first time: that is when the cell raises it."""
        is_new, self._is_new = self._is_new, False
        return is_new

    @classmethod
    def of(cls, error: RemoteFailure) -> ShownError:
        """Return an error of an engine under its own name."""
        kind = type(type(error).__name__, (cls,), {"__module__": type(error).__module__})
        return kind(error.remote_text, error._render_traceback_())


def skip_shown_errors(shell: Any) -> None:
    """Keep a shell from showing errors once more that stand among the outputs of their cells."""
    show = shell._showtraceback

    def show_others(kind: type[BaseException], error: Any, lines: list[str]) -> None:
        if isinstance(error, ShownError) and error.skip_once():
            shell._last_traceback = lines  # the reply of the cell has them, too
        else:
            show(kind, error, lines)

    # subclasses are to override this method; the class of the shell is not ours to choose
    shell._showtraceback = show_others


def show_all_errors(shell: Any) -> None:
    """Undo `skip_shown_errors`."""
    vars(shell).pop("_showtraceback", None)
