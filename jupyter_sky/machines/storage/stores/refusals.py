"""Advice on the refusals of stores: the permission that is missing, the bucket that was meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from jupyter_sky.base.errors import suggest
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.errors import (
    SkyBucketMissing,
    SkyRequesterPays,
    SkyStorageError,
    SkyStoragePermission,
)
from jupyter_sky.machines.storage.stores.s3_listing import parse_refused_deletions
from jupyter_sky.machines.storage.stores.uri import StorageUri

_AMAZON = {
    "GET": "s3:GetObject",
    "HEAD": "s3:GetObject",
    "PUT": "s3:PutObject",
    "POST": "s3:PutObject",
    "DELETE": "s3:DeleteObject",
}
_GOOGLE = {
    "GET": "storage.objects.get",
    "HEAD": "storage.objects.get",
    "PUT": "storage.objects.create",
    "POST": "storage.multipartUploads.create",
    "DELETE": "storage.objects.delete",
}
_AZURE = {
    "r": ("blobs/read", "Reader"),
    "l": ("blobs/read", "Reader"),
    "c": ("blobs/write", "Contributor"),
    "w": ("blobs/write", "Contributor"),
    "d": ("blobs/delete", "Contributor"),
}
"""Azure's actions and roles by the letters of its signatures."""
_LIST = {"s3": "s3:ListBucket", "gs": "storage.objects.list"}
_ABORT = {"s3": "s3:AbortMultipartUpload", "gs": "storage.multipartUploads.abort"}
_PARTS = {"s3": "s3:ListMultipartUploadParts", "gs": "storage.multipartUploads.listParts"}
_UPLOADS = {"s3": "s3:ListBucketMultipartUploads", "gs": "storage.multipartUploads.list"}

_SETTINGS = {
    "location": "BucketLocation",
    "lifecycle": "LifecycleConfiguration",
    "tagging": "BucketTagging",
    "encryption": "EncryptionConfiguration",
    "publicAccessBlock": "BucketPublicAccessBlock",
}
"""Settings of buckets, as the names of requests and as those of permissions."""


def missing_permission(scheme: str, method: str, key: str, query: Mapping[str, str]) -> str:
    """Return the permission that a request needs, in the words of its cloud.

    Examples
    --------
    >>> missing_permission("s3", "GET", "", {"prefix": "x/"})
    's3:ListBucket'
    >>> missing_permission("s3", "PUT", "", {"lifecycle": ""})
    's3:PutLifecycleConfiguration'
    >>> missing_permission("gs", "PUT", "x/a", {})
    'storage.objects.create'
    """
    cloud = "gs" if scheme == "gs" else "s3"
    if "uploads" in query and method == "GET":
        return _UPLOADS[cloud]
    if "uploadId" in query and method in ("GET", "DELETE"):
        return (_PARTS if method == "GET" else _ABORT)[cloud]
    if "delete" in query:
        return (_GOOGLE if cloud == "gs" else _AMAZON)["DELETE"]
    if not key:
        return _bucket_permission(cloud, method, query)
    return (_GOOGLE if cloud == "gs" else _AMAZON)[method]


def _bucket_permission(cloud: str, method: str, query: Mapping[str, str]) -> str:
    """Return the permission of a request about a bucket itself, or about all below it."""
    settings = next((_SETTINGS[name] for name in query if name in _SETTINGS), "")
    if method == "GET" and not settings:
        return _LIST[cloud]
    if cloud == "gs":
        changes = {"PUT": "update" if settings else "create", "DELETE": "delete"}
        return f"storage.buckets.{changes.get(method, 'get')}"
    if settings:
        return f"s3:{'Put' if method == 'PUT' else 'Get'}{settings}"
    return {"PUT": "s3:CreateBucket", "DELETE": "s3:DeleteBucket"}.get(method, _LIST["s3"])


def explain_refusal(
    error: SkyStorageError,
    uri: StorageUri,
    permission: str,
    own_buckets: Callable[[], Iterable[str]],
) -> SkyStorageError:
    """Return an error with advice, or the error that it really is.

    Parameters
    ----------
    error
        Refusal of a store.
    uri
        The bucket.
    permission
        What the request needs.
    own_buckets
        Returns the names of the buckets of the same account.
    """
    if isinstance(error, SkyBucketMissing):
        error.hint = _bucket_hint(uri, own_buckets)
    elif isinstance(error, SkyStoragePermission):
        if re.search("requester.?pays|requester pay", error.message, re.IGNORECASE):
            return requester_pays_error(uri)
        error.hint = _permission_hint(uri, permission)
    return error


def check_deletions(uri: StorageUri, body: bytes) -> None:
    """Raise where the answer to a deletion of many objects names some that are still there.

    The status of such an answer is a success.
    """
    refused = list(parse_refused_deletions(body))
    if not refused:
        return
    key, code, message = refused[0]
    kind, hint = SkyStorageError, None
    if code == "AccessDenied":
        kind, hint = SkyStoragePermission, _permission_hint(uri, _AMAZON["DELETE"])
    raise kind(
        _("{count:,} objects were not deleted, the first is {uri}: {code} {message}").format(
            count=len(refused), uri=uri.child(key), code=code, message=message
        ),
        hint=hint,
    )


def requester_pays_error(uri: StorageUri) -> SkyRequesterPays:
    """Return the error of a bucket whose reader pays, with the price."""
    from jupyter_sky.base.clouds.register import find_facts, find_store
    from jupyter_sky.knowledge.catalog.loader import load
    from jupyter_sky.machines.storage.stores.places import egress_amount, request_amount
    from jupyter_sky.machines.storage.stores.traffic import Traffic

    facts = find_facts(find_store("gs" if uri.scheme == "gs" else "s3"))
    region = uri.options.get("region") or facts.storage_region
    place = uri.options.get("place") or f"{facts.name}/{region}"
    catalog = load()
    per_gb = egress_amount(catalog, place, "internet", 10**9)
    per_million = request_amount(catalog, place, Traffic(reads=10**6))
    payer = _("PROJECT") if uri.scheme == "gs" else "requester"
    return SkyRequesterPays(
        _(
            "{uri}: whoever reads this bucket pays for it, to this machine about ${per_gb:.2f} per "
            "GB and ${per_million:.2f} per million requests"
        ).format(uri=uri, per_gb=per_gb.usd or 0.0, per_million=per_million.usd or 0.0),
        hint=_(
            "to agree, write the address with ?payer={payer}; "
            "%sky storage cp --dry-run then says the price of all"
        ).format(payer=payer),
    )


def azure_permission_hint(uri: StorageUri, letters: str) -> str:
    """Return advice on a refusal of Azure: the letter, action and role that the request needs.

    Examples
    --------
    >>> azure_permission_hint(StorageUri("az", "data", account="me"), "d")[:61]
    'the signature needs the permission d on data, or the login th'
    """
    action, role = _AZURE[letters[0]]
    return _(
        "the signature needs the permission {letters} on {container}, or the login the role "
        "Storage Blob Data {role} of account {account} (action .../containers/{action})"
    ).format(letters=letters, container=uri.bucket, role=role, account=uri.account, action=action)


def _bucket_hint(uri: StorageUri, own_buckets: Callable[[], Iterable[str]]) -> str:
    try:
        known = suggest(uri.bucket, own_buckets())
    except SkyStorageError:
        known = ""
    if known.startswith("did you mean"):
        return known
    return _("check its name, or create it in the console of its cloud; none of yours is near")


def _permission_hint(uri: StorageUri, permission: str) -> str:
    hint = _("the credentials need {permission} on {bucket}").format(
        permission=permission, bucket=uri.bucket
    )
    if permission in (_AMAZON["HEAD"], _GOOGLE["HEAD"]):
        hint += _("; without {listing} a key that does not exist is refused like this, too").format(
            listing=_LIST["gs" if uri.scheme == "gs" else "s3"]
        )
    if not uri.options.get("payer"):
        hint += _("; where whoever reads a bucket pays, the address needs ?payer=requester")
    return hint
