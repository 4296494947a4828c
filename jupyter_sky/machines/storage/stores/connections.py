"""HTTP connections that are kept, one for each thread and host, on the standard library alone.

A connection of its own, and not that of ``http.client``, because half of the CPU time of small
objects went into its parsing of headers, and because it cannot read into a buffer by one system
call.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.errors import SkyCertificateRefused, SkyConnectionLost
from jupyter_sky.machines.storage.stores.traffic import Tally

Bytes: TypeAlias = bytes | bytearray | memoryview
TIMEOUT = 60
"""Seconds without a byte after which a connection counts as lost."""

JOINED = 64 * 1024
"""Bodies up to this size are sent together with their headers."""

_MAX_HEAD = 64 * 1024


class Closable(Protocol):
    """A connection of any kind."""

    def close(self) -> None:
        """Close it."""
        ...


Kept = TypeVar("Kept", bound=Closable)


class Headers(dict[str, str]):
    """Headers of an answer, found by any spelling of their names."""

    def get(self, name: str, default: str = "") -> str:  # type: ignore[override]
        """Return a header, by default an empty text."""
        return super().get(name.lower(), default)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer with its body read.

    Attributes
    ----------
    status : int
        HTTP status.
    headers : Headers
        All headers.
    body : bytes or memoryview
        Whole body; a view of the buffer that was given, if any.
    """

    status: int
    headers: Headers
    body: Bytes


class Connections:
    """Connections of this process; each thread has its own, which stay open between requests."""

    def __init__(self) -> None:
        self._local = threading.local()

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: Bytes = b"",
        into: bytearray | None = None,
        tally: Tally | None = None,
    ) -> HttpAnswer:
        """Send a request and read its answer.

        A kept connection that turns out to be closed is opened anew, once; requests by POST,
        which may have been carried out, are not repeated here.

        Parameters
        ----------
        method, url, headers, body
            The request; all are sent as they are.
        into : bytearray, optional
            Buffer for the body of a success that fits.
        tally : Tally, optional
            Counts what was sent and received, also in vain.

        Raises
        ------
        SkyConnectionLost
            The host cannot be reached, or the answer broke off.
        SkyCertificateRefused
            The host is not the one that is meant, as far as its certificate tells.
        """
        origin, target = _split(url)
        pool = vars(self._local)
        while True:
            connection = pool.get(origin)
            is_kept = connection is not None
            try:
                if connection and method == "POST" and connection.is_closed_by_host():
                    connection.close()
                    connection = None
                if connection is None:
                    connection = pool[origin] = _Connection(origin)
                return connection.exchange(method, target, headers, body, into)
            except (OSError, ValueError) as error:
                if connection:
                    connection.close()
                pool.pop(origin, None)
                may_repeat = method != "POST"  # the host may have begun an upload
                if is_kept and connection and connection.is_silent and may_repeat:
                    continue
                reason = str(error) or type(error).__name__
                raise SkyConnectionLost(
                    _("{origin} broke off: {reason}").format(origin=origin, reason=reason)
                ) from error
            finally:
                if connection and tally:
                    tally.requests += 1
                    tally.sent += len(body)
                    tally.received += connection.received
                if connection and connection.is_ended:
                    connection.close()
                    pool.pop(origin, None)

    def keep(self, origin: str, connect: Callable[[], Kept]) -> Kept:
        """Return this thread's connection of another kind; `connect` makes the first one."""
        pool = vars(self._local)
        if origin not in pool:
            pool[origin] = connect()
        return pool[origin]

    def drop(self, origin: str) -> None:
        """Close this thread's connection to an origin, if there is one."""
        if connection := vars(self._local).pop(origin, None):
            connection.close()

    def close(self) -> None:
        """Close the connections of this thread."""
        pool = vars(self._local)
        for connection in pool.values():
            connection.close()
        pool.clear()


class _Connection:
    """One connection, used by one thread."""

    def __init__(self, origin: str) -> None:
        self._host = origin.partition("://")[2]
        self._socket = _connect(origin)
        self._rest = b""
        self.is_ended = False
        self.is_silent = True
        self.received = 0

    def exchange(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Bytes,
        into: bytearray | None,
    ) -> HttpAnswer:
        """Send a request and read its answer."""
        self.is_silent = True  # not a byte of the answer: the host may have closed before
        self.received = 0
        if not set("\r\n").isdisjoint("".join((target, *headers, *headers.values()))):
            raise ValueError("a line break in a header or an address")
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        length = f"Content-Length: {len(body)}\r\n" if body or method in ("PUT", "POST") else ""
        head = f"{method} {target} HTTP/1.1\r\nHost: {self._host}\r\n{length}{lines}\r\n".encode()
        if len(body) <= JOINED:
            self._socket.sendall(head + bytes(body))
        else:
            self._socket.sendall(head)
            self._socket.sendall(body)
        status, answered = self._read_head()
        while status < 200:
            status, answered = self._read_head()
        if answered.get("connection").lower() == "close":
            self.is_ended = True
        has_body = method != "HEAD" and status not in (204, 304)
        return HttpAnswer(
            status, answered, self._read_body(answered, status, into) if has_body else b""
        )

    def is_closed_by_host(self) -> bool:
        """Return whether the host has closed it since its last answer, as far as is known."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def close(self) -> None:
        """Close."""
        self._socket.close()

    def __del__(self) -> None:
        """Close with the thread that used it, or with the store."""
        if hasattr(self, "_socket"):  # it has none where the host could not be reached
            self._socket.close()

    def _read_head(self) -> tuple[int, Headers]:
        data = self._rest
        while (end := data.find(b"\r\n\r\n")) < 0:
            more = self._socket.recv(_MAX_HEAD)
            if not more:
                raise ConnectionError("closed without an answer")
            self.is_silent = False
            data += more
            if len(data) > 4 * _MAX_HEAD:
                raise ValueError("the headers of the answer do not end")
        self._rest = data[end + 4 :]
        first, *lines = data[:end].decode("latin-1").split("\r\n")
        headers = Headers()
        for line in lines:
            name, __, value = line.partition(":")
            headers[name.lower()] = value.strip()
        version, status, *__ = first.split(" ", 2)
        if version != "HTTP/1.1":
            self.is_ended = True
        return int(status), headers

    def _read_body(self, headers: Headers, status: int, into: bytearray | None) -> Bytes:
        if "chunked" in headers.get("transfer-encoding").lower():
            return self._read_chunks()
        text = headers.get("content-length")
        if not text:
            self.is_ended = True
            return self._read_until_close()
        size = int(text)
        if into is not None and status < 300 and size <= len(into):
            view = memoryview(into)[:size]
        else:
            view = memoryview(bytearray(size))
        self._fill(view)
        return view if into is not None and status < 300 else bytes(view)

    def _fill(self, view: memoryview) -> None:
        """Read exactly as many bytes as fit, in as few system calls as possible."""
        size = min(len(self._rest), len(view))
        view[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        self.received += size
        flags = 0 if isinstance(self._socket, ssl.SSLSocket) else socket.MSG_WAITALL
        while size < len(view):
            count = self._socket.recv_into(view[size:], 0, flags)
            if not count:
                raise ConnectionError(f"closed after {size} of {len(view)} bytes")
            size += count
            self.received += count

    def _read_line(self) -> bytes:
        while b"\r\n" not in self._rest:
            more = self._socket.recv(_MAX_HEAD)
            if not more:
                raise ConnectionError("closed inside of the answer")
            self._rest += more
        line, __, self._rest = self._rest.partition(b"\r\n")
        return line

    def _read_chunks(self) -> bytes:
        pieces = []
        while size := int(self._read_line().partition(b";")[0], 16):
            piece = bytearray(size)
            self._fill(memoryview(piece))
            pieces.append(piece)
            self._read_line()
        while self._read_line():
            pass  # trailers
        return b"".join(pieces)

    def _read_until_close(self) -> bytes:
        pieces = [self._rest]
        while piece := self._socket.recv(_MAX_HEAD):
            pieces.append(piece)
        self.received += sum(map(len, pieces))
        return b"".join(pieces)


def _split(url: str) -> tuple[str, str]:
    """Return origin and target of an address, such as ``https://h`` and ``/path?query``."""
    slash = url.find("/", url.index("://") + 3)
    return (url[:slash], url[slash:]) if slash > 0 else (url, "/")


def _connect(origin: str) -> socket.socket:
    """Return a socket, through the proxy of the environment where there is one."""
    from urllib.request import getproxies, proxy_bypass

    scheme, host, *__ = urlsplit(origin)
    port = 443 if scheme == "https" else 80
    proxy = None if proxy_bypass(host) else getproxies().get(scheme)
    address = urlsplit(proxy if proxy else origin)
    peer = (address.hostname or "", address.port or port)
    connection = socket.create_connection(peer, TIMEOUT)
    if proxy:
        _tunnel(connection, host if ":" in host else f"{host}:{port}", address.username or "")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # blocking with limits of the kernel's own: one system call then moves a whole part
    connection.settimeout(None)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connection.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", TIMEOUT, 0))
    if scheme != "https":
        return connection
    try:
        return encrypt(connection, urlsplit(origin).hostname or "")
    except BaseException:
        connection.close()
        raise


def _tunnel(connection: socket.socket, host: str, user: str) -> None:
    """Ask a proxy for a connection to `host`."""
    if user:
        raise ValueError("proxies with a password are not supported")
    connection.sendall(f"CONNECT {unquote(host)} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        more = connection.recv(4096)
        if not more:
            raise ConnectionError("the proxy closed the connection")
        answer += more
    if b" 200 " not in answer.split(b"\r\n", 1)[0]:
        raise ConnectionError(f"the proxy refused: {answer[:80].decode(errors='replace')}")


# -- Verification of the certificates of stores ---------------------------------------------------

BUNDLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE")
"""Environment variables by which clients of stores are told authorities to trust."""


def encrypt(connection: socket.socket, host: str) -> ssl.SSLSocket:
    """Return an encrypted connection to a host whose certificate is valid for its name.

    Raises
    ------
    SkyCertificateRefused
        No authority that this machine trusts has signed the certificate for this host.
    """
    bundles = tuple(os.environ.get(name, "") for name in BUNDLES)
    try:
        return _context(bundles).wrap_socket(connection, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise SkyCertificateRefused(
            _("the certificate of {host} is not accepted: {reason}").format(
                host=host, reason=error.verify_message
            ),
            hint=_(
                "nothing was sent; if the host, or a proxy before it, has an authority of its own, "
                "name its file in SSL_CERT_FILE"
            ),
        ) from error


@cache
def _context(bundles: tuple[str, ...]) -> ssl.SSLContext:
    """Return the context for values of `BUNDLES`: their authorities beside those of the system."""
    context = ssl.create_default_context()
    for name, value in zip(BUNDLES, bundles, strict=True):
        if not value:
            continue
        try:
            if Path(value).is_dir():
                context.load_verify_locations(capath=value)
            else:
                context.load_verify_locations(cafile=value)
        except OSError as error:
            raise SkyCertificateRefused(
                _("{name}={value}: no authorities can be read from it").format(
                    name=name, value=value
                )
            ) from error
    return context
