"""Cells go on where the store cannot be written or read, and what it has lost can be ended."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Notebook, nothing_left, part, statuses, wait_until

pytestmark = pytest.mark.slow


def test_a_store_that_is_locked_stops_no_cell(fresh: Any) -> None:
    book: Notebook = fresh()
    assert book.run("%%sky\n1").status == "ok"
    other = sqlite3.connect(fresh.data / "sky.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    ran = book.run("%%sky\nprint('ran')\n1 + 1")
    assert ran.result == "2" and ran.stdout == "ran\n"
    wait_until(lambda: "records wait" in book.run("%%sky\n2 + 2").status_line)
    other.execute("ROLLBACK")
    other.close()
    assert book.run("%%sky\n3 + 3").result == "6"
    wait_until(lambda: len(statuses(fresh.data)) > 3 and {*statuses(fresh.data)} == {"ok"})


def test_a_launch_that_a_broken_store_cannot_record_has_an_end(fresh: Any) -> None:
    book: Notebook = fresh()
    assert book.run("%%sky\n1").status == "ok"
    other = sqlite3.connect(fresh.data / "sky.db", isolation_level=None)
    other.execute("DROP TABLE intervals")
    other.close()
    for _ in range(2):  # what the first one left is no launch that the second one waits for
        ran = book.run("%%sky -c other\n1")
        assert ran.ename == "SkyStoreError" and "no such table" in ran.evalue, ran


def test_a_corrupt_store_is_kept_aside(fresh: Any) -> None:
    fresh.data.mkdir()
    (fresh.data / "sky.db").write_bytes(b"not a database at all " * 1000)
    book: Notebook = fresh()
    ran = book.run("%%sky\n1 + 1")
    assert ran.result == "2" and "was corrupt: it is kept as" in ran.status_line
    assert list(fresh.data.glob("sky.db.broken*"))
    assert "corrupt" not in book.run("%%sky\n1").status_line


def test_a_data_directory_that_cannot_be_written(fresh: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file, where a directory should be")
    (tmp_path / "data").mkdir()
    book: Notebook = fresh(SKY_DATA_DIR=str(tmp_path / "file" / "sky"), TMPDIR=str(fresh.data))
    ran = book.run("%%sky\nprint('ran')\n1 + 1")
    assert ran.result == "2" and ran.stdout == "ran\n", ran
    assert "costs of this session are not recorded" in ran.status_line
    assert part(fresh.data, "engine")
    assert "ran" in book.run("%sky logs").stdout
    assert "up" in book.run("%sky status").result or book.run("%sky status").result
    book.stop()  # nobody could find it again
    nothing_left(fresh.data)
    assert not [path for path in fresh.data.iterdir() if path.name.startswith("sky-")]


def test_a_machine_that_is_in_no_store_is_shown_and_ended(fresh: Any) -> None:
    book: Notebook = fresh()
    assert book.run("%%sky\n1").status == "ok"
    book.crash()
    for path in fresh.data.glob("sky.db*"):
        path.unlink()
    book.start()
    shown = book.run("%sky status").result
    assert "analysis-" in shown and "unknown" in shown
    assert "analysis-" in book.run("%sky down all").stdout
    nothing_left(fresh.data)
