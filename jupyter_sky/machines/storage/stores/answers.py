"""Errors that the answers of stores stand for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape

from jupyter_sky.machines.storage.stores import errors
from jupyter_sky.machines.storage.stores.connections import HttpAnswer
from jupyter_sky.machines.storage.stores.errors import (
    SkyBucketMissing,
    SkyBucketOwned,
    SkyChecksumMismatch,
    SkyObjectArchived,
    SkyObjectMissing,
    SkyRequestExpired,
    SkyStorageError,
    SkyStoragePermission,
    SkyStorageRegion,
    SkyStoreBusy,
    SkyTargetExists,
    SkyUploadConflict,
    SkyUploadMissing,
)

_BY_CODE: Mapping[str, type[SkyStorageError]] = {
    "AuthorizationHeaderMalformed": SkyStorageRegion,
    "AuthorizationQueryParametersError": SkyStorageRegion,
    "BadDigest": SkyChecksumMismatch,
    "BucketAlreadyExists": SkyTargetExists,
    "BucketAlreadyOwnedByYou": SkyBucketOwned,
    "ConditionalRequestConflict": SkyUploadConflict,
    "ExpiredToken": SkyRequestExpired,
    "InvalidObjectState": SkyObjectArchived,
    "InvalidPart": SkyUploadConflict,
    "InvalidRange": SkyObjectMissing,
    "NoSuchBucket": SkyBucketMissing,
    "NoSuchKey": SkyObjectMissing,
    "NoSuchUpload": SkyUploadMissing,
    "PermanentRedirect": SkyStorageRegion,
    "RequestTimeTooSkewed": SkyRequestExpired,
    "RequestTimeout": SkyStoreBusy,
    "XAmzContentSHA256Mismatch": SkyChecksumMismatch,
}
_BY_AZURE_CODE: Mapping[str, type[SkyStorageError]] = {
    "BlobAlreadyExists": SkyTargetExists,
    "BlobArchived": SkyObjectArchived,
    "BlobBeingRehydrated": SkyObjectArchived,
    "BlobNotFound": SkyObjectMissing,
    "ContainerBeingDeleted": SkyBucketMissing,
    "ContainerNotFound": SkyBucketMissing,
    "InvalidBlobOrBlock": SkyUploadConflict,
    "InvalidBlockList": SkyUploadConflict,
    "Md5Mismatch": SkyChecksumMismatch,
    "ResourceNotFound": SkyBucketMissing,
}
_BY_STATUS: Mapping[int, type[SkyStorageError]] = {
    301: SkyStorageRegion,
    401: SkyStoragePermission,
    403: SkyStoragePermission,
    404: SkyObjectMissing,
    408: SkyStoreBusy,
    409: SkyUploadConflict,
    412: SkyTargetExists,
    429: SkyStoreBusy,
}


def raise_for_status(answer: HttpAnswer, subject: str) -> HttpAnswer:
    """Return `answer` if it is a success, else raise what it stands for.

    Parameters
    ----------
    answer : HttpAnswer
        Answer of a store.
    subject : str
        What was asked, for the message: ``PUT s3://bucket/key``.
    """
    if answer.status < 300 and not _ERROR_START.match(answer.body):
        return answer
    raise error_of(answer, subject)


def error_of(answer: HttpAnswer, subject: str) -> SkyStorageError:
    """Return the error that an answer stands for."""
    text = bytes(answer.body).decode(errors="replace")
    code = _field(text, "Code") or answer.headers.get("x-ms-error-code")
    message = _field(text, "Message").partition("\n")[0]
    kind = _BY_CODE.get(code) or _BY_AZURE_CODE.get(code) or _BY_STATUS.get(answer.status)
    if kind is None:
        kind = SkyStoreBusy if answer.status >= 500 or answer.status == 200 else SkyStorageError
    if code == "AccessDenied" and ("expired" in message or "not valid yet" in message):
        kind = SkyRequestExpired
    if code == "AuthenticationFailed" and "time frame" in _field(text, "AuthenticationErrorDetail"):
        kind = SkyRequestExpired
    reason = " ".join(filter(None, (str(answer.status), code, message)))
    error = kind(f"{subject}: {reason}")
    if isinstance(error, SkyStoragePermission):
        error.hint = _PERMISSIONS.get(subject.partition(" ")[0])
    if isinstance(error, SkyStoreBusy):
        error.retry_after = _seconds(answer.headers.get("Retry-After") or "")
    if isinstance(error, SkyStorageRegion):
        error.region = answer.headers.get("x-amz-bucket-region") or _field(text, "Region")
    return error


def describe_error(error: SkyStorageError) -> dict[str, object]:
    """Return an error as a value for JSON; `restore_error` makes it again."""
    retry_after = getattr(error, "retry_after", 0.0)
    described = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
    return {**described, "retry_after": retry_after}


def restore_error(described: Mapping[str, object]) -> SkyStorageError:
    """Return the error that `describe_error` described."""
    kind = getattr(errors, str(described["error"]), SkyStorageError)
    hint = described.get("hint")
    error = kind(str(described["message"]), hint=str(hint) if hint else None)
    if isinstance(error, SkyStoreBusy):
        error.retry_after = float(str(described.get("retry_after", 0.0)))
    return error


_PERMISSIONS = {
    "GET": "the credentials need s3:GetObject, storage.objects.get or Storage Blob Data Reader",
    "PUT": "the credentials need s3:PutObject, storage.objects.create or Storage Blob Data "
    "Contributor",
}
"""Permission that moves a part, at Amazon, Google and Azure."""

_ERROR_START = re.compile(rb"(<\?xml[^>]*\?>)?\s*<Error[ >]")
"""A success whose body is an error: completing and copying may fail after the status is sent."""


def _field(text: str, name: str) -> str:
    match = re.search(rf"<{name}>([^<]*)</{name}>", text)
    return unescape(match[1]) if match else ""


def _seconds(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0
