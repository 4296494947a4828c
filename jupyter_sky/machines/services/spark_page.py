"""Web page of Spark's driver, behind a login.

Spark's own server wants a signed token in a header of each request (its `JWSFilter`), which no
browser sends. A proxy on the same machine has the key: it wants the login of `dashboard_login` and
passes on what is asked for, with that header. So a page is closed to other users of the machine
whichever of both ports they try.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import threading
from collections.abc import Mapping

from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler

from jupyter_sky.machines.engines.node.service_orders import EngineOrder
from jupyter_sky.machines.services.dashboard_login import require_token

FILTER = "org.apache.spark.ui.JWSFilter"
READ_SECONDS = 60.0
MAX_CLIENTS = 16
"""Requests at the same time: a page loads scripts and styles in parallel."""
START_SECONDS = 30.0
_HEADER = b'{"alg":"HS256"}'
_SENT_ON = ("Accept", "Accept-Encoding", "Host", "If-Modified-Since")
_SENT_BACK = ("Cache-Control", "Content-Encoding", "Content-Type", "Last-Modified", "Location")


def page_token(order: EngineOrder) -> str:
    """Return the token of the link: another than that of the Connect server."""
    return hmac.digest(order.secret.encode(), b"web page", "sha256").hex()


def page_key(order: EngineOrder) -> bytes:
    """Return the key with which requests to Spark's own server are signed."""
    return hmac.digest(order.secret.encode(), b"signature", "sha256")


def page_properties(order: EngineOrder) -> dict[str, str]:
    """Return the properties by which pages of Spark want a signed token, and stay small.

    Examples
    --------
    >>> order = EngineOrder("spark", "/c", 0, 1, "4.2.0", "127.0.0.1", "", "s", "t")
    >>> page_properties(order)["spark.ui.killEnabled"]
    'false'
    """
    return {
        "spark.ui.filters": FILTER,
        f"spark.{FILTER}.param.secretKey": _encode(page_key(order)),
        "spark.ui.killEnabled": "false",
        "spark.ui.retainedJobs": "200",
        "spark.ui.retainedStages": "400",
        "spark.ui.retainedTasks": "10000",
        "spark.sql.ui.retainedExecutions": "200",
        "spark.port.maxRetries": "0",  # what listens there is Spark, and gets signed requests
    }


def signed_token(key: bytes) -> str:
    """Return a JSON Web Token without claims, signed with a key (HS256)."""
    text = f"{_encode(_HEADER)}.{_encode(b'{}')}"
    return f"{text}.{_encode(hmac.digest(key, text.encode(), 'sha256'))}"


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class SparkPage:
    """Proxy before the page of a driver, in a thread of this process.

    Parameters
    ----------
    port
        Port of Spark's own server, on the loopback interface.
    key
        Key with which requests to it are signed.
    token
        Token that browsers need.
    """

    def __init__(self, port: int, key: bytes, token: str) -> None:
        self._target = {"port": port, "bearer": f"Bearer {signed_token(key)}"}
        self._token = token
        self._port = 0
        self._is_up = threading.Event()

    def start(self) -> int:
        """Listen on the loopback interface; return the port."""
        threading.Thread(target=asyncio.run, args=(self._serve(),), daemon=True).start()
        self._is_up.wait(START_SECONDS)
        return self._port

    async def _serve(self) -> None:
        application = Application([(r"/.*", _Proxy, self._target)], log_function=lambda _: None)
        server = HTTPServer(application)
        require_token(server, self._token, "spark.dashboard_link")
        sockets = bind_sockets(0, "127.0.0.1")
        server.add_sockets(sockets)
        self._port = sockets[0].getsockname()[1]
        self._is_up.set()
        await asyncio.Event().wait()


class _Proxy(RequestHandler):
    """Request that is passed on: pages are only read."""

    def initialize(self, port: int, bearer: str) -> None:
        self._port, self._bearer = port, bearer

    async def get(self) -> None:
        client = AsyncHTTPClient(max_clients=MAX_CLIENTS)
        request = HTTPRequest(
            f"http://127.0.0.1:{self._port}{self.request.uri}",
            headers=_some(self.request.headers, _SENT_ON) | {"Authorization": self._bearer},
            follow_redirects=False,
            decompress_response=False,
            request_timeout=READ_SECONDS,
        )
        try:
            answer = await client.fetch(request, raise_error=False)
        except OSError:
            raise HTTPError(502) from None
        if answer.code == 599:  # it has not answered in time
            raise HTTPError(504)
        self.set_status(answer.code)
        for name, value in _some(answer.headers, _SENT_BACK).items():
            self.set_header(name, value)
        self.finish(None if answer.code == 304 else answer.body)


def _some(headers: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: headers[name] for name in names if name in headers}
