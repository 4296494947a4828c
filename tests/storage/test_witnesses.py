"""Our store against the servers of others, and the clients of others against the strict store."""

from __future__ import annotations

import random
import re
import shutil
import sys
from importlib.util import find_spec

import pytest

from jupyter_sky.machines.engines.node.ports import free_port
from jupyter_sky.machines.storage.stores.buckets import create_bucket, delete_bucket, empty_prefix
from jupyter_sky.machines.storage.stores.checksums import crc32c, crc_to_hex
from jupyter_sky.machines.storage.stores.dialects import AmazonDialect, CompatibleDialect
from jupyter_sky.machines.storage.stores.errors import SkyStoragePermission, SkyTargetExists
from jupyter_sky.machines.storage.stores.files import FilesStore
from jupyter_sky.machines.storage.stores.s3 import S3Store
from jupyter_sky.machines.storage.stores.signing import S3Credentials
from jupyter_sky.machines.storage.stores.store import IF_ABSENT, MIB
from jupyter_sky.machines.storage.stores.stores import s3_store
from jupyter_sky.machines.storage.stores.uri import StorageUri
from jupyter_sky.machines.storage.transfers.transfer import Transfer, TransferItem, TransferOptions

from .conftest import CREDENTIALS, store_of
from .servers import serving

pytestmark = pytest.mark.slow  # starts servers

DATA = random.Random(2).randbytes(12 * MIB + 5)
OPTIONS = TransferOptions(part_size=5 * MIB)


def store_at(url: str, dialect: CompatibleDialect, secret: str = CREDENTIALS.secret_key) -> S3Store:
    uri = StorageUri("s3", "bucket", options={"endpoint": url})
    credentials = S3Credentials(CREDENTIALS.access_key, secret)
    return s3_store(uri, url, "us-east-1", lambda: credentials, dialect)


def move_there_and_back(store: S3Store, folder: FilesStore, keys: list[str]) -> None:
    for key in keys:
        path = folder.path("there/" + key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(DATA if key == "big" else key.encode())
    items = [TransferItem(folder.stat("there/" + key), key) for key in keys]
    Transfer(folder, store, items, options=OPTIONS).run()
    assert sorted(obj.key for obj in store.list()) == sorted(keys)
    items = [TransferItem(store.stat(key), "back/" + key) for key in keys]
    Transfer(store, folder, items, options=OPTIONS).run()
    for key in keys:
        sent = folder.path("there/" + key).read_bytes()
        assert folder.path("back/" + key).read_bytes() == sent


@pytest.mark.skipif(not shutil.which("rclone"), reason="needs rclone")
def test_server_of_rclone(tmp_path):
    port = free_port("127.0.0.1")
    (tmp_path / "served" / "bucket").mkdir(parents=True)
    command = ["rclone", "serve", "s3", str(tmp_path / "served"), "--config=/dev/null"]
    key = f"{CREDENTIALS.access_key},{CREDENTIALS.secret_key}"
    with serving([*command, "--addr", f"127.0.0.1:{port}", "--auth-key", key], port) as url:
        move_there_and_back(
            store_at(url, CompatibleDialect()), FilesStore(tmp_path), ["big", "a b/ü+&", "one"]
        )
        with pytest.raises(SkyStoragePermission):
            list(store_at(url, CompatibleDialect(), "wrong").list())


def test_server_of_moto(tmp_path):
    import boto3

    port = free_port("127.0.0.1")
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with serving(command, port) as url:
        boto3.client("s3", endpoint_url=url, **aws_keys()).create_bucket(Bucket="bucket")
        # moto takes a checksum of the whole for a wrong one: see the strict store for that
        store = store_at(url, CompatibleDialect())
        move_there_and_back(
            store, FilesStore(tmp_path), ["big", "a b/ü+&", "one", "x//y", "z/"][:3]
        )
        items = [TransferItem(FilesStore(tmp_path).stat("there/big"), "one")]
        with pytest.raises(SkyTargetExists):
            Transfer(
                FilesStore(tmp_path),
                store,
                items,
                options=TransferOptions(part_size=5 * MIB, condition=IF_ABSENT),
            ).run()


def aws_keys() -> dict[str, str]:
    return {
        "aws_access_key_id": CREDENTIALS.access_key,
        "aws_secret_access_key": CREDENTIALS.secret_key,
        "region_name": "us-east-1",
    }


def test_boto3_and_obstore_read_and_write_the_strict_store(tmp_path):
    import io

    import boto3
    import obstore

    from tests.emulators.object_store.server import ObjectStore

    with ObjectStore() as server:  # with parts of the size that they take
        server.create("bucket")
        client = boto3.client("s3", endpoint_url=server.url, **aws_keys())
        client.upload_fileobj(io.BytesIO(DATA), "bucket", "boto3/a b")
        theirs = obstore.store.S3Store(
            "bucket",
            endpoint=server.url,
            region="us-east-1",
            access_key_id=CREDENTIALS.access_key,
            secret_access_key=CREDENTIALS.secret_key,
            client_options={"allow_http": True},
        )
        obstore.put(theirs, "obstore/a b", DATA, chunk_size=5 * MIB)
        ours = store_at(server.url, AmazonDialect())
        folder = FilesStore(tmp_path)
        items = [TransferItem(obj, obj.key) for obj in ours.list()]
        assert [item.key for item in items] == ["boto3/a b", "obstore/a b"]
        Transfer(ours, folder, items, options=OPTIONS).run()
        assert all(folder.path(item.key).read_bytes() == DATA for item in items)
        back = [TransferItem(folder.stat(item.key), "ours") for item in items[:1]]
        Transfer(folder, ours, back, options=OPTIONS).run()
        head = client.head_object(Bucket="bucket", Key="ours", ChecksumMode="ENABLED")
        assert head["ChecksumType"] == "FULL_OBJECT" and head["ContentLength"] == len(DATA)
        assert client.get_object(Bucket="bucket", Key="ours")["Body"].read() == DATA
        assert bytes(obstore.get(theirs, "ours").bytes()) == DATA
        assert not server.crashes, server.crashes[0]


@pytest.mark.skipif(not find_spec("moto"), reason="needs moto[server]")
def test_moto_takes_our_bucket_settings(tmp_path):
    import boto3

    port = free_port("127.0.0.1")
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with serving(command, port) as url:
        client = boto3.client("s3", endpoint_url=url, **aws_keys())
        store = store_at(url, CompatibleDialect())
        for __ in range(2):  # the second call completes what the first has made
            create_bucket(store, "us-east-1", {"jupyter-sky-owner": "me"})
        named = {"Bucket": "bucket"}
        (rule,) = client.get_bucket_lifecycle_configuration(**named)["Rules"]
        assert rule["Expiration"]["Days"] == 1 and rule["Status"] == "Enabled"
        assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}
        assert client.get_bucket_tagging(**named)["TagSet"] == [
            {"Key": "jupyter-sky-owner", "Value": "me"}
        ]
        block = client.get_public_access_block(**named)["PublicAccessBlockConfiguration"]
        assert set(block.values()) == {True} and len(block) == 4
        encryption = client.get_bucket_encryption(**named)["ServerSideEncryptionConfiguration"]
        default = encryption["Rules"][0]["ApplyServerSideEncryptionByDefault"]
        assert default["SSEAlgorithm"] == "AES256"
        client.put_object(**named, Key="sky/me/a", Body=b"1")
        client.create_multipart_upload(**named, Key="sky/me/b")
        assert len(empty_prefix(store, "sky/me/")) == 2
        delete_bucket(store)
        assert client.list_buckets()["Buckets"] == []


def test_googles_client_writes_the_strict_store_as_we_do(servers, tmp_path):
    """Its uploads by parts are those of the XML interface, which Google's emulators lack."""
    pytest.importorskip("google.cloud.storage")
    from google.cloud import storage
    from google.cloud.storage import transfer_manager
    from google.oauth2.credentials import Credentials

    server, key = servers["google"], "a b/ü+&"
    server.reset()
    server.create("bucket")
    store = store_of(server)
    options = {"api_endpoint": server.url}
    client = storage.Client("project", Credentials("token-of-the-test"), client_options=options)
    (tmp_path / "big").write_bytes(DATA)
    blob = client.bucket("bucket").blob(key)
    transfer_manager.upload_chunks_concurrently(
        str(tmp_path / "big"), blob, chunk_size=5 * MIB, worker_type=transfer_manager.THREAD
    )
    theirs = list(server.requests)
    assert server.content("bucket", key) == DATA and not server.crashes
    assert store.stat(key).sums["crc32c"] == crc_to_hex(crc32c(DATA))
    server.forget_counts()
    items = [TransferItem(FilesStore(tmp_path).stat("big"), key)]
    Transfer(FilesStore(tmp_path), store, items, options=OPTIONS).run()
    assert sorted(map(without_id, server.requests)) == sorted(map(without_id, theirs))


def without_id(request: str) -> str:
    """A request without the id of its upload."""
    return re.sub("uploadId=[^&]*", "uploadId=", request)
