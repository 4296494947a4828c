"""Verification of shared access signatures, as strict as Azure, and delegation keys."""

from __future__ import annotations

import base64
import hmac
import secrets
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from .calls import Answer, xml_answer
from .refusals import Refusal
from .signatures import Account

ACCOUNT = "skytest"
_PERMISSIONS = {"GET": "r", "HEAD": "r", "PUT": "w", "DELETE": "d"}


@dataclass(frozen=True)
class SignedAddress:
    """What of a request is looked at: its unquoted path begins with the account."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


def verify_address(account: Account, request: SignedAddress) -> None:
    """Raise a `Refusal` unless a signature, or a token for a delegation key, permits a request."""
    query = request.query
    if query.get("comp") == "userdelegationkey":
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if account.tokens.get(token, 0) < account.now():
            raise Refusal("InvalidAuthenticationInfo", "The token is not valid.")
        return
    if "sig" not in query:
        raise Refusal("NoAuthenticationInformation", "Server failed to authenticate the request.")
    name, _, rest = request.path.lstrip("/").partition("/")
    resource = rest if query.get("sr") == "b" else rest.partition("/")[0]
    key = _signing_key(account, query)
    text = _string_to_sign(f"/blob/{name}/{resource}", query)
    expected = base64.b64encode(hmac.digest(base64.b64decode(key), text.encode(), "sha256"))
    if name != ACCOUNT or not hmac.compare_digest(expected.decode(), query["sig"]):
        raise _failed("Signature did not match. String to sign used was " + text)
    if not _seconds(query.get("st", "")) <= account.now() <= _seconds(query.get("se", "")):
        now = datetime.fromtimestamp(account.now(), UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        ends = query.get("se", "")
        raise _failed(
            f"Signature not valid in the specified time frame: Start [] - Expiry [{ends}]"
            f" - Current [{now}]"
        )
    needed = "l" if query.get("comp") == "list" else _PERMISSIONS[request.method]
    if needed not in query.get("sp", ""):
        raise Refusal("AuthorizationPermissionMismatch", "This request is not authorized.")


def give_delegation_key(account: Account, body: bytes) -> Answer:
    """Return a new delegation key of the user of a token."""
    root = ET.fromstring(body)
    start, expiry = root.findtext("Start", ""), root.findtext("Expiry", "")
    value = base64.b64encode(secrets.token_bytes(32)).decode()
    account.delegations[(start, expiry)] = value
    fields = {
        "SignedOid": "user-of-the-test",
        "SignedTid": "tenant-of-the-test",
        "SignedStart": start,
        "SignedExpiry": expiry,
        "SignedService": "b",
        "SignedVersion": "2021-12-02",
        "Value": value,
    }
    inner = "".join(f"<{name}>{text}</{name}>" for name, text in fields.items())
    return xml_answer(f"<UserDelegationKey>{inner}</UserDelegationKey>")


def _signing_key(account: Account, query: Mapping[str, str]) -> str:
    if "skoid" not in query:
        return account.azure_key
    key = account.delegations.get((query.get("skt", ""), query.get("ske", "")))
    if key is None or _seconds(query["ske"]) < account.now():
        raise _failed("The delegation key is not valid.")
    return key


def _string_to_sign(resource: str, query: Mapping[str, str]) -> str:
    delegation = ("skoid", "sktid", "skt", "ske", "sks", "skv", "saoid", "suoid", "scid")
    middle = delegation if "skoid" in query else ("si",)
    last = ("sip", "spr", "sv", "sr", "snapshot", "ses", "rscc", "rscd", "rsce", "rscl", "rsct")
    head = [query.get("sp", ""), query.get("st", ""), query.get("se", ""), resource]
    return "\n".join([*head, *(query.get(name, "") for name in (*middle, *last))])


def _failed(detail: str) -> Refusal:
    message = "Server failed to authenticate the request.\nRequestId:1\nTime:" + str(time.time())
    return Refusal("AuthenticationFailed", message, fields={"AuthenticationErrorDetail": detail})


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0
