"""Places that no optimal plan needs, found before any search.

A reduction here is exact for a sum over tasks and edges with no constraint that ties tasks
together: a quota or "not this plan again" may need the very place that is otherwise dominated.
"""

from __future__ import annotations

import numpy as np

from jupyter_sky.decisions.optimizer.solver.additive_problem import AdditiveProblem
from jupyter_sky.decisions.optimizer.solver.problem import Flags, Floats, Ints

_CELLS = 3_000_000  # numbers that one comparison may hold


def find_undominated(problem: AdditiveProblem) -> Ints:
    """Return places that remain when those are gone that another place can stand for.

    Place a dominates b when for every task C_v(a) <= C_v(b), and for every table that an edge
    uses and every other place k, Q(a, k) <= Q(b, k), Q(k, a) <= Q(k, b), and Q(a, a) is not above
    Q(b, b), Q(a, b) or Q(b, a).

    *Proof that an optimum is kept:* in an optimal plan move all tasks at b to a. No unary grows.
    An edge inside b becomes one inside a, an edge between a and b becomes one inside a, and an
    edge between b and k becomes one between a and k; by assumption none of them grows. With
    places deleted one after the other, each deletion starts from a problem with the same optimum.

    Examples
    --------
    >>> from jupyter_sky.decisions.optimizer.solver.hierarchy import find_hierarchy
    >>> one = np.array([0]), np.array([1]), np.ones(1), np.array([0])
    >>> free = find_hierarchy([np.zeros((3, 3))], {})
    >>> unary = np.array([[1.0, 2, 0], [1, 1, 3]])
    >>> find_undominated(AdditiveProblem(unary, np.zeros((2, 3), int), *one, free))
    array([0, 2])
    """
    useful = np.flatnonzero(np.isfinite(problem.unary).any(0))
    useful = useful[_within_nodes(problem.take(useful))]
    unary = problem.unary[:, useful]
    used = np.unique(problem.table)
    tables = problem.hier.tables[used][:, useful][:, :, useful]
    worse = _never_better(unary.T)
    if worse.sum() > len(useful):
        worse &= _moves_no_better(tables)
    return useful[_remove_dominated(worse, unary)]


def _within_nodes(problem: AdditiveProblem) -> Ints:
    """Return undominated among places of one node of the finest level above places.

    Such places are the same to every place outside the node, and data that comes from within it
    costs the same to either: what is left to compare is what leaving costs at each level.
    """
    hier, alive = problem.hier, np.ones(problem.unary.shape[1], bool)
    if len(hier.nodes) == 1:
        return np.flatnonzero(alive)
    nodes = hier.nodes[1]
    for node in np.flatnonzero(np.bincount(nodes) > 1):
        members = np.flatnonzero(nodes == node)
        leaving = hier.inside[:, :, members].reshape(-1, len(members))
        unary = problem.unary[:, members]
        worse = _never_better(unary.T) & _never_better(leaving.T)
        rows, columns = hier.row_class[members], hier.column_class[members]
        worse &= (rows[:, None] == rows) & (columns[:, None] == columns)
        alive[members[~_remove_dominated(worse, unary)]] = False
    return np.flatnonzero(alive)


def _remove_dominated(worse: Flags, unary: Floats) -> Flags:
    """Return which rows are left when dominated ones go one by one, the dearest first."""
    alive = np.ones(len(worse), bool)
    np.fill_diagonal(worse, False)
    for b in np.argsort(-np.where(np.isfinite(unary), unary, 1e300).mean(0), kind="stable"):
        if (worse[:, b] & alive).any():
            alive[b] = False
    return alive


def _never_better(rows: Floats) -> Flags:
    """Return for rows a and b whether a is nowhere above b."""
    count, width = rows.shape
    result = np.ones((count, count), bool)
    step = max(1, _CELLS // max(count * count, 1))
    for start in range(0, width, step):
        part = rows[:, start : start + step]
        result &= (part[:, None, :] <= part[None, :, :]).all(2)
    return result


def _moves_no_better(tables: Floats) -> Flags:
    count = tables.shape[1]
    result = np.ones((count, count), bool)
    index = np.arange(count)
    for table in tables:
        own = np.diag(table)
        result &= (own[:, None] <= own[None, :]) & (own[:, None] <= table)
        result &= own[:, None] <= table.T
        # Pairs (a, k) and (b, k) with k of {a, b} are the cases above, not this one.
        for rows in (table, table.T):
            bad = np.empty((count, count), np.int64)
            for a in index:
                bad[a] = (rows[a][None, :] > rows).sum(1)
            bad -= (own[:, None] > rows.T).astype(np.int64)  # k = a: own(a) > rows[b, a]
            bad -= (rows > own[None, :]).astype(np.int64)  # k = b: rows[a, b] > own(b)
            np.fill_diagonal(bad, 0)
            result &= bad == 0
    return result
