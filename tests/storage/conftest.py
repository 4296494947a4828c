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


@pytest.fixture(params=["aws", "r2", "google"])
def server(request) -> Iterator[ObjectStore]:
    """A strict store of each dialect, with small parts."""
    with ObjectStore(request.param, min_part=1024) as server:
        server.create("bucket", "other")
        yield server
        assert not server.crashes, server.crashes[0]


@pytest.fixture
def amazon() -> Iterator[ObjectStore]:
    """A strict store of Amazon's dialect, with small parts."""
    with ObjectStore("aws", min_part=1024) as server:
        server.create("bucket", "other")
        yield server
        assert not server.crashes, server.crashes[0]
