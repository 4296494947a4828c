from __future__ import annotations

import os

import pytest

from jupyter_sky.machines.storage.stores.checksums import crc32c
from jupyter_sky.machines.storage.stores.errors import (
    SkyInvalidKey,
    SkyObjectMissing,
    SkySourceChanged,
    SkyUploadMissing,
)
from jupyter_sky.machines.storage.stores.file_parts import read_file_part, write_file_part
from jupyter_sky.machines.storage.stores.files import FilesStore
from jupyter_sky.machines.storage.stores.store import Checksums, Store


@pytest.fixture
def store(tmp_path):
    return FilesStore(tmp_path)


def test_files_follow_the_protocol(store):
    assert isinstance(store, Store)


@pytest.mark.parametrize(
    "key",
    ["", "..", "../x", "a/../b", "a//b", "/a", "a/", ".", "a/./b", "a\0b", "x" * 256, "ü" * 128],
)
def test_keys_that_no_file_can_have_are_refused(store, key):
    with pytest.raises(SkyInvalidKey):
        store.path(key)


@pytest.mark.parametrize("key", ["a", "...", ".a", "a..b", "..a/b", "ü" * 127, "a b/%41&?#"])
def test_keys_that_files_can_have(store, key):
    path = store.path(key)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"content")
    assert path.is_relative_to(store.root)
    assert bytes(read_file_part(store.read(store.stat(key)))) == b"content"
    assert [obj.key for obj in store.list()] == [key]


def test_listing_is_in_the_order_of_whole_keys(store):
    for key in ("a/b", "a.b", "a-", "a0", "b/c/d", "b/c-"):
        store.path(key).parent.mkdir(parents=True, exist_ok=True)
        store.path(key).touch()
    keys = [obj.key for obj in store.list()]
    assert keys == sorted(keys) and len(keys) == 6
    assert [obj.key for obj in store.list("b/c")] == ["b/c-", "b/c/d"]
    assert [obj.key for obj in store.list(after="a0")] == ["b/c-", "b/c/d"]
    assert list(store.list("none/")) == []


def test_links_are_followed_inside_and_refused_outside(store, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (store.root / "data").mkdir()
    (store.root / "data" / "file").write_bytes(b"x")
    os.symlink("file", store.root / "data" / "link")
    assert [obj.key for obj in store.list("data/")] == ["data/file", "data/link"]
    os.symlink(outside, store.root / "data" / "out")
    with pytest.raises(SkyInvalidKey, match="outside of"):
        list(store.list("data/"))
    os.unlink(store.root / "data" / "out")
    os.symlink("nothing", store.root / "data" / "out")
    with pytest.raises(SkyObjectMissing, match="does not exist"):
        list(store.list("data/"))
    os.unlink(store.root / "data" / "out")
    os.symlink(".", store.root / "data" / "loop")
    with pytest.raises(SkyInvalidKey, match="leads back"):
        list(store.list("data/"))


def test_file_that_changed_since_it_was_listed(store):
    path = store.root / "f"
    path.write_bytes(b"12345")
    request = store.read(store.stat("f"))
    path.write_bytes(b"123")
    with pytest.raises(SkySourceChanged):
        read_file_part(request)


def test_name_that_is_no_text_is_said(store):
    with open(os.fsencode(store.root) + b"/\xff", "w"):
        pass
    with pytest.raises(SkyInvalidKey, match="is not UTF-8"):
        list(store.list())


def test_upload_of_a_process_that_was_killed_as_it_gave_the_file_its_name(store):
    upload = store.begin("k", 8, part_size=4)
    for number in (1, 2):
        write_file_part(upload.write(number, Checksums(crc32c(b"data"))), b"data")
    assert sorted(upload.have()) == [1, 2]
    os.replace(upload.part_path, upload.path)  # the list of its parts is still there
    with pytest.raises(SkyUploadMissing):
        store.begin("k", 8, part_size=4, upload_id=upload.id).have()
