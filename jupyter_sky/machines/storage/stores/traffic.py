"""Requests to stores and bytes of their bodies, counted as stores bill them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

RequestKind = Literal["write", "read", "free"]
LISTS = ("list-type", "uploads", "uploadId", "prefix")
"""Parameters of a GET that lists; stores bill it as a write."""


def request_kind(method: str, query: Mapping[str, str]) -> RequestKind:
    """Return the kind of request as which stores bill it.

    Examples
    --------
    >>> request_kind("GET", {"list-type": "2"}), request_kind("HEAD", {})
    ('write', 'read')
    >>> request_kind("DELETE", {}), request_kind("POST", {"delete": ""})
    ('free', 'free')
    """
    if method == "DELETE" or "delete" in query:
        return "free"
    if method in ("PUT", "POST"):
        return "write"
    is_list = query.get("comp") == "list" or any(name in query for name in LISTS)
    return "write" if method == "GET" and is_list else "read"


@dataclass
class Tally:
    """Counts of one request and its repetitions.

    Attributes
    ----------
    requests : int
        Requests that were sent.
    sent, received : int
        Bytes of their bodies, and of those of the answers, as far as they came.
    """

    requests: int = 0
    sent: int = 0
    received: int = 0


@dataclass(frozen=True, slots=True)
class Traffic:
    """Counts of one store.

    Attributes
    ----------
    writes, reads : int
        Requests that it bills as writes (with copies and lists) and as reads.
    sent, received : int
        Bytes that went to it and that came from it.
    """

    writes: int = 0
    reads: int = 0
    sent: int = 0
    received: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.writes + other.writes,
            self.reads + other.reads,
            self.sent + other.sent,
            self.received + other.received,
        )

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.writes - other.writes,
            self.reads - other.reads,
            self.sent - other.sent,
            self.received - other.received,
        )


@dataclass
class TrafficMeter:
    """Counts of a store by all threads of this process."""

    _total: Traffic = field(default_factory=Traffic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def total(self) -> Traffic:
        """Counts up to now."""
        return self._total

    def add(self, kind: RequestKind, tally: Tally) -> None:
        """Count a request."""
        writes = tally.requests if kind == "write" else 0
        reads = tally.requests if kind == "read" else 0
        with self._lock:
            self._total += Traffic(writes, reads, tally.sent, tally.received)


def traffic_of(store: object) -> Traffic:
    """Return the counts of a store up to now; nothing for one that bills nothing."""
    meter = getattr(store, "meter", None)
    return meter.total if isinstance(meter, TrafficMeter) else Traffic()


@dataclass(frozen=True, slots=True)
class TransferTraffic:
    """Counts of both ends of a transfer.

    Attributes
    ----------
    source, target : Traffic
        Requests; what came from them are listings and other answers, not contents.
    moved : int
        Bytes of contents that have left the source, those in vain included.
    """

    source: Traffic = Traffic()
    target: Traffic = Traffic()
    moved: int = 0

    def __add__(self, other: TransferTraffic) -> TransferTraffic:
        return TransferTraffic(
            self.source + other.source, self.target + other.target, self.moved + other.moved
        )
