"""Better plans for large graphs: many tasks move to one place at once, as a minimum cut says.

Alpha expansion (Boykov, Veksler, Zabih, IEEE PAMI 23(11), 2001). A move is the best of its kind
where prices obey the triangle inequality; elsewhere it is still a plan, and is kept only when its
own value, computed anew, is smaller.
"""

from __future__ import annotations

import time

import numpy as np

from jupyter_sky.optimizer.solver.additive_problem import AdditiveProblem
from jupyter_sky.optimizer.solver.problem import Flags, Floats, Ints

_UNITS = 2**28  # capacities are whole numbers of 32 bits


def expand_plan(problem: AdditiveProblem, x: Ints, until: float) -> Ints:
    """Improve places x by expansions of one place after the other, until CPU second `until`."""
    best = problem.value(x)
    failed = 0
    places = _order_targets(problem, x)
    position = 0
    while failed < len(places) and time.process_time() < until:
        candidate = _find_best_move(problem, x, int(places[position % len(places)]))
        position += 1
        value = problem.value(candidate)
        if value < best * (1 - 1e-12):
            x, best, failed = candidate, value, 0
        else:
            failed += 1
    return x


def _order_targets(problem: AdditiveProblem, x: Ints) -> Ints:
    """Return places in use, by how much; then those where tasks would be cheapest by themselves."""
    count = problem.unary.shape[1]
    used = np.bincount(x, minlength=count).astype(float)
    liked = np.bincount(problem.unary.argmin(1), minlength=count) / (len(x) + 1)
    score = used + liked
    order = np.argsort(-score, kind="stable")
    return order[score[order] > 0]


def _find_best_move(problem: AdditiveProblem, x: Ints, target: int) -> Ints:
    """Return the best plan in which each task stays or goes to `target`."""
    n = len(x)
    stay = problem.unary[np.arange(n), x].copy()
    go = problem.unary[:, target].copy()
    src, dst = problem.src, problem.dst
    m = problem.hier.tables
    k, scale = problem.table, problem.scale
    same = m[k, x[src], x[dst]] * scale  # neither moves
    head = m[k, x[src], target] * scale  # the head moves
    tail = m[k, target, x[dst]] * scale  # the tail moves
    both = m[k, target, target] * scale
    # same + tail' ... as a sum of single terms and one arc that is cut when only the tail stays
    np.add.at(stay, src, same)
    np.add.at(go, src, tail)
    np.add.at(go, dst, np.maximum(both - tail, 0))
    np.add.at(stay, dst, np.maximum(tail - both, 0))
    arc = np.maximum(head + tail - same - both, 0)
    moved = _find_minimum_cut(stay, go, src, dst, arc)
    return np.where(moved, target, x)


def _find_minimum_cut(stay: Floats, go: Floats, src: Ints, dst: Ints, arc: Floats) -> Flags:
    """Return which tasks go: the cheapest split when a tail that stays pays `arc` for a head."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    n = len(stay)
    surplus = np.where(np.isfinite(stay), stay, 0) - np.where(np.isfinite(go), go, 0)
    surplus[~np.isfinite(go)] = -np.inf
    finite = np.abs(surplus[np.isfinite(surplus)])
    unit = _UNITS / max(finite.max(initial=0), arc.max(initial=0), 1e-9)
    weight = np.clip(surplus * unit, -_UNITS, _UNITS)
    weight = np.where(np.isneginf(surplus), -_UNITS, weight)
    stays, goes = np.flatnonzero(weight < 0), np.flatnonzero(weight > 0)
    source, sink = n, n + 1
    rows = np.r_[np.full(len(stays), source), goes, src]
    columns = np.r_[stays, np.full(len(goes), sink), dst]
    capacity = np.r_[-weight[stays], weight[goes], np.minimum(arc * unit, _UNITS)]
    graph = csr_array((np.round(capacity).astype(np.int32), (rows, columns)), shape=(n + 2, n + 2))
    flow = maximum_flow(graph, source, sink).flow
    residual = csr_array(graph - flow)
    residual.data = np.maximum(residual.data, 0)
    residual.eliminate_zeros()
    reached = breadth_first_order(residual, source, return_predecessors=False)
    moved = np.ones(n + 2, bool)
    moved[reached] = False
    return moved[:n] & np.isfinite(go)
