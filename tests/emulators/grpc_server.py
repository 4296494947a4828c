"""gRPC server on loopback with TLS, in the place of an emulator's HTTPS server."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from .server import Emulator, server_certificate

_WORKERS = 16
_PINGS = [("grpc.http2.max_ping_strikes", 0), ("grpc.keepalive_permit_without_calls", 1)]
"""SDKs keep connections alive by a ping in 20 s, which is too many for gRPC's own defaults."""


class GrpcRefusal(Exception):
    """Refusal of a call.

    Parameters
    ----------
    code
        Of gRPC.
    details
        A serialized ``google.rpc.Status``; empty without details.
    """

    def __init__(self, code: grpc.StatusCode, message: str, details: bytes = b"") -> None:
        super().__init__(message)
        self.code, self.message, self.details = code, message, details


class GrpcEmulator(Emulator):
    """A cloud whose services are called as ``/package.Service/Method``."""

    def _start(self, host: str) -> str:
        def handle(call: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(self._bind(call.method))

        class Handler(grpc.GenericRpcHandler):
            def service(self, call: Any) -> Any:
                return handle(call)

        pool = ThreadPoolExecutor(_WORKERS)
        self._grpc = grpc.server(pool, handlers=(Handler(),), options=_PINGS)
        chain = server_certificate(host)
        credentials = grpc.ssl_server_credentials(
            [(chain.private_key_pem.bytes(), b"".join(p.bytes() for p in chain.cert_chain_pems))]
        )
        port = self._grpc.add_secure_port("127.0.0.1:0", credentials)
        self._grpc.start()
        return f"{host}:{port}"

    def close(self) -> None:
        """Stop."""
        self._grpc.stop(0).wait()

    def _bind(self, path: str) -> Callable[[bytes, Any], bytes]:
        service, _, method = path.rpartition("/")
        name = f"{service.rpartition('.')[2]}.{method}"

        def answer(body: bytes, context: Any) -> bytes:
            with self._lock:
                self.requests.append(name)
                fault = self._trouble(name)
            try:
                answer = self.serve(name, body, dict(context.invocation_metadata()))
            except GrpcRefusal as refusal:
                if refusal.details:
                    context.set_trailing_metadata((("grpc-status-details-bin", refusal.details),))
                context.abort(refusal.code, refusal.message)
            if fault == "cut":
                context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            return answer

        return answer

    def serve(self, name: str, body: bytes, metadata: dict[str, str]) -> bytes:
        """Answer a call.

        Parameters
        ----------
        name
            ``Service.Method``.
        body
            The serialized request; the answer is one, too.

        Raises
        ------
        GrpcRefusal
            The call is refused.
        """
        raise NotImplementedError
