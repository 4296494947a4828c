"""Values as data: what comes back as it was, what is refused, what hostile data does."""

from __future__ import annotations

import io
import json
import pickle
from collections import Counter
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from jupyter_sky.base.errors import SkyTransferError
from jupyter_sky.machines.engines.wire.data_values import MAX_DEPTH, decode, encode
from jupyter_sky.machines.engines.wire.values import Parcel


def travelled(value: Any) -> Any:
    parcel = encode(value)
    return decode(Parcel.from_bytes(parcel.sizes, parcel.to_bytes()))


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 1, 2**90, 1.5, float("inf"), "text", "ü", "\ud800", b"\0x", bytearray(b"y")),
        *((1, (2, [3])), {1, 2}, frozenset({"a"}), {(1, 2): [3], "k": None}, {"dict": 1}, 1j),
        *(datetime(2026, 1, 2, 3), date(2026, 1, 2), timedelta(1, 2, 3), Decimal("1.10")),
        *(np.float32(2), np.datetime64("2020-01-01"), [], {}),
    ],
    ids=repr,
)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    found = travelled(value)
    assert found == value and type(found) is type(value)


def test_arrays_and_tables_come_back_as_they_were() -> None:
    found = travelled({"w": np.arange(6.0).reshape(2, 3), "names": [np.array(["a", "b"])]})
    assert np.array_equal(found["w"], np.arange(6.0).reshape(2, 3)) and found["w"].flags.writeable
    assert list(found["names"][0]) == ["a", "b"]
    records = np.zeros(2, dtype=[("x", "i4"), ("y", "f8")])
    assert travelled(records).dtype == records.dtype
    frame = pd.DataFrame(
        {"a": [1, 2], "b": ["x", None], "c": pd.Categorical(["u", "v"])},
        index=pd.date_range("2020", periods=2),
    )
    pd.testing.assert_frame_equal(travelled(frame), frame, check_freq=False)
    for series in (pd.Series([1, 2]), pd.Series([1, 2], name="z")):
        pd.testing.assert_series_equal(travelled(series), series)
    table = pa.table({"a": [1, None]})
    assert travelled(table).equals(table)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "x is a object"),
        (Counter("a"), "x is a collections.Counter"),
        ({"m": [1, len]}, r"x\['m'\]\[1\] is a builtin_function_or_method"),
        (np.array([object()]), "x is a ndarray that is not plain data"),
        (pd.DataFrame({"a": [object()]}), "x is a DataFrame that is not plain data"),
        (np.ma.array([1]), "x is a numpy.*MaskedArray"),
    ],
)
def test_non_data_part_is_named(value: Any, words: str) -> None:
    with pytest.raises(SkyTransferError, match=words):
        encode(value, "x")


def test_integer_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(SkyTransferError, match="x cannot be written as data"):
        encode(10**5000, "x")


def test_depth_is_bounded() -> None:
    deep: list[Any] = []
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    with pytest.raises(SkyTransferError, match="nested"):
        encode(deep)


class Touch:
    """A pickle that makes a file when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def _npy(value: Any) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, value, allow_pickle=True)
    return stream.getvalue()


def _parcel(tree: Any, *more: bytes) -> Parcel:
    first = tree if isinstance(tree, bytes) else json.dumps(tree).encode()
    return Parcel(tuple(memoryview(part) for part in (first, *more)))


def test_hostile_data_has_no_effect(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    evil = pickle.dumps(Touch(canary))
    field = pa.field(
        "a", pa.int64(), metadata={b"ARROW:extension:name": b"arrow.py_extension_type"}
    )
    field = field.with_metadata({**(field.metadata or {}), b"ARROW:extension:metadata": evil})
    table = pa.table([pa.array([1])], schema=pa.schema([field]))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    tries = [
        _parcel(evil),
        Parcel.of(Touch(canary)),
        _parcel({"npy": 1}, _npy(np.array([Touch(canary)], dtype=object))),
        _parcel({"npy": 1}, b"\x93NUMPY\x01\x00v\x00" + b"__import__('os').getpid()".ljust(118)),
        _parcel({"DataFrame": 1}, evil),
        *(_parcel({"npy": at}) for at in (0, 1, -1, True, "x", None)),
        *(_parcel(tree) for tree in ({"a": 1, "b": 2}, {}, {"pickle": 1}, {"tuple": 5})),
        *(_parcel({tag: [["x"]]}) for tag in ("dict", "complex", "timedelta", "bytes", "Decimal")),
        _parcel(b"[" * 100_000),
        _parcel({"float": "__import__('os')"}),
    ]
    for number, parcel in enumerate(tries):
        with pytest.raises(SkyTransferError):
            print(number, decode(parcel))
    opened = decode(_parcel({"arrow": 1}, sink.getvalue()))
    assert opened.num_rows == 1
    assert not canary.exists()
