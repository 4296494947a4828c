"""Notices of pools: lines that are shown in the output of a call."""

from __future__ import annotations

from jupyter_sky.base.requests.resources import format_elapsed
from jupyter_sky.base.translation import _


def restart_notice(call: str, rank: int, why: str, seconds: float, uses: str) -> str:
    """Return the line that is shown before an engine is restarted because of a call.

    Parameters
    ----------
    call
        The call that does not stop.
    rank
        Its node.
    why
        Reason for which it should have stopped, as of `StopReason`.
    seconds
        Time it had to stop after the failure of its group.
    uses
        What else is known to run below the engines; empty if nothing is.

    Examples
    --------
    >>> print(restart_notice("svd(a)", 1, "timeout", 60.0, ""), end="")  # doctest: +ELLIPSIS
    jupyter_sky: svd(a) did not stop at its time limit; the engine of node 1 is restarted...
    """
    late = {
        "group": f"did not stop within {format_elapsed(seconds)} after its group had ended",
        "timeout": "did not stop at its time limit",
        "close": "did not stop after its stream was closed",
    }.get(why, "did not stop when it was cancelled")
    known = _(", and {uses} may be").format(uses=uses) if uses else ""
    return _(
        "jupyter_sky: {call} {late}; the engine of node {rank} is restarted. "
        "The variables of its cells, what calls have kept there and its child "
        "processes are lost{known}\n"
    ).format(call=call, late=late, rank=rank, known=known)


def unread_notice(stream: str, rank: int, waiting: str) -> str:
    """Return the line that is shown when a call waits for a node that a stream blocks.

    Examples
    --------
    >>> print(unread_notice("numbers(9)", 0, "add(1)"), end="")
    jupyter_sky: add(1) waits for a node, and node 0 waits until items of numbers(9) are read: \
read the stream, or close() it
    """
    return _(
        "jupyter_sky: {waiting} waits for a node, and node {rank} waits until "
        "items of {stream} are read: read the stream, or close() it\n"
    ).format(waiting=waiting, rank=rank, stream=stream)
