"""Mounted datasets: their folders, blocks and signed requests, and the file system itself."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from jupyter_sky.base.remote.supervisor import unmount_below
from jupyter_sky.machines.storage.datasets import mounts
from jupyter_sky.machines.storage.datasets.block_reader import (
    BLOCK_BYTES,
    BLOCKS_AHEAD,
    BlockReader,
)
from jupyter_sky.machines.storage.datasets.machine_data import (
    EXPIRY_MARGIN_SECONDS,
    request_to_json,
)
from jupyter_sky.machines.storage.datasets.mounted_tree import MountedTree
from jupyter_sky.machines.storage.datasets.mounts import Mount, missing_for_mounts
from jupyter_sky.machines.storage.datasets.signed_windows import (
    OBJECTS_AHEAD,
    WINDOW_BLOCKS,
    SignedWindows,
    Window,
    window_spans,
)
from jupyter_sky.machines.storage.stores.dataset import CachedObject, Dataset
from jupyter_sky.machines.storage.stores.errors import SkySourceChanged, SkyStorageError
from jupyter_sky.machines.storage.stores.file_parts import file_url
from jupyter_sky.machines.storage.stores.store import PartRequest, Span
from tests.conftest import wait_until

SIZE = 2 * BLOCK_BYTES + 17


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "big"
    made.write_bytes(os.urandom(SIZE))
    return made


def file_requests(file: Path, asked: list[int]) -> Callable[[CachedObject, int], PartRequest]:
    def request(found: CachedObject, block: int) -> PartRequest:
        asked.append(block)
        span = Span(block * BLOCK_BYTES, min((block + 1) * BLOCK_BYTES, found.size))
        return PartRequest("GET", file_url(file), {}, span)

    return request


# -- folders ---------------------------------------------------------------------------------------


def test_folders_have_each_name_once() -> None:
    paths = ["a/b/c", "a/b/d", "a/e", "f"]
    tree = MountedTree(Dataset(tuple(CachedObject(p, p, 1) for p in paths), ("a/empty", "g/h")))
    assert tree.names("/") == ["a", "f", "g"]
    assert tree.names("/a") == ["b", "e", "empty"]
    assert tree.names("/a/b") == ["c", "d"] and tree.names("/g/h") == []
    assert tree.names("/f") is None and tree.find("/a") is None
    assert [each.path for each in tree.following(tree.find("/a/b/d"), 9)] == ["a/e", "f"]


# -- blocks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "size"),
    [(0, 1), (BLOCK_BYTES - 3, 7), (0, SIZE), (SIZE - 5, 100), (SIZE, 1), (SIZE + 9, 4), (17, 0)],
)
def test_any_span_of_a_file_is_read(file: Path, start: int, size: int) -> None:
    reader = BlockReader(file_requests(file, []))
    found = CachedObject("big", "i", SIZE)
    assert reader.read(found, start, size) == file.read_bytes()[start : start + size]


def test_blocks_are_fetched_once_and_ahead_of_a_reader_in_sequence(tmp_path: Path) -> None:
    file = tmp_path / "sparse"
    with file.open("wb") as opened:
        opened.truncate(40 * BLOCK_BYTES)
    asked: list[int] = []
    reader, found = (
        BlockReader(file_requests(file, asked)),
        CachedObject("x", "i", 40 * BLOCK_BYTES),
    )
    for start in range(0, BLOCK_BYTES, BLOCK_BYTES // 8):
        reader.read(found, start, BLOCK_BYTES // 8)
    assert asked == [0], "a header alone is read without more"
    reader.read(found, 20 * BLOCK_BYTES, 10)
    assert asked == [0, 20], "and so is a place elsewhere"
    reader.read(found, BLOCK_BYTES, 10)
    wait_until(lambda: len(asked) == 3 + BLOCKS_AHEAD)
    assert sorted(asked) == [0, *range(1, 2 + BLOCKS_AHEAD), 20]


def test_failed_block_is_fetched_again(file: Path) -> None:
    works = file_requests(file, [])
    answers = iter([SkySourceChanged("it has changed")])

    def request(found: CachedObject, block: int) -> PartRequest:
        for error in answers:
            raise error
        return works(found, block)

    reader = BlockReader(request)
    with pytest.raises(SkySourceChanged):
        reader.read(CachedObject("big", "i", SIZE), 0, 5)
    assert reader.read(CachedObject("big", "i", SIZE), 0, 5) == file.read_bytes()[:5]


# -- signed requests -------------------------------------------------------------------------------


def signed(size: int, number: int, seconds: float) -> list[PartRequest]:
    ends = time.time() + seconds
    return [PartRequest("GET", "http://x", {}, span, ends) for span in window_spans(size, number)]


def test_first_requests_of_small_files_are_asked_for_ahead() -> None:
    size = (WINDOW_BLOCKS + 1) * BLOCK_BYTES
    objects = [CachedObject("0", "i0", size)]
    objects += [CachedObject(f"{n:03}", f"i{n:03}", 5) for n in range(OBJECTS_AHEAD + 9)]
    asked: list[Window] = []

    def answer(windows: list[Window]) -> None:
        asked.extend(windows)
        sizes = {each.identity: each.size for each in objects}
        found = {window: signed(sizes[window[0]], window[1], 900) for window in windows}
        threading.Timer(0.001, source.add, [found]).start()

    source = SignedWindows(MountedTree(Dataset(tuple(objects))), answer)
    assert source.request(objects[0], WINDOW_BLOCKS).span.stop == size
    assert asked == [("i0", 1)], "in the middle of a file, nothing else"
    source.request(objects[0], 0)
    assert len(asked) == 2 + OBJECTS_AHEAD
    source.request(objects[5], 0)
    assert len(asked) == 2 + OBJECTS_AHEAD, "they are there"


def test_expired_request_is_asked_for_anew() -> None:
    found, asked = CachedObject("a", "i", 5), []
    lives = iter([EXPIRY_MARGIN_SECONDS / 2, 900])

    def answer(windows: list[Window]) -> None:
        asked.append(windows)
        source.add({("i", 0): signed(5, 0, next(lives))})

    source = SignedWindows(MountedTree(Dataset((found,))), answer)
    assert source.request(found, 0).expires > time.time() + EXPIRY_MARGIN_SECONDS
    assert len(asked) == 2


def test_reads_fail_where_the_notebook_refuses_or_is_gone() -> None:
    found = CachedObject("a", "i", 5)
    tree = MountedTree(Dataset((found,)))
    refusing = SignedWindows(tree, lambda windows: refusing.refuse("the login has ended"))
    with pytest.raises(SkyStorageError, match="the login has ended"):
        refusing.request(found, 0)
    with pytest.raises(SkyStorageError, match="notebook, which signs requests, is gone"):
        SignedWindows(tree, lambda windows: None, silence=-1.0).request(found, 0)


# -- the file system -------------------------------------------------------------------------------


def test_machine_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "containers often lack" in missing_for_mounts(tmp_path / "fuse")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing_for_mounts(tmp_path) == "fusermount3 (apt install fuse3)"


@pytest.fixture
def mount(file: Path, tmp_path: Path) -> Iterator[Mount]:
    """A mounted file, whose requests nobody signs yet."""
    if missing := missing_for_mounts():
        pytest.skip(f"needs {missing}")
    made = Mount(Dataset((CachedObject("sub/big", "i", SIZE),)), tmp_path / "a mount")
    yield made
    made.close()
    unmount_below(tmp_path)


def is_mounted(folder: Path) -> bool:
    name = str(folder).replace(" ", "\\040")
    return name in Path("/proc/self/mounts").read_text()


@pytest.mark.slow
def test_file_system_reads_refuses_and_ends(mount: Mount, file: Path) -> None:
    def serve() -> None:
        while not mount.has_ended:
            spans = window_spans(SIZE, 0)
            requests = [PartRequest("GET", file_url(file), {}, span) for span in spans]
            if mount.state()["wanted"]:
                described = [request_to_json(each) for each in requests]
                mount.add_requests([["i", 0, described]])
            time.sleep(0.01)

    threading.Thread(target=serve, daemon=True).start()
    there = mount.path / "sub/big"
    assert there.read_bytes() == file.read_bytes()
    assert there.stat().st_size == SIZE and oct(there.stat().st_mode) == "0o100444"
    for change in (there.unlink, lambda: there.write_bytes(b""), (mount.path / "new").mkdir):
        with pytest.raises(OSError, match="Read-only file system"):
            change()
    mount.close()
    assert mount.has_ended and not mount.path.exists() and not is_mounted(mount.path)


@pytest.mark.slow
def test_reads_that_the_notebook_refuses_fail_with_its_reason(mount: Mount) -> None:
    failed: list[str] = []

    def read() -> None:
        try:
            (mount.path / "sub/big").read_bytes()
        except OSError as error:
            failed.append(str(error.strerror))

    thread = threading.Thread(target=read)
    thread.start()
    errors: list[str] = []
    while thread.is_alive():  # the system tries more than once
        state = mount.state()
        errors += state["errors"]
        if state["wanted"]:
            mount.add_requests([], refused="no longer logged in")
        thread.join(0.01)
    assert failed == ["Input/output error"]
    assert {*errors, *mount.state()["errors"]} == {"sub/big: no longer logged in"}


@pytest.mark.slow
def test_mount_whose_process_is_killed_is_unmounted_while_a_folder_is_in_use(mount: Mount) -> None:
    user = psutil.Popen(["sleep", "60"], cwd=mount.path)
    psutil.Process(mount.pid).kill()
    wait_until(lambda: not is_mounted(mount.path))
    user.kill()


@pytest.mark.slow
def test_supervisor_unmounts_what_nobody_serves(
    mount: Mount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "unmount_below", lambda _: None)  # the engine is killed, too
    helpers = [
        each
        for each in psutil.process_iter(["cmdline"])
        if {"fusermount3", str(mount.path)} <= {*(each.info["cmdline"] or ())}
    ]
    assert helpers
    for each in (*helpers, psutil.Process(mount.pid)):
        each.suspend()
    for each in (*helpers, psutil.Process(mount.pid)):
        each.kill()
    wait_until(lambda: mount.has_ended)
    unmount_below(tmp_path / "a")
    assert is_mounted(mount.path), "only a name that begins alike"
    unmount_below(tmp_path)
    assert not is_mounted(mount.path)
