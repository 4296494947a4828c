"""Session of Spark on the head node: ``spark`` in a cell, `sky.spark` in functions."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.requests.quantities import format_size
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.node.service_orders import page_url
from jupyter_sky.machines.services.cell_variable import CellVariable, describe_size, read_endpoint
from jupyter_sky.machines.services.error_frames import hide_frames
from jupyter_sky.machines.services.managed_channel import session_channel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
