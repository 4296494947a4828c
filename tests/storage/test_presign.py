"""Addresses that grant one request to whoever has them."""

from __future__ import annotations

import time
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch
from urllib.error import HTTPError

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.machines.storage.datasets.data import Storage, presign
from jupyter_sky.machines.storage.stores import signing
from jupyter_sky.machines.storage.stores.errors import SkyObjectMissing
from jupyter_sky.machines.storage.stores.signing import (
    GoogleSigner,
    S3Credentials,
    quote_path,
    sign_address,
)
from tests.emulators.object_store import ObjectStore

from .conftest import store_of


@pytest.fixture(params=["aws", "r2", "azure"])
def server(request: pytest.FixtureRequest, servers: dict[str, ObjectStore]) -> ObjectStore:
    server = servers[request.param]
    server.reset()
    server.create("bucket")
    return server


@pytest.mark.slow
def test_whoever_has_the_address_reads_until_it_ends(server: ObjectStore) -> None:
    server.put("bucket", "a b/ü", b"content")
    store = store_of(server)
    url = presign(store, store.uri.child("a b/ü"), 1, "GET")
    assert urllib.request.urlopen(url).read() == b"content"
    with pytest.raises(HTTPError, match="403"):
        urllib.request.urlopen(url.replace("%20b", "%20c"))
    with pytest.raises(HTTPError, match="403"):
        urllib.request.urlopen(urllib.request.Request(url, b"x", method="PUT"))
    server.account.clock_offset = 3601
    with pytest.raises(HTTPError, match="403"):
        urllib.request.urlopen(url)


@pytest.mark.slow
def test_whoever_has_the_address_writes(server: ObjectStore) -> None:
    store = store_of(server)
    url = presign(store, store.uri.child("new"), 0.5, "PUT")
    headers = {"x-ms-blob-type": "BlockBlob"} if store.uri.scheme == "az" else {}
    urllib.request.urlopen(urllib.request.Request(url, b"theirs", headers, method="PUT"))
    assert server.content("bucket", "new") == b"theirs"


@pytest.mark.slow
def test_what_cannot_be_signed_is_said(server: ObjectStore) -> None:
    store = store_of(server)
    with pytest.raises(SkyObjectMissing):
        presign(store, store.uri.child("none"), 1, "GET")
    for hours in (0, 169):
        with pytest.raises(SkyUsageError, match="up to 168 hours"):
            presign(store, store.uri.child("k"), hours, "GET")
    with pytest.raises(SkyUsageError, match="for one object"):
        presign(store, store.uri.child("x/"), 1, "GET")


@pytest.mark.slow
def test_address_that_would_end_with_its_credentials_is_refused(
    servers: dict[str, ObjectStore],
) -> None:
    server = servers["aws"]
    server.reset()
    server.create("bucket")
    server.put("bucket", "k", b"x")
    store, ends = store_of(server), time.time() + 1800
    server.account.sessions["AKIATEST"] = ("t0ken", ends)
    session = S3Credentials("AKIATEST", "secret-of-the-test", "t0ken", ends)
    store.signer.credentials = lambda: session
    with pytest.raises(SkyUsageError, match="credentials end in") as error:
        presign(store, store.uri.child("k"), 1, "GET")
    assert "hours=0.49 or less" in str(error.value)
    assert urllib.request.urlopen(presign(store, store.uri.child("k"), 0.4, "GET")).read() == b"x"


def test_files_have_no_addresses_for_others(tmp_path: Path) -> None:
    (tmp_path / "k").write_bytes(b"x")
    with pytest.raises(SkyUsageError, match="object of a store"):
        Storage(tmp_path / "k").presign()


@pytest.mark.parametrize("key", ["plain", "a b/ü+&=%41"])
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_signature_is_that_of_googles_client(key: str, method: str) -> None:
    from google.auth.credentials import Signing
    from google.cloud.storage._signing import generate_signed_url_v4

    now = datetime(2027, 1, 15, 8, tzinfo=UTC)

    class Account(Signing):
        signer_email = "me@project.iam.gserviceaccount.com"
        signer = None

        def sign_bytes(self, message: bytes) -> bytes:
            return message[::-1]

    account = Account()
    path = f"/bucket/{quote_path(key)}"
    with patch(
        "google.cloud.storage._signing.get_v4_now_dtstamps",
        lambda: (now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")),
    ):
        theirs = generate_signed_url_v4(account, path, timedelta(hours=1), method=method)
    signer = GoogleSigner(account.signer_email, account.sign_bytes)
    origin = "https://storage.googleapis.com"
    ours = sign_address(signer, method, origin, path, int(now.timestamp()), 3600)
    assert ours.partition("?")[0] == theirs.partition("?")[0]
    assert set(ours.partition("?")[2].split("&")) == set(theirs.partition("?")[2].split("&"))


def test_person_at_google_is_told_who_can_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "google_credentials", lambda: SimpleNamespace(token="t"))
    with pytest.raises(SkyUsageError, match="cannot sign addresses") as error:
        signing.find_signer()
    assert "impersonate-service-account" in str(error.value)
