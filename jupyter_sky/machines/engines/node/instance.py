"""Instance information: rank of this node, number of nodes, addresses of the others.

A task's own context comes first, then what the engine was started with, then a single node.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any
from zlib import crc32

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.wire.messages import ClusterConfig

POOL_VARIABLE = "COMPUTE_POOL"
"""Environment variable that holds an `InstanceInfo` as JSON."""
DEFAULT_PORT = 29500
"""Default port of process groups; that of torchrun."""
RENDEZVOUS_PORTS = (20000, 32000)
"""Range of other ports: below those of outgoing connections."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Node of the pool.

    Attributes
    ----------
    node : int
        Its rank.
    private_ip : str
        Address at which other nodes reach it.
    """

    node: int
    private_ip: str


@dataclass(frozen=True, slots=True)
class InstanceInfo:
    """Pool as seen from one of its nodes.

    Attributes
    ----------
    node : int
        Rank of this node; the head is 0.
    total_nodes : int
        Number of nodes when the task was sent.
    head_addr, head_port
        Address for a process group of the nodes: a port of the head that nothing else uses.
    job_id : str
        Name of the pool.
    accelerator : str
        Canonical name of this node's accelerators; empty without any.
    accelerators : float
        Number of accelerators of this node.
    peers : tuple of Peer
        All nodes, this one too, by rank.
    worker, workers_per_node : int
        Index of this task slot, and number of task slots of this node.

    Examples
    --------
    >>> info = InstanceInfo(node=1, total_nodes=4)
    >>> info.is_head, info.variables()["WORLD_SIZE"]
    (False, '4')
    """

    node: int = 0
    total_nodes: int = 1
    head_addr: str = "127.0.0.1"
    head_port: int = DEFAULT_PORT
    job_id: str = "local"
    accelerator: str = ""
    accelerators: float = 0
    peers: tuple[Peer, ...] = field(default=(Peer(0, "127.0.0.1"),))
    worker: int = 0
    workers_per_node: int = 1

    @classmethod
    def of_engine(cls, config: ClusterConfig, rank: int) -> InstanceInfo:
        """Make it from the configuration of an engine, for cells."""
        addresses = config.get("peers") or ["127.0.0.1"] * config["nodes"]
        kind, count = config.get("gpus", ("", 0))
        # agreed on by all nodes without a word
        port = range(*RENDEZVOUS_PORTS)[crc32(config["cluster"].encode()) % 12000]
        return cls(
            node=rank,
            total_nodes=config["nodes"],
            head_addr=addresses[0],
            head_port=port,
            job_id=config["cluster"],
            accelerator=kind,
            accelerators=count,
            peers=tuple(Peer(node, address) for node, address in enumerate(addresses)),
        )

    @property
    def is_head(self) -> bool:
        """Whether this is node 0."""
        return self.node == 0

    @property
    def total_accelerators(self) -> float:
        """Accelerators of all nodes, which have the same number each."""
        return self.accelerators * self.total_nodes

    @property
    def total_workers(self) -> int:
        """Task slots of all nodes."""
        return self.workers_per_node * self.total_nodes

    @property
    def global_worker_index(self) -> int:
        """Index of this task slot among those of all nodes."""
        return self.node * self.workers_per_node + self.worker

    @property
    def hostname(self) -> str:
        """Host name of this machine."""
        return socket.gethostname()

    def variables(self) -> dict[str, str]:
        """Return environment variables as torchrun and SkyPilot set them: one process a node."""
        return {
            "MASTER_ADDR": self.head_addr,
            "MASTER_PORT": str(self.head_port),
            "RANK": str(self.node),
            "WORLD_SIZE": str(self.total_nodes),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "NODE_RANK": str(self.node),
            "SKYPILOT_NODE_RANK": str(self.node),
            "SKYPILOT_NODE_IPS": "\n".join(peer.private_ip for peer in self.peers),
            "SKYPILOT_NUM_NODES": str(self.total_nodes),
            "SKYPILOT_NUM_GPUS_PER_NODE": f"{self.accelerators:g}",
            POOL_VARIABLE: self.dumps(),
        }

    def dumps(self) -> str:
        """Serialize to JSON, for `loads`."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> InstanceInfo:
        """Deserialize the output of `dumps`.

        Raises
        ------
        SkyError
            The text is something else.
        """
        try:
            return cls.of(json.loads(text))
        except (ValueError, TypeError, AttributeError) as error:
            raise SkyError(
                _("{pool_variable} does not describe a pool: {error}").format(
                    pool_variable=POOL_VARIABLE, error=error
                ),
                hint=_("it is set on the nodes of a pool; elsewhere: unset {pool_variable}").format(
                    pool_variable=POOL_VARIABLE
                ),
            ) from None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> InstanceInfo:
        """Make it from a mapping as `dataclasses.asdict` returns it."""
        peers = tuple(Peer(**peer) for peer in record.get("peers", ()))
        return cls(**{**record, "peers": peers or (Peer(0, "127.0.0.1"),)})


_TASK_KEYS = {"worker", "broadcast"}
_CURRENT_TASK: ContextVar[tuple[InstanceInfo, Mapping[str, Any]] | None] = ContextVar(
    "sky-instance", default=None
)


@dataclass(slots=True)
class _Process:
    """State of the last task of this process, also visible to threads that it starts."""

    facts: Mapping[str, Any] | None = None
    info: InstanceInfo | None = None
    topology: Mapping[str, Any] | None = None
    """Topology that both were made of, for a comparison by identity."""


_PROCESS = _Process()


def instance_info() -> InstanceInfo:
    """Return the information of this node; off a pool, that of a pool of one node.

    Returns
    -------
    InstanceInfo
        Rank, number and addresses of the nodes.

    Examples
    --------
    >>> instance_info().total_nodes
    1
    """
    if current := _CURRENT_TASK.get():
        return current[0]
    return _PROCESS.info or _started(os.environ.get(POOL_VARIABLE, ""))


def is_on_node() -> bool:
    """Return whether this process belongs to a node of a pool or cluster."""
    return (
        _CURRENT_TASK.get() is not None
        or _PROCESS.info is not None
        or bool(os.environ.get(POOL_VARIABLE))
    )


def is_head() -> bool:
    """Return whether this is node 0.

    Returns
    -------
    bool
        True off a pool, too.

    Examples
    --------
    >>> is_head()
    True
    """
    return instance_info().is_head


def pool_facts() -> Mapping[str, Any]:
    """Return further facts of the pool of this task; empty off a pool."""
    current = _CURRENT_TASK.get()
    return current[1] if current else _PROCESS.facts or {}


@cache
def _started(text: str) -> InstanceInfo:
    """Return the information in the environment of a process that a task has started."""
    return InstanceInfo.loads(text) if text else InstanceInfo()


class RunningTask:
    """Context in which a task runs; see `running_task`."""

    __slots__ = ("_before", "_topology")

    def __init__(self, topology: Mapping[str, Any]) -> None:
        self._topology = topology

    def __enter__(self) -> None:
        topology = self._topology
        info = _PROCESS.info
        if info is None or _PROCESS.topology is not topology:
            info = _update_process(topology)
        if worker := topology.get("worker", 0):
            info = replace(info, worker=worker)
        self._before = _CURRENT_TASK.set((info, topology))

    def __exit__(self, *_: object) -> None:
        _CURRENT_TASK.reset(self._before)


def running_task(topology: Mapping[str, Any]) -> RunningTask:
    """Set the instance information of a task, also in the environment of its processes.

    The environment belongs to the whole process: concurrent tasks in threads share it. They are of
    one node, so their values are equal. It is written only when the pool has changed, and stays.

    Parameters
    ----------
    topology
        Result of `topology`; ``worker``, the task's slot, may be added, and ``broadcast``, the
        identifier of a call that was sent to all nodes. It must not change any more.
    """
    return RunningTask(topology)


def _update_process(topology: Mapping[str, Any]) -> InstanceInfo:
    """Return the information of a topology, which is now that of the process."""
    facts = {name: value for name, value in topology.items() if name not in _TASK_KEYS}
    info = _PROCESS.info
    if info is None or facts != _PROCESS.facts:
        info = InstanceInfo.of(facts["instance"])
        _PROCESS.facts, _PROCESS.info = facts, info
        os.environ.update(info.variables())
    _PROCESS.topology = topology
    return info
