"""Routes of a dataset to the machines of a cluster: one reads its store, the others read from it.

The store is read once, however many machines there are. A machine that cannot read from the first
one reads the store itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.peers import peer_request
from jupyter_sky.machines.storage.transfers.downloads import ContentSums, DownloadPlan, plan_parts

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import ClusterHandle


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
        self._server: Mapping[str, str] | None = None

    def note(self, rank: int, state: Mapping[str, Any]) -> str:
        """Take in what an engine says about its machine; return a sentence for the user."""
        if state["listed"]:
            self._missing.setdefault(rank, state["missing"])
        if not state["lost_peer"] or (self._seed, rank) in self._cluster.unreachable_peers:
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
            if self._server is None:
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
        return self._ask_seed("held", identities=identities)["held"]

    def plans(self, sums: Mapping[str, ContentSums]) -> dict[str, DownloadPlan]:
        """Return the requests to the first machine for objects, whose checksums are given."""
        assert self._server is not None
        origin, key = self._server["origin"], self._server["key"]
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
                self._ask_seed("end_serve")

    def _start_server(self) -> None:
        """Let the first machine serve the dataset; none where it cannot."""
        link = self._cluster.connection
        request = link.send_value_request(
            self._seed, "data", [self._packed], step="serve", id=self._id
        )
        try:
            self._server = link.reply_content(link.wait(request))
        except SkyError:
            self._server = {}

    def _ask_seed(self, step: str, **content: Any) -> Any:
        return self._cluster.connection.ask_engine(
            self._seed, "data", step=step, id=self._id, **content
        )
