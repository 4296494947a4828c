"""A real Connect server of Spark, and what managed services put before it.

Proxies speak TLS and let nobody pass without a token: one passes gRPC on, as EMR does, the other
bytes in WebSocket messages, as Dataproc does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.tcpclient import TCPClient
from tornado.testing import bind_unused_port
from tornado.web import Application
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from jupyter_sky.machines.engines.node.ports import free_port

from .server import server_certificate

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Queries of tests are short: to compile for long ones takes longer than they run."""
_UNARY = "AnalyzePlan Config ArtifactStatus Interrupt ReleaseExecute ReleaseSession CloneSession "
_UNARY += "FetchErrorDetails GetStatus"
BRIDGE_PATH = "/tcp-over-websocket-bridge/35218cb7-1201-4940-89e8-48d8f03fed96"

Admits = Callable[[str], str]
"""Says why a token opens nothing; empty where it opens a session."""


class ConnectServer:
    """Connect server of Spark on this machine.

    Parameters
    ----------
    home
        Where Spark is installed.
    java
        Home of Java.
    """

    def __init__(self, home: Path, java: Path) -> None:
        self.port = free_port("127.0.0.1")
        self._kept = tempfile.TemporaryDirectory(prefix="connect-")
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": self.port,
            "spark.ui.enabled": "false",
            "spark.sql.connect.serverStacktrace.enabled": "false",
            # so short that clients resume their queries, as they must after two minutes otherwise
            "spark.connect.execute.reattachable.senderMaxStreamDuration": "2s",
            "spark.log.level": "WARN",
        }
        confs = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        server = "org.apache.spark.sql.connect.service.SparkConnectServer"
        folder = Path(self._kept.name)
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(home / "bin" / "spark-submit", "--master", "local[2]"),
                    *("--driver-memory", "700m", "--driver-java-options", JAVA_OPTIONS, *confs),
                    *("--class", server, "spark-internal"),
                ],
                env=os.environ
                | {
                    "JAVA_HOME": str(java),
                    "SPARK_HOME": str(home),
                    "PYSPARK_PYTHON": sys.executable,
                },
                cwd=folder,
                stdout=log,
                stderr=log,
            )

    def wait(self) -> None:
        """Wait until it listens."""
        while self._process.poll() is None:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port)),
            ):
                return
            time.sleep(0.05)
        raise RuntimeError("the Connect server has ended")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._kept.cleanup()


class TokenProxy:
    """Proxy by gRPC and TLS.

    Parameters
    ----------
    upstream
        Port of the Connect server.
    header
        Metadata of a request that has its token.
    admits
        Asked for each request.
    """

    def __init__(self, upstream: int, header: str, admits: Admits) -> None:
        import grpc

        leaf = server_certificate("localhost")
        pair = (leaf.private_key_pem.bytes(), b"".join(one.bytes() for one in leaf.cert_chain_pems))
        self._server = grpc.server(futures.ThreadPoolExecutor(32))
        self._server.add_generic_rpc_handlers((_gate(upstream, header, admits),))
        credentials = grpc.ssl_server_credentials([pair])
        self.port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self._server.start()

    def close(self) -> None:
        """Stop."""
        self._server.stop(None)


def _gate(upstream: int, header: str, admits: Admits) -> Any:
    """Return a handler that passes requests on, as bytes, if their token is good."""
    import grpc

    class Gate(grpc.GenericRpcHandler):
        def __init__(self) -> None:
            self._channel = grpc.insecure_channel(f"127.0.0.1:{upstream}")

        def service(self, details: Any) -> Any:
            method, sent = details.method, dict(details.invocation_metadata)
            kind = method.rpartition("/")[2]
            if kind in _UNARY.split():
                return grpc.unary_unary_rpc_method_handler(self._guard(method, sent, "unary_unary"))
            if kind == "AddArtifacts":
                call = self._guard(method, sent, "stream_unary")
                return grpc.stream_unary_rpc_method_handler(call)
            return grpc.unary_stream_rpc_method_handler(self._stream(method, sent))

        def _check(self, sent: dict[str, str], context: Any) -> None:
            why = admits(sent.get(header, ""))
            if why:
                context.abort(grpc.StatusCode.UNAUTHENTICATED, why)

        def _guard(self, method: str, sent: dict[str, str], shape: str) -> Any:
            call = getattr(self._channel, shape)(method)

            def run(request: Any, context: Any) -> bytes:
                self._check(sent, context)
                with _passed_on(context):
                    return call(request)
                raise AssertionError

            return run

        def _stream(self, method: str, sent: dict[str, str]) -> Any:
            call = self._channel.unary_stream(method)

            def run(request: bytes, context: Any) -> Iterator[bytes]:
                self._check(sent, context)
                with _passed_on(context):
                    yield from call(request)

            return run

    return Gate()


@contextlib.contextmanager
def _passed_on(context: Any) -> Iterator[None]:
    """Pass an error of the server on, with its details."""
    import grpc

    try:
        yield
    except grpc.RpcError as error:
        call: Any = error
        context.set_trailing_metadata(call.trailing_metadata() or ())
        context.abort(call.code(), call.details())


class WebSocketBridge:
    """Proxy that carries bytes as hexadecimal text in WebSocket messages.

    Parameters
    ----------
    upstream
        Port of the Connect server.
    admits
        Asked for each connection, with the value of its Authorization header.
    """

    def __init__(self, upstream: int, admits: Admits) -> None:
        leaf, self.connections = server_certificate("localhost"), list[_Bridge]()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        leaf.configure_cert(context)
        listener, self.port = bind_unused_port()
        self._loop = asyncio.new_event_loop()
        options = {"upstream": upstream, "admits": admits, "connections": self.connections}

        def serve() -> None:
            asyncio.set_event_loop(self._loop)
            server = HTTPServer(Application([(BRIDGE_PATH, _Bridge, options)]), ssl_options=context)
            server.add_socket(listener)
            self._loop.run_forever()
            server.stop()
            self._loop.close()

        self._thread = threading.Thread(target=serve, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Close all connections, as a proxy does that is replaced."""
        for each in list(self.connections):
            self._loop.call_soon_threadsafe(each.close)

    def close(self) -> None:
        """Stop."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class _Bridge(WebSocketHandler):
    def initialize(self, upstream: int, admits: Admits, connections: list[_Bridge]) -> None:
        self._upstream, self._admits, self._connections = upstream, admits, connections

    async def prepare(self) -> None:
        why = self._admits(self.request.headers.get("Authorization", ""))
        if why:
            self.set_status(401, why)
            await self.finish()

    def check_origin(self, origin: str) -> bool:
        return True

    async def open(self, *args: str, **kwargs: str) -> None:
        self._connections.append(self)
        self._stream = await TCPClient().connect("127.0.0.1", self._upstream)
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(StreamClosedError, WebSocketClosedError):
            while True:
                received = await self._stream.read_bytes(4096, partial=True)
                await self.write_message(received.hex())
        self.close()

    async def on_message(self, message: str | bytes) -> None:
        with contextlib.suppress(StreamClosedError):
            await self._stream.write(bytes.fromhex(str(message)))

    def on_close(self) -> None:
        self._connections.remove(self)
        self._stream.close()
