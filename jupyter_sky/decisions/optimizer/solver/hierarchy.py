"""Structure of transfer prices: where a price depends on the source and the level of separation.

Clouds price data that leaves by how far it goes: another zone, another region, another continent,
another cloud. Where a table has that form, the minimum over all pairs of places is had in time
linear in the places. The form is read off the tables and checked pair by pair, never assumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from jupyter_sky.decisions.optimizer.solver.problem import Floats, Ints

_DENSE = 60_000  # pairs below which the plain minimum over all pairs is the faster one
_CHUNK = 4_000_000  # floats that one step may hold
_NOISE = 1e-12  # relative difference of prices that arithmetic alone can make


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """Transfer tables M[k] over P places as levels of separation and classes above them.

    With h(i, j) the finest level at which i and j are in one node (0: the same place),
    ``M[k][i, j] = inside[k, h(i, j), i]`` where they share a node of the coarsest level, and
    ``across[k, row_class[i], column_class[j]]`` where they do not.

    Attributes
    ----------
    tables : float array, K x P x P
    nodes : int array, H x P
        Node of each place at each level; level 0 has one node for each place.
    inside : float array, K x H x P
        Not decreasing from level to level.
    row_class, column_class : int array, P
    across : float array, K x R x C
        ``inf`` where a class meets only itself.
    """

    tables: Floats
    nodes: Ints
    inside: Floats
    row_class: Ints
    column_class: Ints
    across: Floats

    @property
    def places(self) -> int:
        """Number of places."""
        return self.nodes.shape[1]

    @cached_property
    def price_class(self) -> Ints:
        """For each level, the same number for places that pay the same from there on up; H x P."""
        classes = []
        for level in range(len(self.nodes)):
            prices = self.inside[:, level:].transpose(2, 0, 1).reshape(self.places, -1)
            classes.append(_classes(np.column_stack([prices, self.row_class.astype(np.float64)])))
        return np.stack(classes)

    def forward(self, h: Floats, scale: Floats, table: Ints) -> Floats:
        """Return min over i of h[e, i] + scale[e] M[table[e]][i, j] for edges e, places j."""
        if self._dense(len(h)):
            return (h[:, :, None] + scale[:, None, None] * self.tables[table]).min(1)
        out = np.empty_like(h)
        for part in self._parts(len(h)):
            out[part] = self._forward(h[part], scale[part, None], table[part])
        return out

    def backward(self, h: Floats, scale: Floats, table: Ints) -> Floats:
        """Return min over j of h[e, j] + scale[e] M[table[e]][i, j] for edges e, places i."""
        if self._dense(len(h)):
            return (h[:, None, :] + scale[:, None, None] * self.tables[table]).min(2)
        out = np.empty_like(h)
        for part in self._parts(len(h)):
            out[part] = self._backward(h[part], scale[part, None], table[part])
        return out

    def take(self, keep: Ints) -> Hierarchy:
        """Return the same tables over only some of the places."""
        rows, row_class = np.unique(self.row_class[keep], return_inverse=True)
        columns, column_class = np.unique(self.column_class[keep], return_inverse=True)
        return Hierarchy(
            np.ascontiguousarray(self.tables[:, keep][:, :, keep]),
            np.stack([np.unique(level, return_inverse=True)[1] for level in self.nodes[:, keep]]),
            np.ascontiguousarray(self.inside[:, :, keep]),
            row_class,
            column_class,
            np.ascontiguousarray(self.across[:, rows][:, :, columns]),
        )

    def _dense(self, edges: int) -> bool:
        pairs = edges * self.places**2
        linear = self.nodes.shape[0] * self.places + self.across[0].size
        return pairs <= _CHUNK and pairs < _DENSE + 6 * edges * linear

    def _parts(self, edges: int) -> list[slice]:
        step = max(1, _CHUNK // max(self.places, self.across[0].size, 1))
        return [slice(start, start + step) for start in range(0, edges, step)]

    def _forward(self, h: Floats, scale: Floats, table: Ints) -> Floats:
        out = h + scale * self.inside[table, 0]
        for level in range(1, len(self.nodes)):
            leaving = h + scale * self.inside[table, level]
            np.minimum(
                out, _group_minimum(leaving, self.nodes[level])[:, self.nodes[level]], out=out
            )
        if self.across[0].size:
            best = _group_minimum(h, self.row_class)
            there = _least_across(best, scale, self.across, table)
            np.minimum(out, there[:, self.column_class], out=out)
        return out

    def _backward(self, h: Floats, scale: Floats, table: Ints) -> Floats:
        out = h + scale * self.inside[table, 0]
        for level in range(1, len(self.nodes)):
            best = _group_minimum(h, self.nodes[level])[:, self.nodes[level]]
            np.minimum(out, best + scale * self.inside[table, level], out=out)
        if self.across[0].size:
            best = _group_minimum(h, self.column_class)
            there = _least_across(best, scale, self.across.transpose(0, 2, 1), table)
            np.minimum(out, there[:, self.row_class], out=out)
        return out


def find_hierarchy(tables: Sequence[Floats], levels: Mapping[str, Ints]) -> Hierarchy:
    """Find the structure of tables of transfers.

    Parameters
    ----------
    tables : sequence of float array, P x P
        All finite.
    levels : mapping of str to int array
        Partitions of the places from fine to coarse, as hints. A level that does not nest in the
        next, or that some table does not follow, ends the levels; the rest goes into classes.

    Examples
    --------
    >>> price = np.array([[0, 1, 5.0], [1, 0, 5], [7, 7, 0]])
    >>> found = find_hierarchy([price], {"cloud": np.array([0, 0, 1])})
    >>> found.inside[0], found.across[0].min(axis=1)
    (array([[0., 0., 0.],
           [1., 1., 0.]]), array([5., 7.]))
    """
    stack = np.stack([np.asarray(table, np.float64) for table in tables])
    size = stack.shape[1]
    nodes = [np.arange(size)]
    inside = [np.einsum("kii->ki", stack)]
    for hint in levels.values():
        coarser = np.unique(np.asarray(hint), return_inverse=True)[1].astype(np.int64)
        found = _level(stack, nodes[-1], coarser, inside[-1])
        if found is None:
            break
        if nodes[-1].max() == coarser.max():
            continue
        if len(nodes) > 1 and np.array_equal(found, inside[-1]):
            nodes[-1] = coarser  # what lies between the two levels costs nothing more
            continue
        nodes.append(coarser)
        inside.append(found)
    apart = nodes[-1][:, None] != nodes[-1][None, :]
    row_class = _classes(np.where(apart, stack, -1.0).transpose(1, 0, 2).reshape(size, -1))
    column_class = _classes(np.where(apart, stack, -1.0).transpose(2, 0, 1).reshape(size, -1))
    across = np.full((len(stack), row_class.max() + 1, column_class.max() + 1), np.inf)
    i, j = np.nonzero(apart)
    across[:, row_class[i], column_class[j]] = stack[:, i, j]
    return Hierarchy(
        stack, np.stack(nodes), np.stack(inside, axis=1), row_class, column_class, across
    )


def make_dense_hierarchy(tables: Sequence[Floats]) -> Hierarchy:
    """Return tables as they are, where looking for structure takes longer than going without."""
    stack = np.stack(tables)
    each = np.arange(stack.shape[1])
    inside = np.einsum("kii->ki", stack)[:, None]
    return Hierarchy(stack, each[None], inside, each, each, stack)


def _level(stack: Floats, finer: Ints, coarser: Ints, before: Floats) -> Floats | None:
    """Return the price to leave the finer for the coarser node; None if there is none."""
    first = np.full(finer.max() + 1, -1)
    first[finer] = coarser
    if not np.array_equal(first[finer], coarser):
        return None  # the levels do not nest
    here = (coarser[:, None] == coarser[None, :]) & (finer[:, None] != finer[None, :])
    high = np.where(here, stack, -np.inf).max(2)
    low = np.where(here, stack, np.inf).min(2)
    alone = ~here.any(1)
    price = np.where(alone, before, high)
    if ((high - low > _NOISE * (1 + abs(high))) & ~alone).any() or (price < before).any():
        return None
    return price


def _classes(signatures: Floats) -> Ints:
    """Return the same number for equal rows."""
    known: dict[bytes, int] = {}
    rows = (row.tobytes() for row in np.ascontiguousarray(signatures))
    return np.array([known.setdefault(row, len(known)) for row in rows], np.int64)


def _least_across(best: Floats, scale: Floats, across: Floats, table: Ints) -> Floats:
    """Return min over r of best[e, r] + scale[e] across[table[e], r, c] for edges e, classes c.

    What does not move costs nothing, whatever the price; ``inf`` stays.
    """
    apart = None if scale.all() else np.isinf(across)
    prices = across if apart is None else np.where(apart, 0.0, across)
    out = np.full((len(best), across.shape[2]), np.inf)
    for r in range(best.shape[1]):  # one by one: all at once is more than fits a cache
        there = scale * prices[table, r]
        if apart is not None:
            there[apart[table, r]] = np.inf
        there += best[:, r, None]
        np.minimum(out, there, out=out)
    return out


def _group_minimum(values: Floats, groups: Ints) -> Floats:
    """Return minimum over the columns of each group."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    if np.array_equal(order, np.arange(len(order))):
        return np.minimum.reduceat(values, starts, axis=1)
    return np.minimum.reduceat(values[:, order], starts, axis=1)
