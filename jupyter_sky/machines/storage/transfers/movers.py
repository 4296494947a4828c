"""Two ways in which a part reaches its target: through a worker, or by a copy inside the store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from jupyter_sky.machines.storage.stores.errors import SkyStorageError
from jupyter_sky.machines.storage.stores.object_transfer import ObjectTransfer
from jupyter_sky.machines.storage.stores.part_worker import Limits, PartJob, PartOutcome, Worker
from jupyter_sky.machines.storage.stores.s3 import S3Upload
from jupyter_sky.machines.storage.stores.store import MIB, Store, StoredObject, Upload

Report = Callable[[PartOutcome], None]


class Mover(Protocol):
    """Moves parts and reports their outcomes, from any thread."""

    part_size: int
    """Bytes of a part that suit this way; 0 lets the store choose."""

    def submit(self, number: int, transfer: ObjectTransfer, part: int) -> None:
        """Move a part; its outcome will bear `number`."""
        ...

    def limit(self, limits: Limits) -> None:
        """Carry no more than this at once from now on."""
        ...

    def revive(self) -> None:
        """Start again after the worker has been lost."""
        ...

    def close(self) -> None:
        """End."""
        ...


class WorkerMover:
    """Parts pass through a worker, in this process or elsewhere.

    Parameters
    ----------
    source, target : Store
        Stores by whose requests the worker reads and writes.
    start : callable
        Starts the worker.
    report : callable
        Takes the outcome of each part.
    """

    part_size = 0

    def __init__(
        self, source: Store, target: Store, start: Callable[[Report], Worker], report: Report
    ) -> None:
        self._source, self._target = source, target
        self._start, self._report = start, report
        self._with_md5 = target.capability.part_checksum == "md5"
        self._worker = start(report)
        self._limits = Limits()

    def submit(self, number: int, transfer: ObjectTransfer, part: int) -> None:
        """Have the worker read, check and write a part."""
        upload, source = transfer.upload, transfer.item.source
        assert upload is not None
        request = self._source.read(source, transfer.span(part))
        is_whole = transfer.count == 1
        told = source.sums.get("crc32c") if is_whole else None
        told_md5 = source.sums.get("md5", "") if is_whole and told is None else ""
        crc32c = int(told, 16) if told else None
        job = PartJob(number, request, self._with_md5, crc32c, told_md5)
        self._worker.submit(job, lambda sums: self._as_target(upload).write(part, sums))

    def _as_target(self, upload: Upload) -> Upload:
        """Return an upload as the store of the worker signs for it."""
        if not isinstance(upload, S3Upload) or upload.store is self._target:
            return upload
        return self._target.begin(
            upload.key,
            upload.size,
            part_size=upload.part_size,
            condition=upload.condition,
            upload_id=upload.id,
        )

    def limit(self, limits: Limits) -> None:
        """Tell the worker, where that changes something."""
        if limits != self._limits:
            self._limits = limits
            self._worker.limit(limits)

    def revive(self) -> None:
        """Start another worker."""
        self._worker.close()
        self._worker = self._start(self._report)
        self._limits = Limits()

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
        # taken now: an object that begins anew meanwhile has another upload, or none
        assert transfer.upload is not None
        self._threads.submit(self._copy, number, transfer.upload, transfer.item.source, part)

    def limit(self, limits: Limits) -> None:
        """Nothing is kept in memory here; the threads bound the number."""

    def revive(self) -> None:
        """Nothing is ever lost here."""

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()

    def _copy(self, number: int, upload: Upload, source: StoredObject, part: int) -> None:
        try:
            copied = upload.copy(part, self._source, source)
            self._report(PartOutcome(number, tag=copied.tag, received=copied.span.size))
        except SkyStorageError as error:
            self._report(PartOutcome(number, error=error))
        except Exception as error:  # a defect must end the transfer, not a thread of it
            self._report(PartOutcome(number, error=SkyStorageError(f"{error!r}")))
