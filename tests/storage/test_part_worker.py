"""Threads that carry parts: what they take at once, what waits, and what their buffers keep."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from queue import SimpleQueue

from jupyter_sky.machines.storage.stores.file_parts import file_url
from jupyter_sky.machines.storage.stores.files import FilesStore
from jupyter_sky.machines.storage.stores.part_worker import (
    KEPT,
    NOTHING,
    Buffers,
    Limits,
    PartJob,
    PartOutcome,
    PartWorker,
    SignWrite,
)
from jupyter_sky.machines.storage.stores.store import Checksums, PartRequest, Span
from jupyter_sky.machines.storage.transfers.transfer import Transfer, TransferItem, TransferOptions

PART = 1000


class Signer:
    """Signs no request before it may: parts that are carried wait here."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._may_go_on = threading.Semaphore(0)
        self.asked: SimpleQueue[int] = SimpleQueue()

    def sign(self, number: int) -> SignWrite:
        def sign(sums: Checksums) -> PartRequest:
            self.asked.put(number)
            assert self._may_go_on.acquire(timeout=10)
            return PartRequest("PUT", file_url(self._folder / f"{number}"), {}, Span(0, PART))

        return sign

    def release(self, count: int = 1) -> None:
        self._may_go_on.release(count)

    def next(self, count: int) -> set[int]:
        return {self.asked.get(timeout=10) for _ in range(count)}


def job(folder: Path, number: int) -> PartJob:
    return PartJob(number, PartRequest("GET", file_url(folder / "data"), {}, Span(0, PART)))


def start(folder: Path, limits: Limits, count: int) -> tuple[PartWorker, Signer, list[PartOutcome]]:
    outcomes: list[PartOutcome] = []
    (folder / "data").write_bytes(bytes(PART))
    worker, signer = PartWorker(outcomes.append), Signer(folder)
    worker.limit(limits)
    for number in range(count):
        worker.submit(job(folder, number), signer.sign(number))
    return worker, signer, outcomes


def test_worker_carries_no_more_parts_than_it_may(tmp_path: Path) -> None:
    worker, signer, outcomes = start(tmp_path, Limits(parts=2), 5)
    assert signer.next(2) == {0, 1} and signer.asked.empty()
    worker.limit(Limits(parts=3))
    assert signer.next(1) == {2} and signer.asked.empty()
    signer.release(5)
    worker.close()
    assert sorted(outcome.id for outcome in outcomes) == [0, 1, 2, 3, 4]
    assert not any(outcome.error for outcome in outcomes)


def test_worker_carries_no_more_bytes_than_it_may(tmp_path: Path) -> None:
    worker, signer, outcomes = start(tmp_path, Limits(bytes=3 * PART - 1), 4)
    assert signer.next(2) == {0, 1} and signer.asked.empty()
    signer.release(4)
    worker.close()
    assert len(outcomes) == 4


def test_lower_limit_holds_for_jobs_that_wait(tmp_path: Path) -> None:
    worker, signer, outcomes = start(tmp_path, Limits(parts=3), 6)
    signer.next(3)
    worker.limit(Limits(parts=1))
    signer.release(2)
    while len(outcomes) < 2:
        time.sleep(0.001)
    assert signer.asked.empty(), "one of the three is still carried"
    signer.release(1)
    assert signer.next(1) == {3} and signer.asked.empty()
    signer.release(3)
    worker.close()
    assert len(outcomes) == 6


def test_jobs_that_wait_are_given_up_and_reported(tmp_path: Path) -> None:
    worker, signer, outcomes = start(tmp_path, Limits(parts=1), 3)
    assert signer.next(1) == {0}
    worker.limit(NOTHING)
    assert [(outcome.id, bool(outcome.error)) for outcome in outcomes] == [(1, True), (2, True)]
    signer.release(1)
    worker.close()
    assert outcomes[2].id == 0 and not outcomes[2].error


class RecordingWorker(PartWorker):
    """Worker that holds jobs until it has as many jobs as the test expects."""

    expected = 8
    largest = 0

    def __init__(self, report) -> None:
        super().__init__(report)
        self._waiting: list[tuple[PartJob, SignWrite]] = []

    def submit(self, job: PartJob, sign_write: SignWrite) -> None:
        self._waiting.append((job, sign_write))
        type(self).largest = max(self.largest, len(self._waiting))
        if len(self._waiting) == self.expected:
            for entry in self._waiting:
                super().submit(*entry)
            type(self).expected = 1
            self._waiting.clear()


def test_transfer_gives_each_thread_a_part_ahead(tmp_path: Path) -> None:
    """A thread need not wait for the decision about its next part."""
    content = os.urandom(16 * PART)
    for name in ("from", "to"):
        (tmp_path / name).mkdir()
    (tmp_path / "from" / "big").write_bytes(content)
    source, target = FilesStore(tmp_path / "from"), FilesStore(tmp_path / "to")
    options = TransferOptions(part_size=PART, start_worker=RecordingWorker)
    Transfer(source, target, [TransferItem(source.stat("big"), "big")], options=options).run()
    assert (tmp_path / "to" / "big").read_bytes() == content
    assert RecordingWorker.largest == 8, "four are carried, four wait"


def test_buffers_of_parts_are_used_again_and_do_not_pile_up() -> None:
    buffers = Buffers()
    with buffers.lend(KEPT) as first, buffers.lend(KEPT) as second:
        assert first is not second
    with buffers.lend(KEPT) as again:
        assert again is first or again is second
    with buffers.lend(4 * KEPT) as large:
        assert len(large) == 4 * KEPT
    with buffers.lend(KEPT) as small:
        assert len(small) == KEPT, "a small part must not hold a large buffer"
    with buffers.lend(10) as tiny:
        assert len(tiny) == 10
