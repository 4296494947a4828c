"""Copies of a cluster's files: whole or not at all, resumed, checked, in bounded memory."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from jupyter_sky.base.errors import SkyClusterLost, SkyTransferError
from jupyter_sky.execution.files import file_transfer
from jupyter_sky.execution.files.file_transfer import (
    FileSource,
    PendingFiles,
    choose_targets,
    copy_files,
    plan_copies,
)
from jupyter_sky.machines.engines.node.outgoing_files import answer
from jupyter_sky.machines.engines.wire.controller_requests import FilesReply, ReadFiles

Hook = Callable[[ReadFiles], None]


class DirectSource(FileSource):
    """Source that is answered by the node's own code in this process, without a connection."""

    def __init__(self, folder: Path, hook: Hook = lambda request: None) -> None:
        row = SimpleNamespace(name="train")
        super().__init__(SimpleNamespace(row=row, egress=SimpleNamespace(add=self.count)))  # type: ignore[arg-type]
        self.folder, self.hook, self.counted = folder, hook, 0
        self.waiting = self.most = 0

    def count(self, nbytes: int) -> None:
        self.counted += nbytes

    def send(self, request: ReadFiles) -> PendingFiles:
        self.waiting += (request.stop or 0) - (request.start or 0)
        self.most = max(self.most, self.waiting)
        return request, Future()

    def receive(self, pending: PendingFiles) -> FilesReply:
        request = pending[0]
        self.hook(request)
        self.waiting -= (request.stop or 0) - (request.start or 0)
        reply = answer(self.folder, request)
        if reply.refused:
            raise SkyTransferError(reply.refused)
        return reply


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """Folder of a cluster with a large file."""
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / "model.pt").write_bytes(random.Random(7).randbytes(5_000_001))
    os.utime(folder / "model.pt", ns=(10**18, 10**18))
    return folder


def bring(source: DirectSource, here: Path, name: str = "model.pt") -> list[tuple[int, int]]:
    told: list[tuple[int, int]] = []
    targets = choose_targets(source.find(name), here)
    copy_files(source, plan_copies(targets), lambda done, total: told.append((done, total)))
    return told


def test_a_large_file_comes_whole_in_bounded_memory(there: Path, tmp_path: Path) -> None:
    here, source = tmp_path / "here", DirectSource(there)
    (there / "model.pt").chmod(0o750)
    told = bring(source, here)
    assert (here / "model.pt").read_bytes() == (there / "model.pt").read_bytes()
    facts = (here / "model.pt").stat()
    assert (facts.st_mtime_ns, facts.st_mode & 0o777) == (10**18, 0o750)
    assert told[-1] == (5_000_001, 5_000_001) and told == sorted(told)
    assert source.most <= 3 * 2**20 and source.counted == 5_000_001
    assert [path.name for path in here.iterdir()] == ["model.pt"]


def test_an_empty_file_comes(there: Path, tmp_path: Path) -> None:
    (there / "empty").touch()
    bring(DirectSource(there), tmp_path, "empty")
    assert (tmp_path / "empty").read_bytes() == b""


def test_a_lost_connection_leaves_no_file_and_the_next_time_goes_on(
    there: Path, tmp_path: Path
) -> None:
    here, read = tmp_path / "here", 0

    def cut(request: ReadFiles) -> None:
        if (request.start or 0) > 2_000_000:
            raise SkyClusterLost("cut")

    with pytest.raises(SkyClusterLost):
        bring(DirectSource(there, cut), here)
    assert not (here / "model.pt").exists()

    def tally(request: ReadFiles) -> None:
        nonlocal read
        read += (request.stop or 0) - (request.start or 0)

    bring(DirectSource(there, tally), here)
    assert (here / "model.pt").read_bytes() == (there / "model.pt").read_bytes()
    assert 1_000_000 < read < 3_500_000, "what was here already is not read again"
    assert [path.name for path in here.iterdir()] == ["model.pt"]


def test_an_interrupt_leaves_nothing(there: Path, tmp_path: Path) -> None:
    def interrupt(request: ReadFiles) -> None:
        if (request.start or 0) > 2_000_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bring(DirectSource(there, interrupt), tmp_path / "here")
    assert list((tmp_path / "here").iterdir()) == []


def test_a_file_that_changes_is_begun_anew(there: Path, tmp_path: Path) -> None:
    changes = iter([True])

    def change(request: ReadFiles) -> None:
        if (request.start or 0) > 2_000_000 and next(changes, False):
            (there / "model.pt").write_bytes(b"2" * 4_000_000)

    bring(DirectSource(there, change), tmp_path)
    assert (tmp_path / "model.pt").read_bytes() == b"2" * 4_000_000


def test_a_file_that_never_rests_is_refused(there: Path, tmp_path: Path) -> None:
    def grow(request: ReadFiles) -> None:
        if request.do == "read":
            with (there / "model.pt").open("ab") as file:
                file.write(b"x")

    with pytest.raises(SkyTransferError, match="changes while it is read"):
        bring(DirectSource(there, grow), tmp_path / "here")
    assert list((tmp_path / "here").iterdir()) == []


def test_a_small_log_that_grows_comes_as_it_is_at_one_moment(there: Path, tmp_path: Path) -> None:
    (there / "train.log").write_text("one\n")

    def grow(request: ReadFiles) -> None:
        if request.do == "read" and request.stop == 4:
            (there / "train.log").write_text("two\n")

    bring(DirectSource(there, grow), tmp_path, "train.log")
    assert (tmp_path / "train.log").read_text() == "two\n"


def test_damaged_bytes_are_refused(there: Path, tmp_path: Path) -> None:
    class Damaged(DirectSource):
        def receive(self, pending: PendingFiles) -> FilesReply:
            reply = super().receive(pending)
            return replace(reply, buffers=[b"x" * len(piece) for piece in reply.buffers])

    with pytest.raises(SkyTransferError, match="damaged"):
        bring(Damaged(there), tmp_path / "here")
    assert not (tmp_path / "here" / "model.pt").exists()


def test_a_disk_without_room_is_known_before(
    there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(free=4_000_000)
    monkeypatch.setattr(file_transfer.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(SkyTransferError, match="do not fit"):
        bring(DirectSource(there), tmp_path / "here")


def test_a_wrong_name_gets_the_nearest(there: Path) -> None:
    error = DirectSource(there).missing_error("modell.pt")
    assert "there is no such file" in str(error) and "did you mean model.pt?" in str(error)
