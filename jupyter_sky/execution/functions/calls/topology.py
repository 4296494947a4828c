"""Topology of a pool: the facts that its notebook sends to every node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from jupyter_sky.machines.engines.node.instance import InstanceInfo, Peer
from jupyter_sky.machines.engines.wire.controller_requests import FindSharedState, SharedStateReply

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.execution.functions.images.specs import Worker


class PoolFacts(Protocol):
    """Attributes of a `Pool` that its topology depends on."""

    id: str
    cluster: ClusterHandle
    worker: Worker
    facts: dict[str, Any]

    @property
    def ranks(self) -> Sequence[int]:
        """Ranks of the nodes that take calls."""
        ...

    @property
    def clusters(self) -> Sequence[ClusterHandle]:
        """Clusters of its nodes."""
        ...

    @property
    def locations(self) -> Mapping[int, tuple[Any, int]]:
        """Connection and rank in its cluster, by rank in the pool."""
        ...


def topology(pool: PoolFacts, rank: int) -> dict[str, Any]:
    """Return the facts of a pool that are sent to the engine of a rank."""
    ranks, shared = sorted({*pool.ranks, rank}), shared_state_endpoint(pool.cluster)
    offer = pool.cluster.row.offer
    addresses = _addresses(pool, shared.head_addr)
    info = InstanceInfo(
        node=ranks.index(rank),
        total_nodes=len(ranks),
        head_addr=shared.head_addr,
        head_port=shared.head_port,
        job_id=pool.id,
        accelerator=offer.get("gpu") or "",
        accelerators=offer.get("gpu_count") or 0,
        peers=tuple(Peer(node, addresses[peer]) for node, peer in enumerate(ranks)),
        workers_per_node=pool.worker.concurrency,
    )
    is_on_head = addresses[rank] == shared.head_addr
    return {
        "node": info.node,
        "instance": asdict(info),
        "shared_state": {
            "url": shared.local_url if is_on_head else shared.remote_url,
            "key": shared.key,
        },
        "facts": {**pool.facts},
    }


_ENDPOINTS: WeakKeyDictionary[ClusterHandle, SharedStateReply] = WeakKeyDictionary()


def shared_state_endpoint(cluster: ClusterHandle) -> SharedStateReply:
    """Return the endpoint of a cluster's shared state and its rendezvous ports; asked once."""
    if cluster not in _ENDPOINTS:
        _ENDPOINTS[cluster] = cluster.connection.ask_controller(FindSharedState())
    return _ENDPOINTS[cluster]


def _addresses(pool: PoolFacts, head: str) -> dict[int, str]:
    """Return the addresses of the nodes of a pool, by rank."""
    from jupyter_sky.clouds.launches.base import is_reached_by_ssh

    private: dict[tuple[Any, int], str] = {}
    for cluster in pool.clusters:
        if is_reached_by_ssh(cluster.cloud):
            for node in cluster.cloud.recorded_slots(cluster.machines):
                private[cluster.connection, node.rank] = node.private or node.address.host
    return {rank: private.get(place, head) for rank, place in pool.locations.items()}
