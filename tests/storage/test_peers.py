"""Reading of cached objects from another machine: authenticated, checked, left where it fails."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
import zmq

from jupyter_sky.machines.storage.datasets.machine_data import Arrival
from jupyter_sky.machines.storage.stores import peers
from jupyter_sky.machines.storage.stores.cache import DatasetCache
from jupyter_sky.machines.storage.stores.connections import Connections
from jupyter_sky.machines.storage.stores.dataset import CachedObject, Dataset, seal
from jupyter_sky.machines.storage.stores.errors import SkyPeerLost
from jupyter_sky.machines.storage.stores.listing import list_objects
from jupyter_sky.machines.storage.stores.peers import PeerServer, peer_request, read_peer_part
from jupyter_sky.machines.storage.stores.store import Span
from jupyter_sky.machines.storage.stores.uri import StorageUri
from jupyter_sky.machines.storage.transfers.downloads import (
    DownloadPlan,
    find_sums,
    plan_download,
    plan_parts,
)
from tests.emulators.object_store import ObjectStore
from tests.storage.conftest import store_of

CONTENTS = {"d/a": b"one", "d/sub/b": b"two" * 1000, "d/empty": b""}
LARGE = CachedObject("large", "ab" * 16, 5 * 2**20)


@pytest.fixture
def first(tmp_path: Path) -> DatasetCache:
    return DatasetCache(tmp_path / "first")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "ANSWER_SECONDS", 1.0)


def fill(cache: DatasetCache, each: CachedObject, content: bytes) -> Path:
    """Put the content of an object into a cache."""
    path = cache.object_path(each)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    seal(path, each)
    return path


@pytest.fixture
def large_server(first: DatasetCache) -> Iterator[PeerServer]:
    fill(first, LARGE, os.urandom(LARGE.size))
    server = PeerServer(first, [LARGE], "127.0.0.1", "127.0.0.1")
    yield server
    server.close()


def read(server: PeerServer, identity: str, span: Span, key: str = "") -> bytes:
    connections = Connections()
    try:
        request = peer_request(server.origin, key or server.key, identity, span)
        return bytes(read_peer_part(request, connections))
    finally:
        connections.close()


def test_bytes_are_those_of_the_cache(large_server: PeerServer, first: DatasetCache) -> None:
    content = first.object_path(LARGE).read_bytes()
    assert read(large_server, LARGE.identity, Span(0, LARGE.size)) == content
    assert read(large_server, LARGE.identity, Span(7, 3_000_000)) == content[7:3_000_000]


def test_client_without_the_key_gets_nothing(large_server: PeerServer) -> None:
    other_key = zmq.curve_keypair()[0].decode()
    with pytest.raises(SkyPeerLost, match="has not answered"):
        read(large_server, LARGE.identity, Span(0, 10), other_key)


def test_only_complete_objects_of_the_dataset_are_served(
    large_server: PeerServer, first: DatasetCache
) -> None:
    other = CachedObject("other", "cd" * 16, 3)
    fill(first, other, b"abc")
    assert large_server.held([LARGE.identity, other.identity]) == [LARGE.identity]
    with pytest.raises(SkyPeerLost, match="KeyError"):
        read(large_server, other.identity, Span(0, 3))
    first.object_path(LARGE).unlink()
    assert large_server.held([LARGE.identity]) == []
    with pytest.raises(SkyPeerLost, match="ObjectMissing"):
        read(large_server, LARGE.identity, Span(0, 3))


def test_request_shows_no_key(large_server: PeerServer) -> None:
    request = peer_request(large_server.origin, large_server.key, LARGE.identity, Span(0, 3))
    assert large_server.key not in repr(request) and LARGE.identity in repr(request)


# -- a dataset -------------------------------------------------------------------------------------


@pytest.fixture
def store_server() -> Iterator[ObjectStore]:
    with ObjectStore("r2", min_part=1024) as server:
        server.create("bucket")
        for key, content in CONTENTS.items():
            server.put("bucket", key, content)
        yield server
        assert not server.crashes, server.crashes[0]


class Delivery:
    """A dataset that one machine has, and another one gets by the notebook's requests."""

    def __init__(self, server: ObjectStore, first: DatasetCache, root: Path) -> None:
        self.store = store_of(server)
        manifest = list_objects(self.store, StorageUri.parse("s3://bucket/d/"))
        by_path, self.dataset = manifest.by_path(), manifest.dataset()
        self.objects = {each.identity: by_path[each.path] for each in self.dataset.objects}
        for each in self.dataset.objects:
            fill(first, each, CONTENTS[f"d/{each.path}"])
        self.server = PeerServer(first, self.dataset.objects, "127.0.0.1", "127.0.0.1")
        self.task = Arrival(DatasetCache(root / "second"), self.dataset, root / "work/data/d")

    def plans(self, wanted: Sequence[str], has_lost_peer: bool) -> dict[str, DownloadPlan]:
        if has_lost_peer:
            return {name: plan_download(self.store, self.objects[name]) for name in wanted}
        origin, key = self.server.origin, self.server.key
        return {
            name: plan_parts(
                self.objects[name].size,
                find_sums(self.store, self.objects[name]),
                partial(peer_request, origin, key, name),
            )
            for name in wanted
        }

    def run(self) -> None:
        self.task.start()
        ends = time.monotonic() + 30
        while not (state := self.task.state())["ended"]:
            assert time.monotonic() < ends, state
            self.task.add_plans(self.plans(state["wanted"], state["lost_peer"]))
            time.sleep(0.002)
        assert not self.task.error
        for key, content in CONTENTS.items():
            assert (self.task.link / key.removeprefix("d/")).read_bytes() == content


@pytest.fixture
def delivery(store_server: ObjectStore, first: DatasetCache, tmp_path: Path) -> Iterator[Delivery]:
    made = Delivery(store_server, first, tmp_path)
    store_server.forget_counts()
    yield made
    made.server.close()


def test_dataset_comes_without_its_store(delivery: Delivery, store_server: ObjectStore) -> None:
    delivery.run()
    assert not store_server.count("GET /bucket/d/")
    assert (delivery.task.reads, delivery.task.received) == (0, 0), "nothing that a store bills"


def test_machine_that_does_not_answer_is_left_for_the_store(
    delivery: Delivery, store_server: ObjectStore
) -> None:
    delivery.server.close()
    delivery.run()
    assert store_server.count("GET /bucket/d/") == 2
    assert delivery.task.received == 3003


def test_damaged_cache_is_noticed_and_the_store_is_read(
    delivery: Delivery, first: DatasetCache, store_server: ObjectStore
) -> None:
    large = max(delivery.dataset.objects, key=lambda each: each.size)
    path = first.object_path(large)
    path.chmod(0o600)
    path.write_bytes(b"x" * large.size)
    seal(path, large)  # as a disk that returns other bytes than were written
    delivery.run()
    assert store_server.count("GET /bucket/d/sub/b") == 1


def test_name_of_a_cache_is_its_own_and_stays(tmp_path: Path) -> None:
    name = DatasetCache(tmp_path / "a").name
    assert DatasetCache(tmp_path / "a").name == name != DatasetCache(tmp_path / "b").name
    DatasetCache(tmp_path / "a").evict_unused()
    assert DatasetCache(tmp_path / "a").name == name


def test_server_that_nobody_uses_ends(first: DatasetCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "UNUSED_SECONDS", 0.0)
    server = PeerServer(first, Dataset((LARGE,)).objects, "127.0.0.1", "127.0.0.1")
    server._thread.join(30)
    assert not server._thread.is_alive()
