"""Refusals of a store, in the words of Amazon's XML."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.sax.saxutils import escape

STATUSES = {
    "AccessDenied": 403,
    "AuthenticationFailed": 403,
    "AuthorizationHeaderMalformed": 400,
    "AuthorizationPermissionMismatch": 403,
    "AuthorizationQueryParametersError": 400,
    "BadDigest": 400,
    "BlobAlreadyExists": 409,
    "BlobArchived": 409,
    "BlobBeingRehydrated": 409,
    "BlobNotFound": 404,
    "CannotVerifyCopySource": 404,
    "ConditionNotMet": 412,
    "BucketAlreadyExists": 409,
    "BucketAlreadyOwnedByYou": 409,
    "BucketNotEmpty": 409,
    "ConditionalRequestConflict": 409,
    "ContainerNotFound": 404,
    "EntityTooLarge": 400,
    "EntityTooSmall": 400,
    "ExpiredToken": 400,
    "IllegalLocationConstraintException": 400,
    "InternalError": 500,
    "InvalidAccessKeyId": 403,
    "InvalidArgument": 400,
    "InvalidAuthenticationInfo": 401,
    "InvalidBlobOrBlock": 400,
    "InvalidBlockList": 400,
    "InvalidHeaderValue": 400,
    "InvalidLocationConstraint": 400,
    "InvalidObjectState": 403,
    "InvalidPart": 400,
    "InvalidPartOrder": 400,
    "InvalidQueryParameterValue": 400,
    "InvalidRange": 416,
    "InvalidRequest": 400,
    "Md5Mismatch": 400,
    "MalformedXML": 400,
    "MethodNotAllowed": 405,
    "MissingContentLength": 411,
    "NoAuthenticationInformation": 401,
    "NoSuchBucket": 404,
    "NoSuchKey": 404,
    "NoSuchLifecycleConfiguration": 404,
    "NoSuchPublicAccessBlockConfiguration": 404,
    "NoSuchTagSet": 404,
    "NoSuchUpload": 404,
    "NotImplemented": 501,
    "NotModified": 304,
    "PreconditionFailed": 412,
    "RequestTimeTooSkewed": 403,
    "ServerSideEncryptionConfigurationNotFoundError": 404,
    "SignatureDoesNotMatch": 403,
    "SlowDown": 503,
    "SourceConditionNotMet": 412,
    "TooManyRequests": 429,
    "XAmzContentSHA256Mismatch": 400,
}


@dataclass
class Refusal(Exception):
    """An answer that is an error."""

    code: str
    message: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def status(self) -> int:
        """HTTP status."""
        return STATUSES[self.code]

    def body(self) -> bytes:
        """Return the answer as XML."""
        fields = {"Code": self.code, "Message": self.message or self.code, **self.fields}
        inner = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in fields.items())
        return f'<?xml version="1.0" encoding="UTF-8"?><Error>{inner}</Error>'.encode()
