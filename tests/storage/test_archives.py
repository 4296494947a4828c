"""Archived objects, read once they are restored, and deletions that are refused."""

from __future__ import annotations

import pytest

from jupyter_sky.machines.storage.stores.errors import SkyObjectArchived, SkyStoragePermission
from jupyter_sky.machines.storage.stores.listing import list_objects
from jupyter_sky.machines.storage.stores.part_worker import read_part
from tests.emulators.object_store import ObjectStore

from .conftest import store_of
from .test_s3 import LINES

pytestmark = pytest.mark.slow  # talks to servers

CLASSES = {"aws": "GLACIER", "r2": "GLACIER", "google": "ARCHIVE", "azure": "Archive"}


def archive(server: ObjectStore, restore: str = "") -> None:
    version = server.put("bucket", "x/a", b"one")
    version.storage_class, version.restore = CLASSES[server.operations.dialect], restore


def manifest_of(server: ObjectStore, key: str = "x/"):
    store = store_of(server)
    return list_objects(store, store.uri.child(key))


@pytest.mark.parametrize("key", ["x/", "x/a"])
def test_archived_objects_are_refused_where_they_must_be_restored(
    server: ObjectStore, key: str
) -> None:
    archive(server)
    if server.operations.dialect == "google":  # its archive answers at once
        manifest_of(server, key).check_readable()
        assert read_part(store_of(server).read(store_of(server).stat("x/a")), LINES) == b"one"
        return
    with pytest.raises(SkyObjectArchived, match="1 of 1 objects are in the archive class") as said:
        manifest_of(server, key).check_readable()
    assert "restore them" in str(said.value.hint)


@pytest.mark.parametrize("key", ["x/", "x/a"])
@pytest.mark.parametrize("dialect", ["aws", "azure"])
def test_objects_that_are_being_restored_say_so(
    servers: dict[str, ObjectStore], dialect: str, key: str
) -> None:
    server = servers[dialect]
    server.reset()
    server.create("bucket")
    archive(server, "running")
    with pytest.raises(SkyObjectArchived, match="1 of them are being restored") as said:
        manifest_of(server, key).check_readable()
    assert "run this again" in str(said.value.hint) and "restore them" not in str(said.value.hint)


@pytest.mark.parametrize("key", ["x/", "x/a"])
def test_restored_objects_are_read(amazon: ObjectStore, key: str) -> None:
    archive(amazon, "done")
    manifest = manifest_of(amazon, key)
    manifest.check_readable()
    assert read_part(store_of(amazon).read(manifest.objects[0]), LINES) == b"one"


def test_deletion_that_is_refused_for_one_of_many_is_an_error(amazon: ObjectStore) -> None:
    for name in "abc":
        amazon.put("bucket", name, b"x")
    amazon.operations.buckets["bucket"].protected.add("b")
    with pytest.raises(SkyStoragePermission, match=r"bucket/b\?.* object lock"):
        store_of(amazon).remove(["a", "b", "c"])
    assert amazon.keys("bucket") == ["b"], "the others are gone"
