"""``sky.Storage`` over a folder: list, measure, read, fetch, write and delete."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.machines.storage.stores.errors import SkyObjectMissing, SkySourceChanged


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_data: None) -> Iterator[sky.Storage]:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "set"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("one\ntwo\n")
    (folder / "sub/b.bin").write_bytes(bytes(range(256)) * 100)
    yield sky.Storage(f"{folder}/")


def test_list_shows_one_level(data: sky.Storage) -> None:
    assert [row[:2] for row in data.ls()] == [("a.txt", 8), ("sub/", "")]
    assert [row[1] for row in data.ls("sub/")] == [25600]
    assert [row[1] for row in data.ls("sub")] == [25600], "as without the slash"


def test_list_of_a_level_does_not_enter_the_folders_before_it(
    data: sky.Storage, tmp_path: Path
) -> None:
    (tmp_path / "set/sub/c.bin").symlink_to("/usr")
    (tmp_path / "set/z.txt").touch()
    assert [row[0] for row in data.ls()] == ["a.txt", "sub/", "z.txt"]


def test_nothing_beside_a_folder_that_cannot_be_listed(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/link").symlink_to("/usr")
    with pytest.raises(SkyObjectMissing, match="there is no file or folder"):
        sky.Storage(tmp_path / "nothing").ls()


def test_list_of_nothing(data: sky.Storage) -> None:
    with pytest.raises(SkyObjectMissing, match="there is no file or folder"):
        data.ls("sup/")


def test_measured_size_is_remembered_until_a_change_from_here(data: sky.Storage) -> None:
    usage = data.du()
    assert (usage.objects, usage.nbytes) == (2, 25608)
    assert str(usage).startswith("25.6 kB in 2 objects of file:")
    (data.uri.path / "c").write_text("by somebody else")
    assert data.du() == usage
    assert data.du(refresh=True).objects == 3
    data.write("d", "by us")
    assert data.du().objects == 4


def test_object_is_read_at_any_position(data: sky.Storage) -> None:
    with data.open("sub/b.bin") as file:
        file.seek(-256, 2)
        assert file.read() == bytes(range(256))
        file.seek(3)
        assert file.read(2) == bytes([3, 4])
        assert file.tell() == 5
    with data.open("a.txt", "r") as file:
        assert [*file] == ["one\n", "two\n"]
    assert (data / "a.txt").open().read() == b"one\ntwo\n"


def test_object_that_changes_while_it_is_read_is_an_error(data: sky.Storage) -> None:
    with data.open("sub/b.bin") as file:
        (data.uri.path / "sub/b.bin").write_bytes(b"another")
        with pytest.raises(SkySourceChanged):
            file.read()


def test_written_object_appears_when_closed(data: sky.Storage) -> None:
    path = data.uri.path / "new/x.txt"
    with data.open("new/x.txt", "w") as file:
        file.write("säk")
        assert not path.exists()
    assert path.read_text() == "säk"
    assert [each.name for each in path.parent.iterdir()] == ["x.txt"]


@pytest.mark.parametrize(("mode", "half"), [("wb", b"half"), ("w", "half")])
def test_failed_write_publishes_nothing(data: sky.Storage, mode: str, half: Any) -> None:
    data.write("x", b"before")
    with pytest.raises(ZeroDivisionError), data.open("x", mode) as file:
        file.write(half)
        raise ZeroDivisionError
    assert data.open("x").read() == b"before"


def test_write_takes_bytes_text_and_files(data: sky.Storage, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"f" * 10)
    data.write("1", b"b")
    data.write("2", "t")
    data.write("3", tmp_path / "file")
    data.write("4", b"")
    assert [data.open(key).read() for key in "1234"] == [b"b", b"t", b"f" * 10, b""]


def test_delete_one_object_or_a_folder(data: sky.Storage) -> None:
    with pytest.raises(SkyObjectMissing):
        data.delete("sub")  # a folder needs its slash
    assert data.delete("sub/") == 1
    assert data.delete("a.txt") == 1
    with pytest.raises(SkyObjectMissing, match="nothing to delete"):
        data.delete()


def test_fetch_caches_and_copies(data: sky.Storage, tmp_path: Path) -> None:
    path = data.fetch()
    assert (path / "sub/b.bin").read_bytes() == bytes(range(256)) * 100
    assert data.path == path == data.fetch()
    copied = data.fetch(tmp_path / "copy")
    (copied / "a.txt").write_text("may be changed")
    with pytest.raises(SkyUsageError, match=r"something at .*copy already"):
        data.fetch(tmp_path / "copy")
    single = data / "a.txt"
    assert single.fetch().read_text() == "one\ntwo\n"
    assert single.fetch(tmp_path).read_text() == "one\ntwo\n"


@pytest.mark.parametrize("key", ["../x", "sub/../../x", "/etc/passwd"])
def test_key_that_leads_out_of_the_folder(data: sky.Storage, key: str) -> None:
    with pytest.raises(SkyUsageError, match=r"climbs out|begins with /"):
        data.open(key)
    with pytest.raises(SkyUsageError, match=r"climbs out|begins with /"):
        data.write(key, b"")


def test_other_modes_say_what_is_possible(data: sky.Storage) -> None:
    with pytest.raises(SkyUsageError, match="read or written as a whole"):
        data.open("a.txt", "a")


def test_pickled_address_is_equal_and_holds_nothing_else(data: sky.Storage) -> None:
    data.fetch()
    assert pickle.loads(pickle.dumps(data)) == data
    assert b"home" not in pickle.dumps(data)


def test_input_of_a_task_is_measured(data: sky.Storage) -> None:
    task = sky.Task("train").set_input(data)
    (found,) = task.inputs
    assert (found.gb, found.cloud) == (25608 / 1e9, "local")
    given = sky.Task("other").set_input(data, size="2GB").inputs[0]
    assert given.gb == 2.0
