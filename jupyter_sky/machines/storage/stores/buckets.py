"""Buckets of ours: private, encrypted, and emptied by their store itself after a day."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.errors import SkyBucketMissing, SkyBucketOwned
from jupyter_sky.machines.storage.stores.s3 import S3Store
from jupyter_sky.machines.storage.stores.s3_listing import parse_uploads

LIFE_DAYS = 1
"""Days after which the store deletes objects, and gives up uploads that nobody completed."""

_NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


def create_bucket(
    store: S3Store,
    region: str,
    tags: Mapping[str, str],
    project: str = "",
    *,
    is_lasting: bool = False,
) -> None:
    """Create a bucket and make it private; one that exists is completed.

    Every step may be repeated: a process that was killed in between leaves a bucket that the next
    call completes.

    Parameters
    ----------
    store
        Store of the bucket, which need not exist.
    region
        Where it is created.
    tags
        Such as owner and lease.
    project
        Project of Google.
    is_lasting
        Whether objects stay; else the store deletes them after `LIFE_DAYS`.

    Raises
    ------
    SkyTargetExists
        The name belongs to somebody else.
    SkyUsageError
        The store has no buckets that can be created like this.
    """
    if store.dialect.prefix == "x-goog-":
        _create_google_bucket(store, region, tags, project, is_lasting)
        return
    if store.uri.scheme != "s3":
        raise SkyUsageError(
            _("{uri}: buckets of our own are made at Amazon and Google alone").format(
                uri=store.uri
            ),
            hint=_('name one: Sky.scratch = {"PLACE": "URI"}'),
        )
    constraint = f"<LocationConstraint>{escape(region)}</LocationConstraint>"
    body = f"<CreateBucketConfiguration {_NAMESPACE}>{constraint}</CreateBucketConfiguration>"
    try:
        store.call("PUT", body=b"" if region == "us-east-1" else body.encode())
    except SkyBucketOwned:
        pass
    _configure(store, "publicAccessBlock", _PRIVATE)
    _configure(store, "encryption", _ENCRYPTED)
    if not is_lasting:
        _configure(store, "lifecycle", _SHORT_LIVED)
    inner = "".join(
        f"<Tag><Key>{escape(key)}</Key><Value>{escape(value)}</Value></Tag>"
        for key, value in tags.items()
    )
    _configure(store, "tagging", f"<Tagging {_NAMESPACE}><TagSet>{inner}</TagSet></Tagging>")


_PRIVATE = f"<PublicAccessBlockConfiguration {_NAMESPACE}>" + "".join(
    f"<{name}>true</{name}>"
    for name in (
        "BlockPublicAcls",
        "IgnorePublicAcls",
        "BlockPublicPolicy",
        "RestrictPublicBuckets",
    )
)
_PRIVATE += "</PublicAccessBlockConfiguration>"
_ENCRYPTED = (
    f"<ServerSideEncryptionConfiguration {_NAMESPACE}><Rule><ApplyServerSideEncryptionByDefault>"
    "<SSEAlgorithm>AES256</SSEAlgorithm></ApplyServerSideEncryptionByDefault></Rule>"
    "</ServerSideEncryptionConfiguration>"
)
_SHORT_LIVED = (
    f"<LifecycleConfiguration {_NAMESPACE}><Rule><ID>jupyter-sky-scratch</ID>"
    "<Filter><Prefix></Prefix></Filter><Status>Enabled</Status>"
    f"<Expiration><Days>{LIFE_DAYS}</Days></Expiration>"
    "<NoncurrentVersionExpiration>"
    f"<NoncurrentDays>{LIFE_DAYS}</NoncurrentDays></NoncurrentVersionExpiration>"
    "<AbortIncompleteMultipartUpload>"
    f"<DaysAfterInitiation>{LIFE_DAYS}</DaysAfterInitiation></AbortIncompleteMultipartUpload>"
    "</Rule></LifecycleConfiguration>"
)


def _configure(store: S3Store, name: str, document: str) -> None:
    body = document.encode()
    digest = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
    store.call("PUT", "", {name: ""}, {"Content-MD5": digest}, body)


def _create_google_bucket(
    store: S3Store, region: str, tags: Mapping[str, str], project: str, is_lasting: bool
) -> None:
    """Create a bucket by Google's JSON interface, whole by one request.

    Soft delete is off: deleted data would be billed for a week.
    """
    rules = [
        {"action": {"type": kind}, "condition": {"age": LIFE_DAYS}}
        for kind in ("Delete", "AbortIncompleteMultipartUpload")
    ]
    described = {
        "name": store.uri.bucket,
        "location": region.upper(),
        "labels": dict(tags),
        "lifecycle": {"rule": [] if is_lasting else rules},
        "softDeletePolicy": {"retentionDurationSeconds": "0"},
        "iamConfiguration": {
            "publicAccessPrevention": "enforced",
            "uniformBucketLevelAccess": {"enabled": True},
        },
    }
    headers = {"Content-Type": "application/json"}
    body = json.dumps(described).encode()
    try:
        store.call("POST", "", {"project": project}, headers, body, path="/storage/v1/b")
    except SkyBucketOwned:
        pass


def delete_bucket(store: S3Store) -> None:
    """Delete an empty bucket; one that is gone already is as good.

    Raises
    ------
    SkyUploadConflict
        It is not empty.
    """
    try:
        store.call("DELETE")
    except SkyBucketMissing:
        pass


def list_uploads(store: S3Store, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield key and id of the uploads below a prefix that were neither completed nor aborted."""
    query, markers = {"uploads": "", "prefix": prefix, "encoding-type": "url"}, {}
    while True:
        page = parse_uploads(bytes(store.call("GET", "", query | markers).body))
        for key, upload_id, __ in page.uploads:
            yield key, upload_id
        markers = page.markers
        if not markers:
            return


def empty_prefix(store: S3Store, prefix: str) -> list[str]:
    """Delete all objects and open uploads below a prefix; return their keys."""
    keys = [each.key for each in store.list(prefix)]
    store.remove(keys)
    for key, upload_id in list_uploads(store, prefix):
        store.begin(key, 0, part_size=1, upload_id=upload_id).abort()
        keys.append(f"{key} (upload)")
    return keys
