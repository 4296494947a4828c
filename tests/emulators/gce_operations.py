"""Operations of Compute Engine: what is done later, and known of afterwards."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from .gce_errors import late
from .gce_validation import Refused

BASE = "https://www.googleapis.com/compute/v1/projects/{}"


class Clockwork:
    """Does things later, one after the other, in a thread of its own."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers, self._closed = itertools.count(), False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something so many seconds from now."""
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), act))
            self._changed.notify()

    def close(self) -> None:
        """Do nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed:
                    left = self._due[0][0] - time.monotonic() if self._due else None
                    if left is not None and left <= 0:
                        break
                    self._changed.wait(left)
                if self._closed:
                    return
                act = heapq.heappop(self._due)[2]
            act()


@dataclass
class Operations:
    """Operations of one project.

    Parameters
    ----------
    boot
        Seconds that an operation takes.
    """

    project: str
    boot: float = 0.05
    operations: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lock, self.clockwork = threading.RLock(), Clockwork()
        self._ids = itertools.count(4200000000000000001)

    def _operation(
        self, zone: str, kind: str, target: str, work: Callable[[], dict[str, Any] | None]
    ) -> dict[str, Any]:
        """An operation that is under way, and done after a while; what it returns is its error."""
        base, number = BASE.format(self.project), next(self._ids)
        scope = f"{base}/zones/{zone}" if zone else f"{base}/global"
        name = f"operation-{int(time.time() * 1000)}-{number:x}"
        operation = {
            "kind": "compute#operation",
            "id": str(number),
            "name": name,
            "operationType": kind,
            "targetLink": f"{scope}/{target}",
            "status": "PENDING",
            "progress": 0,
            "user": f"sky@{self.project}.iam.gserviceaccount.com",
            "insertTime": now(),
            "startTime": now(),
            "selfLink": f"{scope}/operations/{name}",
            **({"zone": scope} if zone else {}),
        }
        with self.lock:
            self.operations[name] = operation

        def done() -> None:
            try:
                failure = work()
            except Exception:
                traceback.print_exc()
                failure = late("INTERNAL_ERROR")
            with self.lock:
                operation.update(failure or {}, status="DONE", progress=100, endTime=now())

        self.clockwork.after(self.boot / 2, lambda: operation.update(status="RUNNING"))
        self.clockwork.after(self.boot, done)
        return dict(operation)

    def _exists(self, what: str) -> Refused:
        words = f"The resource 'projects/{self.project}/{what}' already exists"
        return Refused(409, "alreadyExists", words)

    def _missing(self, what: str) -> Refused:
        words = f"The resource 'projects/{self.project}/{what}' was not found"
        return Refused(404, "notFound", words)

    def _unready(self, network: str) -> Refused:
        words = f"The resource 'projects/{self.project}/global/networks/{network}' is not ready"
        return Refused(400, "resourceNotReady", words)


def now() -> str:
    """The time as the service writes it."""
    return stamp(time.time())


def stamp(seconds: float) -> str:
    """A unix time as the service writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
