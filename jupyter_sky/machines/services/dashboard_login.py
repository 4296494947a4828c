"""Login for web pages of data engines: a token in the link, then a cookie, as in Jupyter.

They have no login of their own, and their port is open to every user of the machine that it is
forwarded to.
"""

from __future__ import annotations

import hashlib
import hmac
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from tornado.httputil import (
    HTTPHeaders,
    HTTPMessageDelegate,
    HTTPServerConnectionDelegate,
    ResponseStartLine,
)


def require_token(server: Any, token: str, link: str) -> None:
    """Make a tornado server refuse requests without the token.

    Parameters
    ----------
    link
        What gives the link with the token, for those who have come without it.
    """
    server.request_callback = _AuthenticatedApplication(server.request_callback, token, link)


class _AuthenticatedApplication(HTTPServerConnectionDelegate):
    """Application that requires a token."""

    def __init__(self, application: Any, token: str, link: str) -> None:
        self._application, self._token, self._link = application, token, link

    def start_request(self, server_conn: object, request_conn: Any) -> HTTPMessageDelegate:
        inner = self._application
        return _AuthenticatedRequest(inner, self._token, self._link, server_conn, request_conn)

    def on_close(self, server_conn: object) -> None:
        self._application.on_close(server_conn)


class _AuthenticatedRequest(HTTPMessageDelegate):
    """Request: passed on, redirected with a cookie, or refused."""

    def __init__(
        self, application: Any, token: str, link: str, server_conn: object, conn: Any
    ) -> None:
        self._application, self._token, self._link = application, token, link
        self._server_conn, self._conn = server_conn, conn
        # browsers send a cookie to all ports of a machine: each page has a name of its own
        self._cookie_name = f"jupyter-sky-{hashlib.sha256(token.encode()).hexdigest()[:12]}"
        self._inner: HTTPMessageDelegate | None = None

    def headers_received(self, start_line: Any, headers: HTTPHeaders) -> Any:
        url = urlsplit(start_line.path)
        query = parse_qs(url.query)
        if self._is_right(_cookie(headers, self._cookie_name)):
            self._inner = self._application.start_request(self._server_conn, self._conn)
            assert self._inner is not None
            return self._inner.headers_received(start_line, headers)
        if self._is_right(query.pop("token", [""])[0]):
            rest = urlencode(query, doseq=True)
            cookie = f"{self._cookie_name}={self._token}; HttpOnly; SameSite=Strict; Path=/"
            # of the path only: what begins with // would lead to another machine
            place = "/" + url.path.lstrip("/") + (f"?{rest}" if rest else "")
            return self._say(302, "Found", {"Location": place, "Set-Cookie": cookie})
        text = f"This page wants the link that {self._link} gives.\n"
        return self._say(403, "Forbidden", {"Content-Type": "text/plain"}, text.encode())

    def _is_right(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._token.encode())

    def _say(self, code: int, reason: str, headers: dict[str, str], body: bytes = b"") -> Any:
        line = ResponseStartLine("HTTP/1.1", code, reason)
        sized = HTTPHeaders({**headers, "Content-Length": str(len(body))})
        return self._conn.write_headers(line, sized, body)

    def data_received(self, chunk: bytes) -> Any:
        return self._inner.data_received(chunk) if self._inner is not None else None

    def finish(self) -> None:
        if self._inner is not None:
            self._inner.finish()
        else:
            self._conn.finish()

    def on_connection_close(self) -> None:
        if self._inner is not None:
            self._inner.on_connection_close()


def _cookie(headers: HTTPHeaders, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("Cookie", "")).get(name)
    except CookieError:
        return ""
    return found.value if found is not None else ""
