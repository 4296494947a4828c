"""Connection to the session of a managed service: by TLS, with the newest token of its file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from jupyter_sky.machines.services.managed_endpoint import newest_headers, trusted_certificates
from jupyter_sky.machines.services.websocket_bridge import process_bridge

if TYPE_CHECKING:
    from pyspark.sql.connect.client import ChannelBuilder


def session_channel(path: Path) -> ChannelBuilder:
    """Return the builder of connections to the session that a file describes.

    Tokens expire within a query, which the client then resumes with the metadata that it began
    with: so they are no metadata of the builder but of the calls.
    """
    import grpc
    from pyspark.sql.connect.client import ChannelBuilder

    endpoint = json.loads(path.read_text())
    if endpoint.get("bridge"):
        return _bridged_channel(path)
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
            tls = grpc.ssl_channel_credentials(trusted_certificates(endpoint["authority"]))
            tokens = grpc.metadata_call_credentials(cast(Any, add_headers))
            credentials = grpc.composite_channel_credentials(tls, tokens)
            return self._secure_channel(endpoint["host"], credentials)

    return SessionChannel()


def _bridged_channel(path: Path) -> ChannelBuilder:
    from pyspark.sql.connect.client import ChannelBuilder

    class BridgedChannel(ChannelBuilder):
        """Connections to one session by a bridge on this machine."""

        @property
        def host(self) -> str:
            return "localhost"

        def toChannel(self) -> Any:
            return self._insecure_channel(process_bridge(path).address)

    return BridgedChannel()
