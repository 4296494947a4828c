"""Both ends of a copy, and the machine between them: plan, places, price and transfer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.quantities import format_size
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.execution.clusters.cluster_place import place_of_cluster
from jupyter_sky.execution.clusters.engine_worker import EngineWorker
from jupyter_sky.execution.files.transfer_account import TransferAccount, observed_rates
from jupyter_sky.execution.sessions import session as _sessions
from jupyter_sky.machines.storage.datasets.data import Storage
from jupyter_sky.machines.storage.datasets.residency import Station, check_residency, find_rules
from jupyter_sky.machines.storage.stores.delegation import delegate
from jupyter_sky.machines.storage.stores.part_worker import PartWorker, Worker
from jupyter_sky.machines.storage.stores.places import LOCAL, ask_place, is_priced, place_of
from jupyter_sky.machines.storage.stores.signing import Access
from jupyter_sky.machines.storage.stores.ssh_store import SshStore
from jupyter_sky.machines.storage.stores.store import Store
from jupyter_sky.machines.storage.stores.traffic import Traffic, TransferTraffic, traffic_of
from jupyter_sky.machines.storage.stores.uri import exact_name, fold_of_platform
from jupyter_sky.machines.storage.transfers.copying import CopyPlan, plan_copy
from jupyter_sky.machines.storage.transfers.estimate import (
    Estimate,
    cold_bytes,
    estimate_transfer,
    expected_traffic,
)
from jupyter_sky.machines.storage.transfers.movers import Report

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.machines.storage.transfers.transfer import Transfer


@dataclass
class CopyEnds:
    """Source and target of a copy.

    Parameters
    ----------
    source, target
        The data and where they go.
    via
        Name of the cluster that moves the bytes, ``here``, or empty.
    """

    source: Storage
    target: Storage
    via: str = ""
    _begun: tuple[Traffic, Traffic] = field(init=False)

    def __post_init__(self) -> None:
        self._begun = traffic_of(self.source.store), traffic_of(self.target.store)

    @property
    def is_inside(self) -> bool:
        """Whether the store copies by itself."""
        return self.target.store.can_copy_from(self.source.store)

    @cached_property
    def way(self) -> CopyRoute | None:
        """Machine that moves the bytes; None where it would be this one, unasked."""
        return find_route(self.source, self.target, self.via)

    @cached_property
    def route(self) -> tuple[str, ...]:
        """Places that the bytes pass."""
        source = place_of(self.source.store, self.source.uri)
        target = place_of(self.target.store, self.target.uri)
        if self.way is None or not self.way.place:
            return source, target
        return source, self.way.place, target

    def check_residency(self, given: str = "") -> None:
        """Raise SkyResidency where a place on the way is outside of an area.

        The stores are asked for their regions; nothing is asked without a rule.
        """
        rules = find_rules((self.source.uri, self.target.uri), Sky.load().residency, given)
        if not rules:
            return
        from jupyter_sky.knowledge import catalog

        source, target = (
            Station(str(end.uri), ask_place(end.store, end.uri))
            for end in (self.source, self.target)
        )
        way = self.way
        between = [Station(way.title, way.place)] if way is not None and way.place else []
        check_residency(catalog.load(), rules, [source, target, *between])

    def plan(self) -> CopyPlan:
        """Return what would be copied."""
        manifest = self.source.list()
        manifest.check_readable()
        fold = fold_of_platform() if self.target.uri.is_local else exact_name
        target = self.target
        return plan_copy(manifest, self.source.store, target.store, target.uri, fold)

    @property
    def traffic(self) -> TransferTraffic:
        """Requests since these ends are known, such as those of listing."""
        ends = self.source.store, self.target.store
        counts = [traffic_of(end) - begun for end, begun in zip(ends, self._begun, strict=True)]
        return TransferTraffic(counts[0], Traffic() if ends[0] is ends[1] else counts[1])

    def estimate(self, plan: CopyPlan) -> Estimate:
        """Return amount, time and price, with the requests that listing has taken."""
        from jupyter_sky.knowledge import catalog

        expected = expected_traffic(
            plan.items,
            not self.source.uri.is_local,
            None if self.target.uri.is_local else self.target.store.capability,
            inside=self.is_inside,
        )
        objects = [item.source for item in plan.items]
        spent = self.traffic + expected
        return estimate_transfer(catalog.load(), self.route, objects, spent, observed_rates())

    def check_way(self, plan: CopyPlan, estimate: Estimate) -> None:
        """Raise SkyUsageError where bytes would pass this machine and nobody has said so."""
        if self.way is None:
            raise SkyUsageError(
                _(
                    "{plan}: {price}: between two clouds the bytes would pass through this "
                    "machine, {nbytes} down and up again"
                ).format(plan=plan, price=estimate.price, nbytes=format_size(plan.nbytes)),
                hint=_(
                    "via='CLUSTER' lets a cluster's machine do it, via='here' this one "
                    "(%sky storage cp --via)"
                ),
            )

    def account(self, plan: CopyPlan) -> TransferAccount | None:
        """Return the account of the copy, with what listing has taken; None if all is free."""
        if not any(map(is_priced, self.route)):
            return None
        from jupyter_sky.knowledge import catalog

        session = _sessions.current()
        return TransferAccount(
            session.store,
            session.notebook,
            catalog.load(),
            f"{plan.source} → {plan.target}",
            self.route,
            cold_bytes([item.source for item in plan.items]),
            self.traffic,
        )

    def transfer(self, plan: CopyPlan, account: TransferAccount | None) -> Transfer:
        """Return the transfer, which has not begun."""
        from jupyter_sky.machines.storage.stores.journal import Journal
        from jupyter_sky.machines.storage.transfers.transfer import Transfer, TransferOptions

        options: dict[str, Any] = {}
        if account is not None:
            options["price"] = lambda traffic: account.price(traffic).known_usd
        if self.way is not None:
            names = ("start_worker", "read_store", "write_store")
            options |= {name: getattr(self.way, name) for name in names}
        folder = Path(Sky.load().data_dir)
        folder.mkdir(parents=True, exist_ok=True)
        return Transfer(
            self.source.store,
            self.target.store,
            plan.items,
            Journal.open(folder),
            TransferOptions(condition=plan.condition, **options),
        )


# -- Route of a copy: the machine through which the bytes pass, or none ---------------------------

HERE = "here"
"""Value of ``via`` for a copy that passes through this machine."""


@dataclass(frozen=True, slots=True)
class CopyRoute:
    """Way of the bytes of a copy.

    Attributes
    ----------
    title
        The machine, for messages; empty where none is between.
    place
        Its place, where it is neither at the source nor at the target.
    start_worker
        Starts the worker that moves them.
    read_store, write_store
        Stores whose requests the worker may hold; None for those of the copy.
    """

    title: str = ""
    place: str = ""
    start_worker: Callable[[Report], Worker] = PartWorker
    read_store: Store | None = None
    write_store: Store | None = None


def find_route(source: Storage, target: Storage, via: str) -> CopyRoute | None:
    """Return the way of a copy: never through this machine unless one end is here, or it is told.

    A store copies by itself, an SSH host moves its own files, and between two clouds a machine of
    a connected cluster does it: at the destination first, as the egress is the same from there.

    Parameters
    ----------
    source, target
        Ends of the copy.
    via
        Name of a cluster, `HERE`, or empty.

    Returns
    -------
    CopyRoute or None
        None where the bytes would pass through this machine, and nobody has said that they may.

    Raises
    ------
    SkyUsageError
        The cluster cannot be given access to one of the ends alone.
    """
    if source.uri.is_local or target.uri.is_local or target.store.can_copy_from(source.store):
        return CopyRoute()
    if via == HERE:
        return CopyRoute(_("this machine"), LOCAL)
    if not via and (route := _route_of_host(source, target)):
        return route
    if "ssh" in (source.uri.scheme, target.uri.scheme):
        return None
    cluster = _find_cluster(source, target, via)
    if cluster is None:
        return None
    stores = _delegate_both(source, target)
    if stores is None:
        raise SkyUsageError(
            _(
                "a request to {source} or {target} would give the machine of {name} all rights of "
                "this one: its token cannot be narrowed to the address"
            ).format(source=source.uri, target=target.uri, name=cluster.row.name),
            hint=_("via='here' moves the bytes through this machine (%sky storage cp --via here)"),
        )
    start = partial(EngineWorker, link=cluster.connection, rank=0)
    title = _("cluster {name}").format(name=cluster.row.name)
    return CopyRoute(title, place_of_cluster(cluster.row), start, *stores)


def nearest_cluster(
    clusters: Iterable[ClusterHandle], places: Iterable[str]
) -> ClusterHandle | None:
    """Return the cluster at the first of some places (cloud and region) at which there is one."""
    by_place = {place_of_cluster(each.row): each for each in clusters}
    return next((by_place[place] for place in places if place in by_place), None)


def _route_of_host(source: Storage, target: Storage) -> CopyRoute | None:
    """Return the way by a host of one end; None where no host can reach the other."""
    for end in (source, target):
        if isinstance(end.store, SshStore):
            stores = _delegate_both(source, target, end.store)
            if stores is not None:
                return CopyRoute(end.store.host, "", end.store.start_worker, *stores)
    return None


def _delegate_both(
    source: Storage, target: Storage, host: SshStore | None = None
) -> tuple[Store, Store] | None:
    """Return stores for a worker on another machine, or on a host that has its own files."""
    stores = []
    for end, access in ((source, Access.READ), (target, Access.WRITE)):
        is_own = host and isinstance(end.store, SshStore) and end.store.host == host.host
        store = end.store if is_own else delegate(end.store, end.uri, access)
        if store is None:
            return None
        stores.append(store)
    return stores[0], stores[1]


def _find_cluster(source: Storage, target: Storage, via: str) -> ClusterHandle | None:
    if via:
        return _sessions.current().clusters.find(via)
    if not _sessions.is_open():
        return None
    connected = _sessions.current().clusters.connected.values()
    live = [each for each in connected if not each.connection.is_lost]
    return nearest_cluster(live, [place_of(end.store, end.uri) for end in (target, source)])
