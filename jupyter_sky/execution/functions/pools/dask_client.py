"""Dask on a pool: scheduler and workers on its nodes, and a client that knows local modules."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin

from jupyter_sky.base.errors import SkyError
from jupyter_sky.execution.serialization.local_modules import Archives, LocalModules
from jupyter_sky.machines.engines.node.instance import instance_info
from jupyter_sky.machines.engines.node.sent_modules import sent_modules
from jupyter_sky.machines.engines.wire.agent_link import listen_addresses
from jupyter_sky.machines.services.cell_variable import read_endpoint
from jupyter_sky.machines.services.dask_client import LinkedClient
from jupyter_sky.machines.services.dask_processes import DaskProcess, start_dask

Contents = list[tuple[str, str, bytes]]
"""Modules as `SentModules.activate` takes them, in one piece."""


class LocalModulesPlugin(WorkerPlugin):
    """Modules on the import path of all workers, those that join later too."""

    name = "jupyter_sky.local_modules"

    def __init__(self, contents: Contents) -> None:
        self.contents = contents

    def setup(self, worker: Any) -> None:
        """Put the modules on the import path of a worker."""
        _activate(self.contents)


def _activate(contents: Contents) -> None:
    sent_modules.activate(contents)


class PoolClient(LinkedClient):
    """Client of the scheduler of a pool.

    Parameters
    ----------
    local_modules
        Returns the modules of this machine that tasks may need.
    dashboard
        Address of the dashboard that is reachable from this machine.
    """

    def __init__(
        self,
        address: str,
        local_modules: Callable[[], LocalModules],
        dashboard: str,
        **options: Any,
    ) -> None:
        self._local_modules = local_modules
        self._sent: Archives = ()
        super().__init__(address, dashboard, **options)

    def send_local_modules(self) -> None:
        """Bring local modules to the scheduler, which opens graphs, and to the workers.

        Tasks are pickled later, so all that are imported here count.
        """
        archives = self._local_modules().loaded()
        if archives == self._sent:
            return
        contents = [(each.name, each.tree, bytes(each.data)) for each in archives]
        self.run_on_scheduler(_activate, contents)
        self.register_plugin(LocalModulesPlugin(contents))
        self._sent = archives

    def submit(self, *args: Any, **kwargs: Any) -> Any:
        """Submit a call; see `distributed.Client.submit`."""
        self.send_local_modules()
        return super().submit(*args, **kwargs)

    def map(self, *args: Any, **kwargs: Any) -> Any:
        """Submit a call for each item; see `distributed.Client.map`."""
        self.send_local_modules()
        return super().map(*args, **kwargs)

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        """Compute collections; see `distributed.Client.compute`."""
        self.send_local_modules()
        return super().compute(*args, **kwargs)

    def persist(self, *args: Any, **kwargs: Any) -> Any:
        """Compute collections and keep them on the workers; see `distributed.Client.persist`."""
        self.send_local_modules()
        return super().persist(*args, **kwargs)

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """Compute a graph; see `distributed.Client.get`."""
        self.send_local_modules()
        return super().get(*args, **kwargs)


# -- Dask's scheduler and workers on a node of a pool: child processes of its engine --------------

_running: list[DaskProcess] = []
"""They end when the pipe to their standard input is closed, so somebody has to keep it."""


def running_dask() -> dict[str, Any] | None:
    """Return port, dashboard and secret of the Dask of this cluster; None where it has none."""
    try:
        __, endpoint = read_endpoint("dask")
    except SkyError:
        return None
    return {**endpoint, "port": int(endpoint["url"].rpartition(":")[2])}


def start_scheduler(secrets: dict[str, str]) -> tuple[str, int, int]:
    """Start the scheduler here; return its address, its port and that of its dashboard."""
    info = instance_info()
    hosts = list(listen_addresses(info.head_addr))
    report = _start({"role": "scheduler", "hosts": hosts, **secrets})
    first, *__, last = [*report["ports"], *report["ports"]]
    return f"tls://{info.head_addr}:{first}", last, report["dashboard"]


def start_worker(address: str, secrets: dict[str, str]) -> str:
    """Start a worker here; return its address."""
    info = instance_info()
    config: dict[str, Any] = {"role": "worker", "scheduler": address, "name": f"node-{info.node}"}
    hosts = [info.peers[info.node].private_ip]
    config["share"] = sum(peer.private_ip == hosts[0] for peer in info.peers)
    # in the folder of the cluster, which is removed with it whatever happens to its processes
    config["folder"] = tempfile.mkdtemp(prefix="sky-dask-", dir=os.getcwd())
    return _start({**config, "hosts": hosts, **secrets})["address"]


def _start(config: dict[str, Any]) -> dict[str, Any]:
    started = start_dask(config, instance_info().node)
    _running.append(started)
    return started.report
