"""Files that readers see whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from jupyter_sky.base.store.atomic_file import atomic_file, write_atomically


def test_error_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "value"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), atomic_file(path) as file:
        file.write(b"half")
        file.flush()
        assert path.read_bytes() == b"old", "a reader sees nothing of it"
        assert len(os.listdir(tmp_path)) == 2
        raise ZeroDivisionError
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["value"]


@pytest.mark.parametrize(("mode", "expected"), [(None, 0o640), (0o644, 0o644), (0o600, 0o600)])
def test_permissions(tmp_path: Path, mode: int | None, expected: int) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "value", b"42", mode=mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "value").stat().st_mode) == expected


def test_remains_of_a_killed_process_name_it(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "value"):
        (name,) = os.listdir(tmp_path)
    assert name.endswith(f".{os.getpid()}.partial") and name.startswith(".value.")


def test_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "absent" / "value", b"42", durable=False)
