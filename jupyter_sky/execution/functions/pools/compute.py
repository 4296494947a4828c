"""Pools from a description: ``with sky.Compute(...) as compute``."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import (
    SkyBootstrapError,
    SkyError,
    SkyNoCapacity,
    SkyNoOffer,
    SkyPermission,
    SkyUsageError,
    suggest,
)
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.calls.active_pools import CallTarget, refuse_untrusted
from jupyter_sky.execution.functions.calls.group_restart import group_kind
from jupyter_sky.execution.functions.calls.portable import portable_functions
from jupyter_sky.execution.functions.images.image import Image
from jupyter_sky.execution.functions.images.image_packages import ImagePackages
from jupyter_sky.execution.functions.images.specs import (
    SELECTIONS,
    Allocation,
    Nodes,
    Options,
    Selection,
    Spec,
    Worker,
)
from jupyter_sky.execution.functions.images.volumes import NodeVolumes, Volume, checked_volumes
from jupyter_sky.execution.functions.node import image_install
from jupyter_sky.execution.functions.pools.launch import ClusterLauncher, choose_offer
from jupyter_sky.execution.functions.pools.node_launches import NodeLaunches, begin_nodes
from jupyter_sky.execution.functions.pools.pool import Autoscaler, Pool
from jupyter_sky.execution.functions.shared.shared_client import STANDALONE
from jupyter_sky.execution.sessions import session as sessions
from jupyter_sky.knowledge.catalog.price_origin import describe_origin
from jupyter_sky.knowledge.ledger.ledger import format_rate
from jupyter_sky.machines.engines.node import file_cache
from jupyter_sky.machines.engines.node.file_cache import FileTree
from jupyter_sky.machines.engines.node.platforms import Platform

if TYPE_CHECKING:
    from jupyter_sky.base.requests.accelerators import Accelerator
    from jupyter_sky.clouds.launches.ssh_slot import Slot
    from jupyter_sky.execution.clusters.cluster import ClusterHandle


class Compute(CallTarget):
    """Description of machines for calls, brought up by ``with`` and ended with it.

    However the block is left (normally, by an exception, by an interrupt), the machines end; when
    this process dies, they end after `ttl`.

    Parameters
    ----------
    *specs
        Alternatives, each a `Spec`; or one, given by the parameters below.
    provider, cloud
        Where: ``"aws"``, ``"local"``; None for wherever it is best.
    accelerator
        ``"A100"``, ``"A100:4"`` or ``sky.accelerators.A100(count=4)``, of each node: so many or
        more. A line says what machines have beyond that, and their price.
    nodes
        A number, ``(least, most)`` for a pool that grows and shrinks, or `Nodes`.
    vcpus, memory_gb, disk_gb
        Least of each node: vCPUs, GiB, GiB.
    architecture
        ``x86_64`` or ``arm64``.
    allocation
        Unless given, machines of one's own first, then rented ones on demand, as for a cell.
        ``spot-if-available`` rents spot machines, and on demand when none can be had: it always
        starts, and a warning says so. ``spot`` and ``on-demand`` take that market alone;
        ``cheapest`` weighs all that there is by cost, interruptions of spot machines included.
    region
        In the cloud's own words.
    max_hourly_cost
        Most USD/h that all nodes together may cost, those that join later included.
    ttl
        Seconds (or ``"10m"``) after which the machines end by themselves without contact.
    worker
        How many calls a node runs at once, and in what.
    image
        What nodes have installed and set.
    plugins
        What is put around calls: ``sky.plugins.torch()``.
    volumes
        Data of stores that every node has in a folder before its first call.
    options
        What is seldom changed.
    selection
        Among specs: ``cheapest``, or the ``first`` that can be had. One that is refused gives way
        to the next.
    name
        What ``%%sky -c NAME`` calls it.

    Examples
    --------
    >>> with Compute(nodes=2) as compute:  # doctest: +SKIP
    ...     results = train(10) @ compute
    """

    def __init__(
        self,
        *specs: Spec,
        provider: Any = None,
        cloud: str | None = None,
        accelerator: str | Accelerator | None = None,
        nodes: Nodes | int | tuple[int, int] | None = None,
        vcpus: float | None = None,
        memory_gb: float | None = None,
        disk_gb: float | None = None,
        architecture: str | None = None,
        allocation: Allocation | None = None,
        region: str | None = None,
        max_hourly_cost: float | None = None,
        ttl: float | str | None = None,
        worker: Worker | None = None,
        image: Any = None,
        plugins: Sequence[Any] = (),
        volumes: Sequence[Volume] = (),
        options: Options | None = None,
        selection: Selection = "cheapest",
        name: str | None = None,
    ) -> None:
        self.volumes = checked_volumes(volumes, "Compute")
        if provider is not None and cloud is not None:
            raise SkyUsageError(_("provider and cloud are the same thing: give one of them"))
        provider = provider if provider is not None else cloud
        given = {"provider": provider, "region": region, "allocation": allocation, "ttl": ttl}
        given |= {"accelerator": accelerator, "vcpus": vcpus, "memory_gb": memory_gb}
        given |= {"disk_gb": disk_gb, "architecture": architecture}
        given |= {"max_hourly_cost": max_hourly_cost}
        self.specs = _alternatives(specs, given, nodes)
        self.nodes = [Nodes.of(1 if spec.nodes is None else spec.nodes) for spec in self.specs]
        if selection not in SELECTIONS:
            raise SkyUsageError(
                _("selection={selection!r} is not known").format(selection=selection),
                hint=suggest(selection, SELECTIONS),
            )
        self.selection = selection
        self.options = options or Options()
        self.worker = worker or self.options.worker or Worker()
        self.image, self.plugins = image, tuple(plugins)
        self.name = name
        self._node_volumes = NodeVolumes()
        self._chosen: Spec | None = None
        self._resolved_image: Any = None
        self._pool: Pool | None = None

    # -- start and end -----------------------------------------------------------------------------

    @property
    def pool(self) -> Pool:
        """Pool that is up.

        Raises
        ------
        SkyUsageError
            It is not up.
        """
        if self._pool is None:
            raise SkyUsageError(_("this Compute is not up: with sky.Compute(...) as compute: ..."))
        return self._pool

    def resolve_pool(self) -> Pool:
        """Return the pool that is up."""
        return self.pool

    def __enter__(self) -> Pool:
        return self.up()

    def __exit__(self, *__: object) -> None:
        self.down()

    def up(self, reuse: bool = False) -> Pool:
        """Start the machines; return the pool.

        Parameters
        ----------
        reuse
            Take a cluster of that name, or of this notebook, that is up and satisfies the request.
        """
        if self._pool is not None and not self._pool.closed:
            raise SkyUsageError(
                _("this Compute is up already, as {pool!r}").format(pool=self._pool)
            )
        self.check()
        *others, last = self._choices()
        for choice in others:
            try:
                return self._start(choice, reuse)
            except (SkyNoCapacity, SkyNoOffer) as refusal:
                _warn_of_next(refusal)
        return self._start(last, reuse)

    def _start(self, choice: Choice, reuse: bool) -> Pool:
        """Start the machines of one alternative."""
        spec, nodes, session = choice.spec, choice.nodes, sessions.current()
        self._chosen, self._resolved_image = spec, self._image(spec)
        start = ClusterLauncher(
            session.clusters,
            choice.resources,
            spec.lease,
            spec.market,
            self.options.provision_timeout,
            is_standalone=not self.options.cluster,
        )
        if reuse and (nodes.ready == nodes.initial or start.is_up(self.name)):
            return self.use_clusters(start.obtain(self.name, nodes.ready), start, nodes)
        name = self.name or f"compute-{uuid.uuid4().hex[:6]}"
        if nodes.ready == nodes.initial:
            return self.use_clusters(start.bring_up(name, nodes.ready), start, nodes)
        launches, clusters = begin_nodes(start, name, nodes)
        return self.use_clusters(clusters, start, nodes, launches)

    def check(self) -> None:
        """Raise errors that are known before a machine is paid for."""
        refuse_untrusted()
        self._resolved_image = self._image(None)
        for image in map(self._image, self.specs):
            if image is not None:
                image.check()
        for spec in self.specs:
            self._node_volumes.check(self._volumes(spec), spec.cloud)

    def use_clusters(
        self,
        clusters: Sequence[ClusterHandle],
        start: ClusterLauncher,
        nodes: Nodes | None = None,
        launches: NodeLaunches | None = None,
    ) -> Pool:
        """Use clusters that are up as the pool; the controller of the first serves it.

        Parameters
        ----------
        launches
            Further nodes that are being launched: they join as they come up.
        """
        from jupyter_sky.execution.functions.pools.pool_recovery import PoolRecovery

        try:
            pool = Pool(clusters[0], self.worker, start.end)
        except BaseException:
            if launches is not None:
                launches.abandon()
            for cluster in clusters:
                start.end(cluster)
            raise
        if launches is not None:
            pool.defer(launches.abandon)
        if not self.options.cluster:
            pool.facts[STANDALONE] = True
        try:
            for cluster in clusters[1:]:
                pool.members.join(cluster)
            self._set_up_pool(pool)
            count = len(pool.ranks)
            nodes = nodes or Nodes(min=count, desired=count)
            scaler = Autoscaler(pool, nodes, start, self.options, self._prepare_nodes, launches)
            scaler.adopt(clusters[1:])
            pool.scaler = scaler
            PoolRecovery(pool, start, self._prepare_nodes).begin()
            if nodes.limit > nodes.ready:
                pool.max_nodes = nodes.limit
                scaler.begin()
        except BaseException:
            pool.down()
            raise
        pool.limit, pool.shows_progress = self.options.timeout, self.options.shows_progress
        pool.cancel_grace = self.options.cancel_grace
        self._pool = pool
        return pool

    def down(self) -> None:
        """End the pool and the clusters that it has started."""
        if self._pool is not None:
            self._pool.down()

    # -- set-up ------------------------------------------------------------------------------------

    def _set_up_pool(self, pool: Pool) -> None:
        """Install the image and set up the plug-ins."""
        image = self._resolved_image
        pool.provided_modules = image.modules if image is not None else frozenset()
        self._prepare_nodes(pool, pool.ranks)
        setups = [image.setup() if image is not None else None]
        plugins = self._plugins(self._chosen)
        setups += [plugin.setup(pool) for plugin in plugins if hasattr(plugin, "setup")]
        around = [plugin.around for plugin in plugins if hasattr(plugin, "around")]
        pool.portable = portable_functions(image) if image is not None else None
        if pool.portable is not None and around:
            raise SkyUsageError(
                _("Image(python={python!r}) does not go with plug-ins that run in engines").format(
                    python=image.python
                ),
                hint=_('python="auto", or without them'),
            )
        pool.equip(setups, around, group_kind(plugins))
        for plugin in plugins:
            if hasattr(plugin, "client"):
                pool.enter(plugin.client(pool))

    def _plugins(self, spec: Spec | None) -> tuple[Any, ...]:
        return tuple(spec.plugins) if spec is not None and spec.plugins else self.plugins

    def _image(self, spec: Spec | None) -> Any:
        """Return the image of an alternative with the requirements of its plug-ins."""
        image = spec.image if spec is not None and spec.image is not None else self.image
        for plugin in self._plugins(spec):
            if hasattr(plugin, "image"):
                image = plugin.image(image)
        return image

    def _volumes(self, spec: Spec | None) -> tuple[Volume, ...]:
        """Return the volumes of an alternative and of its image."""
        volumes = tuple(spec.volumes) if spec is not None and spec.volumes else self.volumes
        image = self._image(spec)
        return checked_volumes((*volumes, *(image.volumes if image is not None else ())), "Compute")

    def _prepare_nodes(self, pool: Pool, ranks: Sequence[int]) -> None:
        """Prepare nodes for calls."""
        if self._resolved_image is not None:
            prepare_nodes(self._resolved_image, pool, ranks)
        nodes = {each: pool.members.nodes_of(each) for each in pool.clusters}
        wanted = [
            (cluster, [node.cluster_rank for node in of_cluster if node.rank in ranks])
            for cluster, of_cluster in nodes.items()
        ]
        self._node_volumes.bring(self._volumes(self._chosen), wanted)

    # -- choice of machines ------------------------------------------------------------------------

    def offers(self) -> Table:
        """Ask for the best offer of each alternative, as `up` does; nothing is launched.

        Returns
        -------
        Table
            The alternatives in the order in which they would be launched. Clouds that tell what
            they have free are asked now; prices of the others are those of their lists, with the
            date.

        Raises
        ------
        SkyNoOffer, SkyPermission
            None of them can be had.
        """
        choices, refusals = self._ask_alternatives()
        return offers_table(choices, refusals)

    def _choices(self) -> list[Choice]:
        """Return the alternatives that are on sale, the preferred first.

        Raises
        ------
        SkyNoOffer, SkyPermission
            None of them can be had.
        """
        choices, refusals = self._ask_alternatives()
        for refusal in refusals:
            if isinstance(refusal, SkyPermission):
                _warn_of_next(refusal)
        return choices

    def _ask_alternatives(self) -> tuple[list[Choice], list[SkyError]]:
        """Return the alternatives that are on sale, the preferred first, and reasons of others."""
        choices: list[Choice] = []
        refusals: list[SkyError] = []
        for spec, nodes in zip(self.specs, self.nodes, strict=True):
            try:
                resources, decision = choose_offer(spec, nodes)
            except (SkyNoOffer, SkyPermission) as refusal:
                refusals.append(refusal)
                continue
            price = float("inf") if decision.price is None else decision.price
            choices.append(Choice(price, decision.offer, resources, nodes, spec))
        if not choices:
            raise refusals[0] if len(refusals) == 1 else no_alternative(refusals)
        if self.selection == "cheapest":
            choices.sort(key=lambda choice: choice.price)
        return choices, refusals


def _warn_of_next(refusal: SkyError) -> None:
    text = _("{message}; the next alternative is asked").format(message=refusal.message)
    warnings.warn(text, stacklevel=3)


def _alternatives(specs: Sequence[Any], given: dict[str, Any], nodes: Any) -> list[Spec]:
    for spec in specs:
        if not isinstance(spec, Spec):
            raise SkyUsageError(
                _("Compute takes sky.Spec(...) by position, not a {name}").format(
                    name=type(spec).__name__
                ),
                hint=_("sky.Compute(provider=..., nodes=2), or sky.Compute(sky.Spec(...), ...)"),
            )
    if not specs:
        return [Spec(**given, nodes=nodes)]
    if placed := [n for n in ("provider", "accelerator", "region") if given[n] is not None]:
        raise SkyUsageError(
            _("{placed} is said by each Spec where there are any: give it there, not here").format(
                placed=placed[0]
            )
        )
    common = {name: value for name, value in given.items() if value is not None}
    filled = []
    for spec in specs:
        more = {name: value for name, value in common.items() if getattr(spec, name) is None}
        if spec.nodes is None:
            more["nodes"] = nodes
        filled.append(replace(spec, **more))
    return filled


# -- Alternatives of a pool: the best offer of each, in the order in which they are launched ------


@dataclass(frozen=True, slots=True)
class Choice:
    """Alternative that is on sale, with its best offer and its price (USD/h of all nodes)."""

    price: float
    offer: Offer
    resources: Resources
    nodes: Nodes
    spec: Spec


def offers_table(choices: Sequence[Choice], refusals: Sequence[SkyError] = ()) -> Table:
    """Return alternatives as a table: place, price of all nodes, where the price comes from.

    Examples
    --------
    >>> offer = Offer("runpod", "EU-RO-1", "1x_L4", 8, 24, price=0.5, source="runpod-live")
    >>> choice = Choice(1.0, offer, Resources(), Nodes(2), Spec())
    >>> [row[1:] for row in offers_table([choice]).rows]
    [('$1.00/h', 'second', 'RunPod, live')]
    """
    rows = tuple(
        (
            choice.offer.place_of(choice.nodes.initial),
            format_rate(None if choice.offer.price is None else choice.price),
            choice.offer.billing_unit or "-",
            describe_origin(choice.offer.source, choice.offer.date).short,
        )
        for choice in choices
    )
    columns = (_("place"), _("price"), _("billed by"), _("price from"))
    note = "\n".join(refusal.message for refusal in refusals)
    return Table(_("offers for this pool"), columns, rows, note)


def no_alternative(refusals: Sequence[SkyError]) -> SkyNoOffer:
    """Return the error that none of several alternatives can be had, with what would help each.

    Examples
    --------
    >>> no_alternative([SkyNoOffer("no A", hint="see B"), SkyNoOffer("no C", hint="see B")]).hint
    'see B'
    """
    reasons = "; ".join(refusal.message for refusal in refusals)
    hints = dict.fromkeys(refusal.hint for refusal in refusals if refusal.hint)
    return SkyNoOffer(
        _("none of {refusals_count} specs can be had: {reasons}").format(
            refusals_count=len(refusals), reasons=reasons
        ),
        hint="\n".join(hints) or None,
    )


# -- Preparation of a pool's nodes for an image: files are sent, packages installed ---------------

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
    if image.pip or image.python_option():
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
