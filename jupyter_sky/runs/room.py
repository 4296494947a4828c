"""Room of clusters for more tasks: for one at a time, or for all short ones that are sent at once.

A task that may be sent with others is sent alone until it is known how long those of its cluster
take, and again alone after an attempt that did not end well.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from .state import ClusterPhase, RunState
from .task_state import Phase

BATCH_SECONDS = 1.0
"""Time that the tasks which are sent together are to take."""
MOST_TASKS = 500
"""Most tasks that are sent together."""
_BOUND = (Phase.MOVING, Phase.SENDING, Phase.RUNNING)


class Room:
    """Room that the clusters of a run have left.

    Parameters
    ----------
    state
        Of the run; what is taken since is counted here.

    Examples
    --------
    >>> from .graph import RunGraph
    >>> Room(RunState.begin(RunGraph([]))).count_batch("pool")
    1
    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._used: Counter[str] = Counter()
        self._alone: set[str] = set()
        self._counts: dict[str, int] | None = None
        for name in state.active:
            if state.tasks[name].phase in _BOUND:
                self._hold(name)

    def take(self, name: str) -> bool:
        """Return whether the cluster of a task has room for it, and count it where it has."""
        cluster = self._state.placement[name]
        known = self._state.clusters.get(cluster)
        if known is None or known.phase is not ClusterPhase.UP:
            return False
        limit = self._state.offers[cluster].get("slots", 1)
        if self._is_batched(name) and cluster not in self._alone:
            limit = max(limit, self.count_batch(cluster))
        if self._used[cluster] >= limit:
            return False
        self._hold(name)
        return True

    def count_batch(self, cluster: str) -> int:
        """Return the number of tasks that are sent together, by the time of those that ended."""
        if self._counts is None:
            hours: defaultdict[str, list[float]] = defaultdict(list)
            for name, task in self._state.tasks.items():
                if task.phase is Phase.SUCCEEDED and not task.stored and self._is_batched(name):
                    hours[self._state.placement.get(name, "")].append(task.hours)
            self._counts = {
                name: min(int(BATCH_SECONDS / max(sum(each) / len(each) * 3600, 1e-6)), MOST_TASKS)
                for name, each in hours.items()
            }
        return max(self._counts.get(cluster, 1), 1)

    def _hold(self, name: str) -> None:
        cluster = self._state.placement[name]
        self._used[cluster] += 1
        if not self._is_batched(name):
            self._alone.add(cluster)

    def _is_batched(self, name: str) -> bool:
        task = self._state.tasks[name]
        return self._state.graph.tasks[name].is_batched and not (task.errors or task.losses)
