"""Route of a copy: the machine through which the bytes pass, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.clusters.cluster import place_of_cluster
from jupyter_sky.execution.clusters.engine_worker import EngineWorker
from jupyter_sky.execution.sessions import session as _sessions
from jupyter_sky.machines.storage.datasets.data import Storage
from jupyter_sky.machines.storage.stores.delegation import delegate
from jupyter_sky.machines.storage.stores.part_worker import PartWorker, Worker
from jupyter_sky.machines.storage.stores.places import LOCAL, place_of
from jupyter_sky.machines.storage.stores.signing import Access
from jupyter_sky.machines.storage.stores.ssh_store import SshStore
from jupyter_sky.machines.storage.stores.store import Store
from jupyter_sky.machines.storage.transfers.movers import Report

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import ClusterHandle

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
