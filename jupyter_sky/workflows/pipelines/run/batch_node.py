"""Calls of several tasks in one cell, on its engine: each with a function and values of its own."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Call = tuple[str, int, list[Any]]
"""Name of a task, position of its function, and the values that this is called with."""


def run_calls(
    functions: Sequence[Any], calls: Sequence[Call], seconds: float
) -> dict[str, dict[str, Any]]:
    """Call functions one after the other; return what became of those that were begun.

    Parameters
    ----------
    functions
        Each call gets a copy, so that no task finds what another has left in one.
    calls
        In their order.
    seconds
        Time after which no further call begins; the first one begins in any case.

    Returns
    -------
    dict of dict
        For each task whose call was begun ``value``, the pickled value, or ``error``, the line that
        names the exception; ``outputs``, entries as a journal has them; ``seconds`` that it took.

    Examples
    --------
    >>> import cloudpickle
    >>> outcomes = run_calls([len], [("a", 0, ["abc"]), ("b", 0, [5])], seconds=60)
    >>> cloudpickle.loads(outcomes["a"]["value"]), outcomes["b"]["error"]
    (3, "TypeError: object of type 'int' has no len()")
    """
    import cloudpickle

    pickled = [cloudpickle.dumps(function) for function in functions]
    outcomes: dict[str, dict[str, Any]] = {}
    entries: list[dict[str, Any]] = []
    began = time.monotonic()
    with _recording(entries):
        for task, position, values in calls:
            if outcomes and time.monotonic() - began > seconds:
                break
            start = time.monotonic()
            outcome = _call(pickled[position], values)
            _wait_for_processes()
            outcome["seconds"] = time.monotonic() - start
            outcome["outputs"] = [*entries, *outcome["outputs"]]
            entries.clear()
            outcomes[task] = outcome
    return outcomes


def _call(function: bytes, values: Sequence[Any]) -> dict[str, Any]:
    import cloudpickle

    try:
        value = cloudpickle.loads(function)(*values)
        # as after a way to the notebook: bytes of equal values are equal more often
        stored = cloudpickle.dumps(cloudpickle.loads(cloudpickle.dumps(value)))
    except KeyboardInterrupt:  # the cell is stopped
        raise
    except BaseException as error:
        line = f"{type(error).__name__}: {error}"
        shown = {
            "ename": type(error).__name__,
            "evalue": str(error),
            "traceback": traceback.format_exception(error),
        }
        return {"value": None, "error": line, "outputs": [{"type": "error", "content": shown}]}
    return {"value": stored, "error": "", "outputs": []}


@contextmanager
def _recording(entries: list[dict[str, Any]]) -> Iterator[None]:
    """Record what is printed and displayed, which is shown as in any cell."""
    streams = [each for each in (sys.stdout, sys.stderr) if hasattr(each, "pub_thread")]
    publisher = _display_publisher()
    for stream in streams:
        _record_writes(stream, entries)

    def record(message: dict[str, Any]) -> dict[str, Any]:
        entries.append({"type": message["header"]["msg_type"], "content": message["content"]})
        return message

    if publisher is not None:
        publisher.register_hook(record)
    try:
        yield
    finally:
        for stream in streams:
            del stream.write
        if publisher is not None:
            publisher.unregister_hook(record)


def _record_writes(stream: Any, entries: list[dict[str, Any]]) -> None:
    """Record what is written to a stream, also by those that have got hold of it before."""
    write, name = stream.write, stream.name

    def recording_write(text: str) -> Any:
        entries.append({"type": "stream", "content": {"name": name, "text": text}})
        return write(text)

    stream.write = recording_write


def _display_publisher() -> Any:
    """Return what displays values in an engine; None where nothing does."""
    from IPython import get_ipython  # type: ignore[attr-defined]

    publisher = getattr(get_ipython(), "display_pub", None)
    return publisher if hasattr(publisher, "register_hook") else None


def _wait_for_processes() -> None:
    """Wait for the outputs of the processes that a call has started."""
    from jupyter_sky.machines.engines.node.streams import BoundedOutStream

    if BoundedOutStream.has_unread():
        BoundedOutStream.wait_for_processes()
