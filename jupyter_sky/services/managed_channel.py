"""Connection to the session of a managed service: by TLS, with the newest token of its file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql.connect.client import ChannelBuilder

_CERTIFICATES = ("SSL_CERT_FILE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH")


def session_channel(path: Path) -> ChannelBuilder:
    """Return the builder of connections to the session that a file describes.

    Tokens expire within a query, which the client then resumes with the metadata that it began
    with: so they are no metadata of the builder but of the calls.
    """
    import grpc
    from pyspark.sql.connect.client import ChannelBuilder

    endpoint = json.loads(path.read_text())
    headers = newest_headers(path)

    def add_headers(context: Any, callback: Callable[..., None]) -> None:
        try:
            callback(headers(), None)
        except (OSError, ValueError) as error:  # the session has ended, and its folder with it
            callback((), error)

    class SessionChannel(ChannelBuilder):
        """Connections to one session."""

        @property
        def host(self) -> str:
            return endpoint["host"].rpartition(":")[0]

        def toChannel(self) -> Any:
            tls = grpc.ssl_channel_credentials(_authorities(endpoint["authority"]))
            tokens = grpc.metadata_call_credentials(cast(Any, add_headers))
            credentials = grpc.composite_channel_credentials(tls, tokens)
            return self._secure_channel(endpoint["host"], credentials)

    return SessionChannel()


def newest_headers(path: Path) -> Callable[[], list[tuple[str, str]]]:
    """Return a function that gives the metadata of a request, read again when the file changes."""
    known: tuple[int, list[tuple[str, str]]] = (0, [])

    def read() -> list[tuple[str, str]]:
        nonlocal known
        changed = path.stat().st_mtime_ns
        if changed != known[0]:
            known = (changed, list(json.loads(path.read_text())["headers"].items()))
        return known[1]

    return read


def _authorities(named: str) -> bytes | None:
    """Return the certificates to trust; None for those of the client library."""
    names = (named, *(os.environ.get(name, "") for name in _CERTIFICATES))
    return next((Path(name).read_bytes() for name in names if name and Path(name).is_file()), None)
