from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import formatdate
from unittest.mock import patch

import pytest

from jupyter_sky.machines.storage.stores.signing import (
    Clock,
    S3Credentials,
    SigV4Signer,
    quote_path,
)
from tests.emulators.object_store.refusals import Refusal
from tests.emulators.object_store.signatures import Account, SignedRequest, verify

CREDENTIALS = S3Credentials("AKIATEST", "secret-of-the-test")


def signer(credentials: S3Credentials = CREDENTIALS, now: float = 1.8e9) -> SigV4Signer:
    return SigV4Signer("us-east-1", lambda: credentials, Clock(0.0, lambda: now))


@pytest.mark.parametrize("token", ["", "a/token+of=session"])
@pytest.mark.parametrize("key", ["plain", "a b/ü+&=%41"])
def test_signature_is_that_of_boto3(key, token):
    import boto3
    from botocore.config import Config

    now = datetime.fromtimestamp(1.8e9, UTC)
    client = boto3.client(
        "s3",
        endpoint_url="https://host.example",
        aws_access_key_id="AKIATEST",
        aws_secret_access_key="secret-of-the-test",
        aws_session_token=token or None,
        region_name="us-east-1",
        config=Config(signature_version="s3v4", s3={"addressing_style": "path"}),
    )
    with patch("botocore.auth.get_current_datetime", lambda *_: now.replace(tzinfo=None)):
        theirs = client.generate_presigned_url(
            "upload_part",
            {"Bucket": "bucket", "Key": key, "UploadId": "u", "PartNumber": 7},
            ExpiresIn=900,
        )
    query = {"uploadId": "u", "partNumber": "7"}
    ours = signer(replace(CREDENTIALS, session_token=token)).sign(
        "PUT", "https://host.example", "/bucket/" + quote_path(key), query, {}, 900
    )
    assert ours.url.partition("X-Amz-Signature=")[2] == theirs.partition("X-Amz-Signature=")[2]


def test_validity_ends_with_the_session():
    short = replace(CREDENTIALS, expires=1.8e9 + 60)
    assert signer(short).sign("GET", "https://h", "/b/k", {}, {}, 900).expires == 1.8e9 + 60
    assert "X-Amz-Expires=60&" in signer(short).sign("GET", "https://h", "/b/k", {}, {}, 900).url


def test_secrets_are_not_shown():
    signed = signer(replace(CREDENTIALS, session_token="t0ken")).sign(
        "GET", "https://h", "/b/k", {}, {}, 900
    )
    assert "secret" not in repr(CREDENTIALS) and "Signature" not in repr(signed)


def test_clock_is_learned_from_an_answer():
    clock = Clock(0.0, lambda: 1000.0)
    assert not clock.learn(formatdate(1010.0, usegmt=True)) and clock.now() == 1000.0
    assert clock.learn(formatdate(2200.0, usegmt=True)) and clock.now() == 2200.0
    assert not clock.learn("nonsense") and not clock.learn(None)


def verified(url: str, account: Account, headers: dict[str, str] | None = None) -> str:
    from urllib.parse import parse_qsl, urlsplit

    parts = urlsplit(url)
    headers = {"host": parts.netloc, **(headers or {})}
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return verify(account, SignedRequest("GET", parts.path, query, headers), False)


@pytest.mark.parametrize(
    ("offset", "message"),
    [(-20 * 60, "not valid yet"), (20 * 60, "has expired")],
)
def test_strict_store_refuses_wrong_clocks(offset, message):
    account = Account(clock_offset=1.8e9 - time.time())
    url = signer().sign("GET", "https://h", "/b/k", {}, {}, 900).url
    assert verified(url, account) == "UNSIGNED-PAYLOAD"
    account.clock_offset += offset
    with pytest.raises(Refusal, match=message):
        verified(url, account)


def test_strict_store_refuses_what_was_not_signed():
    account = Account(clock_offset=1.8e9 - time.time())
    url = signer().sign("GET", "https://h", "/b/k", {"a": "1"}, {"x-amz-x": "1"}, 900).url
    assert verified(url, account, {"x-amz-x": "1"})
    for changed, headers in (
        (url.replace("a=1", "a=2"), {"x-amz-x": "1"}),
        (url, {"x-amz-x": "2"}),
        (url, {"x-amz-x": "1", "x-amz-y": "1"}),
        (url.replace("/b/k", "/b/other"), {"x-amz-x": "1"}),
    ):
        with pytest.raises(Refusal):
            verified(changed, account, headers)
