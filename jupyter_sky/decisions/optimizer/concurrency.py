"""Sets of tasks that may run at the same time, which quotas are about."""

from __future__ import annotations

from jupyter_sky.base.requests.dag.graph import Graph

MAX_SETS = 256
"""Sets of tasks that are told apart; with more, quotas are kept in a stricter way."""


def ancestor_masks(graph: Graph) -> list[int]:
    """Return for each task a bit mask of all tasks that must have ended before it."""
    before = [0] * len(graph.tasks)
    into: list[list[int]] = [[] for _ in graph.tasks]
    for edge in graph.edges:
        into[edge.dst].append(edge.src)
    for task in range(len(graph.tasks)):
        for src in into[task]:
            before[task] |= before[src] | 1 << src
    return before


def find_concurrent_sets(graph: Graph) -> tuple[list[tuple[int, ...]], bool]:
    """Return largest sets of tasks none of which waits for another, and whether they are all.

    Where there are too many, the sets are, for each task, all that may run beside it: to limit
    these keeps every limit, and may forbid plans that would have kept it too.

    Examples
    --------
    >>> from jupyter_sky.base.requests.dag.graph import Edge, TaskSpec
    >>> fork = Graph("", tuple(TaskSpec(n, ()) for n in "abc"), (Edge(0, 1, 0), Edge(0, 2, 0)))
    >>> find_concurrent_sets(fork)
    ([(0,), (1, 2)], True)
    """
    count, before = len(graph.tasks), ancestor_masks(graph)
    beside = [0] * count
    for one in range(count):
        for other in range(one):
            if not (before[one] >> other & 1):
                beside[one] |= 1 << other
                beside[other] |= 1 << one
    found: list[int] = []

    def grow(chosen: int, open_: int, closed: int) -> bool:
        """Search for largest cliques as Bron and Kerbosch do, with a pivot."""
        if not open_ and not closed:
            found.append(chosen)
            return len(found) <= MAX_SETS
        both = open_ | closed
        pivot = max(_bits(both), key=lambda v: (beside[v] & open_).bit_count())
        for task in _bits(open_ & ~beside[pivot]):
            if not grow(chosen | 1 << task, open_ & beside[task], closed & beside[task]):
                return False
            open_ &= ~(1 << task)
            closed |= 1 << task
        return True

    if grow(0, (1 << count) - 1, 0):
        return sorted(tuple(_bits(mask)) for mask in found), True
    wide = {mask | 1 << task for task, mask in enumerate(beside)}
    return sorted(tuple(_bits(mask)) for mask in wide), False


def _bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
