"""Every node's share of data: all of it once, aligned, each of the type that it came in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.execution.functions.calls.shard import shard
from jupyter_sky.machines.engines.node import instance
from jupyter_sky.machines.engines.node.instance import InstanceInfo

pytestmark = pytest.mark.usefixtures("no_task_yet")


def on_each(nodes: int, function: Callable[[], Any], job: str = "job") -> list[Any]:
    """Return a function's results on each node of a pool."""
    returned = []
    for node in range(nodes):
        info = InstanceInfo(node=node, total_nodes=nodes, job_id=job)
        with instance.running_task({"instance": asdict(info)}):
            returned.append(function())
    return returned


def test_modulo_striding_is_the_default() -> None:
    assert on_each(2, lambda: shard([*range(10)])) == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]
    assert on_each(4, lambda: shard((1, 2, 3))) == [(1,), (2,), (3,), ()]


def test_blocks_of_equal_size() -> None:
    assert on_each(3, lambda: shard([*range(11)], drop_last=True)) == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7, 8],
    ]
    assert on_each(2, lambda: shard([1], drop_last=True)) == [[], []]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    length=st.integers(0, 60),
    nodes=st.integers(1, 9),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    seed=st.one_of(st.none(), st.integers()),
)
def test_shards_partition_and_stay_aligned(
    length: int, nodes: int, shuffle: bool, drop_last: bool, seed: int | None
) -> None:
    numbers = [*range(length)]
    squares = tuple(n * n for n in numbers)

    def share() -> Any:
        return shard(numbers, squares, shuffle=shuffle, drop_last=drop_last, seed=seed)

    shares = on_each(nodes, share)
    assert all([n * n for n in x] == [*y] for x, y in shares)
    sizes = [len(x) for x, _ in shares]
    taken = [n for x, _ in shares for n in x]
    assert len({*taken}) == len(taken) and max(sizes) - min(sizes) <= (0 if drop_last else 1)
    assert len(taken) == (length // nodes * nodes if drop_last else length)


def test_shuffled_shards() -> None:
    def share(seed: int | None) -> Callable[[], Any]:
        return lambda: shard([*range(100)], shuffle=True, seed=seed)

    one = on_each(2, share(42))
    assert one == on_each(2, share(42)) != on_each(2, share(43))
    assert one[0] != sorted(one[0])
    assert on_each(2, share(None), "a") != on_each(2, share(None), "b")
    assert sorted(n for share_ in on_each(2, share(None)) for n in share_) == [*range(100)]


@pytest.mark.parametrize("shuffle", [False, True])
def test_types_are_kept(shuffle: bool) -> None:
    import numpy
    import pandas
    import scipy.sparse

    array = numpy.arange(20).reshape(10, 2)
    frame = pandas.DataFrame({"a": range(10)}, index=[*"abcdefghij"])
    sparse = scipy.sparse.csr_array(numpy.eye(10))
    given = [*range(10)], (*range(10),), array, frame, frame.a, sparse, range(10), array[:, 0]
    first, second = on_each(2, lambda: shard(*given, shuffle=shuffle, seed=1))
    kinds = [list, tuple, numpy.ndarray, pandas.DataFrame, pandas.Series, scipy.sparse.csr_array]
    assert [type(each) for each in first[:6]] == kinds
    assert (first[2][:, 0] // 2).tolist() == first[0] == first[3].a.tolist() == [*first[6]]
    assert first[4].index.tolist() == ["abcdefghij"[n] for n in first[0]]
    assert first[5].toarray().argmax(axis=1).tolist() == first[0]
    assert sorted(first[0] + second[0]) == [*range(10)]
    assert first[2].base is None, "a view would keep the whole of it"


@pytest.mark.parametrize("shuffle", [False, True])
def test_tensors_of_torch(shuffle: bool) -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.arange(10.0).reshape(10, 1), [*range(10)]
    share, labels = on_each(2, lambda: shard(x, y, shuffle=shuffle, seed=1))[1]
    assert isinstance(share, torch.Tensor) and share.dtype == x.dtype
    assert share[:, 0].tolist() == labels and len(labels) == 5


@pytest.mark.parametrize("shuffle", [False, True])
def test_arrays_of_jax(shuffle: bool) -> None:
    jax = pytest.importorskip("jax")
    x, y = jax.numpy.arange(10), [*range(10)]
    share, labels = on_each(2, lambda: shard(x, y, shuffle=shuffle, seed=1))[1]
    assert isinstance(share, jax.Array) and share.tolist() == labels


@pytest.mark.parametrize("shuffle", [False, True])
def test_tables_of_other_libraries(shuffle: bool) -> None:
    polars = pytest.importorskip("polars")
    import pyarrow

    table, frame = pyarrow.table({"a": [*range(10)]}), polars.DataFrame({"a": [*range(10)]})
    one, other, numbers = on_each(
        3, lambda: shard(table, frame, [*range(10)], shuffle=shuffle, seed=1)
    )[1]
    assert isinstance(one, pyarrow.Table) and isinstance(other, polars.DataFrame)
    assert one["a"].to_pylist() == other["a"].to_list() == numbers


def test_shard_off_a_pool_is_everything() -> None:
    assert shard([1, 2, 3]) == [1, 2, 3]
    assert shard([1, 2], (3, 4)) == ([1, 2], (3, 4))


@pytest.mark.parametrize(
    ("arrays", "pieces"),
    [
        ((), ["nothing"]),
        (([1, 2], [1]), ["different lengths: 2 and 1"]),
        ((iter([1]),), ["argument 1 is a list_iterator"]),
        (([1], "a"), ["argument 2 is a str"]),
        (({"a": 1},), ["dict", "no order"]),
        ((3,), ["int"]),
    ],
)
def test_unsupported_shard_arguments(arrays: tuple[Any, ...], pieces: list[str]) -> None:
    with pytest.raises(SkyUsageError) as caught:
        shard(*arrays)
    for piece in pieces:
        assert piece in str(caught.value)
