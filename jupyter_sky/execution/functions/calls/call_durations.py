"""Durations of calls, by which quick ones travel together."""

from __future__ import annotations

BATCH_SECONDS = 0.05
BATCH_CALLS = 1000
MIN_BATCH_SECONDS = 0.005
MIN_CALL_SECONDS = 2e-5
"""Least duration of a call with its overhead (s)."""
LATEST_WEIGHT = 0.2


class CallDurations:
    """Mean durations of calls in seconds, by the names of their functions.

    Examples
    --------
    >>> durations = CallDurations()
    >>> durations.record("train", 0.1)
    >>> durations.is_known("train"), durations.mean("train"), durations.mean("test")
    (True, 0.1, 1.0)
    """

    def __init__(self) -> None:
        self._means: dict[str, float] = {}

    def record(self, name: str, seconds: float, count: int = 1) -> None:
        """Take calls that have ended into the mean of their function.

        Parameters
        ----------
        seconds
            Mean duration of the calls (s).
        count
            Number of the calls.
        """
        before, rest = self._means.get(name, seconds), (1 - LATEST_WEIGHT) ** count
        self._means[name] = rest * before + (1 - rest) * seconds

    def is_known(self, name: str) -> bool:
        """Return whether a call of a function has ended."""
        return name in self._means

    def mean(self, name: str) -> float:
        """Return the mean duration, at least `MIN_CALL_SECONDS`; 1 s where none is known."""
        return max(self._means.get(name, 1.0), MIN_CALL_SECONDS)


def batch_size(waiting: int, slots: int, seconds: float) -> int:
    """Return the most calls that the next message to a node should have.

    Parameters
    ----------
    waiting
        Calls that wait after the first one.
    slots
        Slots of all nodes.
    seconds
        Duration of a call.

    Examples
    --------
    >>> batch_size(10_000, 2, 1e-4), batch_size(100, 2, 1e-4), batch_size(100, 2, 0.02)
    (1000, 50, 25)
    """
    share = -(-waiting // max(slots, 1))
    # the rest is spread over the nodes, but not in messages that cost more than their calls
    least = min(share, int(MIN_BATCH_SECONDS / seconds))
    return min(BATCH_CALLS, max(-(-share // 2), least))
