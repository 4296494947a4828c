"""Faults that a store injects into requests that match."""

from __future__ import annotations

import random
import re
import threading
from dataclasses import dataclass


@dataclass
class Fault:
    """Something that goes wrong with requests whose description matches.

    Attributes
    ----------
    match : str
        Regular expression, searched in ``METHOD /bucket/key?query`` with a sorted query without
        signature.
    kind : str
        Code of a refusal (``SlowDown``, ``TooManyRequests``, ``AccessDenied`` ...) answers with
        it; ``cut`` closes the connection at `at` of the body, read or written; ``flip`` changes
        one bit of the body on its way, read or written; ``rot`` changes one bit of what is stored,
        after all checks; ``truncate`` answers with the first `at` of the body, and a length that
        fits; ``shift`` reads a range that lies one byte off; ``sum`` answers with a wrong
        checksum; ``error200`` answers a success whose body is an error; ``lose`` carries the
        request out and closes without an answer; ``stall`` waits `seconds` first.
    times : int
        How often; a large number for ever.
    after : int
        Requests that match and go well before.
    probability : float
        Share of the matching requests.
    at : float
        Share of the body.
    retry_after : str
        Header of a refusal.
    """

    match: str
    kind: str
    times: int = 1
    after: int = 0
    probability: float = 1.0
    at: float = 0.4
    seconds: float = 0.0
    retry_after: str = ""


class FaultPlan:
    """Faults that are still to come; safe to share between threads."""

    def __init__(self, seed: int = 0) -> None:
        self._faults: list[Fault] = []
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self.injected = 0

    def add(self, *faults: Fault) -> None:
        """Add faults after those that are there."""
        with self._lock:
            self._faults.extend(faults)

    def clear(self) -> None:
        """Let everything go well from now on."""
        with self._lock:
            self._faults.clear()

    def choose(self, description: str) -> Fault | None:
        """Return the fault of this request, if any, and count it."""
        with self._lock:
            for fault in self._faults:
                if not fault.times or not re.search(fault.match, description):
                    continue
                if fault.after:
                    fault.after -= 1
                    continue
                if self._random.random() >= fault.probability:
                    continue
                fault.times -= 1
                self.injected += 1
                return fault
        return None
