"""Access of machines: one object or one prefix, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_sky.machines.storage.stores import delegation
from jupyter_sky.machines.storage.stores.connections import Connections
from jupyter_sky.machines.storage.stores.delegation import NarrowedToken, delegate
from jupyter_sky.machines.storage.stores.errors import SkyStorageError, SkyStoragePermission
from jupyter_sky.machines.storage.stores.files import FilesStore
from jupyter_sky.machines.storage.stores.part_worker import read_part, write_part
from jupyter_sky.machines.storage.stores.s3 import S3Store
from jupyter_sky.machines.storage.stores.signing import Access, BearerToken
from jupyter_sky.machines.storage.stores.store import Checksums
from jupyter_sky.machines.storage.stores.stores import google_store
from jupyter_sky.machines.storage.stores.uri import StorageUri
from tests.emulators.object_store import ObjectStore
from tests.emulators.object_store.token_exchange import TokenExchange
from tests.storage.conftest import store_of

pytest.importorskip("google.auth")
WHOLE = "token-of-the-test"


class LastingCredentials:
    """Credentials of Google whose token is always the same."""

    token, expiry, universe_domain = WHOLE, None, "googleapis.com"

    def refresh(self, _request: Any) -> None:
        """Do nothing."""


@pytest.fixture
def google(servers: dict[str, ObjectStore]) -> Iterator[ObjectStore]:
    server = servers["google"]
    server.reset()
    server.create("bucket", "other")
    server.account.tokens[WHOLE] = server.account.now() + 3600
    for bucket, key in (("bucket", "set/a"), ("bucket", "set/it's \\ b"), ("bucket", "settle")):
        server.put(bucket, key, b"content")
    server.put("other", "set/a", b"content")
    yield server
    assert not server.crashes, server.crashes[0]


def bucket_of(server: ObjectStore, exchange: TokenExchange, name: str = "bucket") -> S3Store:
    def narrow(uri: StorageUri, access: Access) -> NarrowedToken:
        return NarrowedToken(LastingCredentials(), uri, access, exchange)

    uri = StorageUri("gs", name)
    return google_store(uri, server.url, lambda: BearerToken(WHOLE), narrow)


def test_token_of_a_machine_is_narrowed_to_the_prefix(google: ObjectStore) -> None:
    exchange = TokenExchange(google.account)
    store = bucket_of(google, exchange)
    narrowed = delegate(store, StorageUri.parse("gs://bucket/set/"), Access.READ)
    assert narrowed is not None
    found = store.stat("set/a")
    request = narrowed.read(found)
    assert WHOLE not in str(dict(request.headers)) and WHOLE not in repr(request)
    assert read_part(request, Connections()) == b"content"
    assert [each.key for each in narrowed.list("set/")] == ["set/a", "set/it's \\ b"]
    for refused in (
        lambda: read_part(narrowed.read(store.stat("settle")), Connections()),
        lambda: list(narrowed.list("")),
        lambda: narrowed.remove(["set/a"]),
        lambda: write_part(narrowed.begin("set/c", 1).write(1, Checksums(0)), b"x", Connections()),
    ):
        with pytest.raises(SkyStoragePermission):
            refused()
    assert exchange.issued == 1


def test_quotes_in_a_prefix_do_not_widen_the_token(google: ObjectStore) -> None:
    exchange = TokenExchange(google.account)
    uri = StorageUri.parse("gs://bucket/set/it's \\ b")
    narrowed = delegate(bucket_of(google, exchange), uri, Access.WRITE)
    assert narrowed is not None
    assert narrowed.stat(uri.key).size == 7
    with pytest.raises(SkyStoragePermission):
        narrowed.stat("set/a")


def test_token_is_renewed_at_half_of_its_time(
    google: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = TokenExchange(google.account, seconds=600)
    uri = StorageUri.parse("gs://bucket/set/")
    token = NarrowedToken(LastingCredentials(), uri, Access.READ, exchange)
    first, now = token(), delegation.time.time()
    assert first.expires == pytest.approx(now + 600, abs=5) and first.token not in repr(first)
    monkeypatch.setattr(delegation.time, "time", lambda: now + 290)
    assert token() == first
    monkeypatch.setattr(delegation.time, "time", lambda: now + 310)
    assert token() != first and exchange.issued == 2


def test_bytes_pass_through_here_where_no_token_can_be_narrowed(google: ObjectStore) -> None:
    exchange, uri = TokenExchange(google.account), StorageUri.parse("gs://bucket/set/")
    google.account.tokens[WHOLE] = 0.0
    store = bucket_of(google, exchange)
    assert delegate(store, uri, Access.READ) is None, "the exchange refuses"
    google.account.tokens[WHOLE] = google.account.now() + 3600
    google.fail("GET /bucket", "AccessDenied", times=1)
    assert delegate(store, uri, Access.READ) is None, "the bucket refuses the narrowed token"
    assert delegate(store_of(google), uri, Access.READ) is None, "nobody narrows"
    assert delegate(FilesStore(), StorageUri.parse("file:/x"), Access.READ) is None


def test_signed_requests_need_no_narrowing(amazon: ObjectStore) -> None:
    store = store_of(amazon)
    assert delegate(store, StorageUri.parse("s3://bucket/x"), Access.WRITE) is store


def test_error_of_the_exchange_has_no_token(google: ObjectStore) -> None:
    google.account.tokens[WHOLE] = 0.0
    uri = StorageUri.parse("gs://bucket/set/")
    token = NarrowedToken(LastingCredentials(), uri, Access.READ, TokenExchange(google.account))
    with pytest.raises(SkyStorageError) as raised:
        token()
    assert WHOLE not in str(raised.value) and raised.value.__cause__ is None
