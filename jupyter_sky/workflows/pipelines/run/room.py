"""Room of clusters for more tasks: for one at a time, or for all short ones that are sent at once.

A task that may be sent with others is sent alone until it is known how long those of its cluster
take, and again alone after an attempt that did not end well.
"""

from __future__ import annotations

from collections import Counter

from jupyter_sky.workflows.pipelines.run.cluster_state import ClusterPhase
from jupyter_sky.workflows.pipelines.run.state import RunState
from jupyter_sky.workflows.pipelines.run.task_state import UNDER_WAY

BATCH_SECONDS = 1.0
"""Time that the tasks which are sent together are to take."""
MOST_TASKS = 500
"""Most tasks that are sent together."""


class Room:
    """Room that the clusters of a run have left.

    Parameters
    ----------
    state
        Of the run; what is taken since is counted here.

    Examples
    --------
    >>> from jupyter_sky.workflows.pipelines.model.graph import RunGraph
    >>> Room(RunState.begin(RunGraph([]))).count_batch("pool")
    1
    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._used: Counter[str] = Counter()
        self._alone: set[str] = set()
        for phase in UNDER_WAY:
            for name in state.by_phase[phase]:
                self._hold(name)

    def take(self, name: str) -> bool:
        """Return whether the cluster of a task has room for it, and count it where it has."""
        if not self._has_room(self._state.placement[name], self._state.may_be_batched(name)):
            return False
        self._hold(name)
        return True

    def is_full(self, cluster: str) -> bool:
        """Return whether a cluster has no room for a task of any kind."""
        return not self._has_room(cluster, is_batched=True)

    def _has_room(self, cluster: str, is_batched: bool) -> bool:
        known = self._state.clusters.get(cluster)
        if known is None or known.phase is not ClusterPhase.UP:
            return False
        limit = self._state.offers[cluster].get("slots", 1)
        if is_batched and cluster not in self._alone:
            limit = max(limit, self.count_batch(cluster))
        return self._used[cluster] < limit

    def count_batch(self, cluster: str) -> int:
        """Return the number of tasks that are sent together, by the time of those that ended."""
        count, hours = self._state.batched.get(cluster, (0, 0.0))
        if not count:
            return 1
        mean_seconds = max(hours / count * 3600, 1e-6)
        return max(min(int(BATCH_SECONDS / mean_seconds), MOST_TASKS), 1)

    def _hold(self, name: str) -> None:
        cluster = self._state.placement[name]
        self._used[cluster] += 1
        if not self._state.may_be_batched(name):
            self._alone.add(cluster)
