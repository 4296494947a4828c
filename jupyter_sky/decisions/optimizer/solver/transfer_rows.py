"""Transfers as linear terms: what an edge costs and lasts, in variables linear in places.

The product of two choices is made linear with one variable for each node of a tree of places
rather than one for each pair of candidates; `TransferRows` says how, and why nothing is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from jupyter_sky.decisions.optimizer.solver.hierarchy import Hierarchy
from jupyter_sky.decisions.optimizer.solver.problem import Flags, Floats, Ints

_NOISE = 1e-12


@dataclass(frozen=True, eq=False)
class PriceTree:
    """Tables of transfer prices as prices to leave the nodes of a tree.

    M[k][i, j] = base[k, i] + the sum of `weight[k, a]` over nodes a that i is in and j is not.

    Attributes
    ----------
    member : bool array, A x P
    weight : float array, K x A
    base : float array, K x P
    """

    member: Flags
    weight: Floats
    base: Floats


def find_price_tree(hier: Hierarchy) -> PriceTree | None:
    """Return the tables as a tree with a price to leave each node; None where they are no tree.

    Examples
    --------
    >>> from jupyter_sky.decisions.optimizer.solver.hierarchy import find_hierarchy
    >>> price = np.array([[0, 1, 5.0], [1, 0, 5], [7, 7, 0]])
    >>> find_price_tree(find_hierarchy([price], {"cloud": np.array([0, 0, 1])})).weight
    array([[1., 1., 4., 7.]])
    """
    inside, top = hier.inside, len(hier.nodes) - 1
    steps = [inside[:, level + 1] - inside[:, level] for level in range(top)]
    if hier.nodes[top].max():
        out = _leaving_top(hier)
        if out is None:
            return None
        steps.append(out - inside[:, top])
    members, weights = [], []
    for level, step in enumerate(steps):
        for node in range(hier.nodes[level].max() + 1):
            here = hier.nodes[level] == node
            if not here.any():
                continue
            part = step[:, here]
            noise = _NOISE * (1 + np.abs(inside[:, 0, here]).max() + np.abs(part).max())
            if np.ptp(part, axis=1).max() > noise or part.min() < -noise:
                return None
            members.append(here)
            weights.append(np.maximum(part[:, 0], 0))
    if not members:
        return PriceTree(np.zeros((0, hier.places), bool), np.zeros((len(inside), 0)), inside[:, 0])
    weight = np.stack(weights, axis=1)
    used = weight.any(0)
    return PriceTree(np.stack(members)[used], weight[:, used], inside[:, 0])


def _leaving_top(hier: Hierarchy) -> Floats | None:
    """Return what each place pays to leave its coarsest node; None if that varies."""
    across = hier.across
    low = np.where(np.isfinite(across), across, np.inf).min(2)
    high = np.where(np.isfinite(across), across, -np.inf).max(2)
    if (high - low > _NOISE * (1 + np.abs(high))).any():
        return None
    return low[:, hier.row_class]


@dataclass
class TripletMatrix:
    """A sparse matrix in the making."""

    rows: list[Ints] = field(default_factory=list)
    columns: list[Ints] = field(default_factory=list)
    values: list[Floats] = field(default_factory=list)

    def add(self, row: int | Ints, columns: Ints, values: float | Floats) -> None:
        """Put values at one row, or at a row each."""
        size = len(columns)
        self.rows.append(np.broadcast_to(np.asarray(row, np.int64), size))
        self.columns.append(np.asarray(columns, np.int64))
        self.values.append(np.broadcast_to(np.asarray(values, np.float64), size))

    def matrix(self, rows: int, columns: int):
        """Return a CSR array of SciPy; equal positions are added."""
        from scipy.sparse import csr_array

        if not self.rows:
            return csr_array((rows, columns))
        data = np.concatenate(self.values)
        where = (np.concatenate(self.rows), np.concatenate(self.columns))
        return csr_array((data, where), shape=(rows, columns))


class TransferRows:
    """Rows and terms of all edges, over label variables s and link variables w >= 0.

    Where one end of an edge has one place left, its terms are linear in s alone. Else either

    * one w for each node a of the tree, w_a >= X_u(a) - X_v(a), with X(a) the sum of s over labels
      in a. With 0-1 values the least w_a is 1 exactly when the data leave a, so weight times w is
      the price. *The relaxation is as tight as the one with a variable for each pair:* any way
      to couple the two distributions moves at least X_u(a) - X_v(a) out of each a, and matching
      within the leaves first, then within their parents, and so on, attains all of these at once;
    * or, where what a place pays to leave a node depends on the place, one w for each node and
      price in it; of what reaches a node from below at one price, no more can leave it at that
      price. Where the way out of the coarsest node also depends on where it leads, one w for each
      pair of such classes takes over;
    * or one w for each pair of places left, with both distributions as its sums, where that is
      fewer.

    Attributes
    ----------
    less, less_w : TripletMatrix
        Rows ``less @ s - less_w @ w <= 0``.
    equal, equal_w : TripletMatrix
        Rows ``equal @ s - equal_w @ w == 0``.
    terms : list of (TripletMatrix, TripletMatrix)
        For each kind of amount (USD, h, g): a row for each edge, over s and over w.
    """

    def __init__(self, kinds: int) -> None:
        self.less, self.less_w = TripletMatrix(), TripletMatrix()
        self.equal, self.equal_w = TripletMatrix(), TripletMatrix()
        self.terms = [(TripletMatrix(), TripletMatrix()) for _ in range(kinds)]
        self.less_rows = self.equal_rows = self.variables = 0
        self.forbidden: list[int] = []

    def add(
        self,
        edge: int,
        ends: tuple[tuple[Ints, Ints], tuple[Ints, Ints]],
        tables: list[Floats],
        scale: float,
        shape: tuple[PriceTree | Hierarchy, list[int]] | None,
    ) -> None:
        """Write one edge.

        Parameters
        ----------
        edge : int
            Its row in `terms`.
        ends : two pairs of int array
            For tail and head: columns of their labels in s, and where each lies.
        tables : list of float array
            For each kind, amounts between any two places; ``inf`` for what cannot be.
        scale : float
            What to multiply them by.
        shape : (PriceTree or Hierarchy, list of int), optional
            The structure of the tables, and which of them stands for each kind.
        """
        (left, from_), (right, to) = ends
        a, at_a = np.unique(from_, return_inverse=True)
        b, at_b = np.unique(to, return_inverse=True)
        small = [scale * table[np.ix_(a, b)] for table in tables]
        if not all(np.isfinite(part).all() for part in small):
            self._pairs(edge, (left, at_a), (right, at_b), small)
        elif len(b) == 1:
            self._linear(edge, left, [part[at_a, 0] for part in small])
        elif len(a) == 1:
            self._linear(edge, right, [part[0, at_b] for part in small])
        elif shape is None or len(a) * len(b) <= self._size(shape[0], a, b):
            self._pairs(edge, (left, at_a), (right, at_b), small)
        elif isinstance(shape[0], PriceTree):
            self._tree(edge, ends, (a, b), scale, shape)
        else:
            self._levels(edge, ends, a, scale, shape)

    def _size(self, shape: PriceTree | Hierarchy, a: Ints, b: Ints) -> int:
        """Return about how many variables the structure would take."""
        if isinstance(shape, PriceTree):
            return self._nodes(shape, a, b).size
        rows, columns = (np.unique(part).size for part in (shape.row_class[a], shape.column_class))
        return len(a) * 2 + (0 if _is_flat(shape) else rows * columns)

    def _linear(self, edge: int, columns: Ints, amounts: list[Floats]) -> None:
        for (over_s, _), values in zip(self.terms, amounts, strict=True):
            over_s.add(edge, columns, values)

    def _pairs(
        self, edge: int, tail: tuple[Ints, Ints], head: tuple[Ints, Ints], small: list[Floats]
    ) -> None:
        size = small[0].shape
        w = self.variables + np.arange(size[0] * size[1]).reshape(size)
        self.variables += w.size
        for columns, at, grid in ((*tail, w), (*head, w.T)):
            rows = self.equal_rows + np.arange(len(grid))
            self.equal.add(rows[at], columns, 1.0)
            self.equal_w.add(np.repeat(rows, grid.shape[1]), grid.reshape(-1), 1.0)
            self.equal_rows += len(grid)
        bad = ~np.all([np.isfinite(part) for part in small], axis=0)
        self.forbidden += w[bad].tolist()
        for (_, over_w), part in zip(self.terms, small, strict=True):
            over_w.add(edge, w.reshape(-1), np.where(bad, 0.0, part).reshape(-1))

    @staticmethod
    def _nodes(shape: PriceTree, a: Ints, b: Ints) -> Ints:
        """Return nodes that data may leave, with a tail inside and a head outside."""
        return np.flatnonzero(shape.member[:, a].any(1) & ~shape.member[:, b].all(1))

    def _tree(self, edge: int, ends, used: tuple[Ints, Ints], scale: float, shape) -> None:
        whole, which = shape
        (left, from_), (right, to) = ends
        nodes = self._nodes(whole, *used)
        w = self.variables + np.arange(len(nodes))
        rows = self.less_rows + np.arange(len(nodes))
        self.variables += len(nodes)
        self.less_rows += len(nodes)
        for columns, at, sign in ((left, from_, 1.0), (right, to, -1.0)):
            row, label = np.nonzero(whole.member[np.ix_(nodes, at)])
            self.less.add(rows[row], columns[label], sign)
        self.less_w.add(rows, w, 1.0)
        for (over_s, over_w), k in zip(self.terms, which, strict=True):
            over_s.add(edge, left, scale * whole.base[k, from_])
            over_w.add(edge, w, scale * whole.weight[k, nodes])

    def _levels(self, edge: int, ends, a: Ints, scale: float, shape) -> None:
        """Write an edge whose prices differ within a node: what leaves keeps its price."""
        hier, which = shape
        (left, from_), (right, to) = ends
        for (over_s, _), k in zip(self.terms, which, strict=True):
            over_s.add(edge, left, scale * hier.inside[k, 0, from_])
        below = self._leave_places(edge, ends, a, scale, shape)
        top = len(hier.nodes) - 1
        for level in range(1, top + (hier.nodes[top].max() > 0)):
            now = np.empty_like(below)
            for node in np.unique(hier.nodes[level][a]):
                here = np.flatnonzero(hier.nodes[level][a] == node)
                row = self.less_rows
                self.less_rows += 1
                for columns, at, sign in ((left, from_, 1.0), (right, to, -1.0)):
                    self.less.add(row, columns[hier.nodes[level][at] == node], sign)
                classes = hier.price_class[level][a[here]]
                for one in np.unique(classes):
                    members = here[classes == one]
                    now[members] = self._leave(row, np.unique(below[members]))
            self._price(edge, level, now, a, scale, shape)
            below = now
        if hier.nodes[top].max() and not _is_flat(hier):
            self._across(edge, (a, below), (right, to), scale, shape)

    def _leave_places(self, edge: int, ends, a: Ints, scale: float, shape) -> Ints:
        """Add a variable for what leaves each place: no less than needed, no more than is there."""
        (left, from_), (right, to) = ends
        count = len(a)
        w = self.variables + np.arange(count)
        least = self.less_rows + np.arange(count)
        most = least + count
        self.variables += count
        self.less_rows += 2 * count
        at = np.searchsorted(a, from_)
        self.less.add(least[at], left, 1.0)
        self.less.add(most[at], left, -1.0)
        shared = np.isin(to, a)
        self.less.add(least[np.searchsorted(a, to[shared])], right[shared], -1.0)
        self.less_w.add(least, w, 1.0)
        self.less_w.add(most, w, -1.0)
        self._price(edge, 0, w, a, scale, shape)
        return w

    def _leave(self, row: int, came: Ints) -> int:
        """Add a variable for what leaves a node at one price; no more than came there at it."""
        w, bound = np.array([self.variables]), self.less_rows
        self.variables += 1
        self.less_rows += 1
        self.less_w.add(row, w, 1.0)
        self.less_w.add(bound, w, -1.0)
        self.less_w.add(bound, came, 1.0)
        return int(w[0])

    def _price(self, edge: int, level: int, w: Ints, a: Ints, scale: float, shape) -> None:
        """Add to each variable what it costs more than was paid for the levels below."""
        hier, which = shape
        w, first = np.unique(w, return_index=True)
        places = a[first]
        for (_, over_w), k in zip(self.terms, which, strict=True):
            if level < len(hier.nodes) - 1:
                out = hier.inside[k, level + 1, places]
            elif _is_flat(hier):
                out = hier.across[k].min(1)[hier.row_class[places]]
            else:
                out = 0.0
            over_w.add(edge, w, scale * (out - hier.inside[k, level, places]))

    def _across(self, edge: int, tail, head: tuple[Ints, Ints], scale: float, shape) -> None:
        """Price the way from the classes that left the coarsest nodes to those that they go to."""
        hier, which = shape
        right, to = head
        targets = np.unique(hier.column_class[to])
        into = {int(c): self.less_rows + k for k, c in enumerate(targets)}
        self.less_rows += len(targets)
        for c, row in into.items():
            self.less.add(row, right[hier.column_class[to] == c], -1.0)
        places, below = tail
        for w, first in zip(*np.unique(below, return_index=True), strict=True):
            place = places[first]
            finite = np.isfinite(hier.across[:, hier.row_class[place]]).all(0)
            self.equal_w.add(self.equal_rows, np.array([w]), -1.0)
            for c in targets[finite[targets]]:
                y = np.array([self.variables])
                self.variables += 1
                self.equal_w.add(self.equal_rows, y, 1.0)
                self.less_w.add(into[int(c)], y, -1.0)
                for (_, over_w), k in zip(self.terms, which, strict=True):
                    over_w.add(edge, y, scale * hier.across[k, hier.row_class[place], c])
            self.equal_rows += 1


def _is_flat(hier: Hierarchy) -> bool:
    """Return whether leaving the coarsest node costs the same everywhere, and the most."""
    out = _leaving_top(hier)
    return out is not None and bool((out >= hier.inside[:, -1]).all())
