"""Bad input: each has a sentence of its own, and nothing is half done."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.machines.storage.stores.errors import (
    SkyBucketMissing,
    SkyDiskFull,
    SkyInvalidKey,
    SkyObjectMissing,
    SkyRequesterPays,
    SkyStoragePermission,
)
from tests.emulators.object_store import ObjectStore
from tests.storage.conftest import store_of

pytestmark = pytest.mark.slow  # talks to a server


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with ObjectStore("aws", min_part=1024) as store:
        yield store


@pytest.fixture
def server(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, own_data: None
) -> Iterator[ObjectStore]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
    store.reset()
    store.create("imagenet", "other")
    yield store
    assert not store.crashes, store.crashes[0]


def at(server: ObjectStore, key: str = "", bucket: str = "imagenet", **options: str) -> str:
    tail = "".join(f"&{name}={value}" for name, value in options.items())
    return f"s3://{bucket}/{key}?endpoint={server.url}{tail}"


def test_missing_bucket_suggests_the_nearest_of_yours(server: ObjectStore) -> None:
    with pytest.raises(SkyBucketMissing) as caught:
        sky.Storage(at(server, bucket="imagnet")).ls()
    assert caught.value.hint == "did you mean imagenet?"


def test_missing_bucket_where_buckets_may_not_be_listed(server: ObjectStore) -> None:
    server.fail("GET /[?]", "AccessDenied", times=9)
    with pytest.raises(SkyBucketMissing) as caught:
        sky.Storage(at(server, bucket="imagnet")).ls()
    assert "create" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("match", "act", "permission"),
    [
        ("GET /imagenet", lambda uri, __: sky.Storage(uri + "x/").ls(), "s3:ListBucket"),
        ("HEAD", lambda uri, __: sky.Storage(uri + "x/a").du(), "s3:GetObject"),
        ("GET /imagenet/x", lambda uri, path: _copy(uri + "x/a", path), "s3:GetObject"),
        ("PUT", lambda uri, __: sky.Storage(uri + "x/").write("new", b"x"), "s3:PutObject"),
        ("DELETE", lambda uri, __: sky.Storage(uri + "x/a").delete(), "s3:DeleteObject"),
    ],
)
def test_refusal_names_the_permission_that_is_missing(
    server: ObjectStore, tmp_path: Path, match: str, act: Any, permission: str
) -> None:
    server.put("imagenet", "x/a", b"one")
    server.fail(match, "AccessDenied", times=99)

    def uri(key: str) -> str:
        return at(server, key)

    class Address(str):
        def __add__(self, key: str) -> str:
            return uri(key)

    with pytest.raises(SkyStoragePermission) as caught:
        act(Address(), tmp_path / "got")
    assert permission in str(caught.value.hint)


def _copy(source: str, target: Path) -> None:
    sky.copy(source, target).wait()


def test_bucket_whose_reader_pays_is_read_only_when_that_is_agreed(server: ObjectStore) -> None:
    server.put("imagenet", "x/a", b"one")
    server.operations.buckets["imagenet"].requester_pays = True
    with pytest.raises(SkyRequesterPays) as caught:
        sky.Storage(at(server, "x/")).ls()
    assert "$" in caught.value.message and "payer=requester" in str(caught.value.hint)
    agreed = sky.Storage(at(server, "x/a", payer="requester"))
    with agreed.open() as file:
        assert file.read() == b"one"


def test_disk_too_small_for_all_is_said_before_the_first_byte(
    server: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        server.put("imagenet", f"x/{name}", b"y" * 600)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(SkyDiskFull, match=r"needs room for 1\.8 kB and has 1\.0 kB"):
        sky.copy(at(server, "x/"), tmp_path / "got").wait()
    assert server.count("GET /imagenet/x") == 0
    assert not (tmp_path / "got").exists()


@pytest.mark.parametrize("name", ["k" * 220 + "/", "ü" * 120 + "/"])
def test_key_that_is_too_long_for_a_store(server: ObjectStore, tmp_path: Path, name: str) -> None:
    deep = tmp_path.joinpath("data", *[name.strip("/")] * 5)
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    with pytest.raises(SkyInvalidKey, match="at most 1,024 bytes"):
        sky.copy(tmp_path / "data", at(server, "x/"))
    assert server.keys("imagenet") == []


def test_object_that_vanishes_on_the_way_is_named_and_the_others_come(
    server: ObjectStore, tmp_path: Path
) -> None:
    for name in "abc":
        server.put("imagenet", f"x/{name}", b"y")
    server.fail("GET /imagenet/x/b", "NoSuchKey", times=99)
    with pytest.raises(SkyObjectMissing, match="x/b"):
        sky.copy(at(server, "x/"), f"{tmp_path}/got/").wait()
    assert sorted(path.name for path in (tmp_path / "got").rglob("?")) == ["a", "c"]
    assert not list(tmp_path.rglob(".sky-part-*"))


def test_other_region_is_asked_for_and_said_once(server: ObjectStore) -> None:
    server.put("imagenet", "x/a", b"one")
    server.account.region = server.operations.region = "eu-west-1"
    data = sky.Storage(at(server, "x/"))
    with pytest.warns(UserWarning, match="imagenet is in eu-west-1, not in us-east-1") as said:
        assert len(data.ls()) == len(data.ls()) == 1
    assert len(said) == 1


def test_links_out_of_the_folder_and_in_circles_are_refused(
    server: ObjectStore, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "secret").write_text("not part of it")
    link = tmp_path / "data" / "link"
    for target, reason in [(tmp_path / "secret", "outside of"), (tmp_path / "data", "leads back")]:
        link.symlink_to(target)
        with pytest.raises(SkyUsageError, match=reason):
            sky.copy(tmp_path / "data", at(server, "x/"))
        link.unlink()
    assert server.keys("imagenet") == []


@pytest.mark.parametrize(
    ("letter", "action", "role"),
    [
        ("r", "blobs/read", "Reader"),
        ("l", "blobs/read", "Reader"),
        ("d", "blobs/delete", "Contributor"),
    ],
)
def test_refusal_of_azure_names_letter_action_and_role(letter: str, action: str, role: str) -> None:
    with ObjectStore("azure") as server:
        server.create("refusing")
        store = store_of(server, "refusing")
        calls: dict[str, Any] = {"r": lambda: store.stat("k"), "l": lambda: [*store.list()]}
        calls["d"] = lambda: store.remove(["k"])
        server.fail("GET|HEAD|DELETE", "AccessDenied", times=99)
        with pytest.raises(SkyStoragePermission) as refusal:
            calls[letter]()
    hint = refusal.value.hint or ""
    assert f"needs the permission {letter} on refusing" in hint
    assert f"Storage Blob Data {role}" in hint and hint.endswith(f"{action})")
