"""Data of a cell: datasets of ``--data`` on its engines' machines before it runs.

The notebook lists and signs; machines download into a cache that their engines share. Of files of
this machine, engines on other machines get the bytes over the connection to their cluster.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.launch_support import runs_here
from jupyter_sky.execution.clusters.cluster import place_of_cluster
from jupyter_sky.execution.files.dataset_listing import CellDataset, check_paths
from jupyter_sky.execution.files.staging import StagedData, price_staging, staged_data
from jupyter_sky.execution.files.transfer import TransferReporter, format_size
from jupyter_sky.execution.files.transfer_account import observe_transfer
from jupyter_sky.machines.engines.wire.data_requests import (
    AddPiece,
    AddPlans,
    BeginArrival,
    Cancel,
    EndServe,
    FindHeld,
    ReadState,
    Serve,
    ServeReply,
    TaskState,
)
from jupyter_sky.machines.storage.datasets.machine_data import plan_to_json
from jupyter_sky.machines.storage.stores.connections import Connections
from jupyter_sky.machines.storage.stores.delegation import delegate
from jupyter_sky.machines.storage.stores.errors import SkyStorageError
from jupyter_sky.machines.storage.stores.part_worker import read_part
from jupyter_sky.machines.storage.stores.peers import peer_request
from jupyter_sky.machines.storage.stores.places import (
    LOCAL,
    is_priced,
    place_of,
    price_transfer,
)
from jupyter_sky.machines.storage.stores.signing import Access
from jupyter_sky.machines.storage.stores.store import (
    MIB,
    PART_SIZE,
    Span,
    Store,
    StoredObject,
)
from jupyter_sky.machines.storage.stores.traffic import Traffic, TransferTraffic, traffic_of
from jupyter_sky.machines.storage.transfers.downloads import (
    ContentSums,
    DownloadPlan,
    find_sums,
    plan_download,
    plan_parts,
)

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import ClusterHandle, Placement


PIECE_BYTES = 4 * MIB
"""Bytes of one message with data that this machine sends."""
FIRST_POLL_SECONDS, LONGEST_POLL_SECONDS = 0.01, 0.25


def bring_data(
    listed: Sequence[CellDataset], placement: Placement, reporter: TransferReporter
) -> None:
    """Bring datasets to the machines of a cell's engines, which cache them by content.

    Raises
    ------
    SkyStorageError
        A machine could not get them; the message is its own.
    """
    check_paths(listed, placement.row.cloud)
    for each in listed:
        for note in each.manifest.notes:
            reporter.note(note)
        _Delivery(each, placement, reporter).run()


def delegate_data(data: CellDataset, cloud: str) -> Store | None:
    """Return the store by whose requests a machine gets the data; None to send it the bytes."""
    uri = data.manifest.uri
    if runs_here(cloud) and uri.scheme != "ssh":
        return data.store
    return delegate(data.store, uri, Access.READ)


class _Delivery:
    """Delivery of one dataset to the machines of a cell."""

    def __init__(self, data: CellDataset, placement: Placement, reporter: TransferReporter) -> None:
        self.data, self.reporter = data, reporter
        self.cluster: ClusterHandle = placement.cluster
        self.ranks = placement.ranks
        self.id = uuid.uuid4().hex
        self._connections = Connections()
        self._billed = Traffic()
        self._delegated = delegate_data(data, placement.row.cloud)
        self.is_sent = self._delegated is None
        self._staged = staged_data(data, placement.cluster) if self.is_sent else None
        self._sums: dict[str, ContentSums] = {}

    def run(self) -> None:
        """Bring the dataset to every engine; engines of one machine share one download."""
        begun, counts = time.monotonic(), dict[int, tuple[int, int]]()
        try:
            routes = self._begin()
            try:
                missing = self._bring(routes, counts)
            finally:
                routes.close()
        except BaseException:
            self._cancel()
            self._book(counts.values())
            raise
        self._book(counts.values())
        seconds = time.monotonic() - begun
        self._remember(missing, seconds, routes.source_readers)
        self.reporter.note(self._summary(missing, seconds, routes))

    def _bring(self, routes: PeerRoutes, counts: dict[int, tuple[int, int]]) -> int:
        """Answer the engines until all have the dataset; return the bytes that one has lacked."""
        waiting, pause, missing = dict.fromkeys(self.ranks, 0), FIRST_POLL_SECONDS, 0
        while waiting:
            for rank in list(waiting):
                state = self.cluster.connection.ask_engine(rank, ReadState(self.id))
                missing = max(missing, state.missing)
                waiting[rank] = state.done
                counts[rank] = state.reads, state.received
                if sentence := routes.note(rank, state):
                    self.reporter.note(sentence)
                if state.ended:
                    self._check_end(state)
                    del waiting[rank]
                elif self._answer(rank, state.wanted, routes):
                    pause = FIRST_POLL_SECONDS
            self.reporter.progress(self.data.name)(min([*waiting.values(), missing]), missing)
            time.sleep(pause)
            pause = min(pause * 1.5, LONGEST_POLL_SECONDS)
        return missing

    def _book(self, counts: Collection[tuple[int, int]]) -> None:
        """Enter the price of requests, and of bytes that have left, into the ledger."""
        source, row = place_of(self.data.store, self.data.manifest.uri), self.cluster.row
        if self._staged is not None:
            self._book_staging(self._staged, counts)
        listed = traffic_of(self.data.store) - self._billed
        self._billed += listed
        reads, received = (sum(each) for each in zip(*counts, strict=True)) if counts else (0, 0)
        if not source or not is_priced(source) or self.is_sent:
            return
        from jupyter_sky.knowledge import catalog

        traffic = TransferTraffic(listed + Traffic(reads=reads), moved=received)
        route = source, place_of_cluster(row)
        charge = price_transfer(catalog.load(), route, traffic)
        if charge.usd == 0:
            return
        what = _("egress of {gb:.3g} GB and {requests:,} requests from {source}").format(
            gb=received / 1e9, requests=reads + listed.reads + listed.writes, source=source
        )
        self.cluster.store.add_other_cost(row.id, what, charge.usd, time.time())

    def _book_staging(self, staged: StagedData, counts: Collection[tuple[int, int]]) -> None:
        """Enter the price of what went to scratch, and came from there, into the ledger."""
        if not is_priced(staged.place):
            return
        from jupyter_sky.knowledge import catalog

        reads, received = (sum(each) for each in zip(*counts, strict=True)) if counts else (0, 0)
        down = TransferTraffic(Traffic(reads=reads), moved=received)
        route = LOCAL, staged.place, place_of_cluster(self.cluster.row)
        charge = price_staging(catalog.load(), route, staged.traffic, down)
        if charge.usd:
            what = _("staging of {title} in {place}").format(
                title=self.data.title, place=staged.place
            )
            self.cluster.store.add_other_cost(self.cluster.row.id, what, charge.usd, time.time())

    def _remember(self, missing: int, seconds: float, machines: int) -> None:
        """Note that the machines have the dataset, and how fast it came."""
        self.cluster.datasets.add(self.data.dataset.id)
        source, row = place_of(self.data.store, self.data.manifest.uri), self.cluster.row
        if source and is_priced(source) and not self.is_sent and machines and seconds > 0:
            observe_transfer(source, place_of_cluster(row), PART_SIZE, machines, missing, seconds)

    def _begin(self) -> PeerRoutes:
        data = self.data
        packed, caches, link = data.packed, dict[int, str](), self.cluster.connection
        for rank in self.ranks:
            begin = BeginArrival(self.id, data.path, data.manifest.is_single, buffers=(packed,))
            caches[rank] = link.ask_engine(rank, begin).cache
        sizes = {identity: found.size for identity, found in data.objects.items()}
        return PeerRoutes(self.cluster, self.id, packed, caches, sizes)

    def _answer(self, rank: int, wanted: Sequence[str], routes: PeerRoutes) -> bool:
        """Send what an engine needs to get some objects; return whether there was something."""
        if not wanted or not routes.are_known:
            return False
        if routes.reads_source(rank):
            self._answer_from_source(rank, wanted)
            return True
        held = routes.held(wanted)
        plans = routes.plans({identity: self._sums_of(identity) for identity in held})
        return self._send_plans(rank, plans)

    def _sums_of(self, identity: str) -> ContentSums:
        """Return the checksums that the store tells of an object; it is asked once."""
        if identity not in self._sums:
            found = self.data.objects[identity]
            self._sums[identity] = () if self.is_sent else find_sums(self.data.store, found)
        return self._sums[identity]

    def _answer_from_source(self, rank: int, wanted: Sequence[str]) -> None:
        """Send signed requests for some objects, or their bytes."""
        if self._staged is not None:
            plans = self._staged.plans(wanted, self._show_staging)
        elif self._delegated is None:
            for identity in wanted:
                self._send_object(rank, identity, self.data.objects[identity])
            return
        else:
            plans = {
                identity: plan_download(self._delegated, self.data.objects[identity])
                for identity in wanted
            }
        self._sums |= {identity: plan.sums for identity, plan in plans.items() if plan.requests}
        self._send_plans(rank, plans)

    def _send_plans(self, rank: int, plans: Mapping[str, DownloadPlan]) -> bool:
        requests = {identity: plan_to_json(plan) for identity, plan in plans.items()}
        if requests:
            self.cluster.connection.ask_engine(rank, AddPlans(self.id, requests))
        return bool(requests)

    def _show_staging(self, done: int, total: int) -> None:
        """Show an upload to scratch, and let the engines hear that this machine is at work."""
        self.reporter.progress(self.data.name)(done, total)
        for rank in self.ranks:
            self.cluster.connection.ask_engine(rank, ReadState(self.id))

    def _send_object(self, rank: int, identity: str, found: StoredObject) -> None:
        """Send the bytes of an object, piece by piece."""
        link = self.cluster.connection
        for start in range(0, max(found.size, 1), PIECE_BYTES):
            span = Span(start, min(start + PIECE_BYTES, found.size))
            piece = read_part(self.data.store.read(found, span), self._connections)
            link.ask_engine(
                rank, AddPiece(self.id, identity, start, found.size, buffers=(memoryview(piece),))
            )

    def _check_end(self, state: TaskState) -> None:
        if state.error:
            message, __, hint = state.error.partition("\n")
            raise SkyStorageError(
                f"{self.data.option} {self.data.manifest.uri}: {message}",
                hint=hint or None,
            )

    def _cancel(self) -> None:
        for rank in self.ranks:
            if not self.cluster.connection.is_lost:
                self.cluster.connection.send_value_request(rank, Cancel(self.id))

    def _summary(self, missing: int, seconds: float, routes: PeerRoutes) -> str:
        data = self.data
        if not missing:
            return _("{path}: {title}: there already, 0 bytes moved").format(
                path=data.name, title=data.title
            )
        rest = data.manifest.nbytes - missing
        kept = _(", {rest} were there already").format(rest=format_size(rest)) if rest else ""
        if routes.source_readers < routes.machines:
            kept += _(", shared by {machines} machines").format(machines=routes.machines)
        rate = format_size(missing / max(seconds, 0.001))
        return _("{path}: {title}: brought in {seconds:.1f} s ({rate}/s){kept}").format(
            path=data.name, title=data.title, seconds=seconds, rate=rate, kept=kept
        )


# -- Routes of a dataset to the machines of a cluster: one reads its store, the others read -------
#
# The store is read once, however many machines there are. A machine that cannot read from the first
# one reads the store itself.


def choose_seed(missing: Mapping[int, int]) -> int:
    """Return the engine from whose machine the others read: that which lacks the fewest bytes.

    Parameters
    ----------
    missing
        Bytes that the machines of engines lack, by rank.

    Examples
    --------
    >>> choose_seed({0: 10, 1: 0, 2: 0})
    1
    """
    return min(missing, key=lambda rank: (missing[rank], rank))


class PeerRoutes:
    """Routes of one delivery.

    Parameters
    ----------
    cluster
        The machines.
    id
        Of the delivery.
    packed
        The dataset for a message to a machine.
    caches
        Names of the caches of engines by rank: those of one machine share one.
    sizes
        Bytes of objects by identity.
    """

    def __init__(
        self,
        cluster: ClusterHandle,
        id: str,
        packed: bytes,
        caches: Mapping[int, str],
        sizes: Mapping[str, int],
    ) -> None:
        self._cluster, self._id, self._packed = cluster, id, packed
        self._caches, self._sizes = caches, sizes
        self._missing: dict[int, int] = {}
        self._source_readers: set[str] = set()
        self._server: ServeReply | None = None
        self._has_asked = False

    def note(self, rank: int, state: TaskState) -> str:
        """Take in what an engine says about its machine; return a sentence for the user."""
        if state.listed:
            self._missing.setdefault(rank, state.missing)
        if not state.lost_peer or (self._seed, rank) in self._cluster.unreachable_peers:
            return ""
        self._cluster.unreachable_peers.add((self._seed, rank))
        return _(
            "node {rank} could not read the data from node {seed}, and gets them from their store"
        ).format(rank=rank, seed=self._seed)

    @property
    def _has_peers(self) -> bool:
        return self.machines > 1

    @property
    def are_known(self) -> bool:
        """Whether it is known which machine reads the source."""
        return not self._has_peers or len(self._missing) == len(self._caches)

    @property
    def _seed(self) -> int:
        return choose_seed(self._missing)

    def reads_source(self, rank: int) -> bool:
        """Return whether the machine of an engine gets the data from where they are."""
        cache, seed = self._caches[rank], self._seed if self._has_peers else rank
        if cache != self._caches[seed] and (seed, rank) not in self._cluster.unreachable_peers:
            if not self._has_asked:
                self._start_server()
            if self._server:
                return False
        self._source_readers.add(cache)
        return True

    @property
    def machines(self) -> int:
        """Number of machines."""
        return len(set(self._caches.values()))

    @property
    def source_readers(self) -> int:
        """Number of machines that got data from where they are."""
        return len(self._source_readers)

    def held(self, identities: Sequence[str]) -> list[str]:
        """Return those objects, of some, that the others can read by now."""
        return self._cluster.connection.ask_engine(self._seed, FindHeld(self._id, identities)).held

    def plans(self, sums: Mapping[str, ContentSums]) -> dict[str, DownloadPlan]:
        """Return the requests to the first machine for objects, whose checksums are given."""
        assert self._server is not None
        origin, key = self._server.origin, self._server.key
        return {
            identity: plan_parts(
                self._sizes[identity], known, partial(peer_request, origin, key, identity)
            )
            for identity, known in sums.items()
        }

    def close(self) -> None:
        """End the server of the first machine."""
        if self._server and not self._cluster.connection.is_lost:
            with suppress(SkyError):  # its engine is gone, and the server with it
                self._cluster.connection.ask_engine(self._seed, EndServe(self._id))

    def _start_server(self) -> None:
        """Let the first machine serve the dataset; none where it cannot."""
        self._has_asked = True
        with suppress(SkyError):
            self._server = self._cluster.connection.ask_engine(
                self._seed, Serve(self._id, buffers=(self._packed,))
            )
