"""The clusters of pools: which offer, started or found, ended."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..config import Sky
from ..errors import SkyError, SkyNoOffer, SkyUsageError
from ..executor import session as sessions
from ..executor.launching import start
from ..executor.request import CellOptions
from ..offers import Offer
from ..provisioner import broker
from ..resources import Resources, parse_duration
from .pool import Pool, active_pools
from .specs import Nodes, Spec

if TYPE_CHECKING:
    from ..executor.cluster import Cluster
    from ..executor.session import Session


class Starter:
    """Starts and ends the clusters of one pool."""

    def __init__(self, session: Session, resources: Resources, lease: float | None) -> None:
        self.session, self.resources, self.lease = session, resources, lease
        self.alive: Callable[[], None] = lambda: None
        """Raises when nobody wants what is being started any more."""

    def __call__(self, name: str, nodes: int) -> Cluster:
        """Start a cluster of so many nodes."""
        row = self.session.store.cluster(name)
        if row is not None and row.state == "up" and row in self.session.clusters.reconcile():
            raise SkyUsageError(
                f"a cluster {name} is up already",
                hint=f"use it: pool = sky.up({name!r}), or end it: sky.down({name!r})",
            )
        asked = replace(self.resources, nodes=nodes)
        known, idle = self.session.clusters, self.lease
        cluster, _ = start(known, asked, name, idle, lambda *_: self.alive())
        return cluster

    def found(self, name: str | None, nodes: int) -> Cluster:
        """Return a cluster that is up for this request; start one where there is none."""
        asked = replace(self.resources, nodes=nodes)
        cluster, _ = self.session.clusters.obtain(asked, name, self.lease, lambda *_: self.alive())
        return cluster

    def end(self, cluster: Cluster) -> None:
        """End a cluster; one that has ended already is no error."""
        try:
            self.session.clusters.down(cluster.row.name)
        except SkyUsageError:
            pass


def best(spec: Spec, nodes: Nodes) -> tuple[Resources, Offer]:
    """Return the request of a spec, and the best offer for it."""
    allocation = (spec.allocation or "spot-if-available").replace("_", "-")
    markets = {
        "spot": [True],
        "on-demand": [False],
        "cheapest": [True, False],
        "spot-if-available": [True, None],
    }[allocation]
    refusal: SkyError | None = None
    found: list[tuple[Resources, Offer]] = []
    for spot in markets:
        resources = spec.resources(nodes.started, spot)
        try:
            choice = broker.first_choice(resources)
        except SkyNoOffer as error:
            refusal = error
            continue
        offer = choice if isinstance(choice, Offer) else choice.tasks[0].offer
        found.append((resources, offer))
        if allocation != "cheapest":
            break
    if not found:
        assert refusal is not None
        raise refusal
    return min(found, key=lambda one: math.inf if one[1].price is None else one[1].price)


_EQUIPMENT = {"worker", "image", "plugins", "options"}
_LABELS_TOO = {"nodes", "cloud", "region", "max_hourly_cost"}
"""Words of `Compute` that mean the same as a label."""


def up(name: str | None, idle: float | str | None, labels: dict[str, Any]) -> Pool:
    """Bring a pool up by the words of `Compute` or by labels of resources; see `api.up`."""
    from .compute import Compute

    words = set(inspect.signature(Compute).parameters) - {"specs", "name"}
    equipment = {key: value for key, value in labels.items() if key in _EQUIPMENT}
    labels = {key: value for key, value in labels.items() if key not in _EQUIPMENT}
    plain = not isinstance(labels.get("nodes"), (tuple, list, Nodes))
    if labels.keys() <= words and not (labels.keys() <= _LABELS_TOO and plain):
        if idle is not None:
            labels.setdefault("ttl", idle)
        return Compute(**labels, **equipment, name=name).up(reuse=True)
    if not plain:
        strange = ", ".join(sorted(labels.keys() - words))
        raise SkyUsageError(
            f"nodes={labels['nodes']!r} goes with the words of sky.Compute, and {strange} does not",
            hint="sky.up(vcpus=4, memory_gb=16, nodes=(1, 4))",
        )
    compute = Compute(**equipment)
    compute.check()
    labels = {key: str(value) if key == "nodes" else value for key, value in labels.items()}
    options = CellOptions(resources=Resources.parse(**labels), cluster=name)
    options = options.with_defaults(Sky.load())
    seconds = parse_duration(idle, "idle") if isinstance(idle, str) else idle
    session = sessions.current()
    cluster = session.up(options.resources, options.cluster, seconds)
    known = next((pool for pool in active_pools() if pool.cluster is cluster), None)
    if known is not None and not equipment:
        return known
    return compute.over(cluster, Starter(session, options.resources, seconds))
