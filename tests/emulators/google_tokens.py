"""Google's token server: access tokens for what a service account has signed with its key."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from .server import Request, Response

LIFETIME = 3599
AUDIENCE = "https://oauth2.googleapis.com/token"
"""For whom google-auth signs, wherever it then asks."""
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_TIMEFRAME = (
    "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. "
    "Check your iat and exp values in the JWT claim."
)


@dataclass(frozen=True, slots=True)
class Holder:
    """Owner, scopes and end (unix seconds) of a token."""

    email: str
    scopes: tuple[str, ...]
    ends: float


@cache
def _key(name: str) -> rsa.RSAPrivateKey:
    """A key for each name, made once in a process: it takes a while."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Tokens:
    """Accounts, and the tokens that they were given.

    Parameters
    ----------
    url
        Where its tokens are asked for.
    clock
        What the server takes for unix seconds.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.time) -> None:
        self.url, self.clock = url, clock
        self._issued: dict[str, Holder] = {}
        self._revoked: set[str] = set()

    def write_key(self, path: Path, project: str, *, account: str = "sky", key: str = "") -> Path:
        """Write the file of a service account's key, with another's private key if so told."""
        email = f"{account}@{project}.iam.gserviceaccount.com"
        private = _key(key or "right").private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        path.touch(mode=0o600)
        path.write_text(
            json.dumps(
                {
                    "type": "service_account",
                    "project_id": project,
                    "private_key_id": "0" * 40,
                    "private_key": private.decode(),
                    "client_email": email,
                    "client_id": "100000000000000000001",
                    "auth_uri": "https://accounts.google.com/o/oauth2/auth",
                    "token_uri": self.url,
                    "universe_domain": "googleapis.com",
                }
            )
        )
        return path

    def revoke(self, account: str) -> None:
        """Give an account nothing any more."""
        self._revoked.add(account)

    def forget(self) -> None:
        """Let all tokens that were given end now."""
        self._issued = {token: replace(who, ends=0.0) for token, who in self._issued.items()}

    def issue(self, email: str, scopes: Sequence[str], seconds: float = LIFETIME) -> str:
        """Give a token to an account."""
        token = f"ya29.c.{secrets.token_hex(32)}"
        self._issued[token] = Holder(email, tuple(scopes), self.clock() + seconds)
        return token

    def answer(self, request: Request) -> Response:
        """The answer to a request for a token."""
        form = request.form
        if form.get("grant_type") != GRANT:
            return _refused("unsupported_grant_type", "Invalid grant_type")
        return self._grant(form.get("assertion", ""))

    def holder(self, authorization: str) -> Holder | str:
        """Return the sender of a request by its credentials, or the code of their refusal."""
        kind, _, token = authorization.partition(" ")
        if kind != "Bearer" or not token:
            return "CREDENTIALS_MISSING"
        holder = self._issued.get(token)
        if holder is None:
            return "ACCESS_TOKEN_TYPE_UNSUPPORTED"
        return holder if self.clock() < holder.ends else "ACCESS_TOKEN_EXPIRED"

    def _grant(self, assertion: str) -> Response:
        public, now = _key("right").public_key(), self.clock()
        checks = {"verify_exp": False, "verify_iat": False, "verify_nbf": False}
        try:
            claims: dict[str, Any] = jwt.decode(
                assertion, public, algorithms=["RS256"], audience=AUDIENCE, options=checks
            )
        except jwt.InvalidSignatureError:
            return _refused("invalid_grant", "Invalid JWT Signature.")
        except jwt.InvalidAudienceError:
            return _refused("invalid_grant", "Failed audience check.")
        except jwt.InvalidTokenError as error:
            return _refused("invalid_grant", f"Invalid JWT: {error}")
        email = claims.get("iss", "")
        account, _, domain = email.partition("@")
        if not domain.endswith(".iam.gserviceaccount.com"):
            return _refused("invalid_grant", "Invalid grant: account not found")
        if account in self._revoked:
            return _refused("invalid_grant", "Token has been expired or revoked.")
        begins, ends = claims.get("iat", 0), claims.get("exp", 0)
        if not (begins - 300 <= now < ends <= begins + 3600):
            return _refused("invalid_grant", _TIMEFRAME)
        if "auth/cloud-platform" not in claims.get("scope", ""):
            return _refused("invalid_scope", "Invalid OAuth scope or ID token audience provided.")
        token = self.issue(email, claims["scope"].split())
        return Response.json(
            {"access_token": token, "expires_in": LIFETIME, "token_type": "Bearer"}
        )


def _refused(code: str, description: str) -> Response:
    return Response.json({"error": code, "error_description": description}, 400)


def refusal(code: str) -> Response:
    """The answer that refuses a token with a code."""
    status = 503 if code in ("server_error", "temporarily_unavailable", "internal_failure") else 400
    return Response.json({"error": code, "error_description": "As the script has it."}, status)
