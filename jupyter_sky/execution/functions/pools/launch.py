"""Launch of the clusters of pools."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from jupyter_sky.base.concurrency import run_parallel
from jupyter_sky.base.errors import SkyError, SkyNoCapacity, SkyNoOffer, SkyTimeout, SkyUsageError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _, ngettext
from jupyter_sky.execution.cells.recovery_places import launchable_offers, narrow
from jupyter_sky.execution.cells.request import apply_settings
from jupyter_sky.execution.clusters.cluster_request import ClusterRequest
from jupyter_sky.execution.functions.images.specs import Nodes, Spec
from jupyter_sky.execution.functions.pools.replacement import Search, lost_scope, near, searches
from jupyter_sky.knowledge.ledger.ledger import format_rate
from jupyter_sky.machines.provisioner.placement import Decision, decide_placement

if TYPE_CHECKING:
    from jupyter_sky.base.requests.cell_options.burst import BurstPolicy
    from jupyter_sky.base.store.store import ClusterRow
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.execution.clusters.clusters import ClusterRegistry
    from jupyter_sky.knowledge.tracker.blocks import Scope


class ClusterLauncher:
    """Starts and ends the clusters of one pool.

    Parameters
    ----------
    resources
        The request, for as many nodes as the pool is to have at first; its price limit is that of
        the pool as a whole.
    allocation
        How spot machines count, see `jupyter_sky.machines.provisioner.placement.decide_placement`.
    limit
        Most seconds that one launch may take.
    is_standalone
        Whether every node is a cluster of its own, which is reached through a tunnel of its own:
        nodes need not reach one another.
    burst
        How long machines of one's own are waited for, and what is rented then.
    """

    def __init__(
        self,
        registry: ClusterRegistry,
        resources: Resources,
        lease: float | None,
        allocation: str | None = None,
        limit: float | None = None,
        is_standalone: bool = False,
        burst: BurstPolicy | None = None,
    ) -> None:
        self.burst = burst
        self.limit, self.is_standalone = limit, is_standalone
        self.registry, self.resources, self.lease = registry, resources, lease
        self.allocation = allocation
        self.clusters: list[ClusterHandle] = []
        """Clusters of the pool that are up."""
        self.near: Offer | None = None
        """Place that has accepted the first of several launches side by side: the others go there,
        too."""
        self.launching = 0
        """Nodes that are being launched side by side."""
        self.check_wanted: Callable[[], None] = lambda: None
        """Function that raises when the launch is no longer wanted."""

    def __call__(
        self, name: str, nodes: int, watch: Callable[[str], object] | None = None
    ) -> ClusterHandle:
        """Start a cluster of so many nodes.

        Parameters
        ----------
        watch
            Called with each stage of the launch; raises when it is no longer wanted.
        """
        row = self.registry.store.cluster(name)
        if row is not None and row.state == "up" and row in self.registry.records.reconcile():
            raise SkyUsageError(
                _("a cluster {name} is up already").format(name=name),
                hint=_("use it: pool = sky.up({name!r}), or end it: sky.down({name!r})").format(
                    name=name
                ),
            )
        request = self._request(name, nodes)
        try:
            cluster, notes = self.registry.launch(request, self._make_check(watch))
        except SkyNoOffer as error:
            if self.clusters and self.resources.max_hourly_cost is not None:
                limit = format_rate(self.resources.max_hourly_cost)
                hint = _("the pool may cost {limit} as a whole, and {price} is up").format(
                    limit=limit, price=format_rate(self.price)
                )
                error.hint = f"{error.hint}\n{hint}" if error.hint else hint
            raise
        return self._add(cluster, notes)

    def bring_up(self, name: str, nodes: int) -> list[ClusterHandle]:
        """Start the clusters of so many nodes; the first has the name, others a number behind it.

        Raises
        ------
        SkyError
            One of them cannot be had; then all have ended.
        """
        names = [name, *(f"{name}-{number}" for number in range(2, nodes + 1))]
        return self.start_all(names, nodes)

    def start_all(self, names: Sequence[str], nodes: int) -> list[ClusterHandle]:
        """Start the clusters of so many nodes side by side, with the first of the names.

        Raises
        ------
        SkyError
            One of them cannot be had; then all have ended.
        """
        sizes, before = self.sizes(nodes), list(self.clusters)
        jobs = [partial(self, *each) for each in zip(names, sizes, strict=False)]
        try:
            return run_parallel(jobs)
        except BaseException:
            for cluster in self.clusters:
                if cluster not in before:
                    self.end(cluster)
            raise

    def sizes(self, nodes: int) -> list[int]:
        """Return the numbers of nodes of the clusters that have so many in all."""
        return [1] * nodes if self.is_standalone else [nodes]

    def obtain(self, name: str | None, nodes: int) -> list[ClusterHandle]:
        """Return clusters that are up for this request; start those that are not there."""
        size, *others = self.sizes(nodes)
        request = self._request(name, size)
        first = self._obtain(request, print_at_once)
        name = first.row.name
        requests = [self._request(f"{name}-{n}", each) for n, each in enumerate(others, 2)]
        return [first, *map(self._obtain, requests)]

    def is_up(self, name: str | None) -> bool:
        """Return whether a cluster is up that satisfies the request for one node."""
        return bool(self.registry.find_rows(self._resources_of(1), name))

    def _obtain(
        self, request: ClusterRequest, announce: Callable[[str], None] = lambda note: None
    ) -> ClusterHandle:
        cluster, notes = self.registry.obtain(request, self._make_check(), announce)
        return self._add(cluster, notes)

    def spot_offers(self, offer: Offer) -> list[Offer]:
        """Return the spot machines that meet the request near an offer, and can be launched."""
        return launchable_offers(near(replace(self.resources, spot=True), offer))

    def replace(
        self,
        name: str,
        nodes: int,
        old: ClusterRow,
        watch: Callable[[str], object],
        target: Offer | None = None,
        slow: ClusterRow | None = None,
    ) -> ClusterHandle:
        """Start a cluster in place of nodes of another, at another place if possible.

        Parameters
        ----------
        watch
            Called with each stage of the launch; raises when it is no longer wanted.
        target
            The only place to ask, if it matters.
        slow
            Another launch for the same nodes, which goes on: its place is not asked, and its price
            counts.
        """
        resources = self._resources_instead(nodes, old, slow)
        others: tuple[Scope, ...] = () if slow is None else (lost_scope(Offer(**slow.offer)),)
        refusal: SkyError | None = None
        places = searches(resources, Offer(**old.offer))
        if target is not None:
            places = iter([Search(narrow(resources, target))])
        for search in places:
            request = ClusterRequest(
                search.resources,
                name,
                self.lease,
                allocation=self.allocation,
                avoided=(*search.avoided, *others),
            )
            try:
                cluster, notes = self.registry.launch(request, self._make_check(watch))
            except (SkyNoOffer, SkyNoCapacity) as error:
                refusal = error
                continue
            return self._add(cluster, notes)
        assert refusal is not None
        raise refusal

    def _resources_instead(self, nodes: int, old: ClusterRow, slow: ClusterRow | None) -> Resources:
        """Return the requirements of nodes of a lost cluster, within the pool's price limit."""
        limit = self.resources.max_hourly_cost
        if limit is not None:  # what was lost has left room for it
            limit = max(limit - self.price, 0.0 if old.price else limit)
            limit = max(0.0, limit - ((slow.price if slow else None) or 0.0))
        return replace(self.resources, nodes=nodes, max_hourly_cost=limit)

    def _make_check(
        self, watch: Callable[[str], object] | None = None
    ) -> Callable[[str, str], None]:
        """Return a function that ends a launch which is unwanted or takes too long."""
        until = time.monotonic() + (math.inf if self.limit is None else self.limit)

        def check(stage: str, detail: str) -> None:
            self.check_wanted()
            if watch is not None:
                watch(stage)
            if time.monotonic() > until:
                raise SkyTimeout(
                    _("the machines were not up within {limit:g} s ({stage})").format(
                        limit=self.limit, stage=stage
                    ),
                    hint=_("allow more: sky.Options(provision_timeout=600)"),
                )

        return check

    def end(self, cluster: ClusterHandle) -> None:
        """End a cluster; one that has ended already is no error."""
        self.clusters = [other for other in self.clusters if other is not cluster]
        try:
            self.registry.terminate(cluster.row.name)
        except SkyUsageError:
            pass

    def discard(self, cluster: ClusterHandle) -> None:
        """End what is left of a cluster that was lost or replaced, and record how it ended."""
        self.clusters = [other for other in self.clusters if other is not cluster]
        row = self.registry.store.find_cluster(cluster.row.id)
        if row is not None and row.state == "up":
            self.registry.records.terminate_unless_ended(row)

    def _connected(self) -> list[ClusterHandle]:
        """Return the clusters that are up and not known to be lost."""
        return [cluster for cluster in self.clusters if not cluster.connection.is_lost]

    @property
    def price(self) -> float:
        """Price of the clusters that are up, in USD/h."""
        return sum(cluster.row.price or 0.0 for cluster in self._connected())

    def affordable(self, nodes: int) -> int:
        """Return the number of further nodes within the pool's price limit.

        One at least: a cheaper machine may still keep it, and else the refusal says why.
        """
        limit = self.resources.max_hourly_cost
        up = sum(cluster.row.nodes for cluster in self._connected())
        if limit is None or not up or not self.price:
            return nodes
        each = self.price / up
        return max(1, min(nodes, int((limit - self.price) / each + 1e-9)))

    def _request(self, name: str | None, nodes: int) -> ClusterRequest:
        """Return the request for a cluster of so many nodes."""
        resources = self._resources_of(nodes)
        if not self.is_standalone:  # nodes use each other's private addresses
            first = Offer(**self.clusters[0].row.offer) if self.clusters else self.near
            resources = resources if first is None else near(resources, first)
        return ClusterRequest(
            resources, name, self.lease, allocation=self.allocation, burst=self.burst
        )

    def _resources_of(self, nodes: int) -> Resources:
        """Return the requirements of more nodes, with the rest of the pool's price limit.

        Nodes that are still to come keep their share of it.
        """
        limit = self.resources.max_hourly_cost
        if limit is None:
            return replace(self.resources, nodes=nodes)
        up = sum(cluster.row.nodes for cluster in self._connected())
        share = nodes / max(nodes, self.resources.nodes - up, self.launching)
        left = max(0.0, limit - self.price) * share
        return replace(self.resources, nodes=nodes, max_hourly_cost=left)

    def _add(self, cluster: ClusterHandle, notes: list[str]) -> ClusterHandle:
        self.clusters.append(cluster)
        notes = [*notes, *excess_notes(self.resources, Offer(**cluster.row.offer))]
        if notes:
            warnings.warn(f"{cluster.row.name}: {'; '.join(notes)}", stacklevel=4)
        return cluster


def excess_notes(resources: Resources, offer: Offer) -> list[str]:
    """Return a sentence if machines have more accelerators than were asked for; or none.

    Examples
    --------
    >>> offer = Offer("aws", "us-east-1", "p4d.24xlarge", 96, 1152, gpu="A100", gpu_count=8)
    >>> excess_notes(Resources(gpu="A100", gpu_count=1), replace(offer, price=21.96))
    ['p4d.24xlarge has 8 A100, 1 was asked for: $21.96/h a machine']
    """
    if not resources.gpu or offer.gpu_count <= resources.gpu_count:
        return []
    text = ngettext(
        "{type} has {count:g} {gpu}, {asked:g} was asked for: {price} a machine",
        "{type} has {count:g} {gpu}, {asked:g} were asked for: {price} a machine",
        math.ceil(resources.gpu_count),
    )
    price, asked = format_rate(offer.price), resources.gpu_count
    kind, count = offer.instance_type, offer.gpu_count
    return [text.format(type=kind, count=count, gpu=offer.gpu, asked=asked, price=price)]


def print_at_once(note: str) -> None:
    """Print a note, such as that one more cluster of this notebook is started."""
    print(note, flush=True)


def choose_offer(spec: Spec, nodes: Nodes) -> tuple[Resources, Decision]:
    """Return the request of a spec within the limits of the settings, and its offer."""
    spot = {"spot": True, "on-demand": False}.get(spec.market or "")
    resources = apply_settings(spec.resources(nodes.initial, spot), Sky.load())
    return resources, decide_placement(resources, spec.market)
