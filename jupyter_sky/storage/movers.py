"""Two ways in which a part reaches its target: through a worker, or by a copy inside the store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from .errors import SkyStorageError
from .object_transfer import ObjectTransfer
from .part_worker import PartJob, PartOutcome, Worker
from .store import MIB, Store

Report = Callable[[PartOutcome], None]


class Mover(Protocol):
    """Moves parts and reports their outcomes, from any thread."""

    part_size: int
    """Bytes of a part that suit this way; 0 lets the store choose."""

    def submit(self, number: int, transfer: ObjectTransfer, part: int) -> None:
        """Move a part; its outcome will bear `number`."""
        ...

    def revive(self) -> None:
        """Start again after the worker has been lost."""
        ...

    def close(self) -> None:
        """End."""
        ...


class WorkerMover:
    """Parts pass through a worker, in this process or elsewhere."""

    part_size = 0

    def __init__(
        self, source: Store, target: Store, start: Callable[[Report], Worker], report: Report
    ) -> None:
        self._source, self._start, self._report = source, start, report
        self._with_md5 = target.capability.part_checksum == "md5"
        self._worker = start(report)

    def submit(self, number: int, transfer: ObjectTransfer, part: int) -> None:
        """Have the worker read, check and write a part."""
        upload, source = transfer.upload, transfer.item.source
        assert upload is not None
        request = self._source.read(source, transfer.span(part))
        is_whole = transfer.count == 1
        told = source.sums.get("crc32c") if is_whole else None
        with_md5 = self._with_md5 or (is_whole and "md5" in source.sums and told is None)
        job = PartJob(number, request, with_md5, int(told, 16) if told else None)
        self._worker.submit(job, lambda sums: upload.write(part, sums))

    def revive(self) -> None:
        """Start another worker."""
        self._worker.close()
        self._worker = self._start(self._report)

    def close(self) -> None:
        """End the worker."""
        self._worker.close()


class CopyMover:
    """Parts are copied inside the store; no byte passes through a machine."""

    part_size = 256 * MIB

    def __init__(self, source: Store, report: Report, threads: int = 16) -> None:
        self._source, self._report = source, report
        self._threads = ThreadPoolExecutor(threads, "sky-copy")

    def submit(self, number: int, transfer: ObjectTransfer, part: int) -> None:
        """Have the store copy a part."""
        self._threads.submit(self._copy, number, transfer, part)

    def revive(self) -> None:
        """Nothing is ever lost here."""

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()

    def _copy(self, number: int, transfer: ObjectTransfer, part: int) -> None:
        assert transfer.upload is not None
        try:
            copied = transfer.upload.copy(part, self._source, transfer.item.source)
            self._report(PartOutcome(number, tag=copied.tag))
        except SkyStorageError as error:
            self._report(PartOutcome(number, error=error))
        except Exception as error:  # a defect must end the transfer, not a thread of it
            self._report(PartOutcome(number, error=SkyStorageError(f"{error!r}")))
