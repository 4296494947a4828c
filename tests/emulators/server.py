"""A small HTTPS server on loopback that speaks as a cloud does, and fails as a cloud does.

Certificates come from an authority of its own; `trusted` makes the clients of this process believe
it, by the same variables that a company behind a proxy sets.
"""

from __future__ import annotations

import json
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import trustme

_TRUST = ("REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE", "SSL_CERT_FILE")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@dataclass(frozen=True)
class Request:
    """A request as it came in."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        """Fields of a form, the last of each name."""
        return {name: values[-1] for name, values in parse_qs(self.body.decode()).items()}


@dataclass(frozen=True)
class Response:
    """Answer to a request."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, value: Any, status: int = 200, **headers: str) -> Response:
        """A response in JSON."""
        sent = {"Content-Type": "application/json", **headers}
        return cls(json.dumps(value).encode(), status, sent)


@dataclass
class InjectedFault:
    """Something that goes wrong with the next requests that match.

    Attributes
    ----------
    match : str
        Part of what `Emulator.describe` says of a request.
    kind : str
        ``throttle``, ``refuse`` or ``break`` are answered by the emulator in its cloud's own
        words; ``cut`` closes the connection within the body; ``garble`` sends half of the body as
        if it were all.
    times : int
        How often.
    after : int
        Requests that match and go well before.
    """

    match: str
    kind: str
    times: int = 1
    after: int = 0


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # of connections that come at once on a busy machine

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell of an error, unless the client was killed or has hung up."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Emulator:
    """A cloud on a port of its own. Subclasses answer; faults and the record are here.

    Parameters
    ----------
    host
        Where it is reached: an address, or this machine alone.
    """

    def __init__(self, host: str = "localhost") -> None:
        self.requests: list[str] = []
        self.troubles: list[InjectedFault] = []
        self._lock = threading.Lock()
        self.url = self._start(host)

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def trouble(self, match: str, kind: str, times: int = 1, after: int = 0) -> None:
        """Let something go wrong, see `InjectedFault`."""
        self.troubles.append(InjectedFault(match, kind, times, after))

    def count(self, match: str) -> int:
        """Requests so far whose description contains a text."""
        return sum(match in seen for seen in self.requests)

    # -- for subclasses

    def _start(self, host: str) -> str:
        """Start the server; return its address."""
        emulator = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                emulator._serve(self)

            do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        bound = "127.0.0.1" if host == "localhost" else host
        self._server = _Server((bound, 0), Handler)
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server_certificate(host).configure_cert(context)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()
        return f"https://{host}:{self._server.server_port}"

    def describe(self, request: Request) -> str:
        """A request in a few words, for `requests` and `InjectedFault.match`."""
        return f"{request.method} {request.path}"

    def answer(self, request: Request) -> Response:
        """The answer of the cloud."""
        raise NotImplementedError

    def fail(self, kind: str, request: Request) -> Response:
        """An answer in the cloud's own words: ``throttle``, ``refuse`` or ``break``."""
        raise NotImplementedError

    # -- the server

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        request = self._read(handler)
        described = self.describe(request)
        with self._lock:
            self.requests.append(described)
            kind = self._trouble(described)
        if kind in ("throttle", "refuse", "break"):
            response = self.fail(kind, request)
        else:
            response = self.answer(request)
        if kind == "garble":
            response = replace(response, body=response.body[: len(response.body) // 2])
        self._write(handler, response, cut=kind == "cut")

    def _read(self, handler: BaseHTTPRequestHandler) -> Request:
        address = urlsplit(handler.path)
        length = int(handler.headers.get("Content-Length") or 0)
        return Request(
            handler.command,
            address.path,
            {name: values[-1] for name, values in parse_qs(address.query).items()},
            {name.lower(): value for name, value in handler.headers.items()},
            handler.rfile.read(length),
        )

    def _write(
        self, handler: BaseHTTPRequestHandler, response: Response, cut: bool = False
    ) -> None:
        body = response.body
        handler.send_response(response.status)
        kind = {"Content-Type": "text/plain"} if body else {}
        for name, value in {**kind, **response.headers}.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if cut:
            handler.wfile.write(body[: len(body) // 2])
            handler.wfile.flush()
            handler.close_connection = True
        elif handler.command != "HEAD":
            handler.wfile.write(body)

    def _trouble(self, described: str) -> str:
        for trouble in self.troubles:
            if trouble.match in described and trouble.times:
                if trouble.after:
                    trouble.after -= 1
                    continue
                trouble.times -= 1
                return trouble.kind
        return ""


@cache
def _authority() -> trustme.CA:
    return trustme.CA()


@cache
def server_certificate(host: str) -> trustme.LeafCert:
    """Return the certificate of a host, with its key."""
    return _authority().issue_cert(host, "127.0.0.1")


def write_authority(path: Path) -> None:
    """Write the certificate of the emulators' authority."""
    _authority().cert_pem.write_to_path(path)


@contextmanager
def trusted(folder: Path, monkeypatch: Any) -> Iterator[Path]:
    """Trust the emulators' authority, and no proxy, in this process."""
    path = folder / "authority.pem"
    write_authority(path)
    for name in _TRUST:
        monkeypatch.setenv(name, str(path))
    for name in _PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    yield path
