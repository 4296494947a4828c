"""Orders of a controller to the nodes of a cluster, and their reports."""

from __future__ import annotations

import json
import secrets
import socket
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..engines.controller.agent_server import listen_address
from ..engines.wire.messages import ClusterConfig, Content
from ..remote.supervisor import write_private

State = Literal["installing", "starting", "ready", "failed"]
FOLDER = "spark"
"""Folder of Spark's processes in that of a cluster."""
ENDPOINT = "endpoint.json"


@dataclass(frozen=True, slots=True)
class SparkOrder:
    """Processes of Spark on one node.

    Attributes
    ----------
    directory : str
        Folder of the cluster on this node.
    rank, nodes : int
        Rank of the node, and number of nodes; the master and the driver are on node 0.
    version : str
        Version of Spark.
    address : str
        Address at which the other nodes reach this one.
    master : str
        ``HOST:PORT`` of the master; unused in a cluster of one node.
    secret, token : str
        What processes of the cluster prove to each other, and clients to the Connect server.
    serial : int
        Number of this start of Spark on the cluster.
    neighbours : int
        Nodes of this cluster on the same machine, this one included.
    cpus : list of int, optional
        Numbers of the CPUs of this node; None for all of the machine.
    memory : float, optional
        Memory of this node in GiB; None for its part of the machine's.
    """

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

    @property
    def folder(self) -> Path:
        """Folder of this node's processes."""
        return Path(self.directory) / FOLDER / f"node-{self.rank}"

    @property
    def endpoint_file(self) -> Path:
        """File with the address of the Connect server, on node 0."""
        return Path(self.directory) / FOLDER / ENDPOINT

    def to_dict(self) -> Content:
        """Return the fields, which JSON can hold."""
        return asdict(self)


def spark_orders(config: ClusterConfig, version: str, serial: int) -> list[SparkOrder]:
    """Return the order of each node of a cluster, by rank; all have the same secrets."""
    nodes = config["nodes"]
    peers = config.get("peers") or ["127.0.0.1"] * nodes
    cpus: list[Any] = list(config.get("cpus") or [None] * nodes)
    secret, token = secrets.token_hex(32), secrets.token_hex(32)
    master = f"{peers[0]}:{free_port(listen_address(peers[0]))}"
    return [
        SparkOrder(
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
        )
        for rank in range(nodes)
    ]


def free_port(address: str) -> int:
    """Return a port of this machine that is free now."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


def write_state(order: SparkOrder, state: State, detail: str = "", hint: str | None = None) -> None:
    """Write how far a node is, for the controller or the agent of the node."""
    write_private(order.folder / "state.json", {"state": state, "detail": detail, "hint": hint})


def read_state(folder: Path) -> Content | None:
    """Return how far a node is, by the folder of its processes; None before it has said so."""
    try:
        return json.loads((folder / "state.json").read_text())
    except (OSError, ValueError):
        return None
