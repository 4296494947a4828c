"""Refusals of a store, in the words of Amazon's XML."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.sax.saxutils import escape

STATUSES = {
    "AccessDenied": 403,
    "AuthorizationHeaderMalformed": 400,
    "AuthorizationQueryParametersError": 400,
    "BadDigest": 400,
    "ConditionalRequestConflict": 409,
    "EntityTooLarge": 400,
    "EntityTooSmall": 400,
    "ExpiredToken": 400,
    "InternalError": 500,
    "InvalidAccessKeyId": 403,
    "InvalidArgument": 400,
    "InvalidObjectState": 403,
    "InvalidPart": 400,
    "InvalidPartOrder": 400,
    "InvalidRange": 416,
    "InvalidRequest": 400,
    "MethodNotAllowed": 405,
    "MissingContentLength": 411,
    "NoSuchBucket": 404,
    "NoSuchKey": 404,
    "NoSuchUpload": 404,
    "NotImplemented": 501,
    "NotModified": 304,
    "PreconditionFailed": 412,
    "RequestTimeTooSkewed": 403,
    "SignatureDoesNotMatch": 403,
    "SlowDown": 503,
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
