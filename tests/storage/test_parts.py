from __future__ import annotations

import os
import threading
from itertools import pairwise
from queue import SimpleQueue

import pytest

from jupyter_sky.machines.storage.stores.checksums import (
    combine_crc32c,
    crc32c,
    crc_from_base64,
    crc_to_base64,
)
from jupyter_sky.machines.storage.stores.errors import SkyStorageError, backoff
from jupyter_sky.machines.storage.stores.object_transfer import ObjectTransfer, TransferItem
from jupyter_sky.machines.storage.stores.part_worker import PartOutcome
from jupyter_sky.machines.storage.stores.store import (
    MIB,
    Capability,
    Part,
    Span,
    StoredObject,
    choose_part_size,
    part_count,
    part_span,
)
from jupyter_sky.machines.storage.transfers.movers import CopyMover
from jupyter_sky.machines.storage.transfers.transfer import Parallelism

from .memory_store import MemoryStore

LIMITS = Capability()


@pytest.mark.parametrize(
    ("size", "megabytes"),
    [(0, 16), (1, 16), (100 * 10**9, 16), (9990 * 16 * MIB, 16), (10_001 * 16 * MIB, 17)],
)
def test_parts_grow_with_the_object(size, megabytes):
    part_size = choose_part_size(size, LIMITS)
    assert part_size == megabytes * MIB
    assert part_count(size, part_size) <= LIMITS.max_parts


def test_largest_object_fits_and_a_larger_one_is_refused():
    assert part_count(LIMITS.max_object, choose_part_size(LIMITS.max_object, LIMITS)) <= 10_000
    with pytest.raises(SkyStorageError, match="is more than"):
        choose_part_size(LIMITS.max_object + 10**12, LIMITS)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 32, 33])
def test_parts_cover_an_object_once(size):
    spans = [part_span(number + 1, size, 16) for number in range(part_count(size, 16))]
    assert [span.start for span in spans] == list(range(0, max(1, size), 16))
    assert sum(span.size for span in spans) == size and spans[-1].stop == size


@pytest.mark.parametrize("cuts", [[], [0], [1, 2, 3], [7000, 7000], [9999]])
def test_sums_of_parts_combine(cuts):
    data = os.urandom(10_000)
    edges = [0, *cuts, len(data)]
    pieces = [data[a:b] for a, b in pairwise(edges)]
    assert combine_crc32c((crc32c(piece), len(piece)) for piece in pieces) == crc32c(data)
    assert crc32c(bytearray(data)) == crc32c(data)
    assert crc_from_base64(crc_to_base64(crc32c(data))) == crc32c(data)


def test_parallelism_doubles_while_the_rate_grows():
    parallelism, limits = Parallelism(), []
    for second, count in enumerate([0, 100, 200, 400, 410, 410]):
        parallelism.on_bytes(count, float(second))
        limits.append(parallelism.limit)
    assert limits == [4, 8, 16, 32, 16, 16]  # the last doubling did not help


def test_parallelism_halves_once_for_a_storm_and_comes_back_slowly():
    parallelism = Parallelism(limit=32)
    for _ in range(10):
        parallelism.on_busy(10.0)
    assert parallelism.limit == 16
    for second in range(12, 15):
        parallelism.on_bytes(10, float(second))
    assert parallelism.limit == 18
    parallelism.limit = 1
    parallelism.on_busy(20.0)
    assert parallelism.limit == 1


def test_waits_grow_and_never_fall_below_what_the_store_asks():
    assert [backoff(attempt, 0.0, 1.0) for attempt in (1, 2, 3, 20)] == [0.2, 0.4, 0.8, 20.0]
    assert backoff(1, 7.0, 0.0) == 7.0


class SlowUpload:
    """Upload whose copies wait until they may go on."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()

    def copy(self, number: int, source: object, obj: StoredObject) -> Part:
        assert self.may_go_on.wait(5)
        return Part(number, Span(0, 1), None, obj.version)


def test_copies_that_wait_while_their_object_begins_anew_are_reported() -> None:
    """The transfer waits for the outcome of each part that it has started."""
    outcomes: SimpleQueue[PartOutcome] = SimpleQueue()
    source = MemoryStore.of("k")
    mover = CopyMover(source, outcomes.put, threads=1)  # type: ignore[arg-type]
    old, upload = StoredObject("k", 2, "v1"), SlowUpload()
    transfer = ObjectTransfer(TransferItem(old, "k"), upload)  # type: ignore[arg-type]
    mover.submit(1, transfer, 1)
    mover.submit(2, transfer, 2)
    transfer.upload = None
    transfer.restart(StoredObject("k", 2, "v2"))
    upload.may_go_on.set()
    assert [outcomes.get(timeout=5).tag for _ in range(2)] == ["v1", "v1"]
    mover.close()
