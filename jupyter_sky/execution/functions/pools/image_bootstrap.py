"""Preparation of a pool's nodes for an image: files are sent, packages installed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyBootstrapError, SkyError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.images.image import Image
from jupyter_sky.execution.functions.images.image_packages import ImagePackages
from jupyter_sky.execution.functions.node import image_install
from jupyter_sky.machines.engines.node import file_cache
from jupyter_sky.machines.engines.node.file_cache import FileTree
from jupyter_sky.machines.engines.node.platforms import Platform

if TYPE_CHECKING:
    from jupyter_sky.clouds.launches.ssh_slot import Slot
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.execution.functions.pools.pool import Pool

HEAD_START_SECONDS = 15.0
"""Time for which the first node is prepared alone: a missing package is noticed by then."""
BATCH_BYTES = 8 * 2**20


def prepare_nodes(image: Image, pool: Pool, ranks: Sequence[int]) -> None:
    """Prepare nodes; skip steps that a node has done before.

    The first node begins alone: what fails everywhere fails there, and is paid for once.

    Raises
    ------
    SkyBootstrapError
        Says which node, and the last lines of what was tried there.
    """
    if image.pip or image.portable() is not None:
        for cluster in {_cluster_of(pool, rank) for rank in ranks}:
            cluster.ensure_package_installer()
    layout, packages, waiting = image.layout(), image.packages(), [*ranks]
    begun: dict[Future[Any], int] = {}
    try:
        while waiting or begun:
            first = waiting[:1] if not begun else waiting
            for rank in first:
                begun[_begin(image, pool, rank, layout, packages)] = rank
            waiting = [rank for rank in waiting if rank not in first]
            timeout = HEAD_START_SECONDS if waiting else None
            done, __ = wait(begun, timeout=timeout, return_when=FIRST_EXCEPTION)
            for future in done:
                _check_result(image, begun.pop(future), future)
            if waiting and not begun:  # the first has succeeded: all others at once
                begun = {_begin(image, pool, rank, layout, packages): rank for rank in waiting}
                waiting = []
    finally:
        for future in begun:
            future.cancel()


def _begin(
    image: Image, pool: Pool, rank: int, layout: FileTree, packages: ImagePackages
) -> Future[Any]:
    """Send missing files to a node, and start its installation."""
    _send(pool, rank, layout)
    if any(package.is_compiled for package in packages.sent):
        packages.check_platform(rank, pool.call_on(rank, Platform.current).result())
    for package in packages.sent:
        _send(pool, rank, package.tree)
    node = _offline(pool, rank) if packages.requirements else None
    if node is not None:
        with image_install.install_for_platform(node, packages.requirements) as tree:
            _send(pool, rank, tree, packages.requirements)
    limit = image.bootstrap_timeout
    return pool.call_on(
        rank, image_install.install_image, tuple(image.apt), packages.request, timeout=limit
    )


def _check_result(image: Image, rank: int, future: Future[Any]) -> None:
    try:
        future.result()
    except SkyError as error:
        raise SkyBootstrapError(
            _("node {rank}: {message}").format(rank=rank, message=error.message), hint=error.hint
        ) from None
    except TimeoutError:
        raise SkyBootstrapError(
            _("node {rank} was not ready within {bootstrap_timeout:g} s").format(
                rank=rank, bootstrap_timeout=image.bootstrap_timeout
            ),
            hint=_("allow more: Image(bootstrap_timeout=3600)"),
        ) from None


def _send(pool: Pool, rank: int, layout: FileTree, pip: tuple[str, ...] = ()) -> None:
    """Send the files that a node lacks."""
    if not layout.files:
        return
    missing = pool.call_on(rank, file_cache.missing_digests, layout.entries).result()
    paths, batch = layout.by_digest(), dict[str, bytes]()
    for digest in missing:
        batch[digest] = paths[digest].read_bytes()
        if sum(map(len, batch.values())) > BATCH_BYTES:
            pool.call_on(rank, file_cache.store_contents, batch).result()
            batch = {}
    if batch:
        pool.call_on(rank, file_cache.store_contents, batch).result()
    pool.call_on(rank, image_install.build_folder, layout.entries, pip).result()


def _cluster_of(pool: Pool, rank: int) -> ClusterHandle:
    """Return the cluster that a rank of a pool is in."""
    connection, _place = pool.locations[rank]
    return next(each for each in pool.clusters if each.connection is connection)


def _offline(pool: Pool, rank: int) -> Slot | None:
    """Return the machine of a rank where it reaches no package index."""
    from jupyter_sky.clouds.launches.base import is_reached_by_ssh

    cluster, (_connection, place) = _cluster_of(pool, rank), pool.locations[rank]
    if not is_reached_by_ssh(cluster.cloud):
        return None
    nodes = cluster.cloud.recorded_slots(cluster.machines)
    return next((node for node in nodes if node.rank == place and node.offline), None)
