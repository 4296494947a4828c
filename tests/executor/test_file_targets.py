"""Places of a cluster's files on this machine: kept, chosen, refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyTransferError, SkyUsageError
from jupyter_sky.execution.files.cell_data import FetchedFiles
from jupyter_sky.execution.files.file_transfer import (
    FoundFiles,
    RemoteFile,
    choose_targets,
    plan_copies,
)


def found(path: str, *entries: tuple[str, str], is_file: bool = False) -> FoundFiles:
    files = tuple(RemoteFile(name, place, 3, 10**18, 0o644) for name, place in entries)
    return FoundFiles(path, files, is_file, True)


def places(files: FoundFiles, folder: Path, to: str | None = None) -> list[str]:
    targets = choose_targets(files, folder, to).values()
    return [path.relative_to(folder).as_posix() for path in targets]


MODEL = found("out/model.pt", ("out/model.pt", "model.pt"), is_file=True)
OUT = found("out/", ("out/a.csv", "out/a.csv"), ("out/deep/b.csv", "out/deep/b.csv"))


def test_without_a_destination_files_keep_their_place(tmp_path: Path) -> None:
    assert places(MODEL, tmp_path) == ["out/model.pt"]
    assert places(OUT, tmp_path) == ["out/a.csv", "out/deep/b.csv"]
    elsewhere = found("/data/model.pt", ("/data/model.pt", "model.pt"), is_file=True)
    assert places(elsewhere, tmp_path) == ["model.pt"]


def test_with_a_destination_they_go_where_cp_puts_them(tmp_path: Path) -> None:
    assert places(MODEL, tmp_path, "best.pt") == ["best.pt"]
    assert places(MODEL, tmp_path, "results/") == ["results/model.pt"]
    (tmp_path / "results").mkdir()
    assert places(MODEL, tmp_path, "results") == ["results/model.pt"]
    assert places(OUT, tmp_path, "results") == ["results/out/a.csv", "results/out/deep/b.csv"]


def test_files_of_one_name_stay_apart(tmp_path: Path) -> None:
    files = found("*/loss.csv", ("a/loss.csv", "loss.csv"), ("b/loss.csv", "loss.csv"))
    assert places(files, tmp_path, "all") == ["all/a/loss.csv", "all/b/loss.csv"]


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "", "out/\0"])
def test_a_cluster_cannot_write_outside_the_destination(tmp_path: Path, name: str) -> None:
    for files in (found("out", (name, name)), found("/out", ("out/x", name))):
        with pytest.raises(SkyTransferError, match="outside"):
            choose_targets(files, tmp_path, "here")
    if name:
        with pytest.raises(SkyTransferError, match="outside"):
            choose_targets(found("out", (name, "x")), tmp_path)


def test_a_link_out_of_the_destination_is_not_followed(tmp_path: Path) -> None:
    folder, outside = tmp_path / "notebook", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (folder / "out").symlink_to(outside)
    with pytest.raises(SkyTransferError, match="outside"):
        choose_targets(OUT, folder)


def test_other_files_are_not_replaced_unless_that_is_said(tmp_path: Path) -> None:
    targets = choose_targets(MODEL, tmp_path, "model.pt")
    (tmp_path / "model.pt").write_text("mine")
    with pytest.raises(SkyUsageError, match=r"model\.pt; nothing was written\n--force"):
        plan_copies(targets)
    assert plan_copies(targets, None).copies == targets
    assert plan_copies(targets, [tmp_path / "model.pt"]).copies == targets


def test_a_file_of_the_same_size_and_time_is_left_as_it_is(tmp_path: Path) -> None:
    target = tmp_path / "model.pt"
    target.write_text("abc")
    os.utime(target, ns=(10**18, 10**18))
    planned = plan_copies(choose_targets(MODEL, tmp_path, "model.pt"))
    assert planned.copies == {} and planned.present == (target,)


def test_a_folder_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "out" / "model.pt").mkdir(parents=True)
    with pytest.raises(SkyUsageError, match="is a folder"):
        plan_copies(choose_targets(MODEL, tmp_path), None)


@pytest.mark.parametrize("entry", [None, [], ["a", "b", -1, 0, 0], [1, "b", 1, 0, 0], "text"])
def test_a_list_that_makes_no_sense_is_refused(entry: object) -> None:
    with pytest.raises(SkyTransferError, match="cannot be read"):
        RemoteFile.parse(entry)


def test_brought_files_are_known_until_they_are_changed(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    file.write_text("brought")
    FetchedFiles(tmp_path / "record.json").add([file])
    record = FetchedFiles(tmp_path / "record.json")
    assert record.unchanged([file, tmp_path / "other"]) == [file]
    file.write_text("changed by its user")
    assert record.unchanged([file]) == []
