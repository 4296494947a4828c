"""Downloads of objects to files of this machine, by requests that may come from another one."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeAlias

from jupyter_sky.base.errors import SkyCancelled
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.checksums import combine_crc32c, crc_to_hex
from jupyter_sky.machines.storage.stores.errors import SkyChecksumMismatch, SkyStoreBusy, backoff
from jupyter_sky.machines.storage.stores.file_parts import DONE_HEADER, SUM_HEADER, file_url
from jupyter_sky.machines.storage.stores.part_worker import PartJob, PartOutcome, PartWorker
from jupyter_sky.machines.storage.stores.peers import is_of_peer
from jupyter_sky.machines.storage.stores.store import (
    PART_SIZE,
    Checksums,
    PartRequest,
    Span,
    Store,
    StoredObject,
    part_count,
    part_span,
)

CONCURRENCY = 8
"""Parts that are read at once: with parts of 16 MiB, 128 MiB of memory."""
ATTEMPTS = 8
"""Attempts for one part while its store is busy."""
READINGS = 3
"""Attempts for one object of which damaged bytes have come."""
CANCEL_SECONDS = 0.25
_PASSING = (SkyStoreBusy, SkyChecksumMismatch)


ContentSums: TypeAlias = tuple[tuple[str, str], ...]
"""Checksums of a whole content, in hexadecimal by name."""


@dataclass(frozen=True, slots=True)
class DownloadPlan:
    """Requests that read one object.

    Attributes
    ----------
    requests
        Requests for its parts in their order; none for an empty object.
    sums
        Checksums that the whole content must have, in hexadecimal by name.
    """

    requests: tuple[PartRequest, ...]
    sums: ContentSums = ()

    @property
    def is_of_peer(self) -> bool:
        """Whether another machine is asked, and not the store."""
        return any(map(is_of_peer, self.requests))

    @property
    def expires(self) -> float:
        """Unix time after which the first of them is refused."""
        return min((each.expires for each in self.requests), default=float("inf"))


def plan_download(store: Store, found: StoredObject) -> DownloadPlan:
    """Return signed requests for the parts of an object.

    Listings tell no checksum of objects of several parts, so that it is asked for.
    """
    return plan_parts(found.size, find_sums(store, found), partial(store.read, found))


def plan_parts(
    size: int, sums: ContentSums, request: Callable[[Span], PartRequest]
) -> DownloadPlan:
    """Return the plan of an object, whose parts are read by the requests of a function."""
    if not size:
        return DownloadPlan(())
    numbers = range(1, part_count(size, PART_SIZE) + 1)
    return DownloadPlan(
        tuple(request(part_span(number, size, PART_SIZE)) for number in numbers), sums
    )


def find_sums(store: Store, found: StoredObject) -> ContentSums:
    """Return the checksums of an object; its store is asked where the listing had none."""
    sums = found.sums or _sums_of_version(store, found)
    if part_count(found.size, PART_SIZE) > 1 and not sums:
        there = store.stat(found.key)
        sums = there.sums if there.version == found.version else {}
    return tuple((name, sums[name]) for name in ("crc32c", "md5") if name in sums)


def _sums_of_version(store: Store, found: StoredObject) -> Mapping[str, str]:
    """Return the checksums that a listed version is itself: many stores use the MD5."""
    dialect = getattr(store, "dialect", None)
    return {} if dialect is None else dialect.sums({"ETag": found.version})


@dataclass(slots=True)
class _Part:
    plan: DownloadPlan
    path: Path
    request: PartRequest
    number: int
    attempts: int = 0
    outcome: PartOutcome | None = None


def download_objects(
    pairs: Sequence[tuple[DownloadPlan, Path]],
    report: Callable[[int], None] = lambda nbytes: None,
    cancelled: threading.Event | None = None,
    count: Callable[[PartOutcome], None] = lambda outcome: None,
) -> None:
    """Write objects to files, several parts at a time, and compare their checksums.

    Parameters
    ----------
    pairs
        Requests for the parts of each object, and its file.
    report
        Called with the bytes of each part that has come.
    cancelled
        Ends the download once it is set.
    count
        Called with every outcome, those in vain included: each has its requests and bytes.

    Raises
    ------
    SkyChecksumMismatch
        Other bytes have come than the store has.
    SkyStorageError
        A part could not be read.
    SkyCancelled
        `cancelled` was set.
    """
    stop = cancelled or threading.Event()
    for attempt in range(READINGS):
        try:
            _download_once(pairs, report, stop, count)
            return
        except _DamagedObjects as damaged:
            pairs = [(plan, path) for plan, path in pairs if path in damaged.paths]
            if attempt + 1 == READINGS:
                raise SkyChecksumMismatch(damaged.message) from None


class _DamagedObjects(SkyChecksumMismatch):
    """Objects of which other bytes have come than their store has."""

    paths: frozenset[Path] = frozenset()


def _download_once(
    pairs: Sequence[tuple[DownloadPlan, Path]],
    report: Callable[[int], None],
    cancelled: threading.Event,
    count: Callable[[PartOutcome], None],
) -> None:
    parts: list[_Part] = []
    for plan, path in pairs:
        path.touch()
        parts += [
            _Part(plan, path, request, number) for number, request in enumerate(plan.requests, 1)
        ]
    outcomes: SimpleQueue[PartOutcome] = SimpleQueue()
    worker = PartWorker(outcomes.put, CONCURRENCY)
    try:
        _run_parts(parts, worker, outcomes, report, cancelled, count)
    finally:
        worker.close()
    by_path: dict[Path, list[_Part]] = {}
    for part in parts:
        by_path.setdefault(part.path, []).append(part)
    damaged = [own[0] for own in by_path.values() if _is_damaged(own)]
    for part in damaged:
        part.path.unlink(missing_ok=True)
    if damaged:
        error = _DamagedObjects(
            _("{subject} returned other bytes than its store has").format(
                subject=damaged[0].request.subject
            )
        )
        error.paths = frozenset(part.path for part in damaged)
        raise error


def _run_parts(
    parts: Sequence[_Part],
    worker: PartWorker,
    outcomes: SimpleQueue[PartOutcome],
    report: Callable[[int], None],
    cancelled: threading.Event,
    count: Callable[[PartOutcome], None],
) -> None:
    waiting, flying, done = list(range(len(parts))), 0, 0
    waiting.reverse()
    while done < len(parts):
        while waiting and flying < 2 * CONCURRENCY:
            number = waiting.pop()
            part = parts[number]
            job = PartJob(number, part.request, md5=_is_md5_wanted(part.plan))
            worker.submit(job, partial(_write_request, part))
            flying += 1
        if cancelled.is_set():
            raise SkyCancelled(_("the download was cancelled"))
        try:
            outcome = outcomes.get(timeout=CANCEL_SECONDS)
        except Empty:
            continue
        flying -= 1
        count(outcome)
        part = parts[outcome.id]
        if outcome.error is None:
            part.outcome, done = outcome, done + 1
            report(outcome.received)
        elif isinstance(outcome.error, _PASSING) and part.attempts < ATTEMPTS:
            part.attempts += 1
            asked = getattr(outcome.error, "retry_after", 0.0)
            cancelled.wait(backoff(part.attempts, asked, random.random()))
            waiting.append(outcome.id)
        else:
            raise outcome.error


def _is_md5_wanted(plan: DownloadPlan) -> bool:
    """Return whether MD5 is the only sum, which can be compared for a single part."""
    return len(plan.requests) == 1 and [name for name, __ in plan.sums] == ["md5"]


def _write_request(part: _Part, sums: Checksums) -> PartRequest:
    headers = {SUM_HEADER: crc_to_hex(sums.crc32c)}
    if len(part.plan.requests) > 1:
        headers[DONE_HEADER] = str(part.number)
    return PartRequest("PUT", file_url(part.path), headers, part.request.span)


def _is_damaged(parts: Sequence[_Part]) -> bool:
    """Return whether the checksums of the whole differ from those of its parts."""
    plan = parts[0].plan
    known = dict(plan.sums)
    outcomes = [(part.outcome, part.request.span.size) for part in parts]
    pairs = [(outcome.sums.crc32c, size) for outcome, size in outcomes if outcome and outcome.sums]
    if told := known.get("crc32c"):
        return told != crc_to_hex(combine_crc32c(pairs))
    outcome = parts[0].outcome
    if not _is_md5_wanted(plan) or outcome is None or outcome.sums is None:
        return False
    return known["md5"] != outcome.sums.md5.hex()
