"""Worker that carries out part requests: reads a span, checks it, writes it. Holds no credentials.

It needs the standard library and google-crc32c. `PartWorker` has threads of this process;
`worker_process` runs the same in a process of its own, here or on another machine. The request that
writes a part is asked for when the part has been read, so that its checksum can be signed.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

from ..translation import _
from .answers import error_of
from .checksums import crc32c, crc_from_base64
from .connections import Bytes, Connections, HttpAnswer
from .errors import (
    SkyChecksumMismatch,
    SkyConnectionLost,
    SkySourceChanged,
    SkyStorageError,
    SkyTargetExists,
)
from .file_parts import read_file_part, write_file_part
from .store import Checksums, PartRequest

SignWrite = Callable[[Checksums], PartRequest]


@dataclass(frozen=True, slots=True)
class PartJob:
    """One part to move.

    Attributes
    ----------
    id : int
        Number by which its outcome is known.
    read : PartRequest
        Request that reads it.
    md5 : bool
        Whether the target wants an MD5 as well.
    crc32c : int or None
        Sum that the bytes must have, where it is known before.
    """

    id: int
    read: PartRequest
    md5: bool = False
    crc32c: int | None = None


@dataclass(frozen=True, slots=True)
class PartOutcome:
    """End of a job: sums and tag of a part that is written, or an error.

    Attributes
    ----------
    id : int
        Of the job.
    sums : Checksums or None
        Of the bytes that were read; None where none were.
    tag : str
        Name that the target gave the part.
    sent, received : int
        Bytes that passed, also in vain.
    error : SkyStorageError or None
        Reason why it is not written.
    """

    id: int
    sums: Checksums | None = None
    tag: str = ""
    sent: int = 0
    received: int = 0
    error: SkyStorageError | None = None


class Worker(Protocol):
    """Carries out jobs and reports their outcomes, from any thread."""

    def submit(self, job: PartJob, sign_write: SignWrite) -> None:
        """Carry out a job, as soon as a thread is free."""
        ...

    def close(self) -> None:
        """End when the jobs that were submitted have ended."""
        ...


class PartWorker:
    """Threads of this process, as many as there are jobs at once, up to a limit.

    Parameters
    ----------
    report : callable
        Takes the outcome of each job, in the thread that carried it out.
    threads : int
        Limit.
    """

    def __init__(self, report: Callable[[PartOutcome], None], threads: int = 64) -> None:
        self._report = report
        self._jobs: SimpleQueue[tuple[PartJob, SignWrite] | None] = SimpleQueue()
        self._limit = threads
        self._threads: list[threading.Thread] = []
        self._waiting = 0
        self._lock = threading.Lock()
        self._connections = Connections()

    def submit(self, job: PartJob, sign_write: SignWrite) -> None:
        """Carry out a job, as soon as a thread is free."""
        with self._lock:
            self._waiting += 1
            if self._waiting > len(self._threads) and len(self._threads) < self._limit:
                thread = threading.Thread(target=self._run, name="sky-part-worker", daemon=True)
                self._threads.append(thread)
                thread.start()
        self._jobs.put((job, sign_write))

    def close(self) -> None:
        """End the threads when the jobs that were submitted have ended."""
        for __ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        buffer = bytearray()  # one for each thread, so that memory is bounded and not zeroed anew
        while (entry := self._jobs.get()) is not None:
            if len(buffer) < entry[0].read.span.size:
                buffer = bytearray(entry[0].read.span.size)
            outcome = carry_part(*entry, self._connections, buffer)
            with self._lock:
                self._waiting -= 1
            self._report(outcome)
        self._connections.close()


def carry_part(
    job: PartJob,
    sign_write: SignWrite,
    connections: Connections,
    buffer: bytearray | None = None,
) -> PartOutcome:
    """Read a part, check it, ask for the request that writes it, write it."""
    received = sent = 0
    sums = None
    try:
        data = read_part(job.read, connections, buffer)
        received = len(data)
        sums = Checksums(crc32c(data), _md5(data) if job.md5 else b"")
        if job.crc32c not in (None, sums.crc32c):
            raise SkyChecksumMismatch(
                _("{subject} returned other bytes than the source has").format(
                    subject=job.read.subject
                )
            )
        request = sign_write(sums)
        sent = len(data)
        return PartOutcome(job.id, sums, write_part(request, data, connections), sent, received)
    except SkyStorageError as error:
        return PartOutcome(job.id, sums, sent=sent, received=received, error=error)
    except Exception as error:  # a defect must end the transfer, not a thread of it
        failure = SkyStorageError(f"{job.read.subject}: {type(error).__name__}: {error}")
        return PartOutcome(job.id, sent=sent, received=received, error=failure)


def read_part(
    request: PartRequest, connections: Connections, into: bytearray | None = None
) -> Bytes:
    """Return the bytes that a request reads, in full and of the version that it names.

    Parameters
    ----------
    request : PartRequest
        From `Store.read`.
    connections : Connections
        Connections of this process.
    into : bytearray, optional
        Buffer of which a view is returned, if the bytes fit.

    Raises
    ------
    SkySourceChanged
        The object is another one by now.
    SkyChecksumMismatch
        The store's checksum of the whole object came along, and differs.
    SkyConnectionLost
        The answer broke off; the same request may succeed later.
    """
    if request.url.startswith("file:"):
        return read_file_part(request, into)
    answer = connections.request(request.method, request.url, request.headers, into=into)
    if answer.status == 412:
        raise SkySourceChanged(
            _("{subject} reads an object that has changed").format(subject=request.subject)
        )
    if answer.status == 416 and request.span.size == 0:
        return b""
    if answer.status not in (200, 206):
        raise error_of(answer, request.subject)
    data = answer.body
    if answer.status == 200 and len(data) > request.span.size and "Range" in request.headers:
        data = data[request.span.start : request.span.stop]  # a store that ignores ranges
    if len(data) != request.span.size:
        raise SkyConnectionLost(
            _("{subject} returned {data_count} bytes").format(
                subject=request.subject, data_count=len(data)
            )
        )
    _compare_with_header(request, answer, data)
    return data


def write_part(request: PartRequest, data: Bytes, connections: Connections) -> str:
    """Write bytes and return the tag that the store gave them."""
    if request.url.startswith("file:"):
        return write_file_part(request, data)
    answer = connections.request(request.method, request.url, request.headers, data)
    if answer.status == 412:
        raise SkyTargetExists(
            _("{subject}: another has written it").format(subject=request.subject)
        )
    if answer.status >= 300:
        raise error_of(answer, request.subject)
    headers = answer.headers
    return headers.get("x-goog-generation") or (headers.get("ETag") or "").strip('"')


def _compare_with_header(request: PartRequest, answer: HttpAnswer, data: Bytes) -> None:
    """Compare a whole object with the checksum that came in its header."""
    if answer.status != 200:
        return
    text = answer.headers.get("x-amz-checksum-crc32c") or ""
    if not text:
        google = answer.headers.get("x-goog-hash") or ""
        text = google.partition("crc32c=")[2].partition(",")[0]
    if text and "-" not in text and crc_from_base64(text) != crc32c(data):
        raise SkyChecksumMismatch(
            _("{subject} returned other bytes than the store has").format(subject=request.subject)
        )


def _md5(data: Bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()
