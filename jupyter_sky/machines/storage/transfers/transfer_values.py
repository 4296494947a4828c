"""Options and result of a transfer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jupyter_sky.machines.storage.stores.part_worker import PartWorker, Worker
from jupyter_sky.machines.storage.stores.store import ALWAYS, MIB, Condition, Store, StoredObject
from jupyter_sky.machines.storage.stores.traffic import TransferTraffic
from jupyter_sky.machines.storage.transfers.movers import Report
from jupyter_sky.machines.storage.transfers.progress import Progress


@dataclass(frozen=True)
class TransferOptions:
    """Options of a transfer.

    Attributes
    ----------
    condition : Condition
        Checked by the target for every object at its publication.
    part_size : int
        Bytes; 0 lets the store choose.
    memory : int
        Bytes of parts in flight.
    attempts : int
        Of one part.
    price : callable
        Returns dollars from the requests and bytes of both ends.
    start_worker : callable
        Starts a worker that reports to its argument.
    read_store, write_store : Store, optional
        Stores whose requests the worker may hold, where it is on another machine.
    """

    condition: Condition = ALWAYS
    part_size: int = 0
    memory: int = 128 * MIB
    attempts: int = 10
    price: Callable[[TransferTraffic], float] = lambda traffic: 0.0
    start_worker: Callable[[Report], Worker] = PartWorker
    read_store: Store | None = None
    write_store: Store | None = None


@dataclass(frozen=True)
class TransferResult:
    """End of a transfer.

    Attributes
    ----------
    objects : mapping
        What was published, by key.
    skipped : int
        Objects that an earlier transfer had published.
    unverified : int
        Objects whose source tells no checksum of the whole.
    progress : Progress
        Final counts.
    """

    objects: Mapping[str, StoredObject]
    skipped: int
    unverified: int
    progress: Progress
