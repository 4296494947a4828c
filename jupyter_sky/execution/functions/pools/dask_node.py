"""Dask's scheduler and workers on a node of a pool: child processes of its engine."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from jupyter_sky.base.errors import SkyError
from jupyter_sky.machines.engines.node.instance import instance_info
from jupyter_sky.machines.engines.wire.agent_link import listen_addresses
from jupyter_sky.machines.services.cell_variable import read_endpoint
from jupyter_sky.machines.services.dask_processes import DaskProcess, start_dask

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
