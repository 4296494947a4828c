"""Processes of Dask on a node: a worker, and on the first node the scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_sky.base.remote.supervisor import write_private
from jupyter_sky.machines.engines.node.service_orders import EngineOrder, write_state
from jupyter_sky.machines.engines.wire.agent_link import listen_addresses
from jupyter_sky.machines.services.dask_processes import start_dask
from jupyter_sky.machines.services.engine_node import EngineNode, ensure_packages, find_python
from jupyter_sky.machines.services.sizes import size_dask

DASHBOARD_PACKAGE = "bokeh>=3.1"


class DaskNode(EngineNode):
    """Processes of Dask on this node."""

    title = "Dask"

    def __init__(self, order: EngineOrder) -> None:
        super().__init__(order)
        self._packages = ""
        self._memory_limit = int(size_dask(self.memory) * 2**30)

    def install(self) -> None:
        """Find Dask on this machine, or install it."""
        version = self.order.version
        write_state(self.order, "installing", f"Dask {version.removeprefix('==')}".rstrip())
        wanted = [f"dask[distributed]{version}", f"distributed{version}", "cryptography"]
        self._packages = ensure_packages("dask", wanted, [DASHBOARD_PACKAGE])

    def start(self) -> Mapping[str, object]:
        """Start the worker of this node, and on the first one the scheduler before it."""
        order = self.order
        host, __, port = order.master.rpartition(":")
        scheduler: dict[str, Any] = {}
        if order.rank == 0:
            hosts = sorted(listen_addresses(host))
            scheduler = self._start("scheduler", hosts=hosts, port=int(port), token=order.token)
        self.wait_port(host, int(port), "scheduler")
        worker = self._start(
            "worker",
            hosts=[order.address],
            scheduler=f"tls://{order.master}",
            name=f"node-{order.rank}",
            folder=str(order.folder / "local"),
            size={"nthreads": self.cpus, "memory_limit": self._memory_limit},
        )
        version, page = worker["version"], [scheduler.get("dashboard", 0), order.token, "/status"]
        if order.rank == 0:
            endpoint = {"url": f"tls://127.0.0.1:{port}", "secret": order.secret, "page": page}
            about = {"nodes": order.nodes, "version": version, "folder": self._packages}
            write_private(order.endpoint_file, endpoint | about)
        return {"version": version, "page": page}

    def _start(self, role: str, **config: Any) -> dict[str, Any]:
        config = {"role": role, "secret": self.order.secret, **config}
        python = find_python(self._packages)
        started = start_dask(config, self.order.rank, python, self._packages)
        self.processes[role] = started.process
        return started.report
