from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.machines.storage.stores.store import PartRequest, Span, masked
from jupyter_sky.machines.storage.stores.uri import StorageUri


@pytest.mark.parametrize(
    ("text", "scheme", "account", "bucket", "key"),
    [
        ("s3://imagenet", "s3", "", "imagenet", ""),
        ("s3://imagenet/train/a b.jpg", "s3", "", "imagenet", "train/a b.jpg"),
        ("s3a://imagenet/x", "s3", "", "imagenet", "x"),
        ("GS://bucket/", "gs", "", "bucket", ""),
        ("az://acct/cont/dir/", "az", "acct", "cont", "dir/"),
        ("r2://acct/bucket/k", "r2", "acct", "bucket", "k"),
        ("ssh://me@host/data/x", "ssh", "", "me@host", "data/x"),
        ("s3://bucket//x", "s3", "", "bucket", "/x"),
        ("s3://bucket/what?is=this", "s3", "", "bucket", "what?is=this"),
        ("file:///data/x/", "file", "", "", "data/x/"),
        ("file:/data/a%20b", "file", "", "", "data/a b"),
        ("/data/../x", "file", "", "", "x"),
        ("./x/", "file", "", "", "home/ann/x/"),
        (".", "file", "", "", "home/ann/"),
    ],
)
def test_addresses(text, scheme, account, bucket, key):
    uri = StorageUri.parse(text, base=Path("/home/ann"))
    assert (uri.scheme, uri.account, uri.bucket, uri.key) == (scheme, account, bucket, key)
    assert StorageUri.parse(str(uri)) == uri


def test_options_end_an_address():
    uri = StorageUri.parse("s3://bucket/k?endpoint=https://127.0.0.1:9000&region=eu-west-1")
    assert uri.key == "k"
    assert uri.options == {"endpoint": "https://127.0.0.1:9000", "region": "eu-west-1"}
    assert StorageUri.parse(str(uri)) == uri


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("s4://bucket/x", "no scheme that is known"),
        ("s3:/bucket/x", "two slashes follow s3:"),
        ("s3:///x", "names no bucket"),
        ("az://account", "names no bucket"),
        ("s3://b!cket/x", "cannot be the name of a bucket"),
    ],
)
def test_invalid_addresses(text, message):
    with pytest.raises(SkyUsageError, match=message):
        StorageUri.parse(text)


def test_misspelled_scheme_names_the_nearest():
    with pytest.raises(SkyUsageError, match="did you mean s3"):
        StorageUri.parse("s33://bucket")


def test_children_and_names():
    folder = StorageUri.parse("s3://imagenet/train/")
    assert str(folder.child("a/b")) == "s3://imagenet/train/a/b"
    assert StorageUri.parse("s3://imagenet/train").child("a").key == "train/a"
    assert (folder.name, folder.root.name) == ("train", "imagenet")
    assert StorageUri.parse("file:/data/x").path == Path("/data/x")


def test_representation_of_a_request_has_no_signature():
    request = PartRequest(
        "GET",
        "https://h/k?X-Amz-Expires=900&X-Amz-Signature=5ec2e7&X-Amz-Security-Token=70ce",
        {"Authorization": "Bearer 5ec2e7"},
        Span(0, 5),
    )
    assert "5ec2e7" not in repr(request) and "70ce" not in repr(request)
    assert "X-Amz-Expires=900" in repr(request)
    assert masked("https://a.blob/c/k?sp=r&sig=5ec2e7") == "https://a.blob/c/k?sp=r&sig=***"
