"""Worker in a process of its own, driven by messages in lines of JSON.

``python -m jupyter_sky.machines.storage.stores.worker_process`` serves messages on its standard
streams. Requests come through the pipe into memory: they are never in arguments, in the
environment or on disk.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any

from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.answers import describe_error, restore_error
from jupyter_sky.machines.storage.stores.errors import SkyStorageError, SkyWorkerLost
from jupyter_sky.machines.storage.stores.part_worker import (
    Limits,
    PartJob,
    PartOutcome,
    PartWorker,
    SignWrite,
)
from jupyter_sky.machines.storage.stores.store import Checksums, PartRequest, Span

Report = Callable[[PartOutcome], None]
COMMAND = (sys.executable, "-m", "jupyter_sky.machines.storage.stores.worker_process")


def encode_request(request: PartRequest) -> dict[str, Any]:
    """Return a request as a value for JSON."""
    span = [request.span.start, request.span.stop]
    return {"method": request.method, "url": request.url} | {
        "headers": dict(request.headers),
        "span": span,
    }


def decode_request(value: Mapping[str, Any]) -> PartRequest:
    """Return the request that `encode_request` encoded."""
    return PartRequest(value["method"], value["url"], value["headers"], Span(*value["span"]))


class MessageWorker:
    """Worker driven by messages: a job comes, its sums go, a request to write comes, its tag goes.

    Parameters
    ----------
    send : callable
        Sends a message, a value for JSON.
    """

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._writes: dict[int, SimpleQueue[dict[str, Any] | None]] = {}
        self._worker = PartWorker(self._report)

    def receive(self, message: Mapping[str, Any]) -> None:
        """Take a message of the other side."""
        if "limits" in message:
            self._worker.limit(Limits(*message["limits"]))
            return
        number = message["id"]
        if "write" in message:
            self._writes[number].put(message["write"])
            return
        read = decode_request(message["read"])
        self._writes[number] = SimpleQueue()
        md5, told = message.get("md5", False), message.get("told_md5", "")
        job = PartJob(number, read, md5, message.get("crc32c"), told)
        self._worker.submit(job, lambda sums: self._ask(number, sums))

    def close(self) -> None:
        """End; parts that wait for a request to write are given up."""
        for answers in list(self._writes.values()):
            answers.put(None)
        self._worker.close()

    def _ask(self, number: int, sums: Checksums) -> PartRequest:
        self._send({"id": number} | _encode_sums(sums))
        value = self._writes[number].get()
        if value is None:
            raise SkyStorageError(_("the process that signs requests is gone"))
        return decode_request(value)

    def _report(self, outcome: PartOutcome) -> None:
        del self._writes[outcome.id]
        counts = {"id": outcome.id, "sent": outcome.sent, "received": outcome.received}
        counts |= {"reads": outcome.reads, "writes": outcome.writes}
        if outcome.sums:
            counts |= _encode_sums(outcome.sums)
        if outcome.error:
            self._send(counts | describe_error(outcome.error))
        else:
            self._send(counts | {"tag": outcome.tag})


def decode_outcome(message: Mapping[str, Any]) -> PartOutcome:
    """Return the outcome that a message of `MessageWorker` tells."""
    error = restore_error(message) if "error" in message else None
    return PartOutcome(
        message["id"],
        _decode_sums(message) if "crc32c" in message else None,
        message.get("tag", ""),
        message["sent"],
        message["received"],
        error,
        message.get("reads", 0),
        message.get("writes", 0),
    )


def _encode_sums(sums: Checksums) -> dict[str, Any]:
    return {"crc32c": sums.crc32c, "md5": sums.md5.hex()}


def _decode_sums(message: Mapping[str, Any]) -> Checksums:
    return Checksums(message["crc32c"], bytes.fromhex(message["md5"]))


class WorkerProcess:
    """Worker in a process that speaks in lines of JSON; see `Worker`.

    Parameters
    ----------
    report : callable
        Takes the outcome of each job, in a thread of this object.
    command : sequence of str
        Starts the process; by default on this machine.
    """

    def __init__(self, report: Report, command: Sequence[str] = COMMAND) -> None:
        self._report = report
        self._signers: dict[int, SignWrite] = {}
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, name="sky-worker-reader", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def submit(self, job: PartJob, sign_write: SignWrite) -> None:
        """Send a job."""
        self._signers[job.id] = sign_write
        message = {"id": job.id, "read": encode_request(job.read), "md5": job.md5}
        self._send(message | {"crc32c": job.crc32c, "told_md5": job.told_md5}, job.id)

    def limit(self, limits: Limits) -> None:
        """Carry no more than this at once from now on."""
        self._send({"limits": [limits.parts, limits.bytes]}, 0)

    def close(self) -> None:
        """End the process when the jobs that were submitted have ended."""
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait()
        self._reader.join()

    def _send(self, message: Mapping[str, Any], number: int) -> None:
        text = json.dumps(message) + "\n"
        try:
            with self._lock:
                self._process.stdin.write(text)  # type: ignore[union-attr]
                self._process.stdin.flush()  # type: ignore[union-attr]
        except (OSError, ValueError):
            self._fail(number)

    def _read(self) -> None:
        for line in self._process.stdout:  # type: ignore[union-attr]
            message = json.loads(line)
            number = message["id"]
            if "sent" in message:
                self._report_once(decode_outcome(message))
                continue
            self._answer(number, message)
        for number in list(self._signers):
            self._fail(number)

    def _answer(self, number: int, message: Mapping[str, Any]) -> None:
        """Sign the request that writes a part; a part that cannot be signed is given up."""
        try:
            write = encode_request(self._signers[number](_decode_sums(message)))
        except SkyStorageError as error:
            write = None
            self._report_once(PartOutcome(number, error=error))
        self._send({"id": number, "write": write}, number)

    def _fail(self, number: int) -> None:
        """Report a job as lost with the process."""
        error = SkyWorkerLost(_("the process of the worker ended"))
        self._report_once(PartOutcome(number, error=error))

    def _report_once(self, outcome: PartOutcome) -> None:
        if self._signers.pop(outcome.id, None):
            self._report(outcome)


def main() -> None:
    """Serve messages from standard input until it ends."""
    lock = threading.Lock()

    def send(message: dict[str, Any]) -> None:
        with lock:
            print(json.dumps(message), flush=True)

    worker = MessageWorker(send)
    for line in sys.stdin:
        worker.receive(json.loads(line))
    worker.close()


if __name__ == "__main__":
    main()
