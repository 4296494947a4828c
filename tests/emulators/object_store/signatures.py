"""Verification of signatures and tokens, as strict as the stores are."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote, unquote

from .refusals import Refusal

SKEW = 15 * 60
_WEEK = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Boundary:
    """Limits of narrowed credentials: names below a prefix of one bucket, to read or to write."""

    bucket: str
    prefix: str
    is_writable: bool

    def check(self, request: SignedRequest) -> None:
        """Refuse a request outside of the limits."""
        bucket, _, key = unquote(request.path).lstrip("/").partition("/")
        name = key or request.query.get("prefix", "")
        writes = request.method not in ("GET", "HEAD")
        is_inside = bucket == self.bucket and name.startswith(self.prefix)
        if not is_inside or (writes and not self.is_writable):
            raise Refusal("AccessDenied", "The credentials are narrowed and do not allow this")


@dataclass
class Account:
    """Secrets that a store knows, and its clock.

    Attributes
    ----------
    keys : dict
        Secret by access key.
    sessions : dict
        Session token and end (unix time) by access key; a key with a session needs its token.
    tokens : dict
        End (unix time) of each bearer token.
    boundaries : dict
        Limits of narrowed tokens, and of narrowed keys.
    used : list
        Method and token of each request with a token.
    azure_key : str
        Key of the storage account.
    delegations : dict
        Keys that were given to users, by beginning and end.
    clock_offset : float
        Seconds by which the store's clock is ahead of the machine's.
    """

    region: str = "us-east-1"
    keys: dict[str, str] = field(default_factory=lambda: {"AKIATEST": "secret-of-the-test"})
    sessions: dict[str, tuple[str, float]] = field(default_factory=dict)
    tokens: dict[str, float] = field(default_factory=dict)
    boundaries: dict[str, Boundary] = field(default_factory=dict)
    used: list[tuple[str, str]] = field(default_factory=list)
    azure_key: str = "a2V5IG9mIHRoZSB0ZXN0"
    delegations: dict[tuple[str, str], str] = field(default_factory=dict)
    clock_offset: float = 0.0

    def now(self) -> float:
        """Return the time of the store."""
        return time.time() + self.clock_offset


@dataclass(frozen=True)
class SignedRequest:
    """What of a request is signed."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


def verify(account: Account, request: SignedRequest, bearer: bool) -> str:
    """Return the claimed hash of the payload, or raise a `Refusal`."""
    authorization = request.headers.get("authorization", "")
    if bearer and authorization.startswith("Bearer "):
        token = authorization.removeprefix("Bearer ")
        _verify_token(account, token)
        account.used.append((request.method, token))
        if boundary := account.boundaries.get(token):
            boundary.check(request)
        return "UNSIGNED-PAYLOAD"
    if request.query.get("X-Amz-Algorithm"):
        return _verify_query(account, request)
    if authorization.startswith("AWS4-HMAC-SHA256 "):
        return _verify_header(account, request, authorization)
    raise Refusal("AccessDenied", "Anonymous access is forbidden for this operation")


def _verify_token(account: Account, token: str) -> None:
    if token not in account.tokens:
        raise Refusal("AccessDenied", "Invalid token")
    if account.tokens[token] < account.now():
        raise Refusal("ExpiredToken", "The token has expired")


def _verify_query(account: Account, request: SignedRequest) -> str:
    query = dict(request.query)
    given = query.pop("X-Amz-Signature", "")
    names = query.get("X-Amz-SignedHeaders", "").split(";")
    signed = _timestamp(query.get("X-Amz-Date", ""))
    expires = int(query.get("X-Amz-Expires", "0"))
    if not 1 <= expires <= _WEEK:
        raise Refusal("AuthorizationQueryParametersError", "X-Amz-Expires must be up to a week")
    unsigned = [name for name in request.headers if name.startswith("x-amz-")]
    unsigned = [name for name in unsigned if name not in names]
    if unsigned:
        message = "There were headers present in the request which were not signed"
        raise Refusal("AccessDenied", message, fields={"HeadersNotSigned": ", ".join(unsigned)})
    _verify_signature(
        account,
        request,
        query,
        names,
        given=given,
        credential=query.get("X-Amz-Credential", ""),
        date=query.get("X-Amz-Date", ""),
        token=query.get("X-Amz-Security-Token", ""),
        payload="UNSIGNED-PAYLOAD",
    )
    if signed > account.now() + SKEW:
        raise Refusal("AccessDenied", "Request is not valid yet")
    if signed + expires < account.now():
        raise Refusal(
            "AccessDenied", "Request has expired", fields={"Expires": query["X-Amz-Date"]}
        )
    return "UNSIGNED-PAYLOAD"


def _verify_header(account: Account, request: SignedRequest, authorization: str) -> str:
    fields = dict(re.findall(r"(Credential|SignedHeaders|Signature)=([^,\s]+)", authorization))
    date = request.headers.get("x-amz-date", "")
    payload = request.headers.get("x-amz-content-sha256", "")
    names = fields.get("SignedHeaders", "").split(";")
    if abs(_timestamp(date) - account.now()) > SKEW:
        message = "The difference between the request time and the current time is too large."
        raise Refusal("RequestTimeTooSkewed", message)
    _verify_signature(
        account,
        request,
        request.query,
        names,
        given=fields.get("Signature", ""),
        credential=fields.get("Credential", ""),
        date=date,
        token=request.headers.get("x-amz-security-token", ""),
        payload=payload,
    )
    return payload


def _verify_signature(
    account: Account,
    request: SignedRequest,
    query: Mapping[str, str],
    names: list[str],
    *,
    given: str,
    credential: str,
    date: str,
    token: str,
    payload: str,
) -> None:
    key, day, region, service, _ = (*credential.split("/"), "", "", "", "", "")[:5]
    if key not in account.keys:
        raise Refusal("InvalidAccessKeyId", "The access key does not exist in our records.")
    if region not in (account.region, "auto"):
        message = f"the region '{region}' is wrong; expecting '{account.region}'"
        fields = {"Region": account.region}
        headers = {"x-amz-bucket-region": account.region}
        in_query = "X-Amz-Algorithm" in query
        kind = "QueryParametersError" if in_query else "HeaderMalformed"
        raise Refusal(f"Authorization{kind}", message, headers, fields)
    if "host" not in names:
        raise Refusal("SignatureDoesNotMatch", "host must be signed")
    secret = account.keys[key]
    scope = f"{day}/{region}/{service}/aws4_request"
    canonical = _canonical(request, query, names, payload)
    text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    sign = f"AWS4{secret}".encode()
    for step in (day, region, service, "aws4_request"):
        sign = hmac.digest(sign, step.encode(), "sha256")
    if not hmac.compare_digest(hmac.new(sign, text.encode(), "sha256").hexdigest(), given):
        raise Refusal("SignatureDoesNotMatch", "The signature does not match.")
    if boundary := account.boundaries.get(key):
        boundary.check(request)
    session = account.sessions.get(key)
    if session and session[0] != token:
        raise Refusal("InvalidAccessKeyId", "The session token is missing or wrong.")
    if session and session[1] < account.now():
        raise Refusal("ExpiredToken", "The provided token has expired.")


def _canonical(
    request: SignedRequest, query: Mapping[str, str], names: list[str], payload: str
) -> str:
    path = quote(unquote(request.path), safe="/-_.~")
    pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in query.items())
    lines = [request.method, path, "&".join(f"{k}={v}" for k, v in pairs)]
    for name in names:
        value = " ".join(request.headers.get(name, "").split())
        lines.append(f"{name}:{value}")
    return "\n".join([*lines, "", ";".join(names), payload])


def _timestamp(text: str) -> float:
    try:
        return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise Refusal("AccessDenied", "A valid date is required") from None
