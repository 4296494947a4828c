"""Large arguments and results on nodes of this machine: mapped or read from memory files."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import pytest

import jupyter_sky as sky
from jupyter_sky.execution.functions.node.result_files import ResultFiles
from jupyter_sky.execution.functions.pools.pool import Pool
from jupyter_sky.execution.serialization import memory_files
from jupyter_sky.execution.serialization.memory_files import MemoryFile, map_file, read_file
from jupyter_sky.execution.serialization.payload import ArgumentBlobs

COUNT = 500_000
"""Numbers of an array of 4 MB."""


def open_files(pid: int | str = "self") -> int:
    """Return the number of memory files that a process has open."""
    links = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(os.readlink(entry))
        except OSError:
            continue
    return sum("memfd:jupyter_sky" in link for link in links)


def wait_until(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + 10
    while not condition() and time.monotonic() < until:
        gc.collect()
        time.sleep(0.02)
    return condition()


@sky.function
def total(x: np.ndarray) -> float:
    return float(x.sum())


@sky.function
def overwrite(x: np.ndarray) -> float:
    x += 1
    return float(x[0])


@sky.function
def numbers(count: int, value: float) -> np.ndarray:
    return np.full(count, value)


@sky.function
def mapped_file(x: np.ndarray) -> tuple[bool, int]:
    with open("/proc/self/maps") as lines:
        return any("memfd:jupyter_sky" in line for line in lines), os.getpid()


def test_a_file_is_private_to_its_user_and_its_readers_see_its_content() -> None:
    file = MemoryFile.write(memoryview(b"content"))
    assert file is not None
    assert os.fstat(file.name.descriptor).st_mode & 0o777 == 0o600
    mapped, copied = map_file(file.name), read_file(file.name)
    mapped[0], copied[1] = ord("K"), ord("u")
    assert (bytes(mapped), bytes(copied), bytes(file.memory)) == (
        b"Kontent",
        b"cuntent",
        b"content",
    )


def test_a_file_is_closed_with_its_last_reference() -> None:
    before = open_files()
    file = MemoryFile.write(memoryview(b"content"))
    assert file is not None and open_files() == before + 1
    name, mapped = file.name, map_file(file.name)
    del file
    assert bytes(mapped) == b"content"  # a mapping keeps the content
    with pytest.raises(OSError):
        read_file(name)


def test_a_file_that_is_being_closed_is_not_found_again() -> None:
    files: WeakValueDictionary[str, MemoryFile] = WeakValueDictionary()
    over = threading.Event()
    found: list[object] = []

    def look() -> None:
        while not over.is_set():
            file = files.get("name")
            if file is not None:
                try:
                    found.append(bytes(file.memory))
                except OSError as error:
                    found.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(300):
        file = MemoryFile.write(memoryview(b"content"))
        assert file is not None
        files["name"] = file
        del file
    over.set()
    thread.join()
    assert set(found) <= {b"content"}


def test_a_descriptor_that_names_another_file_is_refused() -> None:
    first = MemoryFile.write(memoryview(b"first"))
    assert first is not None
    name = first.name
    del first
    second = MemoryFile.write(memoryview(b"other"))
    assert second is not None and second.name.descriptor == name.descriptor
    with pytest.raises(OSError):
        map_file(name)


def test_parts_of_one_read_only_object_are_told_apart() -> None:
    data = memoryview(bytes(2**20) + bytes([1]) * 2**20)
    blobs = ArgumentBlobs(lambda name, segment: MemoryFile.write(segment))
    zeros, ones = blobs.add(data[: 2**20]), blobs.add(data[2**20 :])
    assert zeros != ones and blobs.add(data[: 2**20]) is zeros
    assert len(blobs.take()) == 2


def test_files_whose_reader_has_ended_are_closed() -> None:
    reader = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    files, before = ResultFiles(), open_files()
    store = files.store_of((memory_files.machine_identity(), reader.pid))
    assert store is not None and store.add(memoryview(b"result")) is not None
    assert files.release_orphans() and open_files() == before + 1
    reader.kill()
    reader.wait()
    assert not files.release_orphans() and open_files() == before


@pytest.mark.slow
def test_an_argument_is_mapped_and_its_writes_stay_on_the_node(executors: Pool) -> None:
    array = np.random.default_rng(1).random(COUNT)
    is_mapped, pid = mapped_file(array) >> executors
    assert is_mapped and pid != os.getpid()
    first = array[0]
    assert overwrite(array) @ executors == [first + 1] * 2
    assert array[0] == first
    assert total(array) >> executors == array.sum()


@pytest.mark.slow
def test_a_shared_argument_is_written_once_and_freed_with_its_calls(executors: Pool) -> None:
    @sky.function
    def item(x: np.ndarray, i: int) -> float:
        time.sleep(0.01)
        return float(x[i])

    assert wait_until(lambda: open_files() == 0)
    array = np.random.default_rng(2).random(COUNT)
    equal = array.copy()
    futures = [item(array if i % 2 else equal, i) > executors for i in range(40)]
    assert open_files() == 1
    assert [future.result() for future in futures] == list(array[:40])
    del futures
    assert wait_until(lambda: open_files() == 0)


@pytest.mark.slow
def test_a_large_result_is_the_notebook_s_own(executors: Pool) -> None:
    pids = {pid for _, pid in mapped_file(np.zeros(1)) @ executors}
    results = sky.gather(*(numbers(COUNT, i) for i in range(12))) >> executors
    assert [float(result[-1]) for result in results] == list(range(12))
    results[0][:] = 5  # it is writable
    assert results[0].sum() == 5 * COUNT
    assert wait_until(lambda: not any(open_files(pid) for pid in pids))


@pytest.mark.slow
def test_without_room_for_files_arguments_and_results_travel_in_messages(
    compute: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_files, "MAX_SHARE", 0.0)
    array = np.random.default_rng(3).random(COUNT)
    assert mapped_file(array) @ compute == [(False, pid) for _, pid in mapped_file(array) @ compute]
    assert total(array) @ compute == [array.sum()] * 2


@pytest.mark.slow
def test_a_node_that_cannot_open_files_gets_its_arguments_in_messages(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sky.Compute(nodes=1) as pool:
        # as seen from a container with process numbers of its own
        monkeypatch.setattr(memory_files, "machine_identity", lambda: "another machine")
        array = np.random.default_rng(4).random(COUNT)
        assert mapped_file(array) >> pool == (False, (mapped_file(array) >> pool)[1])
        assert total(array) >> pool == array.sum()
