"""Entra: who may have a token, and whose a token is."""

from __future__ import annotations

import re
import secrets
import time
import uuid
from typing import Any
from urllib.parse import urlsplit

from .arm_errors import ENTRA
from .arm_resources import refused
from .server import Request, Response

TENANT = "72f988bf-86f1-41af-91ab-2d7cd011db47"
CLIENT = "0b7cf5a1-6c43-4d5e-9b5e-3d2b8ad34f10"
SECRET, EXPIRED = "8Q~emulated", "7~expired"


class Entra:
    """One tenant with one application that has a secret."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._tokens: dict[str, dict[str, Any]] = {}

    def answer(self, request: Request) -> Response | None:
        """Answer what is asked of Entra; None for what is not."""
        if match := re.fullmatch(r"/([^/]+)/v2\.0/\.well-known/openid-configuration", request.path):
            return self._discover(match[1])
        if match := re.fullmatch(r"/([^/]+)/oauth2/v2\.0/token", request.path):
            return self._token(match[1], request)
        return None

    def expire_tokens(self) -> None:
        """Let all tokens that were given out be old."""
        for token in self._tokens.values():
            token["until"] = 0.0

    def issue(self, who: str) -> str:
        """A token for somebody, a machine's own identity among them."""
        token = secrets.token_urlsafe(48)
        self._tokens[token] = {"who": who, "until": time.time() + 3599}
        return token

    def who(self, request: Request) -> str:
        """Say who sends a request."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or not token:
            raise refused("AuthenticationFailedMissingToken")
        known = self._tokens.get(token)
        if known is None:
            raise refused("InvalidAuthenticationToken")
        if known["until"] < time.time():
            raise refused("ExpiredAuthenticationToken")
        return known["who"]

    def error(self, code: str, names: dict[str, str]) -> Response:
        error, message = ENTRA.get(code) or ("invalid_grant", "It was refused.")
        trace = f"Trace ID: {uuid.uuid4()} Correlation ID: {uuid.uuid4()} Timestamp: {time.ctime()}"
        said = f"{code}: {message.format_map(names)} {trace}"
        number = int(code.removeprefix("AADSTS"))
        body = {"error": error, "error_description": said, "error_codes": [number]}
        return Response.json(body, 401 if error == "invalid_client" else 400)

    def _discover(self, tenant: str) -> Response:
        if tenant != TENANT:
            return self.error("AADSTS90002", {"tenant": tenant})
        there = f"{self.url}/{tenant}"
        return Response.json(
            {
                "issuer": f"{there}/v2.0",
                "authorization_endpoint": f"{there}/oauth2/v2.0/authorize",
                "token_endpoint": f"{there}/oauth2/v2.0/token",
                "device_authorization_endpoint": f"{there}/oauth2/v2.0/devicecode",
                "jwks_uri": f"{there}/discovery/v2.0/keys",
            }
        )

    def _token(self, tenant: str, request: Request) -> Response:
        form = request.form
        names = {"tenant": tenant, "client": form.get("client_id", ""), **form}
        if tenant != TENANT:
            return self.error("AADSTS90002", names)
        if form.get("client_id") != CLIENT:
            return self.error("AADSTS700016", names)
        if form.get("client_secret") == EXPIRED:
            return self.error("AADSTS7000222", names)
        if form.get("client_secret") != SECRET:
            return self.error("AADSTS7000215", names)
        if urlsplit(form.get("scope", "")).hostname != urlsplit(self.url).hostname:
            return self.error("AADSTS500011", names)
        token = self.issue(CLIENT)
        return Response.json(
            {
                "token_type": "Bearer",
                "expires_in": 3599,
                "ext_expires_in": 3599,
                "access_token": token,
            }
        )
