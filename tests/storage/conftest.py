from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_sky.storage.dialects import AmazonDialect, CompatibleDialect
from jupyter_sky.storage.s3 import S3Store
from jupyter_sky.storage.signing import BearerToken, S3Credentials
from jupyter_sky.storage.stores import google_store, s3_store
from jupyter_sky.storage.uri import StorageUri
from tests.emulators.object_store import ObjectStore

CREDENTIALS = S3Credentials("AKIATEST", "secret-of-the-test")


def store_of(server: ObjectStore, bucket: str = "bucket") -> S3Store:
    """The product's store for a bucket of an emulator."""
    if server.operations.dialect == "google":
        server.account.tokens["token-of-the-test"] = server.account.now() + 3600
        uri = StorageUri("gs", bucket)
        return google_store(uri, server.url, lambda: BearerToken("token-of-the-test"))
    dialect = AmazonDialect() if server.operations.dialect == "aws" else CompatibleDialect()
    uri = StorageUri("s3", bucket, options={"endpoint": server.url})
    return s3_store(uri, server.url, "us-east-1", lambda: CREDENTIALS, dialect)


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[str, ObjectStore]]:
    """One strict store of each dialect, with small parts."""
    servers = {name: ObjectStore(name, min_part=1024) for name in ("aws", "r2", "google")}
    yield servers
    for server in servers.values():
        server.close()


@pytest.fixture(params=["aws", "r2", "google"])
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
