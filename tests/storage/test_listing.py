"""Listings: what an address means, when two are equal, sizes that are remembered for a day."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.machines.storage.stores.errors import SkyObjectArchived, SkyObjectMissing
from jupyter_sky.machines.storage.stores.listing import (
    REMEMBERED_SECONDS,
    Manifest,
    UsageMemory,
    complete_keys,
    list_objects,
)
from jupyter_sky.machines.storage.stores.store import Readiness, StoredObject
from jupyter_sky.machines.storage.stores.uri import StorageUri
from tests.storage.memory_store import MemoryStore


def listed(store: MemoryStore, key: str) -> Manifest:
    return list_objects(cast(Any, store), StorageUri.parse(f"s3://bucket/{key}"))


@pytest.mark.parametrize("key", ["train/", "train"])
def test_folder_is_listed_with_and_without_slash(key: str) -> None:
    manifest = listed(MemoryStore.of("train/a", "train/b/c", "trainer", "x"), key)
    assert list(manifest.by_path()) == ["a", "b/c"]
    assert (manifest.nbytes, manifest.is_single) == (2, False)


def test_single_object_keeps_its_name() -> None:
    manifest = listed(MemoryStore.of("d/a.csv", "d/b.csv"), "d/a.csv")
    assert (list(manifest.by_path()), manifest.is_single) == (["a.csv"], True)
    assert not manifest.notes


def test_object_and_folder_of_one_name_are_told_apart() -> None:
    store = MemoryStore.of("x", "x/y")
    manifest = listed(store, "x")
    assert [each.key for each in manifest.objects] == ["x"]
    assert "add / for the others" in manifest.notes[0]
    assert [each.key for each in listed(store, "x/").objects] == ["x/y"]


def test_whole_bucket_with_an_object_and_a_folder_of_one_name_cannot_be_a_folder() -> None:
    with pytest.raises(SkyUsageError, match="'x' and 'x/y' cannot be in a folder"):
        listed(MemoryStore.of("x", "x/y"), "").dataset()


def test_prefix_without_objects_suggests_a_near_one() -> None:
    with pytest.raises(SkyObjectMissing, match="0 objects below s3://bucket/trian") as raised:
        listed(MemoryStore.of("train/a", "test/a"), "trian")
    assert raised.value.hint == "did you mean train/?"


def test_prefix_without_objects_or_near_names() -> None:
    with pytest.raises(SkyObjectMissing, match="0 objects below") as raised:
        listed(MemoryStore.of("train/a"), "zebra/")
    assert "without objects there is none" in (raised.value.hint or "")


def test_empty_bucket() -> None:
    with pytest.raises(SkyObjectMissing, match="s3://bucket is empty: 0 objects"):
        listed(MemoryStore(), "")


def test_id_follows_from_contents_and_not_from_the_place() -> None:
    here, there = MemoryStore.of("a/x", "a/y"), MemoryStore.of("b/x", "b/y")
    assert listed(here, "a/").id == listed(there, "b/").id
    there.objects["b/x"] = StoredObject("b/x", 1, "v2")
    assert listed(here, "a/").id != listed(there, "b/").id


def test_dataset_of_another_bucket_is_cached_apart() -> None:
    """Versions of one store say nothing of those of another."""
    here, there = MemoryStore.of("x"), MemoryStore.of("x")
    other = StorageUri.parse("s3://other/")
    theirs = list_objects(cast(Any, there), other).dataset().objects[0]
    assert listed(here, "").dataset().objects[0].identity != theirs.identity


def test_archived_objects_are_refused() -> None:
    manifest = listed(
        MemoryStore.of("old/a", "old/b", storage_class="GLACIER", readiness=Readiness.ARCHIVED),
        "old/",
    )
    with pytest.raises(SkyObjectArchived, match="2 of 2 objects are in the archive class GLACIER"):
        manifest.check_readable()
    listed(MemoryStore.of("new/a"), "new/").check_readable()


def test_completion_shows_one_level_and_skips_what_is_below() -> None:
    many = [f"train/{number:05}" for number in range(3000)]
    store = MemoryStore.of("a.csv", "test/x/y", *many)
    assert complete_keys(cast(Any, store), "", 10) == ["a.csv", "test/", "train/"]
    assert store.listed < 10
    assert complete_keys(cast(Any, store), "te", 10) == ["test/"]
    assert complete_keys(cast(Any, store), "test/", 10) == ["test/x/"]
    assert len(complete_keys(cast(Any, store), "train/", 10)) == 10


def test_usage_is_remembered_for_a_day(tmp_path: Path) -> None:
    memory, manifest = UsageMemory(tmp_path), listed(MemoryStore.of("d/a", "d/b"), "d/")
    memory.remember(manifest, now=1000.0)
    usage = memory.recall(manifest.uri, now=1000.0 + REMEMBERED_SECONDS)
    assert usage is not None
    assert (usage.objects, usage.nbytes, usage.content_id) == (2, 2, manifest.id)
    assert memory.recall(manifest.uri, now=1001.0 + REMEMBERED_SECONDS) is None
    assert memory.recall(manifest.uri, now=999.0) is None, "the clock was set back"
    assert memory.recall(StorageUri.parse("s3://bucket/other"), now=1000.0) is None


def test_usage_is_forgotten_when_its_bucket_changes(tmp_path: Path) -> None:
    memory = UsageMemory(tmp_path)
    manifest = listed(MemoryStore.of("d/a"), "d/")
    memory.remember(manifest)
    memory.forget(StorageUri.parse("s3://another/d/"))
    assert memory.recall(manifest.uri) is not None
    memory.forget(StorageUri.parse("s3://bucket/"))
    assert memory.recall(manifest.uri) is None


def test_damaged_memory_is_as_none(tmp_path: Path) -> None:
    memory, manifest = UsageMemory(tmp_path), listed(MemoryStore.of("d/a"), "d/")
    memory.remember(manifest)
    next(tmp_path.glob("*.json")).write_text("{")
    assert memory.recall(manifest.uri) is None
