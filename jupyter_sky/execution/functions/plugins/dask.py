"""Dask on the nodes of a pool: a scheduler on the head, a worker on each, a client here.

They are processes of their own below the engines, so calls and cells go on beside them, and they
end with the engines. Clients without the certificate of the pool are refused. On a cluster whose
data engine is Dask, the client is one of that.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _, ngettext
from jupyter_sky.execution.functions.plugins.dask_node import (
    running_dask,
    start_scheduler,
    start_worker,
)
from jupyter_sky.machines.engines.node.service_orders import page_url
from jupyter_sky.machines.services.dask_processes import await_removal, make_security

if TYPE_CHECKING:
    from distributed import Client, Security

    from jupyter_sky.execution.functions.pools.pool import Pool

START_SECONDS = 90.0
SHUTDOWN_SECONDS = 30.0
_clients: WeakKeyDictionary[Pool, Any] = WeakKeyDictionary()
_workers: WeakKeyDictionary[Any, dict[int, str]] = WeakKeyDictionary()
"""Engines that have a worker, by rank: it ends with its engine, and another takes the rank."""
_schedulers: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""Engine that has the scheduler of each client."""
_starting, _completing = threading.Lock(), threading.Lock()


def client(pool: Pool) -> Client:
    """Return a client of Dask on a pool; the first one starts scheduler and workers.

    Raises
    ------
    SkyError
        Dask is not installed here, or not on a node.

    Examples
    --------
    >>> pool.dask.submit(sum, [1, 2]).result()  # doctest: +SKIP
    3
    """
    with _starting:
        client = _clients.get(pool)
        if client is not None and _schedulers[client] not in pool.engines.values():
            _disconnect(client)
        if client is None or client.status in ("closed", "closing"):
            _check_here()
            client = _clients[pool] = _start(pool)
        else:
            _complete(pool, client)
        return client


def _check_here() -> None:
    from importlib.util import find_spec

    lacking = [name for name in ("distributed", "cryptography") if find_spec(name) is None]
    if lacking:
        raise SkyError(
            _("compute.dask needs {lacking} here").format(lacking=" and ".join(lacking)),
            hint=_('pip install "jupyter_sky[dask]"'),
        )


def _start(pool: Pool) -> Client:
    """Connect to the Dask of the cluster; without one start scheduler and workers before."""
    if endpoint := pool.call_on(pool.ranks[0], running_dask).result():
        made = _connect(pool, endpoint["port"], endpoint["page"], make_security(endpoint))
        pool.defer(lambda: _disconnect(made))
        _schedulers[made] = pool.engines[pool.ranks[0]]
        return made
    return _start_own(pool)


def _start_own(pool: Pool) -> Client:
    """Start the scheduler, then a worker on every node, then connect."""
    from distributed import Security

    security = Security.temporary()
    secrets = {
        "ca": security.tls_ca_file,
        "certificate": security.tls_client_cert,
        "key": security.tls_client_key,
    }
    ranks, token = pool.ranks, token_urlsafe()
    order = {**secrets, "token": token}
    address, port, dashboard = pool.call_on(ranks[0], start_scheduler, order).result()
    pool.facts[_FACT] = (address, secrets)
    _start_workers(pool, ranks)
    made = _connect(pool, port, (dashboard, token, "/status"), security)
    pool.defer(lambda: _close(made, pool))
    pool.on_replaced.append(lambda: _complete(pool, made))
    engines = pool.engines
    _workers[made] = {rank: engines[rank] for rank in ranks}
    _schedulers[made] = engines[ranks[0]]
    made.wait_for_workers(len(ranks), timeout=START_SECONDS)
    return made


def _connect(pool: Pool, port: int, page: Sequence[Any], security: Security) -> Client:
    """Return a client of a scheduler that listens on the head node."""
    from jupyter_sky.execution.functions.plugins.dask_client import PoolClient

    tunnel = pool.cluster.tunnel
    near = tunnel.forward(port) if tunnel else port
    page_port, token, path = page
    shown = tunnel.forward(page_port) if tunnel and page_port else page_port
    made = PoolClient(
        f"tls://127.0.0.1:{near}",
        pool.local_modules,
        page_url(shown, token, path) if shown else "",
        security=security,
        set_as_default=False,
    )
    pool.uses.append(lambda: _tasks(made))
    return made


_FACT = "jupyter_sky.dask"


def _complete(pool: Pool, known: Any) -> None:
    """Start workers on nodes that have joined since, or have replaced others."""
    with _completing:
        engines, workers = pool.engines, _workers.get(known)
        if workers is None or _schedulers[known] not in engines.values():
            return  # not of this pool, or gone with its engine: the next client starts another
        new = [rank for rank in pool.ranks if engines[rank] and workers.get(rank) != engines[rank]]
        _start_workers(pool, new)
        workers.update({rank: engines[rank] for rank in new})


def _start_workers(pool: Pool, ranks: list[int]) -> None:
    address, secrets = pool.facts[_FACT]
    futures: list[Future[Any]] = [
        pool.call_on(rank, start_worker, address, secrets) for rank in ranks
    ]
    for future in futures:
        future.result()


def _tasks(known: Any) -> str:
    """Return unfinished Dask tasks, as far as the local client knows."""
    pending = sum(state.status == "pending" for state in list(known.futures.values()))
    if not pending:
        return ""
    text = ngettext("{pending} task of Dask", "{pending} tasks of Dask", pending)
    return text.format(pending=pending)


def _close(known: Any, pool: Pool) -> None:
    """Shut down scheduler and workers, wait until their files are removed; close the client."""

    def shut_down() -> None:
        with contextlib.suppress(Exception):  # the scheduler may be gone already
            known.shutdown()
        with contextlib.suppress(Exception):  # so may be a node
            address, __ = pool.facts[_FACT]  # the end of a cluster kills workers that still remove
            removals = [pool.call_on(rank, await_removal, address) for rank in pool.ranks]
            for removal in removals:
                removal.result()

    if not pool.cluster.connection.is_lost:
        thread = threading.Thread(target=shut_down, name="sky-dask-shutdown", daemon=True)
        thread.start()
        thread.join(SHUTDOWN_SECONDS)
    _disconnect(known)


def _disconnect(known: Any) -> None:
    with contextlib.suppress(Exception):  # its scheduler may be gone
        known.close(timeout=2)
