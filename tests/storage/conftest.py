from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_sky.machines.storage.stores.azure import AzureStore
from jupyter_sky.machines.storage.stores.azure_signing import AccountKey, SasSigner
from jupyter_sky.machines.storage.stores.dialects import AmazonDialect, CompatibleDialect
from jupyter_sky.machines.storage.stores.signing import BearerToken, Clock, S3Credentials
from jupyter_sky.machines.storage.stores.stores import google_store, s3_store
from jupyter_sky.machines.storage.stores.uri import StorageUri
from tests.emulators.object_store import ObjectStore
from tests.emulators.object_store.azure_signatures import ACCOUNT

COMPLETION = "POST .*uploadId|PUT .*comp=blocklist"
"""Requests that publish an upload."""

DIALECTS = ("aws", "r2", "google", "azure")
CREDENTIALS = S3Credentials("AKIATEST", "secret-of-the-test")


def store_of(server: ObjectStore, bucket: str = "bucket") -> Any:
    """The product's store for a bucket of an emulator."""
    if server.operations.dialect == "azure":
        return azure_store_of(server, bucket)
    if server.operations.dialect == "google":
        server.account.tokens["token-of-the-test"] = server.account.now() + 3600
        uri = StorageUri("gs", bucket)
        return google_store(uri, server.url, lambda: BearerToken("token-of-the-test"))
    dialect = AmazonDialect() if server.operations.dialect == "aws" else CompatibleDialect()
    uri = StorageUri("s3", bucket, options={"endpoint": server.url})
    return s3_store(uri, server.url, "us-east-1", lambda: CREDENTIALS, dialect)


def azure_store_of(server: ObjectStore, bucket: str) -> AzureStore:
    """The product's store for a container of an emulator, which copies by itself."""
    endpoint = f"{server.url}/{ACCOUNT}"
    key = AccountKey(ACCOUNT, server.account.azure_key)
    signer = SasSigner(bucket, lambda: key, Clock(), "")
    uri = StorageUri("az", bucket, account=ACCOUNT, options={"endpoint": endpoint})
    return AzureStore(uri, endpoint, signer, ["127.0.0.1"])


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, ObjectStore]]:
    """One strict store of each dialect, with small parts."""
    servers = {name: ObjectStore(name, min_part=1024) for name in DIALECTS}
    yield servers
    for server in servers.values():
        server.close()


@pytest.fixture(params=DIALECTS)
def server(request, servers) -> Iterator[ObjectStore]:
    """A strict store of each dialect."""
    yield from _fresh(servers[request.param])


@pytest.fixture
def amazon(servers) -> Iterator[ObjectStore]:
    """A strict store of Amazon's dialect."""
    yield from _fresh(servers["aws"])


def _fresh(server: ObjectStore) -> Iterator[ObjectStore]:
    server.reset()
    server.create("bucket", "other")
    yield server
    assert not server.crashes, server.crashes[0]
