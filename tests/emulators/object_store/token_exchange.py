"""Google's exchange of access tokens for narrowed ones, as `google.auth` asks for it."""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, unquote

from .signatures import Account, Boundary

ADDRESS = "https://sts.googleapis.com/v1/token"
_CONDITION = re.compile(
    r"resource\.name\.startsWith\('projects/_/buckets/([^/']+)/objects/((?:[^'\\]|\\.)*)'\) \|\| "
    r"api\.getAttribute\('storage\.googleapis\.com/objectListPrefix', ''\)"
    r"\.startsWith\('((?:[^'\\]|\\.)*)'\)"
)
_WRITES = {"inRole:roles/storage.objectViewer": False, "inRole:roles/storage.objectUser": True}


@dataclass
class TokenExchange:
    """Transport of `google.auth` that reaches nothing but the exchange.

    Attributes
    ----------
    account : Account
        Account of the store that takes the tokens.
    seconds : int
        Lifetime of a narrowed token.
    issued : int
        Number of tokens that were given.
    """

    account: Account
    seconds: int = 3600
    issued: int = 0

    def __call__(self, url: str, method: str = "GET", body: bytes = b"", **__: Any) -> Any:
        """Answer a request."""
        assert (url, method) == (ADDRESS, "POST")
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        if self.account.tokens.get(form["subject_token"], 0) < self.account.now():
            return _answer(400, {"error": "invalid_grant", "error_description": "bad token"})
        rule, *others = json.loads(unquote(form["options"]))["accessBoundary"][
            "accessBoundaryRules"
        ]
        assert not others
        (permission,) = rule["availablePermissions"]
        bucket = rule["availableResource"].rpartition("/")[2]
        prefix = ""
        if condition := rule.get("availabilityCondition"):
            match = _CONDITION.fullmatch(condition["expression"])
            assert match and match[1] == bucket and match[2] == match[3], condition
            prefix = re.sub(r"\\(.)", r"\1", match[2])
        token = f"narrowed-{secrets.token_hex(8)}"
        self.issued += 1
        self.account.tokens[token] = self.account.now() + self.seconds
        self.account.boundaries[token] = Boundary(bucket, prefix, _WRITES[permission])
        return _answer(200, {"access_token": token, "expires_in": self.seconds})


def _answer(status: int, value: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(status=status, data=json.dumps(value).encode(), headers={})
