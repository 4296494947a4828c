"""Nodes of a pool, in the notebook."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jupyter_sky.execution.functions.calls.gathered_calls import PlainCalls
from jupyter_sky.execution.functions.calls.tasks import CallTask
from jupyter_sky.execution.functions.node.messages import Command, RunCalls, RunPlainCalls

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.output import OutputSink
    from jupyter_sky.machines.engines.client.connection import ClusterConnection


AHEAD_SECONDS = 0.08
"""Age of a batch after which no other waits behind it: one of its calls is not quick after all."""


@dataclass(slots=True, eq=False)
class PoolNode:
    """Node that takes calls.

    Attributes
    ----------
    rank : int
        Rank in the pool; `cluster_rank` is its rank in the cluster of `connection`.
    engine : str
        Identity of its engine process; empty while there is none.
    """

    rank: int
    connection: ClusterConnection
    cluster_rank: int
    slots: int
    executor: str
    engine: str = ""
    batches: dict[str, SentBatch] = field(default_factory=dict)
    pinned: deque[CallTask] = field(default_factory=deque)
    reserved: bool = False
    joining: bool = False
    """Whether it is being prepared: only calls for this very node go there."""
    leaving: bool = False
    """Whether its machine is about to be taken away: it ends its calls and gets no others."""
    replaced: bool = False
    """Whether another node has taken its place and its rank."""
    recalls_saved: bool = False
    """Whether its calls go on elsewhere from their next save."""
    sent_context: Any = None

    @property
    def free_slots(self) -> int:
        """Number of free slots."""
        if not self.engine or self.reserved or self.leaving or not self.is_alive:
            return 0
        return self.slots - len(self.batches)

    @property
    def takes_ahead(self) -> bool:
        """Whether quick calls may wait there: it is about to end the quick calls that it has."""
        if not self.engine or self.reserved or not self.is_alive or len(self.batches) != self.slots:
            return False
        since = time.monotonic() - AHEAD_SECONDS
        return all(batch.count > 1 and batch.sent > since for batch in self.batches.values())

    @property
    def is_alive(self) -> bool:
        """Whether its engine is connected, as far as is known."""
        return (
            not self.connection.is_lost
            and self.connection.client.engines_by_rank.get(self.cluster_rank) == self.engine
        )


def next_node(nodes: Mapping[int, PoolNode], last: int, is_quick: bool) -> PoolNode | None:
    """Return the free node with the least load; ties go round.

    Parameters
    ----------
    nodes
        Nodes by rank.
    last
        Rank of the node that the last calls were sent to.
    is_quick
        Whether the calls may wait behind quick ones.
    """
    ready = [node for node in nodes.values() if not node.joining and not node.leaving]
    free = [node for node in ready if node.free_slots > 0]
    if not free and is_quick:
        free = [node for node in ready if node.takes_ahead]
    if not free:
        return None
    count = max(nodes) + 1
    return min(free, key=lambda n: (len(n.batches), (n.rank - last - 1) % count))


def idle_node(nodes: Mapping[int, PoolNode]) -> PoolNode | None:
    """Return a node that runs no calls."""
    idle = (n for n in nodes.values() if n.free_slots == n.slots and not n.joining)
    return next(idle, None)


# -- Calls that were sent to a node in one message, in the notebook -------------------------------


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Request that calls of a batch stop.

    Attributes
    ----------
    why : str
        Reason, one of `StopReason`.
    since : float
        Time of the request (monotonic clock).
    keys : frozenset of int
        The calls.
    """

    why: str
    since: float
    keys: frozenset[int]


@dataclass(slots=True, eq=False)
class SentBatch:
    """Batch of calls sent to a node in one message.

    Attributes
    ----------
    tasks : dict
        Calls that have not ended, by key.
    plain : PlainCalls, optional
        Calls without tasks; `open_plain` has the keys of those that have not ended.
    """

    node: PoolNode
    tasks: dict[int, CallTask]
    plain: PlainCalls | None = None
    open_plain: set[int] = field(default_factory=set)
    id: str = ""
    count: int = 0
    """Number of calls when it was sent; several are quick."""
    sent: float = field(default_factory=time.monotonic)
    printed: int = 0
    held_results: deque[tuple[int, list[tuple]]] = field(default_factory=deque)
    is_final: bool = False
    ran_concurrently: bool = False
    """Whether others ran beside it when its engine died."""
    stop_request: StopRequest | None = None
    """Latest request to stop calls of it."""

    @classmethod
    def of(cls, node: PoolNode, calls: list[CallTask] | PlainCalls) -> SentBatch:
        """Make the batch of calls that are about to be sent."""
        if isinstance(calls, PlainCalls):
            return cls(node, {}, calls, set(calls.keys), count=calls.count)
        return cls(node, {task.key: task for task in calls}, count=len(calls))

    def command(self, pool: str) -> Command:
        """Return the command that has a node run the calls."""
        if self.plain is not None:
            plain = self.plain
            arguments = plain.arguments()
            return RunPlainCalls(pool, plain.timeout, plain.function, plain.keys, arguments)
        calls = [
            (
                t.key,
                t.packed.function,
                t.packed.arguments,
                t.timeout,
                t.packed.stream_inputs,
                t.broadcast,
                t.recovery.next_sending() if t.recovery is not None else None,
            )
            for t in self.tasks.values()
        ]
        return RunCalls(pool, calls)

    @property
    def open_count(self) -> int:
        """Number of calls that have not ended."""
        return len(self.tasks) + len(self.open_plain)

    @property
    def sink(self) -> OutputSink | None:
        """Receiver of its outputs, while it has calls."""
        if self.plain is not None:
            return self.plain.sink
        return next(iter(self.tasks.values())).sink if self.tasks else None

    def has_any(self, keys: Collection[int]) -> bool:
        """Return whether some calls have not ended."""
        return any(key in self.tasks or key in self.open_plain for key in keys)

    def count_of(self, group: object) -> int:
        """Return the number of calls of a gather that have not ended."""
        plain = self.plain is not None and self.plain.gathered is group
        tasks = sum(task.group is group for task in list(self.tasks.values()))
        return tasks + (len(self.open_plain) if plain else 0)

    def time_limits(self) -> list[float]:
        """Return the time limit of each call that has not ended (s); 0 where there is none."""
        limits = [task.timeout or 0.0 for task in list(self.tasks.values())]
        if self.plain is not None:
            limits += [self.plain.timeout or 0.0] * len(self.open_plain)
        return limits

    def task(self, key: int) -> CallTask | None:
        """Return a call that has not ended; one without a task gets it."""
        if key in self.open_plain and self.plain is not None:
            self.open_plain.discard(key)
            number = key - self.plain.gathered.first_key
            self.tasks[key] = self.plain.task(number, attempts=1)
        return self.tasks.get(key)

    def all_tasks(self) -> list[CallTask]:
        """Return all calls that have not ended, as tasks."""
        return [task for key in sorted({*self.open_plain, *self.tasks}) if (task := self.task(key))]

    def take(self, key: int) -> CallTask | None:
        """Take a call out, as a task; return None if it was taken out before."""
        self.task(key)
        return self.tasks.pop(key, None)

    def take_all(self) -> list[CallTask]:
        """Take all calls out, as tasks, in their order."""
        for key in sorted(self.open_plain):
            self.task(key)
        tasks = [self.tasks[key] for key in sorted(self.tasks)]
        self.tasks.clear()
        return tasks

    def take_values(self, keys: Sequence[int], values: Sequence[Any]) -> int:
        """Set results of calls without tasks; return how many there were."""
        if self.plain is None:
            return 0
        first, open_keys = self.plain.gathered.first_key, self.open_plain
        pairs = [(k - first, v) for k, v in zip(keys, values, strict=True) if k in open_keys]
        self.open_plain.difference_update(keys)
        self.plain.gathered.set_values(pairs)
        return len(pairs)

    def take_unstarted(self, keys: Sequence[int]) -> PlainCalls | None:
        """Take out calls without tasks that have not begun."""
        if self.plain is None:
            return None
        first = self.plain.gathered.first_key
        numbers = [key - first for key in keys if key in self.open_plain]
        self.open_plain.difference_update(keys)
        return self.plain.part(_as_range(numbers)) if numbers else None


def _as_range(numbers: list[int]) -> Sequence[int]:
    """Return consecutive numbers as a range.

    Examples
    --------
    >>> _as_range([3, 4, 5]), _as_range([3, 5])
    (range(3, 6), [3, 5])
    """
    whole = range(numbers[0], numbers[-1] + 1)
    return whole if len(whole) == len(numbers) else numbers
