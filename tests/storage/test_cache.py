"""Cache of datasets on a machine: one download, unchanged contents, eviction by use."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyError
from jupyter_sky.machines.storage.stores.cache import DatasetCache
from jupyter_sky.machines.storage.stores.dataset import CachedObject, Dataset, object_identity
from jupyter_sky.machines.storage.stores.errors import SkyDiskFull


def cached(path: str, text: str = "", version: str = "1") -> CachedObject:
    """An object whose content is `text`, or its own path."""
    size = len(text or path)
    return CachedObject(path, object_identity("s3://b", path, version, size), size)


def dataset_of(*objects: CachedObject) -> Dataset:
    return Dataset(objects)


PAIR = dataset_of(cached("a"), cached("b"))


@dataclass
class Downloads:
    """Downloads that write what a store would have, and are counted."""

    texts: dict[str, str]
    count: int = 0

    def __call__(self, pairs: Sequence[tuple[CachedObject, Path]]) -> None:
        for each, path in pairs:
            self.count += 1
            path.write_text(self.texts.get(each.identity, each.path))


@dataclass(frozen=True)
class Disk:
    """A disk of `total` bytes that holds the objects of a cache and nothing else."""

    total: int
    root: Path
    other: int = 0

    def usage(self) -> tuple[int, int, int]:
        files = (self.root / "objects").glob("??/*")
        used = self.other + sum(file.stat().st_size for file in files)
        return self.total, used, self.total - used


def cache_on_disk(root: Path, total: int, other: int = 0) -> DatasetCache:
    return DatasetCache(root, disk_usage=lambda _: Disk(total, root, other).usage())


def test_dataset_is_a_folder_of_read_only_files(tmp_path: Path) -> None:
    download = Downloads({})
    objects = dataset_of(cached("a.txt"), cached("sub/b.txt"))
    with DatasetCache(tmp_path).lease(objects, download) as dataset:
        assert (dataset.path / "sub/b.txt").read_text() == "sub/b.txt"
        assert (dataset.path / "a.txt").stat().st_mode & 0o222 == 0
        assert dataset.downloaded == len("a.txt") + len("sub/b.txt")


def test_second_use_downloads_nothing(tmp_path: Path) -> None:
    cache, download, objects = (
        DatasetCache(tmp_path),
        Downloads({}),
        PAIR,
    )
    cache.lease(objects, download).close()
    with cache.lease(objects, download) as dataset:
        assert dataset.downloaded == 0
    assert download.count == 2


def test_new_version_shares_unchanged_objects(tmp_path: Path) -> None:
    cache, download = DatasetCache(tmp_path), Downloads({})
    old, new = (
        PAIR,
        dataset_of(cached("a"), cached("b", version="2")),
    )
    with cache.lease(old, download) as first, cache.lease(new, download) as second:
        assert download.count == 3
        assert first.id != second.id
        assert (first.path / "a").samefile(second.path / "a")
        assert not (first.path / "b").samefile(second.path / "b")


def test_changed_file_is_downloaded_again(tmp_path: Path) -> None:
    cache, download, objects = (
        DatasetCache(tmp_path),
        Downloads({}),
        PAIR,
    )
    with cache.lease(objects, download) as dataset:
        path = dataset.path / "a"
        path.chmod(0o644)  # as root every file can be written to
        path.write_text("x")
    with cache.lease(objects, download) as dataset:
        assert (dataset.path / "a").read_text() == "a"
    assert download.count == 3


def test_deleted_file_is_restored(tmp_path: Path) -> None:
    cache, download, objects = (
        DatasetCache(tmp_path),
        Downloads({}),
        PAIR,
    )
    with cache.lease(objects, download) as dataset:
        (dataset.path / "a").unlink()
    with cache.lease(objects, download) as dataset:
        assert sorted(each.name for each in dataset.path.iterdir()) == ["a", "b"]
    assert download.count == 2, "its content was still there"


def test_empty_folder_is_there(tmp_path: Path) -> None:
    dataset = Dataset((cached("a"),), ("logs/old",))
    with DatasetCache(tmp_path).lease(dataset, Downloads({})) as lease:
        assert (lease.path / "logs/old").is_dir()
    assert dataset.id != dataset_of(cached("a")).id


def test_short_download_is_not_kept(tmp_path: Path) -> None:
    each = cached("a", "long text")
    cache = DatasetCache(tmp_path)
    with pytest.raises(SkyError, match="a came with 5 bytes, and has 9 in its store"):
        cache.lease(dataset_of(each), Downloads({each.identity: "short"}))
    assert cache.missing([each]) == [each]
    assert not list((tmp_path / "objects").glob("partial-*"))
    with cache.lease(dataset_of(each), Downloads({each.identity: "long text"})) as dataset:
        assert (dataset.path / "a").read_text() == "long text"


def test_failed_download_leaves_no_dataset(tmp_path: Path) -> None:
    def fail(pairs: Sequence[tuple[CachedObject, Path]]) -> None:
        pairs[0][1].write_text("half")
        raise ConnectionError("cut")

    cache = DatasetCache(tmp_path)
    with pytest.raises(ConnectionError):
        cache.lease(dataset_of(cached("a")), fail)
    assert not list((tmp_path / "trees").glob("*"))
    assert not list((tmp_path / "objects").glob("*/*"))


def test_least_recently_used_dataset_is_evicted(tmp_path: Path) -> None:
    cache, download = cache_on_disk(tmp_path, 100), Downloads({})
    first, second, third = (dataset_of(cached(name * 30)) for name in "abc")
    for age, objects in ((300, first), (200, second)):
        cache.lease(objects, download).close()
        used = (tmp_path / "leases" / objects.id).stat().st_mtime - age
        os.utime(tmp_path / "leases" / objects.id, (used, used))
    cache.lease(first, download).close()  # used again, and now later than the second
    cache.lease(third, download).close()
    assert [cache.has_tree(objects) for objects in (first, second, third)] == [True, False, True]
    assert cache.missing(second.objects) == [*second.objects], "its objects are gone as well"


def test_leased_dataset_is_not_evicted(tmp_path: Path) -> None:
    cache, download = cache_on_disk(tmp_path, 100), Downloads({})
    first, second, third = (dataset_of(cached(name * 30)) for name in "abc")
    with cache.lease(first, download) as dataset:
        cache.lease(second, download).close()
        cache.lease(third, download).close()
        assert not cache.has_tree(second)
        assert (dataset.path / first.objects[0].path).read_text() == first.objects[0].path


def test_disk_too_small_is_said_before_the_first_byte(tmp_path: Path) -> None:
    cache, download = cache_on_disk(tmp_path, 100, other=50), Downloads({})
    with pytest.raises(SkyDiskFull, match=r"needs 0\.0 GB") as raised:
        cache.lease(dataset_of(cached("a" * 60)), download)
    assert download.count == 0
    assert raised.value.hint is not None and "--disk 1" in raised.value.hint


def test_unused_datasets_are_freed_and_used_ones_kept(tmp_path: Path) -> None:
    cache, download = cache_on_disk(tmp_path, 1000), Downloads({})
    used, unused = dataset_of(cached("a" * 30)), dataset_of(cached("b" * 20))
    with cache.lease(used, download):
        cache.lease(unused, download).close()
        assert cache.evict_unused() == 20
        assert [cache.has_tree(used), cache.has_tree(unused)] == [True, False]


def test_objects_of_a_killed_download_are_removed(tmp_path: Path) -> None:
    cache, download = DatasetCache(tmp_path), Downloads({})
    with cache.lease(PAIR, download):
        pass
    orphan = tmp_path / "objects" / "ff" / ("f" * 32)
    orphan.parent.mkdir()
    orphan.write_text("of no dataset")
    cache.remove_stale()
    assert orphan.exists(), "a download may be about to link it"
    cache.remove_stale(age=-1.0)
    assert not orphan.exists()
    assert cache.has_tree(PAIR)


def _lease_and_read(root: Path, log: Path, output: Path) -> None:
    def download(pairs: Sequence[tuple[CachedObject, Path]]) -> None:
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n" * len(pairs))
        for each, path in pairs:
            path.write_text(each.path)

    with DatasetCache(root).lease(dataset_of(cached("big"), cached("other")), download) as dataset:
        text = (dataset.path / "big").read_text() + (dataset.path / "other").read_text()
    (output / str(os.getpid())).write_text(text)


@pytest.mark.slow
def test_many_processes_share_one_download(tmp_path: Path) -> None:
    root, log, output = tmp_path / "cache", tmp_path / "log", tmp_path / "output"
    output.mkdir()
    fork = get_context("fork")
    workers = [fork.Process(target=_lease_and_read, args=(root, log, output)) for _ in range(40)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 40
    assert len(log.read_text().splitlines()) == 2, "each object was downloaded once"
    assert {file.read_text() for file in output.iterdir()} == {"bigother"}
    assert len(list(output.iterdir())) == 40


def _lease_until_killed(root: Path, is_leased: Event) -> None:
    with DatasetCache(root).lease(PAIR, Downloads({})):
        is_leased.set()
        time.sleep(60)


@pytest.mark.slow
def test_dataset_of_another_process_stays_until_that_is_killed(tmp_path: Path) -> None:
    fork = get_context("fork")
    is_leased = fork.Event()
    worker = fork.Process(target=_lease_until_killed, args=(tmp_path, is_leased))
    worker.start()
    assert is_leased.wait(30)
    cache = cache_on_disk(tmp_path, 1000)
    with pytest.raises(SkyDiskFull):  # evicts what it may
        cache.make_room(5000)
    assert cache.evict_unused() == 0 and cache.has_tree(PAIR)
    worker.kill()
    worker.join()
    assert cache.evict_unused() == 2 and not cache.has_tree(PAIR)
