"""HTTP connections that are kept, one for each thread and host, on the standard library alone."""

from __future__ import annotations

import http.client
import os
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Protocol
from urllib.parse import urlsplit

from .errors import SkyStoreBusy

TIMEOUT = 60.0
"""Seconds without a byte after which a connection counts as lost."""

_BUNDLES = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")


class Headers(Protocol):
    """Headers of an answer, by any spelling of their names."""

    def get(self, name: str, /) -> str | None:
        """Return a header, None if it is absent."""
        ...


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer with its body read.

    Attributes
    ----------
    status : int
        HTTP status.
    headers : Headers
        All headers.
    body : bytes
        Whole body.
    """

    status: int
    headers: Headers
    body: bytes


class Connections:
    """Connections of this process; each thread has its own, which stay open between requests."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        self._timeout = timeout
        self._local = threading.local()

    def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpAnswer:
        """Send a request and read its answer.

        A kept connection that turns out to be closed is opened anew, once.

        Raises
        ------
        SkyStoreBusy
            The host cannot be reached, or the answer broke off.
        """
        scheme, host, path, query, _ = urlsplit(url)
        target = f"{path or '/'}?{query}" if query else path or "/"
        connection, is_kept = self._take(scheme, host)
        while True:
            try:
                connection.request(method, target, body, dict(headers))
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if is_kept and _is_closed_by_host(error):
                    is_kept = False
                    continue
                raise SkyStoreBusy(f"{host} broke off: {error or type(error).__name__}") from error
            if answer.will_close:
                connection.close()
            return HttpAnswer(answer.status, answer.headers, content)

    def close(self) -> None:
        """Close the connections of this thread."""
        for connection in vars(self._local).values():
            connection.close()

    def _take(self, scheme: str, host: str) -> tuple[http.client.HTTPConnection, bool]:
        """Return this thread's connection to a host, and whether it has been used before."""
        name = f"{scheme}://{host}"
        connection = getattr(self._local, name, None)
        if connection is None:
            connection = _connect(scheme, host, self._timeout)
            setattr(self._local, name, connection)
        return connection, connection.sock is not None


def _is_closed_by_host(error: Exception) -> bool:
    """Tell whether a host closed a kept connection before it saw the request."""
    kinds = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)
    return isinstance(error, kinds)


def _connect(scheme: str, host: str, timeout: float) -> http.client.HTTPConnection:
    """Return a connection, through the proxy of the environment where there is one."""
    from urllib.request import getproxies, proxy_bypass

    proxy = None if proxy_bypass(host) else getproxies().get(scheme)
    address = urlsplit(proxy).netloc.rpartition("@")[2] if proxy else host
    if scheme == "https":
        connection = http.client.HTTPSConnection(address, timeout=timeout, context=_tls())
    else:
        connection = http.client.HTTPConnection(address, timeout=timeout)
    if proxy:
        connection.set_tunnel(host)
    connection.blocksize = 1024**2
    return connection


@cache
def _tls() -> ssl.SSLContext:
    """Return the context of all connections; it trusts what other clients of this machine trust."""
    bundle = next((os.environ[name] for name in _BUNDLES if os.environ.get(name)), None)
    return ssl.create_default_context(cafile=bundle)
