"""Workers that move the files of an engine's machine: there by signed requests, or through here."""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.wire.data_requests import EndExchange, Exchange, ReadPart
from jupyter_sky.machines.storage.stores.checksums import crc32c
from jupyter_sky.machines.storage.stores.connections import Connections
from jupyter_sky.machines.storage.stores.errors import SkyStorageError, SkyWorkerLost
from jupyter_sky.machines.storage.stores.part_worker import (
    Limits,
    PartJob,
    PartOutcome,
    SignWrite,
    write_part,
)
from jupyter_sky.machines.storage.stores.store import MIB, Checksums
from jupyter_sky.machines.storage.stores.traffic import Tally
from jupyter_sky.machines.storage.stores.worker_process import decode_outcome, encode_request

if TYPE_CHECKING:
    from jupyter_sky.machines.engines.client.connection import ClusterConnection

Report = Callable[[PartOutcome], None]
POLL_SECONDS, LONGEST_POLL_SECONDS = 0.005, 0.2
RELAYED_PARTS = 4
"""Parts that pass through this machine at once: 64 MiB of memory."""
RELAYED_PIECE_BYTES = 4 * MIB


class EngineWorker:
    """Worker on an engine's machine that carries out requests signed here; see `Worker`.

    Parameters
    ----------
    report
        Takes the outcome of each job, in a thread of this object.
    link, rank
        Connection to the engine, and its rank.
    """

    def __init__(self, report: Report, link: ClusterConnection, rank: int) -> None:
        self._report, self._link, self._rank = report, link, rank
        self._id = uuid.uuid4().hex
        self._signers: dict[int, SignWrite] = {}
        self._messages: deque[dict[str, Any]] = deque()
        self._work = threading.Condition()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="sky-engine-worker", daemon=True)
        self._thread.start()

    def submit(self, job: PartJob, sign_write: SignWrite) -> None:
        """Send a job to the engine."""
        sums = {"md5": job.md5, "crc32c": job.crc32c, "told_md5": job.told_md5}
        with self._work:
            self._signers[job.id] = sign_write
            self._messages.append({"id": job.id, "read": encode_request(job.read)} | sums)
            self._work.notify()

    def limit(self, limits: Limits) -> None:
        """Carry no more than this at once from now on."""
        with self._work:
            self._messages.append({"limits": [limits.parts, limits.bytes]})

    def close(self) -> None:
        """End when the jobs that were submitted have ended."""
        with self._work:
            self._is_closing = True
            self._work.notify()
        self._thread.join()

    def _run(self) -> None:
        pause = POLL_SECONDS
        try:
            while True:
                with self._work:
                    while not self._signers and not self._is_closing:
                        self._work.wait()
                    if not self._signers:
                        break
                    sent = [self._messages.popleft() for __ in range(len(self._messages))]
                received = self._link.ask_engine(self._rank, Exchange(self._id, sent)).messages
                for message in received:
                    self._handle(message)
                pause = POLL_SECONDS if sent or received else min(2 * pause, LONGEST_POLL_SECONDS)
                if not received:
                    threading.Event().wait(pause)
            self._link.ask_engine(self._rank, EndExchange(self._id))
        except SkyError as error:
            self._fail(error)

    def _handle(self, message: dict[str, Any]) -> None:
        number = message["id"]
        if "sent" in message:
            with self._work:
                is_open = self._signers.pop(number, None) is not None
            if is_open:
                self._report(decode_outcome(message))
            return
        sums = Checksums(message["crc32c"], bytes.fromhex(message["md5"]))
        try:
            request = encode_request(self._signers[number](sums))
        except SkyStorageError as error:  # such as an upload that is gone
            with self._work:
                self._signers.pop(number)
            self._report(PartOutcome(number, error=error))
            request = None
        self._messages.append({"id": number, "write": request})

    def _fail(self, error: SkyError) -> None:
        """Report all open jobs as lost with the engine."""
        with self._work:
            numbers, self._is_closing = list(self._signers), True
            self._signers.clear()
        for number in numbers:
            lost = SkyWorkerLost(
                _("the engine that moved data was lost: {message}").format(message=error.message)
            )
            self._report(PartOutcome(number, error=lost))


class RelayWorker:
    """Worker that reads files of an engine's machine over the connection, and writes from here.

    For targets that only this machine reaches: its own folders, and stores whose requests bear a
    token, which another machine must not hold.
    """

    def __init__(self, report: Report, link: ClusterConnection, rank: int) -> None:
        self._report, self._link, self._rank = report, link, rank
        self._connections = Connections()
        self._pool = ThreadPoolExecutor(RELAYED_PARTS, "sky-relay")

    def submit(self, job: PartJob, sign_write: SignWrite) -> None:
        """Carry out a job, as soon as a thread is free."""
        self._pool.submit(self._carry, job, sign_write)

    def limit(self, limits: Limits) -> None:
        """Nothing changes: the number of threads is the limit."""

    def close(self) -> None:
        """End when the jobs that were submitted have ended."""
        self._pool.shutdown()

    def _carry(self, job: PartJob, sign_write: SignWrite) -> None:
        try:
            data = self._read(job)
            with_md5 = hashlib.md5(data, usedforsecurity=False).digest() if job.md5 else b""
            sums = Checksums(crc32c(data), with_md5)
            tally = Tally()
            tag = write_part(sign_write(sums), data, self._connections, tally)
            count = len(data)
            outcome = PartOutcome(job.id, sums, tag, count, count, writes=tally.requests)
        except SkyStorageError as error:
            outcome = PartOutcome(job.id, error=error)
        except SkyError as error:
            outcome = PartOutcome(job.id, error=SkyWorkerLost(error.message))
        except Exception as error:  # a defect must end the transfer, not a thread of it
            failure = SkyStorageError(f"{type(error).__name__}: {error}")
            outcome = PartOutcome(job.id, error=failure)
        self._report(outcome)

    def _read(self, job: PartJob) -> bytes:
        read, pieces = encode_request(job.read), list[bytes]()
        start, stop = read["span"]
        for place in range(start, stop, RELAYED_PIECE_BYTES):
            span = [place, min(place + RELAYED_PIECE_BYTES, stop)]
            reply = self._link.ask_engine(self._rank, ReadPart(read | {"span": span}))
            pieces += map(bytes, reply.buffers)
        return b"".join(pieces)
