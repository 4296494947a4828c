"""Output of functions, shown as it arrives, labelled by node."""

from __future__ import annotations

import contextvars
import io
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, Literal, TypeVar

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _

Only = Literal["head"] | int | Collection[int] | Callable[[Any], bool]
F = TypeVar("F")

SHOWN_ATTRIBUTE = "__sky_shown__"
"""Attribute of plain functions that holds the nodes whose output is shown, by stream."""
_LINE_ENDS = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")


class OutputSink:
    """Sink of the output of calls: the outputs of the cell that has sent them.

    Parameters
    ----------
    many
        Whether several nodes may print: then each line says which has, ``[1] loss 0.3``.
    """

    def __init__(self, many: bool) -> None:
        self.many = many
        self._context = contextvars.copy_context()
        self._lock = threading.RLock()
        self._open: dict[str, int] = {}

    def write(self, rank: int, name: str, text: str) -> None:
        """Show text of a node."""
        with self._lock:
            if self.many:
                text = self._prefixed(rank, name, text)
            self._context.run(_print, name, text)

    def _prefixed(self, rank: int, name: str, text: str) -> str:
        continued = self._open.pop(name, None)
        if not text.endswith(("\n", "\r")):
            self._open[name] = rank
        lines = [line for line in _LINE_ENDS.split(text) if line]
        shown = [
            line if not number and continued == rank else f"[{rank}] {line}"
            for number, line in enumerate(lines)
        ]
        cut = continued not in (None, rank)  # another's line is ended
        return "".join(["\n" if cut else "", *shown])

    def display(self, rank: int, content: dict[str, Any]) -> None:
        """Show a display message, such as a figure."""
        with self._lock:
            self._context.run(_display, content)


def _print(name: str, text: str) -> None:
    stream = getattr(sys, name)
    stream.write(text)
    stream.flush()


def _display(content: dict[str, Any]) -> None:
    from IPython.display import publish_display_data

    publish_display_data(content["data"], content.get("metadata"))


def stdout(function: Any = None, /, *, only: Only = "head") -> Any:
    """Show the standard output of a function on some nodes only.

    Above or below ``@sky.function``.

    Parameters
    ----------
    only
        ``"head"``, a rank, several ranks, or a function of `instance_info`.

    Returns
    -------
    Function
        The same function; a decorator when only `only` is given.

    Examples
    --------
    >>> from jupyter_sky.execution.functions.calls.lazy_calls import function
    >>> @stdout(only="head")
    ... @function
    ... def train() -> None:
    ...     print("only once")
    >>> train.shown
    {'stdout': 'head'}
    """
    return _filtered(function, {"stdout": _checked(only)})


def stderr(function: Any = None, /, *, only: Only = "head") -> Any:
    """Show the standard error of a function on some nodes only; see `stdout`.

    Parameters
    ----------
    function
        A function, lazy or not.
    only
        ``"head"``, a rank, several ranks, or a function of `instance_info`.

    Returns
    -------
    Function
        The same function; a decorator when only `only` is given.

    Examples
    --------
    >>> from jupyter_sky.execution.functions.calls.lazy_calls import function
    >>> @stderr(only=0)
    ... @function
    ... def train() -> None: ...
    >>> train.shown
    {'stderr': 0}
    """
    return _filtered(function, {"stderr": _checked(only)})


def silent(function: Any) -> Any:
    """Show no output of a function.

    Parameters
    ----------
    function
        A function, lazy or not.

    Returns
    -------
    Function
        The same function, whose output is not shown.

    Examples
    --------
    >>> from jupyter_sky.execution.functions.calls.lazy_calls import function
    >>> @silent
    ... @function
    ... def train() -> None:
    ...     print("never shown")
    >>> train.shown
    {'stdout': (), 'stderr': ()}
    """
    return _filtered(function, {"stdout": (), "stderr": ()})


class CallbackWriter(io.TextIOBase):
    """Text stream that gives all that is written to it to a function.

    Parameters
    ----------
    callback
        Called with each text.

    Examples
    --------
    >>> texts = []
    >>> print("loss", 0.3, file=CallbackWriter(texts.append), end="")
    >>> "".join(texts)
    'loss 0.3'
    """

    def __init__(self, callback: Callable[[str], Any]) -> None:
        self._callback = callback
        self._texts: list[str] = []

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Give a text to the function."""
        self._texts.append(text)
        self._callback(text)
        return len(text)

    def getvalue(self) -> str:
        """Return all that was written."""
        return "".join(self._texts)


@contextmanager
def redirect_output(
    callback: Callable[[str], Any],
) -> Iterator[tuple[CallbackWriter, CallbackWriter]]:
    r"""Give what this process prints to a function, for the length of the context.

    Parameters
    ----------
    callback
        Called with each text.

    Yields
    ------
    tuple of CallbackWriter
        The streams in place of standard output and standard error.

    Examples
    --------
    >>> texts = []
    >>> with redirect_output(texts.append):
    ...     print("loss", 0.3)
    >>> "".join(texts)
    'loss 0.3\n'
    """
    writers = CallbackWriter(callback), CallbackWriter(callback)
    with redirect_stdout(writers[0]), redirect_stderr(writers[1]):
        yield writers


def _filtered(function: Any, shown: dict[str, Any]) -> Any:
    if function is None:
        return lambda function: _filtered(function, shown)
    if hasattr(function, "with_output"):  # a `lazy_calls.Function`
        return function.with_output(shown)
    if not callable(function):
        raise SkyUsageError(
            _("this is for functions, not for a {name}").format(name=type(function).__name__)
        )
    setattr(function, SHOWN_ATTRIBUTE, {**getattr(function, SHOWN_ATTRIBUTE, {}), **shown})
    return function


def _checked(only: Any) -> Any:
    ranks = isinstance(only, Collection) and not isinstance(only, (str, bytes))
    if ranks and all(isinstance(rank, int) for rank in only):
        return tuple(only)
    if only == "head" or callable(only) or (isinstance(only, int) and not isinstance(only, bool)):
        return only
    raise SkyUsageError(
        _("only={only!r}: 'head', a rank, several ranks, or a function of instance_info()").format(
            only=only
        )
    )
