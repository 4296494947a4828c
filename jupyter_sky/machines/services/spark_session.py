"""Session of Spark on the head node: ``spark`` in a cell, `sky.spark` in functions."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import shutil
import socket
import ssl
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.requests.quantities import format_size
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.node.service_orders import page_url
from jupyter_sky.machines.services.cell_variable import CellVariable, describe_size, read_endpoint
from jupyter_sky.machines.services.error_frames import hide_frames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client import ChannelBuilder


MAX_RETRIES, MAX_BACKOFF_MS = 6, 2000
"""Tries of a request, some 6 s in all: the server is on this machine, and is there or is not."""
PROGRESS_SECONDS = 0.5
"""Shortest time between two reports of progress."""

_IDENTITY = ("host", "port", "session", "token")
"""Fields of an endpoint that differ for another server; tokens of managed services are renewed."""

_lock = threading.RLock()


@dataclass(frozen=True, slots=True)
class _Connection:
    """Session with the server that an endpoint names; one that is started anew has another."""

    endpoint: dict[str, Any]
    session: Any
    """`SparkSession` of Spark Connect, whose class type checkers take for that of the JVM."""


_connection: _Connection | None = None
_page = ""
_cell: CurrentQueries | None = None


@dataclass(frozen=True, slots=True)
class CurrentQueries:
    """Queries of the cell that runs now: their tag, and what takes their progress in words."""

    tag: str
    report: Callable[[str], None]

    def interrupt(self) -> None:
        """Interrupt the queries, also those of threads that the cell has started."""
        if has_session() and _connection is not None:
            _connection.session.interruptTag(self.tag)


def spark() -> SparkSession:
    """Return the session of this engine with its cluster's Spark, begun at the first call.

    Cells have it as ``spark``. Calls of functions use it on the head node, where Spark's driver is.

    Returns
    -------
    pyspark.sql.SparkSession
        Session of Spark Connect, one for all cells and calls of this engine.

    Raises
    ------
    SkyError
        Spark does not run on this cluster, or this is not its head node.

    Examples
    --------
    >>> import jupyter_sky as sky
    >>> sky.spark().range(10).count()  # doctest: +SKIP
    10
    """
    global _connection
    with _lock:
        path, endpoint = read_endpoint("spark")
        identity = {key: endpoint[key] for key in _IDENTITY if key in endpoint}
        if not has_session() or _connection is None or _connection.endpoint != identity:
            _connection = _Connection(identity, _begin(path, endpoint))
        return _connection.session


def _begin(path: Path, endpoint: dict[str, Any]) -> SparkSession:
    """Connect to the Connect server that a file describes."""
    if find_spec("pyspark") is None:
        raise SkyError(
            _("pyspark is not installed on this node"),
            hint=_('of functions: image=sky.Image(pip=["pyspark-client"])'),
        )
    # said again at each use of pandas; what does not work with pandas 3 raises errors
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    session: Any
    if "headers" in endpoint:
        # functions of `pyspark.sql` ask it for which client they work, as `remote` says it
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
        channel: Any = session_channel(path)
        session = ConnectSession.builder.channelBuilder(channel).create()
    else:
        # the only host name for which the client sends a token without TLS is `localhost`
        url = f"sc://localhost:{endpoint['port']}/;token={endpoint['token']}"
        session = SparkSession.builder.remote(url).create()
    # it would print each error of a query a second time, as one line of JSON
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    hide_frames(PySparkException, "pyspark")
    session.client.set_retry_policies([DefaultPolicy(MAX_RETRIES, max_backoff=MAX_BACKOFF_MS)])
    session.registerProgressHandler(_ProgressReporter())
    if _cell is not None:
        session.addTag(_cell.tag)
    return session


class LazySpark(CellVariable):
    """Variable ``spark`` of a cell: a session that begins when it is first used."""

    names = ("dashboard_link", "read", "sql", "stop")

    @property
    def dashboard_link(self) -> str:
        """Address of Spark's own page, with the token that it wants.

        Raises
        ------
        SkyError
            There is none.
        """
        __, endpoint = read_endpoint("spark")
        port, token, path = endpoint.get("page", (0, "", ""))
        if port:
            return _page or page_url(port, token, path)
        raise SkyError(
            _("Spark {version} has no page here that could want a token").format(
                version=endpoint["version"]
            ),
            hint=_("the stages of a cell: %sky logs CELL --spark"),
        )

    def begin(self) -> SparkSession:
        """Return the session."""
        return spark()

    def has_begun(self) -> bool:
        """Return whether there is a session that goes on."""
        return has_session()

    def describe(self) -> str:
        """Return the version, and the nodes or the managed service."""
        __, endpoint = read_endpoint("spark")
        if service := endpoint.get("service"):
            return _("Spark {version} of {service}").format(
                version=endpoint["version"], service=service
            )
        return describe_size(endpoint, "Spark")


def bind(namespace: dict[str, Any], page: str) -> None:
    """Bind ``spark``, unless a cell has bound that name to something of its own."""
    global _page
    _page = page
    namespace.setdefault("spark", LazySpark())


def has_session() -> bool:
    """Return whether this process has a session that goes on."""
    return _connection is not None and not _connection.session.is_stopped


@contextlib.contextmanager
def cell_work(tag: str, report: Callable[[str], None]) -> Iterator[CurrentQueries]:
    """Tag the queries of a cell.

    Parameters
    ----------
    tag
        Such as ``cell-7``.
    report
        Takes the progress of its queries, in words.
    """
    global _cell
    _cell = cell = CurrentQueries(tag, report)
    if _connection is not None:
        _connection.session.addTag(tag)
    try:
        yield cell
    finally:
        _cell = None
        if _connection is not None:
            _connection.session.removeTag(tag)


class _ProgressReporter:
    """Handler of a session's progress: the tasks that are done, a few times a second."""

    def __init__(self) -> None:
        self._reported = 0.0

    def __call__(
        self,
        stages: Iterable[Any] | None,
        inflight_tasks: int,
        operation_id: str | None,
        done: bool,
    ) -> None:
        now = time.monotonic()
        if now - self._reported < PROGRESS_SECONDS:
            return
        self._reported = now
        if _cell is not None:
            _cell.report(describe_progress(list(stages or ()), inflight_tasks))


def describe_progress(stages: list[Any], running: int) -> str:
    """Return the progress of a query in words.

    Parameters
    ----------
    stages
        Stages with ``num_tasks``, ``num_completed_tasks`` and ``num_bytes_read``.
    running
        Tasks that run now.

    Examples
    --------
    >>> from types import SimpleNamespace as Stage
    >>> describe_progress([Stage(num_tasks=8, num_completed_tasks=3, num_bytes_read=2e9)], 2)
    'Spark: 3 of 8 tasks done, 2 running, 2.0 GB read'
    """
    total = sum(stage.num_tasks for stage in stages)
    done = sum(stage.num_completed_tasks for stage in stages)
    read = sum(stage.num_bytes_read for stage in stages)
    text = _("Spark: {done} of {total} tasks done, {running} running").format(
        done=done, total=total, running=running
    )
    return _("{text}, {read} read").format(text=text, read=format_size(read)) if read else text


# -- Connection to the session of a managed service: by TLS, with the newest token of its ---------


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


# -- Connection to a session that takes bytes in WebSocket messages, as Dataproc's ----------------
#
# gRPC connects to a socket in a folder of this user alone; what it sends goes on as hexadecimal
# text.

CHUNK_BYTES = 8192
"""Bytes of a message, twice as many characters."""
CONNECT_SECONDS = 30.0
MAX_FOLDER_CHARS = 80
"""Addresses of sockets have 107 characters at most."""


@cache
def process_bridge(path: Path) -> WebSocketBridge:
    """Return the bridge of this process to the session that a file describes."""
    bridge = WebSocketBridge(path)
    atexit.register(bridge.close)
    return bridge


class WebSocketBridge:
    """Carrier of bytes between a socket of this user alone and a session.

    Parameters
    ----------
    path
        File that describes the session; its newest token is used for each connection.

    Attributes
    ----------
    address : str
        Where gRPC connects to.
    """

    def __init__(self, path: Path) -> None:
        endpoint = json.loads(path.read_text())
        self._url = f"wss://{endpoint['host']}/{endpoint['bridge']}"
        self._headers = newest_headers(path)
        certificates = trusted_certificates(endpoint["authority"])
        self._tls = ssl.create_default_context(cadata=certificates and certificates.decode())
        self._made = None if len(str(path.parent)) <= MAX_FOLDER_CHARS else _private_folder()
        self._socket = (self._made or path.parent) / f"bridge-{os.getpid()}"
        self._socket.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._socket))
        self._listener.listen()
        self.address = f"unix:{self._socket}"
        self._thread = threading.Thread(target=self._serve, name="sky-bridge", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        self._socket.unlink(missing_ok=True)
        if self._made:
            shutil.rmtree(self._made, ignore_errors=True)

    def _serve(self) -> None:
        """Serve each connection in a thread of its own."""
        while True:
            try:
                near, __ = self._listener.accept()
            except OSError:  # it is closed
                return
            threading.Thread(
                target=self._carry, args=(near,), name="sky-bridge-connection", daemon=True
            ).start()

    def _carry(self, near: socket.socket) -> None:
        """Carry the bytes of one connection in both directions, until either side ends."""
        import websocket

        with near, contextlib.suppress(OSError, ValueError, websocket.WebSocketException):
            far = websocket.create_connection(
                self._url,
                timeout=CONNECT_SECONDS,
                header=[f"{name}: {value}" for name, value in self._headers()],
                sslopt={"context": self._tls},
                enable_multithread=True,
            )
            far.settimeout(None)
            back = threading.Thread(
                target=_carry_back, args=(far, near), name="sky-bridge-back", daemon=True
            )
            back.start()
            try:
                while received := near.recv(CHUNK_BYTES):
                    far.send(received.hex())
            finally:
                with contextlib.suppress(OSError, websocket.WebSocketException):
                    far.send_close()
                    far.abort()  # the thread that reads from it waits for this


def _private_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="sky-"))


def _carry_back(far: Any, near: socket.socket) -> None:
    import websocket

    with contextlib.suppress(OSError, ValueError, websocket.WebSocketException):
        while received := far.recv():
            near.sendall(bytes.fromhex(received))
    with contextlib.suppress(OSError):  # the other direction waits for it
        near.shutdown(socket.SHUT_RDWR)


# -- File that describes where the session of a managed service is reached ------------------------

_CERTIFICATES = ("SSL_CERT_FILE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH")


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


def trusted_certificates(named: str) -> bytes | None:
    """Return the certificates to trust; None for those of the client library."""
    names = (named, *(os.environ.get(name, "") for name in _CERTIFICATES))
    return next((Path(name).read_bytes() for name in names if name and Path(name).is_file()), None)
