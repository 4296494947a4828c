"""Mounts of the stores of all clouds: each signs or narrows its requests in its own way."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky.base.remote.supervisor import unmount_below
from jupyter_sky.machines.storage.datasets.block_reader import BLOCK_BYTES
from jupyter_sky.machines.storage.datasets.machine_data import request_to_json
from jupyter_sky.machines.storage.datasets.mounts import Mount, missing_for_mounts
from jupyter_sky.machines.storage.datasets.signed_windows import window_spans
from jupyter_sky.machines.storage.stores.delegation import delegate
from jupyter_sky.machines.storage.stores.listing import list_objects
from jupyter_sky.machines.storage.stores.signing import Access
from tests.conftest import wait_until
from tests.emulators.object_store import ObjectStore
from tests.emulators.object_store.token_exchange import TokenExchange
from tests.storage.conftest import store_of
from tests.storage.test_delegation import WHOLE, bucket_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_for_mounts()), reason=f"needs {missing_for_mounts()}"),
]
BIG = os.urandom(2 * BLOCK_BYTES + 17)


class MountedSet:
    """The objects below ``set/`` of a bucket, mounted and served as a notebook does it.

    Attributes
    ----------
    path
        Folder of the mount.
    messages
        Requests that the process of the mount has got.
    errors
        Sentences that it has sent.
    """

    def __init__(self, server: ObjectStore, path: Path) -> None:
        is_google = server.operations.dialect == "google"
        store = bucket_of(server, TokenExchange(server.account)) if is_google else store_of(server)
        uri = store.uri.child("set/")
        manifest = list_objects(store, uri)
        delegated = delegate(store, uri, Access.READ)
        assert delegated is not None
        self._store, self._dataset, self.path = delegated, manifest.dataset(), path
        by_path = manifest.by_path()
        self._objects = {each.identity: by_path[each.path] for each in self._dataset.objects}
        self.messages: list[str] = []
        self.errors: list[str] = []
        self.mount = Mount(self._dataset, path)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self.mount.has_ended:
            state = self.mount.state()
            self.errors += state["errors"]
            windows = [[*window, self._requests(*window)] for window in state["wanted"]]
            self.messages += map(str, windows)
            if windows:
                self.mount.add_requests(windows)
            time.sleep(0.005)

    def _requests(self, identity: str, number: int) -> list[list]:
        found = self._objects[identity]
        spans = window_spans(found.size, number)
        return [request_to_json(self._store.read(found, span)) for span in spans]

    def close(self) -> None:
        self.mount.close()
        self._thread.join()


@pytest.fixture
def mounted(server: ObjectStore, tmp_path: Path) -> Iterator[MountedSet]:
    if server.operations.dialect == "google":
        pytest.importorskip("google.auth")
        server.account.tokens[WHOLE] = server.account.now() + 3600
    server.put("bucket", "set/sub/big", BIG)
    server.put("bucket", "set/a b", b"small")
    server.put("bucket", "beside", b"not below the prefix")
    made = MountedSet(server, tmp_path / "mount")
    server.forget_counts()
    yield made
    made.close()
    unmount_below(tmp_path)


def test_mount_has_the_contents_of_the_store(mounted: MountedSet, server: ObjectStore) -> None:
    assert sorted(each.name for each in mounted.path.iterdir()) == ["a b", "sub"]
    assert (mounted.path / "a b").read_bytes() == b"small"
    assert (mounted.path / "sub/big").read_bytes() == BIG
    assert not mounted.errors
    assert server.byte_counts()[1] == len(BIG) + len(b"small")
    billed = server.byte_counts()[1]
    wait_until(lambda: mounted.mount.state()["received"] == billed, "it tells what is billed")


def test_place_in_a_large_object_is_one_request(mounted: MountedSet, server: ObjectStore) -> None:
    with (mounted.path / "sub/big").open("rb", buffering=0) as file:
        file.seek(BLOCK_BYTES + 5)
        assert file.read(100) == BIG[BLOCK_BYTES + 5 : BLOCK_BYTES + 105]
    assert server.count("/bucket/set/sub/big") == 1
    assert server.byte_counts()[1] <= BLOCK_BYTES


def test_machine_gets_no_credentials(mounted: MountedSet, server: ObjectStore) -> None:
    (mounted.path / "a b").read_bytes()
    assert mounted.messages
    for secret in (WHOLE, "secret-of-the-test", server.account.azure_key):
        assert not any(secret in message for message in mounted.messages)


def test_object_that_is_replaced_is_an_error_and_no_mixture(
    mounted: MountedSet, server: ObjectStore
) -> None:
    server.put("bucket", "set/a b", b"other")
    with pytest.raises(OSError, match="Input/output error"):
        (mounted.path / "a b").read_bytes()
    wait_until(lambda: mounted.errors)
    assert mounted.errors[0].startswith("a b: ") and "changed" in mounted.errors[0]
