"""Worker that carries out part requests: reads a span, checks it, writes it. Holds no credentials.

It needs the standard library and google-crc32c. `PartWorker` has threads of this process;
`worker_process` runs the same in a process of its own, here or on another machine. The request that
writes a part is asked for when the part has been read, so that its checksum can be signed.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from jupyter_sky.base.requests.quantities import format_size
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.answers import error_of, raise_for_status
from jupyter_sky.machines.storage.stores.checksums import crc32c, crc_from_base64
from jupyter_sky.machines.storage.stores.connections import Bytes, Connections, HttpAnswer
from jupyter_sky.machines.storage.stores.errors import (
    SkyChecksumMismatch,
    SkyConnectionLost,
    SkySourceChanged,
    SkyStorageError,
    SkyTargetExists,
)
from jupyter_sky.machines.storage.stores.file_parts import read_file_part, write_file_part
from jupyter_sky.machines.storage.stores.peers import is_of_peer, read_peer_part
from jupyter_sky.machines.storage.stores.store import MIB, Checksums, PartRequest
from jupyter_sky.machines.storage.stores.traffic import Tally

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
    told_md5 : str
        MD5 that they must have, in hexadecimal; empty where it is not known.
    """

    id: int
    read: PartRequest
    md5: bool = False
    crc32c: int | None = None
    told_md5: str = ""


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
    reads, writes : int
        Requests that were sent, also in vain.
    error : SkyStorageError or None
        Reason why it is not written.
    """

    id: int
    sums: Checksums | None = None
    tag: str = ""
    sent: int = 0
    received: int = 0
    error: SkyStorageError | None = None
    reads: int = 0
    writes: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Parts and bytes that a worker carries at once; jobs beyond them wait in its queue.

    No part at all means that the jobs of the queue are given up.
    """

    parts: int = 64
    bytes: int = sys.maxsize

    def allow(self, parts: int, size: int, more: int) -> bool:
        """Return whether a part of `more` bytes may start beside `parts` of `size` in all.

        Examples
        --------
        >>> Limits(4, 100).allow(3, 60, 50), Limits(4, 100).allow(0, 0, 200)
        (False, True)
        """
        return parts < self.parts and (not parts or size + more <= self.bytes)


NOTHING = Limits(parts=0)


class Worker(Protocol):
    """Carries out jobs and reports their outcomes, from any thread."""

    def submit(self, job: PartJob, sign_write: SignWrite) -> None:
        """Carry out a job, as soon as a thread is free."""
        ...

    def limit(self, limits: Limits) -> None:
        """Carry no more than this at once from now on."""
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
        Limit until another one is set.
    """

    def __init__(self, report: Callable[[PartOutcome], None], threads: int = 64) -> None:
        self._report = report
        self._jobs: deque[tuple[PartJob, SignWrite]] = deque()
        self._limits = Limits(threads)
        self._threads: list[threading.Thread] = []
        self._carried = self._carried_bytes = 0
        self._is_closing = False
        self._changed = threading.Condition(threading.Lock())
        self._buffers = Buffers()
        self._connections = Connections()

    def submit(self, job: PartJob, sign_write: SignWrite) -> None:
        """Carry out a job, as soon as a thread is free."""
        with self._changed:
            self._jobs.append((job, sign_write))
            self._start()
            if self._threads:
                return
            self._jobs.pop()
        error = SkyStorageError(_("no thread can be started, as memory or processes are used up"))
        self._report(PartOutcome(job.id, error=error))

    def limit(self, limits: Limits) -> None:
        """Carry no more than this at once from now on."""
        with self._changed:
            self._limits = limits
            self._start()
            withdrawn = () if limits.parts else tuple(self._jobs)
            if withdrawn:
                self._jobs.clear()
        for job, __ in withdrawn:
            error = SkyStorageError(_("{subject} was not begun").format(subject=job.read.subject))
            self._report(PartOutcome(job.id, error=error))

    def close(self) -> None:
        """End the threads when the jobs that were submitted have ended."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        """Wake a thread for a job that may start, or start one that is missing."""
        wanted = min(self._carried + len(self._jobs), self._limits.parts)
        if wanted > len(self._threads):
            thread = threading.Thread(target=self._run, name="sky-part-worker", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the others carry its jobs too, one after another
                self._changed.notify()
            else:
                self._threads.append(thread)
        elif self._may_start():
            self._changed.notify()

    def _run(self) -> None:
        finished = None
        while entry := self._take(finished):
            finished = entry[0]
            self._report(self._carry(*entry))
        self._connections.close()

    def _carry(self, job: PartJob, sign_write: SignWrite) -> PartOutcome:
        size = job.read.span.size
        try:
            with self._buffers.lend(size) as buffer:
                return carry_part(job, sign_write, self._connections, buffer)
        except MemoryError:
            error = SkyStorageError(
                _("{subject}: there is no memory for a part of {size}").format(
                    subject=job.read.subject, size=format_size(size)
                ),
                hint=_("end other programs, or move less at once"),
            )
            return PartOutcome(job.id, error=error)

    def _take(self, finished: PartJob | None) -> tuple[PartJob, SignWrite] | None:
        """Return the next job when it may start, None when no more will come."""
        with self._changed:
            if finished:
                self._carried -= 1
                self._carried_bytes -= finished.read.span.size
            while not self._may_start():
                if self._is_closing and not self._jobs:
                    self._changed.notify_all()
                    return None
                self._changed.wait()
            entry = self._jobs.popleft()
            self._carried += 1
            self._carried_bytes += entry[0].read.span.size
            if self._jobs:
                self._start()  # for the job after this one
            return entry

    def _may_start(self) -> bool:
        if not self._jobs:
            return False
        size = self._jobs[0][0].read.span.size
        return self._limits.allow(self._carried, self._carried_bytes, size)


def carry_part(
    job: PartJob,
    sign_write: SignWrite,
    connections: Connections,
    buffer: bytearray | None = None,
) -> PartOutcome:
    """Read a part, check it, ask for the request that writes it, write it."""
    sums, tag, error = None, "", None
    reading, writing = Tally(), Tally()
    try:
        data = read_part(job.read, connections, buffer, reading)
        sums = Checksums(crc32c(data), _md5(data) if job.md5 or job.told_md5 else b"")
        is_told = job.crc32c in (None, sums.crc32c)
        if not is_told or job.told_md5 not in ("", sums.md5.hex()):
            raise SkyChecksumMismatch(
                _("{subject} returned other bytes than the source has").format(
                    subject=job.read.subject
                )
            )
        tag = write_part(sign_write(sums), data, connections, writing)
    except SkyStorageError as failure:
        error = failure
    except Exception as failure:  # a defect must end the transfer, not a thread of it
        subject, kind = job.read.subject, type(failure).__name__
        sums, error = None, SkyStorageError(f"{subject}: {kind}: {failure}")
    counts = writing.sent, reading.received
    return PartOutcome(job.id, sums, tag, *counts, error, reading.requests, writing.requests)


def read_part(
    request: PartRequest,
    connections: Connections,
    into: bytearray | None = None,
    tally: Tally | None = None,
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
    tally : Tally, optional
        Counts the requests and their bytes.

    Raises
    ------
    SkySourceChanged
        The object is another one by now.
    SkyChecksumMismatch
        The store's checksum of the whole object came along, and differs.
    SkyPeerLost
        Another machine of the cluster cannot be read from.
    SkyConnectionLost
        The answer broke off; the same request may succeed later.
    """
    tally = tally or Tally()
    if request.url.startswith("file:"):
        tally.received += request.span.size
        return read_file_part(request, into)
    if request.url.startswith("ssh:"):
        from jupyter_sky.machines.storage.stores.ssh_channel import read_ssh_part

        tally.received += request.span.size
        return read_ssh_part(request)
    if is_of_peer(request):
        tally.received += request.span.size
        return read_peer_part(request, connections, into)
    answer = connections.request(
        request.method, request.url, request.headers, into=into, tally=tally
    )
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
    if answer.status == 206:
        _compare_range(request, answer)
    if len(data) != request.span.size:
        raise SkyConnectionLost(
            _("{subject} returned {data_count} bytes").format(
                subject=request.subject, data_count=len(data)
            )
        )
    _compare_with_header(request, answer, data)
    return data


def write_part(
    request: PartRequest, data: Bytes, connections: Connections, tally: Tally | None = None
) -> str:
    """Write bytes and return the tag that the store gave them; `tally` counts them."""
    tally = tally or Tally()
    if request.url.startswith("file:"):
        tally.sent += len(data)
        return write_file_part(request, data)
    if request.url.startswith("ssh:"):
        from jupyter_sky.machines.storage.stores.ssh_channel import write_ssh_part

        tally.sent += len(data)
        return write_ssh_part(request, data)
    answer = connections.request(request.method, request.url, request.headers, data, tally=tally)
    if answer.status == 412:
        raise SkyTargetExists(
            _("{subject}: another has written it").format(subject=request.subject)
        )
    raise_for_status(answer, request.subject)  # a success may hold an error
    headers = answer.headers
    return headers.get("x-goog-generation") or (headers.get("ETag") or "").strip('"')


def _compare_range(request: PartRequest, answer: HttpAnswer) -> None:
    """Compare the range that came with the one that was asked for."""
    told = answer.headers.get("Content-Range").removeprefix("bytes ").partition("/")[0]
    if told and told != f"{request.span.start}-{request.span.stop - 1}":
        raise SkyConnectionLost(
            _("{subject} returned the bytes {told}").format(subject=request.subject, told=told)
        )


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


# -- Buffers of parts, used again because new ones cost zeros and page faults ---------------------

KEPT = MIB
"""Smallest size of a buffer that is worth keeping."""


class Buffers:
    """Buffers that are lent to one user after another.

    Together they are no larger than twice what was lent at once: those of another size are let go
    before a new one is made.
    """

    def __init__(self) -> None:
        self._free: list[bytearray] = []
        self._lock = threading.Lock()

    @contextmanager
    def lend(self, size: int) -> Iterator[bytearray]:
        """Lend a buffer of at least `size` bytes."""
        if size < KEPT:
            yield bytearray(size)
            return
        buffer = self._find(size) or bytearray(size)
        try:
            yield buffer
        finally:
            with self._lock:
                self._free.append(buffer)

    def _find(self, size: int) -> bytearray | None:
        """Return a free buffer that fits; let go of the others where none does."""
        with self._lock:
            for number, free in enumerate(self._free):
                if size <= len(free) <= 2 * size:
                    return self._free.pop(number)
            self._free.clear()
            return None
