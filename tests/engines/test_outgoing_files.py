"""Files of a node for elsewhere: found by path and pattern, read by pieces, kept inside."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from jupyter_sky.machines.engines.node import outgoing_files
from jupyter_sky.machines.engines.node.outgoing_files import MAX_PIECE_BYTES, answer
from jupyter_sky.machines.engines.wire.controller_requests import FilesReply, ReadFiles


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Folder of a cluster with results in it, and a file beside it."""
    (tmp_path / "secret.txt").write_text("not for the panel")
    folder = tmp_path / "work"
    (folder / "out" / "deep").mkdir(parents=True)
    (folder / "out" / "a.csv").write_text("a")
    (folder / "out" / "b.csv").write_text("bb")
    (folder / "out" / "deep" / "c.txt").write_text("ccc")
    return folder


def names(folder: Path, path: str, **more: Any) -> list[tuple[str, str]]:
    found = answer(folder, ReadFiles("find", path, **more)).files
    return [(str(name), str(place)) for name, place, *_ in found]


def test_a_file_a_folder_and_a_pattern_are_found(work: Path) -> None:
    assert names(work, "out/a.csv") == [("out/a.csv", "a.csv")]
    whole = [("out/a.csv", "out/a.csv"), ("out/b.csv", "out/b.csv")]
    assert names(work, "out/") == [*whole, ("out/deep/c.txt", "out/deep/c.txt")]
    assert names(work, "out/*.csv") == [("out/a.csv", "a.csv"), ("out/b.csv", "b.csv")]
    assert names(work, "**/c.txt") == [("out/deep/c.txt", "c.txt")]
    assert ("out/a.csv", "out/a.csv") in names(work, ".")
    assert names(work, str(work / "out" / "a.csv")) == [(str(work / "out" / "a.csv"), "a.csv")]


def test_what_is_not_there_is_not_found(work: Path) -> None:
    found = answer(work, ReadFiles("find", "out/none.csv"))
    assert found == FilesReply(files=[], found=False, is_file=False)
    assert "No such file" in answer(work, ReadFiles("list", "none")).refused


def test_a_name_with_brackets_is_a_name_first(work: Path) -> None:
    (work / "run[1].txt").write_text("x")
    assert names(work, "run[1].txt") == [("run[1].txt", "run[1].txt")]


def test_links_to_folders_are_not_followed(work: Path) -> None:
    (work / "out" / "loop").symlink_to(work)
    assert len(names(work, "out")) == 3


@pytest.mark.parametrize("path", ["../secret.txt", "link.txt", "/etc/passwd", "~"])
def test_a_confined_request_stays_in_the_folder(work: Path, path: str) -> None:
    (work / "link.txt").symlink_to(work.parent / "secret.txt")
    operations: tuple[Literal["find", "list", "read"], ...] = ("find", "list", "read")
    for do in operations:
        reply = answer(work, ReadFiles(do, path, 0, 9, is_confined=True))
        assert "outside" in reply.refused and not reply.buffers
    assert ("link.txt", "link.txt") not in names(work, "*", is_confined=True)
    assert ("link.txt", "link.txt") in names(work, "*")


def test_pieces_are_those_of_the_file(work: Path) -> None:
    request = ReadFiles("read", "out/deep/c.txt", 1, 3)
    piece = answer(work, request)
    assert piece.buffers == (b"cc",) and piece.size == 3
    too_much = replace(request, stop=MAX_PIECE_BYTES + 2)
    assert "cannot be read at once" in answer(work, too_much).refused


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_no_file_and_is_not_waited_for(work: Path) -> None:
    os.mkfifo(work / "pipe")
    assert names(work, ".").count(("pipe", "pipe")) == 0
    assert "no file" in answer(work, ReadFiles("read", "pipe", 0, 1)).refused


def test_more_files_than_one_answer_holds(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing_files, "MAX_FILES", 2)
    assert "make_archive" in answer(work, ReadFiles("find", "out")).refused


def test_folders_are_listed_before_files(work: Path) -> None:
    found = answer(work, ReadFiles("list", "out"))
    assert [entry[:2] for entry in found.entries] == [
        ["deep", "folder"],
        ["a.csv", "file"],
        ["b.csv", "file"],
    ]


def test_files_changed_in_a_span_are_listed_by_path(tmp_path: Path) -> None:
    for name, changed in (
        ("new.csv", 150.0),
        ("old.csv", 50.0),
        ("late.csv", 250.0),
        ("out/deep/model.pt", 200.0),
        (".cache/new", 150.0),
        ("pkg/__pycache__/new.pyc", 150.0),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
        os.utime(path, (changed, changed))
    (tmp_path / "link").symlink_to(tmp_path / "new.csv")
    request = ReadFiles("changed", ".", since=100, until=200, is_confined=True)
    assert answer(tmp_path, request) == FilesReply(
        entries=[["new.csv", "file", 1, 150.0], ["out/deep/model.pt", "file", 1, 200.0]]
    )
    assert answer(tmp_path, replace(request, path="..")).refused
