"""Format of saves: damage, versions, and values that cannot be pickled."""

from __future__ import annotations

import io
import threading

import numpy as np
import pytest

from jupyter_sky.base.errors import SkyCheckpointError
from jupyter_sky.execution.checkpoints.save_format import (
    MAGIC,
    DamagedSave,
    pack_state,
    read_state,
    write_state,
)


def written(values: dict[str, object]) -> bytes:
    file = io.BytesIO()
    write_state(pack_state(values, {"at": 1.0}), file)
    return file.getvalue()


def test_values_come_back_with_what_they_share() -> None:
    array = np.arange(1000.0)
    found = read_state(io.BytesIO(written({"a": array, "b": [array], "n": 3})), "save")
    assert found.header["at"] == 1.0
    assert found.values["n"] == 3
    assert np.array_equal(found.values["a"], array)
    assert found.values["b"][0] is found.values["a"]
    found.values["a"][0] = 7.0  # it can go on being trained


def test_large_buffers_stay_out_of_the_pickle() -> None:
    packed = pack_state({"a": np.zeros(100_000)}, {})
    assert len(packed.parts) == 2
    assert packed.size == pytest.approx(800_000, rel=0.01)


@pytest.mark.parametrize("at", [0, 9, 20, 200, -20, -1])
def test_any_changed_bit_is_noticed(at: int) -> None:
    data = bytearray(written({"a": np.arange(100)}))
    data[at] ^= 4
    with pytest.raises(DamagedSave):
        read_state(io.BytesIO(bytes(data)), "save")


@pytest.mark.parametrize("length", [0, 5, 15, 60, 400, -1])
def test_a_save_that_is_cut_off_is_noticed(length: int) -> None:
    data = written({"a": np.arange(100)})
    with pytest.raises(DamagedSave):
        read_state(io.BytesIO(data[:length]), "save")


def test_another_version_of_the_format_is_named() -> None:
    data = bytearray(written({"a": 1}))
    data[len(MAGIC)] = 9
    with pytest.raises(SkyCheckpointError, match=r"format 9, and this jupyter_sky reads format 1"):
        read_state(io.BytesIO(bytes(data)), "save")


def test_values_that_cannot_be_pickled_are_named() -> None:
    with pytest.raises(SkyCheckpointError, match=r"'lock' \(lock: ") as raised:
        pack_state({"fine": 1, "lock": threading.Lock()}, {})
    assert "fine" not in str(raised.value)


def test_classes_that_are_gone_are_told_with_their_version() -> None:
    data = written({"a": 1})
    forged = io.BytesIO()
    packed = pack_state({"a": 1}, {})
    parts = (b"cnowhere\nMissing\n.",)
    header = {**packed.header, "lengths": [len(parts[0])], "python": "3.99"}
    write_state(type(packed)(header, parts), forged)
    with pytest.raises(SkyCheckpointError, match=r"nowhere.*Python 3\.99"):
        read_state(io.BytesIO(forged.getvalue()), "save")
    assert read_state(io.BytesIO(data), "save").values == {"a": 1}
