"""Values as parcels: whole, writable, cut anywhere, and clear about what cannot travel."""

from __future__ import annotations

import io
import sys
import threading
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from IPython.utils.capture import capture_output

from jupyter_sky.base.errors import SkyTransferError
from jupyter_sky.machines.engines.wire.values import CHUNK_BYTES, INLINE_BYTES, Parcel, chunks


def travelled(value: Any, step: int = CHUNK_BYTES) -> Any:
    """Send a value through pieces of `step` bytes, as the wire does."""
    sent = Parcel.of(value)
    received = Parcel.empty(sent.sizes)
    for start in range(0, sent.nbytes, step):
        pieces = [bytes(view) for view in sent.views(start, min(start + step, sent.nbytes))]
        assert received.fill(start, pieces) == min(step, sent.nbytes - start)
    assert received.digest() == sent.digest()
    return received.load()


@pytest.mark.parametrize(
    "value", [None, 1, "text", b"", [1, [2]], {"a": (1, 2)}, {1, 2}, 3 + 4j, range(5), "ünï" * 9999]
)
def test_plain_values(value: Any) -> None:
    assert travelled(value) == value


@pytest.mark.parametrize("items", [0, 1, 10, 1000, 200_000])
@pytest.mark.parametrize("step", [7, 64 * 1024 - 1, CHUNK_BYTES])
def test_arrays_arrive_whole_and_writable(items: int, step: int) -> None:
    if step == 7 and items > 1000:
        pytest.skip("a quarter of a million pieces")
    array = np.arange(items, dtype="f8")
    found = travelled({"a": array, "b": [array[::-1], array.astype("i2")]}, step)
    assert np.array_equal(found["a"], array) and np.array_equal(found["b"][0], array[::-1])
    for each in (found["a"], *found["b"]):
        assert each.flags.writeable and each.flags.aligned
        each[:] = 1


def test_odd_arrays() -> None:
    for array in (
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(100)[::3],
        np.zeros((0, 5)),
        np.array(7.0),
        np.array(["a", "bc"]),
        np.array([{"a": 1}, None], dtype=object),
        np.array([(1, 2.0)], dtype=[("x", "i4"), ("y", "f8")]),
    ):
        assert np.array_equal(travelled(array, 11), array)


def test_frames_arrive_writable() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x": np.arange(5.0), "s": list("abcde")})
    found = travelled(frame, 13)
    pd.testing.assert_frame_equal(found, frame)
    found.loc[0, "x"] = 9.0
    found["x"] += 1
    assert frame.x[0] == 0.0


def test_loading_does_not_share_memory_with_the_sender() -> None:
    array = np.zeros(100)
    travelled(array)[0] = 1
    assert array[0] == 0


def test_the_digest_is_of_the_content() -> None:
    one, same, other = np.zeros(50_000), np.zeros(50_000), np.zeros(50_000)
    other[-1] = 1
    assert Parcel.of(one).digest() == Parcel.of(same).digest() != Parcel.of(other).digest()


def test_chunks_cover_all() -> None:
    assert list(chunks(0)) == []
    assert list(chunks(1)) == [(0, 1)]
    spans = list(chunks(2 * CHUNK_BYTES + 1))
    assert spans[0] == (0, CHUNK_BYTES) and spans[-1][1] == 2 * CHUNK_BYTES + 1
    assert all(before[1] == after[0] for before, after in pairwise(spans))


def test_views_at_boundaries_copy_nothing() -> None:
    parcel = Parcel.of([np.arange(10.0), np.arange(3.0)])
    first, second, third = parcel.sizes
    assert [view.nbytes for view in parcel.views(first, first + second)] == [80]
    assert [view.nbytes for view in parcel.views(first + 79, first + 81)] == [1, 1]
    assert parcel.views(parcel.nbytes, parcel.nbytes + 9) == []
    assert parcel.to_bytes() == b"".join(parcel.views(0, parcel.nbytes))
    assert third == 24


def test_small_values_only() -> None:
    kept = Parcel.small([1, 2], INLINE_BYTES)
    assert kept is not None and kept.load() == [1, 2]
    assert Parcel.small(list(range(100_000)), INLINE_BYTES) is None
    assert Parcel.small(np.zeros(100_000), INLINE_BYTES) is None
    assert Parcel.small(threading.Lock(), INLINE_BYTES) is None


# -- what cannot travel --------------------------------------------------------------------------


class Job:
    def __init__(self) -> None:
        self.inner = {"name": "n", "guards": [1, threading.Lock()]}


class Handle:
    def __reduce__(self) -> Any:
        raise SkyTransferError("it is a handle", hint="fetch it")


def closed_over() -> Any:
    guard = threading.Lock()

    def function() -> Any:
        return guard, later

    def with_later() -> Any:
        return later

    if guard is None:
        later = 1
    return function if guard else with_later


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (threading.Lock(), "x is a lock (cannot pickle '_thread.lock' object)"),
        ({"a": {1: threading.Lock()}}, "x['a'][1] is a lock"),
        ([1, (2, threading.Lock())], "x[1][1] is a lock"),
        (Job(), "x.inner['guards'][1] is a lock"),
        ((n for n in "ab"), "x is a generator"),
        (closed_over(), "x.<guard> is a lock"),
    ],
)
def test_unpicklable_part_is_named(value: Any, words: str) -> None:
    with pytest.raises(SkyTransferError) as caught:
        Parcel.of(value, "x")
    assert str(caught.value).startswith(f"x cannot be sent: {words}")


def test_an_open_file_is_not_sent_as_its_content() -> None:
    with open(__file__) as file, pytest.raises(SkyTransferError, match="open file stays"):
        Parcel.of({"log": file}, "x")


def test_streams_in_memory_are_sent() -> None:
    text, data = io.StringIO("one"), io.BytesIO(b"two")
    text.read(1)
    found = Parcel.of([text, data]).load()
    assert (found[0].read(), found[1].getvalue()) == ("ne", b"two")


def test_captured_output_is_sent() -> None:
    with capture_output() as captured:
        print("shown")
        print("error", file=sys.stderr)
    found = Parcel.of(captured).load()
    assert (found.stdout, found.stderr, found.outputs) == ("shown\n", "error\n", [])


def test_a_global_of_a_function_is_named() -> None:
    names: dict[str, Any] = {"__name__": "__main__", "guard": threading.Lock()}
    exec("def f(n): return f(n - 1) if n else guard", names)
    with pytest.raises(SkyTransferError, match=r"f\.<guard> is a lock"):
        Parcel.of(names["f"], "f")


def test_error_raised_while_pickling_is_kept() -> None:
    with pytest.raises(SkyTransferError, match="it is a handle") as caught:
        Parcel.of([Handle()], "x")
    assert caught.value.hint == "fetch it"


def test_self_referencing_value() -> None:
    loop: dict[str, Any] = {"lock": threading.Lock()}
    loop["self"] = loop
    with pytest.raises(SkyTransferError, match=r"x\['lock'\] is a lock"):
        Parcel.of(loop, "x")


def test_function_of_a_cell_that_keeps_its_results_is_sent() -> None:
    cell = (
        "import functools\n@functools.lru_cache(maxsize=7)\n"
        "def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)"
    )
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(cell, names)
    found = Parcel.of(names["fib"], "fib").load()
    assert found(30) == 832040
    assert found.cache_parameters() == {"maxsize": 7, "typed": False}
    assert found.cache_info().hits + found.__wrapped__.__globals__["fib"].cache_info().hits
    assert Parcel.of(urlsplit, "by name").load() is urlsplit
