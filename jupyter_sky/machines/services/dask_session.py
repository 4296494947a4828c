"""Client of Dask on the head node: ``client`` in a cell, `sky.dask` in functions."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyError
from jupyter_sky.machines.engines.node.service_orders import page_url
from jupyter_sky.machines.services.cell_variable import CellVariable, describe_size, read_endpoint
from jupyter_sky.machines.services.dask_processes import make_security

if TYPE_CHECKING:
    from distributed import Client

CONNECT_SECONDS = 30.0
CLOSE_SECONDS = 2.0

_lock = threading.RLock()


@dataclass(frozen=True, slots=True)
class _Connection:
    """Client of the scheduler that an endpoint names; one that is started anew has another."""

    endpoint: dict[str, Any]
    client: Client


_connection: _Connection | None = None
_page = ""
"""Address by which the notebook of the last cell reaches the dashboard."""


def dask() -> Client:
    """Return the client of this engine with its cluster's Dask, made at the first call.

    Cells have it as ``client``. Calls of functions use it on the head node. Collections of Dask are
    then computed on the cluster.

    Returns
    -------
    distributed.Client
        Client of the scheduler, one for all cells and calls of this engine.

    Raises
    ------
    SkyError
        Dask does not run on this cluster, or this is not its head node.

    Examples
    --------
    >>> import jupyter_sky as sky
    >>> sky.dask().submit(sum, [1, 2]).result()  # doctest: +SKIP
    3
    """
    global _connection
    with _lock:
        __, endpoint = read_endpoint("dask")
        if not has_client() or _connection is None or _connection.endpoint != endpoint:
            if _connection is not None:
                with contextlib.suppress(Exception):  # its scheduler may be gone
                    _connection.client.close(timeout=CLOSE_SECONDS)
            _connection = _Connection(endpoint, _connect(endpoint))
        return _connection.client


def _connect(endpoint: dict[str, Any]) -> Client:
    from jupyter_sky.machines.services.dask_client import LinkedClient

    page = _page or page_url(*endpoint["page"])
    security = make_security(endpoint)
    return LinkedClient(endpoint["url"], page, security=security, timeout=CONNECT_SECONDS)


def has_client() -> bool:
    """Return whether this process has a client that is connected."""
    return _connection is not None and _connection.client.status == "running"


class LazyClient(CellVariable):
    """Variable ``client`` of a cell, which connects when it is first used."""

    names = ("compute", "gather", "map", "persist", "scatter", "submit")

    def begin(self) -> Client:
        """Return the client, in a task that of its worker."""
        from distributed import get_client, get_worker

        try:
            get_worker()
        except ValueError:
            return dask()
        return get_client()

    def has_begun(self) -> bool:
        """Return whether there is a client that is connected."""
        return has_client()

    def describe(self) -> str:
        """Return the version and the nodes."""
        return describe_size(read_endpoint("dask")[1], "Dask")


def bind(namespace: dict[str, Any], page: str) -> None:
    """Bind ``client``; have collections computed on the cluster, also before it is used."""
    global _page
    _page = page
    namespace.setdefault("client", LazyClient())
    with contextlib.suppress(SkyError, ImportError):  # its use will say so
        read_endpoint("dask")
        from dask import config

        if not has_client():
            config.set(scheduler=_compute)


def _compute(graph: Any, keys: Any, **options: Any) -> Any:
    """Compute a graph, as a scheduler of Dask does."""
    return dask().get(graph, keys, **options)


@dataclass(frozen=True, slots=True)
class CellTasks:
    """Tasks of the cell that runs now: all whose results the client does not know before."""

    known: Set[Any]

    def interrupt(self) -> None:
        """Cancel those that are not done; what a worker runs goes on, and is thrown away."""
        if has_client() and _connection is not None:
            from distributed import Future

            client = _connection.client
            states = [*client.futures.items()]
            waiting = [
                Future(key, client)
                for key, state in states
                if key not in self.known and state.status == "pending"
            ]
            client.cancel(waiting)


@contextlib.contextmanager
def cell_work(tag: str, report: Callable[[str], None]) -> Iterator[CellTasks]:
    """Tell the tasks of a cell from those of others."""
    is_connected = has_client() and _connection is not None
    yield CellTasks(frozenset(_connection.client.futures) if is_connected else frozenset())
