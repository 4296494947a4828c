"""Completion of addresses: schemes, known buckets, keys of a store that answers in time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pytest

from jupyter_sky.machines.storage.datasets import completion
from jupyter_sky.machines.storage.datasets.completion import complete_address
from jupyter_sky.machines.storage.stores.listing import UsageMemory, list_objects
from jupyter_sky.machines.storage.stores.uri import StorageUri
from tests.storage.memory_store import MemoryStore


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    completion._keys.cache_clear()


def test_schemes_and_buckets_that_were_measured(tmp_path: Path) -> None:
    memory = UsageMemory(tmp_path)
    for uri in ("s3://imagenet/train/", "s3://images/", "gs://other/"):
        key = StorageUri.parse(uri).key + "x"
        manifest = list_objects(cast(Any, MemoryStore.of(key)), StorageUri.parse(uri))
        memory.remember(manifest)
    assert complete_address("", memory)[:2] == ["s3://", "gs://"]
    assert complete_address("g", memory) == ["gs://"]
    assert complete_address("s3://", memory) == ["s3://imagenet/", "s3://images/"]
    assert complete_address("s3://imagen", memory) == ["s3://imagenet/"]


def test_keys_of_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore.of("train/a", "train/b/c", "test/x")
    monkeypatch.setattr(completion, "open_store", lambda uri: store)
    memory = UsageMemory(tmp_path)
    assert complete_address("s3://bucket/t", memory) == ["s3://bucket/test/", "s3://bucket/train/"]
    assert complete_address("s3://bucket/train/", memory) == [
        "s3://bucket/train/a",
        "s3://bucket/train/b/",
    ]


def test_store_that_answers_late_completes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(completion, "open_store", lambda uri: time.sleep(0.05))
    assert complete_address("s3://bucket/t", UsageMemory(tmp_path)) == []


def test_store_that_fails_completes_nothing(tmp_path: Path) -> None:
    assert complete_address("s3://bucket?endpoint=nowhere/t", UsageMemory(tmp_path)) == []
