"""Orders of a controller to the nodes of a cluster, and their reports."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.remote.supervisor import write_private
from jupyter_sky.machines.engines.node.ports import free_port
from jupyter_sky.machines.engines.wire.agent_link import listen_address
from jupyter_sky.machines.engines.wire.messages import ClusterConfig

State = Literal["installing", "starting", "ready", "failed"]
FOLDER = "spark"
"""Folder of Spark's processes in that of a cluster; each data engine has one of its name."""
ENDPOINT = "endpoint.json"


@dataclass(frozen=True, slots=True)
class EngineOrder:
    """Processes of a data engine on one node.

    Attributes
    ----------
    engine : str
        Name of the data engine.
    directory : str
        Folder of the cluster on this node.
    rank, nodes : int
        Rank of the node, and number of nodes; the master and the driver are on node 0.
    version : str
        Version of Spark; of others what their version must meet, empty for the newest.
    address : str
        Address at which the other nodes reach this one.
    master : str
        ``HOST:PORT`` of the master, scheduler or head; Spark has none on a cluster of one node.
    secret, token : str
        What processes of the cluster prove to each other; what is wanted by Spark's Connect server
        of clients, and by Dask's dashboard of browsers.
    serial : int
        Number of this start of the data engine on the cluster.
    neighbours : int
        Nodes of this cluster on the same machine, this one included.
    cpus : list of int, optional
        Numbers of the CPUs of this node; None for all of the machine.
    memory : float, optional
        Memory of this node in GiB; None for its part of the machine's.
    gpus : float
        GPUs of this node.
    """

    engine: str
    directory: str
    rank: int
    nodes: int
    version: str
    address: str
    master: str
    secret: str = field(repr=False)
    token: str = field(repr=False)
    serial: int = 0
    neighbours: int = 1
    cpus: list[int] | None = None
    memory: float | None = None
    gpus: float = 0.0

    @property
    def folder(self) -> Path:
        """Folder of this node's processes."""
        return endpoint_file(self.directory, self.engine).parent / f"node-{self.rank}"

    @property
    def endpoint_file(self) -> Path:
        """File by which clients find the data engine, on node 0."""
        return endpoint_file(self.directory, self.engine)

    def to_dict(self) -> JsonObject:
        """Return the fields, which JSON can hold."""
        return asdict(self)


def endpoint_file(directory: str, engine: str) -> Path:
    """Return the file by which clients find a data engine, in the folder of a cluster."""
    return Path(directory) / engine / ENDPOINT


def engine_orders(
    config: ClusterConfig, engine: str, version: str, serial: int
) -> list[EngineOrder]:
    """Return the order of each node of a cluster, by rank; all have the same secrets."""
    nodes = config["nodes"]
    peers = config.get("peers") or ["127.0.0.1"] * nodes
    cpus: list[Any] = list(config.get("cpus") or [None] * nodes)
    secret, token = secrets.token_hex(32), secrets.token_hex(32)
    master = f"{peers[0]}:{free_port(listen_address(peers[0]))}"
    return [
        EngineOrder(
            engine=engine,
            directory=config["directory"],
            rank=rank,
            nodes=nodes,
            version=version,
            address=peers[rank],
            master=master,
            secret=secret,
            token=token,
            serial=serial,
            neighbours=peers.count(peers[rank]),
            cpus=cpus[rank],
            memory=config.get("memory"),
            gpus=config.get("gpus", ("", 0.0))[1],
        )
        for rank in range(nodes)
    ]


def page_url(port: int, token: str, path: str) -> str:
    """Return the address of a web page of a data engine, with which a browser logs in.

    Examples
    --------
    >>> page_url(8080, "abc", "/jobs/")
    'http://127.0.0.1:8080/jobs/?token=abc'
    """
    return f"http://127.0.0.1:{port}{path}?token={token}"


def write_state(
    order: EngineOrder,
    state: State,
    detail: str = "",
    hint: str | None = None,
    facts: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Write how far a node is, for the controller or the agent of the node.

    Parameters
    ----------
    facts
        What notebooks are told of the data engine: its version, its pages.
    """
    record = {"state": state, "detail": detail, "hint": hint, "facts": {**facts}}
    write_private(order.folder / "state.json", record)


def read_state(folder: Path) -> JsonObject | None:
    """Return how far a node is, by the folder of its processes; None before it has said so."""
    try:
        return json.loads((folder / "state.json").read_text())
    except (OSError, ValueError):
        return None
