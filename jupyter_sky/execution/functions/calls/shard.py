"""Shards: a node's share of data that every node has."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, overload

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.node.instance import InstanceInfo, instance_info

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")


@overload
def shard(
    array: T,
    /,
    *,
    shuffle: bool = ...,
    seed: int | str | None = ...,
    drop_last: bool = ...,
    node: int | None = ...,
    total_nodes: int | None = ...,
) -> T: ...
@overload
def shard(
    first: T,
    second: U,
    /,
    *,
    shuffle: bool = ...,
    seed: int | str | None = ...,
    drop_last: bool = ...,
    node: int | None = ...,
    total_nodes: int | None = ...,
) -> tuple[T, U]: ...
@overload
def shard(
    first: T,
    second: U,
    third: V,
    /,
    *,
    shuffle: bool = ...,
    seed: int | str | None = ...,
    drop_last: bool = ...,
    node: int | None = ...,
    total_nodes: int | None = ...,
) -> tuple[T, U, V]: ...
@overload
def shard(
    *arrays: Any,
    shuffle: bool = ...,
    seed: int | str | None = ...,
    drop_last: bool = ...,
    node: int | None = ...,
    total_nodes: int | None = ...,
) -> Any: ...
def shard(
    *arrays: Any,
    shuffle: bool = False,
    seed: int | str | None = None,
    drop_last: bool = False,
    node: int | None = None,
    total_nodes: int | None = None,
) -> Any:
    """Return this node's share of arrays, each of the type that it came in.

    Every node takes each n-th element, beginning with its own rank, so that all elements are
    taken once and shares differ by one at most. Off a node the share is everything.

    Parameters
    ----------
    *arrays
        Lists, tuples, NumPy arrays, pandas objects, tensors of torch or jax: whatever has a
        length and takes a slice. The same positions are taken of each.
    shuffle
        Share out in a random order, which is the same on all nodes.
    seed
        Of that order; without one, the pool's own.
    drop_last
        Take equal, contiguous blocks, and leave out what remains.
    node, total_nodes
        Rank and number of nodes, in place of those of this node.

    Returns
    -------
    array or tuple of arrays
        The share of each array, in its own type.

    Raises
    ------
    SkyUsageError
        Arrays of different lengths, or something that cannot be shared out.

    Examples
    --------
    >>> shard([0, 1, 2], "abc".split())
    Traceback (most recent call last):
    ...
    jupyter_sky.base.errors.SkyUsageError: shard: the arrays have different lengths: 3 and 1
    the same positions are taken of each, so they must be equally long
    """
    if not arrays:
        raise SkyUsageError(
            _("shard() was given nothing"), hint=_("such as x, y = sky.shard(x, y)")
        )
    lengths = [_length(array, number) for number, array in enumerate(arrays, 1)]
    if len(set(lengths)) > 1:
        raise SkyUsageError(
            _("shard: the arrays have different lengths: {str}").format(
                str=" and ".join(map(str, lengths))
            ),
            hint=_("the same positions are taken of each, so they must be equally long"),
        )
    info = _place(instance_info(), node, total_nodes)
    span = _span(lengths[0], info, drop_last)
    taken: slice | list[int] = span
    if shuffle:
        order = list(range(lengths[0]))
        # not NumPy's: all nodes must agree, and not every node has it
        random.Random(info.job_id if seed is None else seed).shuffle(order)
        taken = order[span]
    shares = tuple(_take(array, taken) for array in arrays)
    return shares[0] if len(shares) == 1 else shares


def _place(info: InstanceInfo, node: int | None, total_nodes: int | None) -> InstanceInfo:
    """Return the instance with another rank or number of nodes."""
    node = info.node if node is None else node
    total_nodes = info.total_nodes if total_nodes is None else total_nodes
    if not 0 <= node < total_nodes:
        raise SkyUsageError(
            _("shard(node={node!r}, total_nodes={total_nodes!r}): there is no such node").format(
                node=node, total_nodes=total_nodes
            ),
            hint=_("ranks begin at 0: shard(x, node=0, total_nodes=2)"),
        )
    return replace(info, node=node, total_nodes=total_nodes)


def _span(length: int, info: InstanceInfo, drop_last: bool) -> slice:
    if not drop_last:
        return slice(info.node, None, info.total_nodes)
    size = length // info.total_nodes
    return slice(info.node * size, (info.node + 1) * size)


def _length(array: Any, number: int) -> int:
    name = type(array).__name__
    shape = getattr(array, "shape", None)
    try:
        if isinstance(array, str | bytes | dict | set | frozenset):
            raise TypeError
        if shape is not None:
            return int(shape[0])  # sparse matrices have no len()
        return len(array)
    except (TypeError, IndexError):
        raise SkyUsageError(
            _("shard: argument {number} is a {name}, which has no order or no length").format(
                number=number, name=name
            ),
            hint=_("give a list, a tuple, an array, a table or a tensor"),
        ) from None


def _take(array: Any, taken: slice | list[int]) -> Any:
    """Return some positions of an array, as an array of its type."""
    if hasattr(array, "iloc"):
        return array.iloc[taken]
    maker = type(array).__module__.partition(".")[0]
    if maker in _BY_POSITIONS or isinstance(taken, list):
        positions = [*range(len(array))[taken]] if isinstance(taken, slice) else taken
        return _select_positions(array, maker, positions)
    share = array[taken]
    # a view would keep the whole of it in memory
    return share.copy() if maker == "numpy" else share


_BY_POSITIONS: dict[str, Callable[[Any, list[int]], Any]] = {
    "datasets": lambda array, positions: array.select(positions),
    "pyarrow": lambda array, positions: array.take(positions),
}
"""Selection of rows, where slices are something else."""


def _select_positions(array: Any, maker: str, positions: list[int]) -> Any:
    if maker in _BY_POSITIONS:
        return _BY_POSITIONS[maker](array, positions)
    if isinstance(array, tuple):
        return tuple(array[position] for position in positions)
    if maker == "torch":
        import torch

        return array[torch.tensor(positions, dtype=torch.long, device=array.device)]
    if hasattr(array, "shape"):
        import numpy

        return array[numpy.asarray(positions, dtype=int)]
    return [array[position] for position in positions]
