"""Transfer of objects between stores: parallel, checked, resumable by part, published whole.

One thread decides; workers move bytes, and a few threads ask the stores. The state of an object
changes only in the deciding thread, which takes events from one queue.
"""

from __future__ import annotations

import heapq
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from threading import Semaphore
from typing import TypeAlias, TypeVar

from jupyter_sky.base.errors import SkyCancelled
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.errors import (
    Remedy,
    SkyDiskFull,
    SkyRequestExpired,
    SkyStorageError,
    backoff,
    remedy_of,
)
from jupyter_sky.machines.storage.stores.journal import HEARTBEAT, Journal
from jupyter_sky.machines.storage.stores.object_transfer import (
    RESTARTS,
    ObjectTransfer,
    TransferItem,
    abort_upload,
    content_name,
    end_object,
    find_published,
    object_name,
    open_object,
)
from jupyter_sky.machines.storage.stores.part_worker import (
    NOTHING,
    Limits,
    PartOutcome,
    PartWorker,
    Worker,
)
from jupyter_sky.machines.storage.stores.store import (
    ALWAYS,
    MIB,
    Checksums,
    Condition,
    Part,
    Store,
    StoredObject,
    Upload,
    choose_part_size,
    learn_clocks,
)
from jupyter_sky.machines.storage.stores.traffic import Traffic, TransferTraffic, traffic_of
from jupyter_sky.machines.storage.transfers.leftovers import remove_files_below
from jupyter_sky.machines.storage.transfers.movers import CopyMover, Mover, Report, WorkerMover
from jupyter_sky.machines.storage.transfers.progress import Counters, Progress

# -- Options and result of a transfer -------------------------------------------------------------


@dataclass(frozen=True)
class TransferOptions:
    """Options of a transfer.

    Attributes
    ----------
    condition : Condition
        Checked by the target for every object at its publication.
    part_size : int
        Bytes; 0 lets the store choose.
    memory : int
        Bytes of parts in flight.
    attempts : int
        Of one part.
    price : callable
        Returns dollars from the requests and bytes of both ends.
    start_worker : callable
        Starts a worker that reports to its argument.
    read_store, write_store : Store, optional
        Stores whose requests the worker may hold, where it is on another machine.
    """

    condition: Condition = ALWAYS
    part_size: int = 0
    memory: int = 128 * MIB
    attempts: int = 10
    price: Callable[[TransferTraffic], float] = lambda traffic: 0.0
    start_worker: Callable[[Report], Worker] = PartWorker
    read_store: Store | None = None
    write_store: Store | None = None


@dataclass(frozen=True)
class TransferResult:
    """End of a transfer.

    Attributes
    ----------
    objects : mapping
        What was published, by key.
    skipped : int
        Objects that an earlier transfer had published.
    unverified : int
        Objects whose source tells no checksum of the whole.
    progress : Progress
        Final counts.
    """

    objects: Mapping[str, StoredObject]
    skipped: int
    unverified: int
    progress: Progress


# -- Transfer of objects between stores: parallel, checked, resumable by part, --------------------

__all__ = ["Transfer", "TransferItem", "TransferOptions", "TransferResult"]

OPENING = 4
"""Requests of the control plane at once."""

TICK = 0.5
"""Seconds between two reports of progress, and two notes of published objects in the journal."""


@dataclass
class Transfer:
    """Moves objects from one store to another.

    Parameters
    ----------
    source, target : Store
        From where and to where.
    items : iterable of TransferItem
        Objects and their keys in the target.
    journal : Journal, optional
        Without one, nothing is resumed after a crash.
    options : TransferOptions
        See there.
    on_progress : callable, optional
        Takes a `Progress` about twice a second, in the thread of `run`.

    Examples
    --------
    >>> items = [TransferItem(obj, obj.key) for obj in source.list("x/")]  # doctest: +SKIP
    >>> Transfer(source, target, items).run()  # doctest: +SKIP
    """

    source: Store
    target: Store
    items: Iterable[TransferItem]
    journal: Journal | None = None
    options: TransferOptions = field(default_factory=TransferOptions)
    on_progress: Callable[[Progress], None] | None = None

    def __post_init__(self) -> None:
        self._items = list(self.items)
        self._begun = [(end, traffic_of(end)) for end in (self.source, self.target)]
        self._record = PublishedObjects(self.journal, self.source, self.target, self._items)
        self._events = Events(OPENING)
        self._waiting = deque(ObjectTransfer(item) for item in self._items)
        self._ready: deque[ObjectTransfer] = deque()
        self._uploading: dict[str, ObjectTransfer] = {}
        self._flights = Flights(self.options.memory)
        self._failures: list[SkyStorageError] = []
        self._stop: BaseException | None = None
        self._abort = False
        self._skipped = self._unverified = 0
        self._ticked = self._renewed = time.monotonic()
        self._counters = Counters(
            bytes_total=sum(item.source.size for item in self._items),
            objects_total=len(self._items),
        )

    def run(self) -> TransferResult:
        """Carry the transfer out and return when all objects are published.

        Raises
        ------
        SkyStorageError
            Some objects could not be moved; the others were.
        SkyCancelled
            `cancel` was called; uploads are kept unless it aborted them.
        """
        report = partial(self._events.put, self._on_outcome)
        self._is_copy = self.target.can_copy_from(self.source)
        self._mover: Mover = (
            CopyMover(self.source, report)
            if self._is_copy
            else WorkerMover(
                self.options.read_store or self.source,
                self.options.write_store or self.target,
                self.options.start_worker,
                report,
            )
        )
        if self._is_copy:
            self._flights.memory = sys.maxsize  # no byte passes through here
        self._record.start()
        try:
            self._skip_published()
            self._loop()
        except BaseException as error:  # an interrupt: what is in flight ends, uploads stay
            self._stop = self._stop or error
            self._drain()
        finally:
            if self._abort or isinstance(self._stop, SkyDiskFull):
                self._abort_uploads()
            self._record.note()
            self._mover.close()
            self._events.close()
            self._record.stop(is_whole=not (self._stop or self._failures))
        return self._finish()

    def cancel(self, *, abort: bool = False) -> None:
        """Stop after the parts in flight, from any thread.

        Parameters
        ----------
        abort : bool
            Give up the uploads too; else the same transfer goes on with them later.
        """

        def stop() -> None:
            self._abort = self._abort or abort
            self._stop = self._stop or SkyCancelled(_("the transfer was cancelled"))

        self._events.put(stop)

    def progress(self) -> Progress:
        """Return the state now."""
        usd = self.options.price(self.traffic())
        return self._counters.progress(time.monotonic(), usd)

    def traffic(self) -> TransferTraffic:
        """Return the requests and bytes up to now, those of parts and of all that goes with them.

        Stores that are in use by others besides count theirs here, too.
        """
        ends = [traffic_of(end) - begun for end, begun in self._begun]
        if self.source is self.target:
            ends[1] = Traffic()
        return self._counters.traffic + TransferTraffic(ends[0], ends[1])

    # -- the loop

    def _loop(self) -> None:
        self._fill()
        while self._flights or self._events.asking or (not self._stop and self._has_work()):
            self._events.take(self._flights.patience(time.monotonic(), TICK))
            self._fill()
            self._tick()

    def _drain(self) -> None:
        """Take in what is in flight, and start nothing."""
        self._mover.limit(NOTHING)
        while self._flights or self._events.asking:
            self._events.take()

    def _has_work(self) -> bool:
        return bool(self._waiting or self._ready or self._flights.has_delayed)

    def _fill(self) -> None:
        """Start what may be started now."""
        self._mover.limit(NOTHING if self._stop else self._flights.limits)
        for flight in self._flights.due(time.monotonic()) if not self._stop else ():
            self._start(flight)
        while not self._stop and self._start_next():
            pass

    def _start_next(self) -> bool:
        """Start the next part or open the next object; return whether more may follow."""
        while self._ready and not self._ready[0].missing:
            self._ready.popleft()
        if not self._ready:
            return self._open_next()
        transfer = self._ready[0]
        part = transfer.missing[0]
        size = transfer.span(part).size
        if not self._flights.has_room(size):
            return False
        transfer.missing.popleft()
        self._start(Flight(transfer, transfer.opened, part, size))
        return True

    def _start(self, flight: Flight) -> None:
        self._mover.submit(self._flights.start(flight), flight.transfer, flight.part)

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._ticked < TICK:
            return
        self._ticked = now
        self._record.note()
        if self.on_progress:
            self.on_progress(self.progress())
        if self.journal and now - self._renewed > HEARTBEAT:
            self._renewed = now
            self.journal.renew()

    # -- objects

    def _open_next(self) -> bool:
        if not self._waiting or self._events.asking >= OPENING:
            return False
        transfer = self._waiting.popleft()
        work, then = partial(self._open, transfer), partial(self._on_opened, transfer)
        if transfer.size <= self._part_size(transfer):  # asks the store for nothing
            then(attempt(work))
        else:
            self._events.ask(work, then)
        return True

    def _part_size(self, transfer: ObjectTransfer) -> int:
        wanted = self.options.part_size or self._mover.part_size
        return wanted or choose_part_size(transfer.size, self.target.capability)

    def _open(self, transfer: ObjectTransfer) -> None:
        open_object(
            transfer,
            self.source,
            self.target,
            part_size=self._part_size(transfer),
            condition=self.options.condition,
            journal=self.journal,
        )

    def _on_opened(self, transfer: ObjectTransfer, error: Failable[None]) -> None:
        if error:
            self._remedy(transfer, error)
            return
        self._uploading[transfer.item.key] = transfer
        self._counters.bytes_done += transfer.resumed
        self._counters.bytes_resumed += transfer.resumed
        if transfer.is_complete:
            self._end(transfer)
        else:
            self._ready.append(transfer)

    def _end(self, transfer: ObjectTransfer) -> None:
        def then(result: Failable[StoredObject]) -> None:
            if isinstance(result, SkyStorageError):
                self._remedy(transfer, result)
            else:
                self._publish(transfer, result)

        work = partial(end_object, transfer, self.target, look=self._is_copy)
        if transfer.opened.id or self._is_copy:
            self._events.ask(work, then)
        else:
            then(attempt(work))

    def _publish(self, transfer: ObjectTransfer, written: StoredObject) -> None:
        self._record.add(transfer.item, written)
        self._counters.objects_done += 1
        self._unverified += not transfer.is_verified
        self._forget(transfer)

    def _forget(self, transfer: ObjectTransfer) -> None:
        self._uploading.pop(transfer.item.key, None)
        if self.journal and transfer.upload and transfer.upload.id:
            self.journal.forget(self._record.target_name(transfer.item))

    # -- outcomes of parts, and failures

    def _on_outcome(self, outcome: PartOutcome) -> None:
        flight, counts = self._flights.land(outcome.id), self._counters
        counts.bytes_sent += outcome.sent
        counts.bytes_received += outcome.received
        counts.requests_read += outcome.reads
        counts.requests_written += outcome.writes
        if not flight.is_current:
            return  # its object began anew meanwhile
        if outcome.error:
            self._remedy_part(flight, outcome.sums, outcome.error)
            return
        self._flights.parallelism.on_bytes(flight.size, time.monotonic())
        transfer = flight.transfer
        crc32c = outcome.sums.crc32c if outcome.sums else None
        part = Part(flight.part, transfer.span(flight.part), crc32c, outcome.tag)
        transfer.parts[flight.part] = part
        counts.bytes_done += flight.size
        if transfer.is_complete:
            self._end(transfer)

    def _remedy_part(self, flight: Flight, sums: Checksums | None, error: SkyStorageError) -> None:
        remedy, now = remedy_of(error), time.monotonic()
        if remedy is Remedy.SLOW_DOWN:
            self._flights.parallelism.on_busy(now)
        if remedy is Remedy.REVIVE and not self._flights:  # all parts of the lost one are back
            self._mover.revive()
        if remedy not in (Remedy.RETRY, Remedy.SLOW_DOWN, Remedy.REVIVE):
            self._remedy(flight.transfer, error, sums)
        elif flight.attempt >= self.options.attempts:
            self._stop = self._stop or error
        else:
            wait = backoff(flight.attempt, getattr(error, "retry_after", 0.0), random.random())
            delay = partial(self._flights.delay, flight, now + wait)
            stores = (self.source, self.target) if isinstance(error, SkyRequestExpired) else ()
            self._events.ask(partial(learn_clocks, *stores), lambda __: delay())

    def _remedy(
        self, transfer: ObjectTransfer, error: SkyStorageError, sums: Checksums | None = None
    ) -> None:
        remedy = remedy_of(error)
        if remedy is Remedy.COMPARE:
            work = partial(find_published, transfer, self.target, sums)
            self._events.ask(work, partial(self._on_compared, transfer, error))
        elif remedy is Remedy.RESTART and transfer.restarts < RESTARTS:
            self._restart(transfer)
        elif remedy in (Remedy.SKIP, Remedy.RESTART):
            self._fail(transfer, error)
        else:
            self._stop = self._stop or error

    def _on_compared(
        self, transfer: ObjectTransfer, error: SkyStorageError, there: Failable[StoredObject | None]
    ) -> None:
        if isinstance(there, StoredObject):
            self._counters.bytes_done += transfer.size - transfer.done
            # where another has written the same, the upload is still open
            abort = transfer.upload.abort if transfer.upload else lambda: None
            self._events.ask(abort, lambda __: self._publish(transfer, there))
        else:
            self._fail(transfer, error)

    def _restart(self, transfer: ObjectTransfer) -> None:
        self._counters.bytes_done -= transfer.done
        self._counters.bytes_total -= transfer.size
        self._ready = deque(other for other in self._ready if other is not transfer)
        abort = self._abort_of(transfer)

        def work() -> StoredObject:
            abort()
            return self.source.stat(transfer.item.source.key)

        def then(source: Failable[StoredObject]) -> None:
            if isinstance(source, SkyStorageError):
                self._fail(transfer, source)
                return
            transfer.restart(source)
            self._counters.bytes_total += transfer.size
            self._waiting.appendleft(transfer)

        self._events.ask(work, then)

    def _fail(self, transfer: ObjectTransfer, error: SkyStorageError) -> None:
        """Give up an object; the others go on."""
        self._failures.append(error)
        self._give_up(transfer)

    def _give_up(self, transfer: ObjectTransfer) -> None:
        transfer.missing.clear()
        self._events.ask(self._abort_of(transfer), lambda __: None)

    def _abort_of(self, transfer: ObjectTransfer) -> Callable[[], None]:
        """Take the upload from an object; return the function that aborts it."""
        self._uploading.pop(transfer.item.key, None)
        upload, transfer.upload = transfer.upload, None
        if upload is None:
            return lambda: None
        name = self._record.target_name(transfer.item)
        return partial(abort_upload, upload, self.journal, name)

    # -- end

    def _skip_published(self) -> None:
        """Leave out objects that an earlier run of the same transfer has published."""
        earlier = self._record.find_earlier(self._items)
        for transfer in self._waiting:
            if transfer.item.key in earlier:
                self._skipped += 1
                self._counters.objects_done += 1
                self._counters.bytes_done += transfer.size
                self._counters.bytes_resumed += transfer.size
        self._waiting = deque(t for t in self._waiting if t.item.key not in earlier)

    def _abort_uploads(self) -> None:
        for transfer in list(self._uploading.values()):
            self._give_up(transfer)
        self._drain()

    def _finish(self) -> TransferResult:
        if self._stop:
            raise self._stop
        if self._failures:
            error, count = self._failures[0], len(self._failures)
            if count > 1:
                error.hint = f"{count} objects could not be moved; this is the first of them"
            raise error
        self._record.clear()
        if self.on_progress:
            self.on_progress(self.progress())
        return TransferResult(
            self._record.objects, self._skipped, self._unverified, self.progress()
        )


# -- Events of a transfer, taken by one thread, and requests to stores that end as events ---------

Result = TypeVar("Result")
Failable: TypeAlias = Result | SkyStorageError


def attempt(work: Callable[[], Result]) -> Failable[Result]:
    """Return what a call returns, or its error."""
    try:
        return work()
    except SkyStorageError as error:
        return error
    except Exception as error:  # a defect must end the transfer, not a thread of it
        return SkyStorageError(repr(error))


class Events:
    """Queue of events, and threads that ask the stores.

    Parameters
    ----------
    threads : int
        Requests at once.

    Attributes
    ----------
    asking : int
        Requests whose answers have not been taken yet.
    """

    def __init__(self, threads: int) -> None:
        self.asking = 0
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._threads = ThreadPoolExecutor(threads, "sky-store")

    def put(self, handle: Callable[..., None], *values: object) -> None:
        """Let the thread that takes events call `handle`; from any thread."""
        self._queue.put(partial(handle, *values))

    def ask(self, work: Callable[[], Result], then: Callable[[Failable[Result]], None]) -> None:
        """Run `work` in another thread, and `then` with its result in that of the events."""
        self.asking += 1

        def end(result: Failable[Result]) -> None:
            self.asking -= 1
            then(result)

        unclaimed = Semaphore(1)

        def run() -> None:
            if unclaimed.acquire(blocking=False):
                self.put(end, attempt(work))

        try:
            self._threads.submit(run)
        except RuntimeError:  # no thread can be started; an earlier one may have it nevertheless
            run()

    def take(self, seconds: float | None = None) -> None:
        """Handle the events that are there; wait for the first, at most for `seconds`."""
        try:
            self._queue.get(timeout=seconds)()
        except Empty:
            return
        while not self._queue.empty():
            self._queue.get()()

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()


# -- Record of the objects that a transfer has published, by which it goes on after a crash -------


class PublishedObjects:
    """Objects that one transfer has published; without a journal known to this process only.

    Parameters
    ----------
    journal : Journal or None
        Where it is kept.
    source, target : Store
        Ends of the transfer.
    items : sequence of TransferItem
        All its objects.
    """

    def __init__(
        self, journal: Journal | None, source: Store, target: Store, items: Sequence[TransferItem]
    ) -> None:
        self.objects: dict[str, StoredObject] = {}
        self._journal, self._source, self._target = journal, source, target
        self._keys = _shared_prefix([item.key for item in items])
        self._new: list[tuple[str, str, str]] = []
        self._transfer = ""

    def start(self) -> None:
        """Note that the transfer begins."""
        if self._journal:
            self._transfer = self._journal.start(*self._place)

    def stop(self, *, is_whole: bool) -> None:
        """Note that the transfer has ended, with all its objects or before."""
        if self._journal and is_whole:
            self._journal.finish(self._transfer)
            remove_files_below(self._journal, *self._place)
        elif self._journal:
            self._journal.abandon(self._transfer)

    def add(self, item: TransferItem, written: StoredObject) -> None:
        """Take in an object; `note` writes it down."""
        self.objects[item.key] = written
        if self._journal:
            content = content_name(self._source, item.source)
            self._new.append((self.target_name(item), content, written.version))

    def target_name(self, item: TransferItem) -> str:
        """Return the address that an item goes to."""
        return object_name(self._target, item.key)

    def note(self) -> None:
        """Write down what is new."""
        if self._journal and self._new:
            self._journal.publish(self._new)
            self._new = []

    def find_earlier(self, items: Sequence[TransferItem]) -> set[str]:
        """Return the keys that an earlier run has published, and that nobody changed since."""
        known = self._journal.published(self._prefix) if self._journal else {}
        if not known:
            return set()
        there = {obj.key: obj.version for obj in self._target.list(self._keys)}
        return {
            item.key
            for item in items
            if known.get(self.target_name(item))
            == (content_name(self._source, item.source), there.get(item.key))
        }

    def clear(self) -> None:
        """Remove the record of a transfer that has ended."""
        if self._journal:
            self._journal.clear(self._prefix)

    @property
    def _place(self) -> tuple[str, str]:
        """Address of the target store, and the beginning of the keys there."""
        address = self._target.uri.child(self._keys)
        return str(address.root), address.key

    @property
    def _prefix(self) -> str:
        return object_name(self._target, self._keys)


def _shared_prefix(keys: Sequence[str]) -> str:
    """Return the longest beginning that all keys share."""
    first, last = min(keys, default=""), max(keys, default="")
    length = 0
    while length < len(first) and first[: length + 1] == last[: length + 1]:
        length += 1
    return first[:length]


# -- Number of parts in flight: more while that helps, half when a store asks for less ------------

WINDOW = 1.0
"""Seconds over which a rate is measured."""

GROWTH = 1.1
"""Factor by which the rate must have grown for the number to double again."""


@dataclass
class Parallelism:
    """Doubles while the rate grows, takes the last doubling back when it did not help.

    After a refusal it halves, and then grows by one in each window.

    Attributes
    ----------
    limit : int
        Parts in flight now allowed.
    maximum : int
        Never more.
    """

    limit: int = 4
    maximum: int = 64
    _is_growing: bool = True
    _best: float = 0.0
    _bytes: int = 0
    _since: float = field(default=-1.0)
    _halved: float = field(default=float("-inf"))

    def on_bytes(self, count: int, now: float) -> None:
        """Take in that bytes have arrived, at a time in seconds."""
        if self._since < 0:
            self._since = now
        self._bytes += count
        elapsed = now - self._since
        if elapsed < WINDOW:
            return
        rate = self._bytes / elapsed
        self._bytes, self._since = 0, now
        if self._halved > 0:
            self.limit = min(self.limit + 1, self.maximum)
        elif self._is_growing:
            self._is_growing = rate > self._best * GROWTH
            doubled = self.limit * 2 if self._is_growing else max(4, self.limit // 2)
            self._best, self.limit = max(rate, self._best), min(doubled, self.maximum)

    def on_busy(self, now: float) -> None:
        """Take in that the store asked for fewer requests."""
        if now - self._halved >= WINDOW:  # one storm refuses all that is in flight
            self._halved = now
            self.limit = max(1, self.limit // 2)


# -- Parts in flight and parts that wait for another attempt --------------------------------------


@dataclass
class Flight:
    """A part on its way.

    Attributes
    ----------
    transfer : ObjectTransfer
        Its object.
    upload : Upload
        Where it goes; another one once the object began anew.
    part : int
        Its number.
    size : int
        Bytes.
    attempt : int
        Attempts so far.
    sums : Checksums or None
        Of the bytes that were read at the last attempt.
    """

    transfer: ObjectTransfer
    upload: Upload
    part: int
    size: int
    attempt: int = 0
    sums: Checksums | None = None

    @property
    def is_current(self) -> bool:
        """Whether its object still goes to the same upload."""
        return self.upload is self.transfer.upload


@dataclass
class Flights:
    """All parts in flight: those that a worker carries, and as many that wait in its queue.

    A thread that has carried a part takes the next one at once, not only after the decision about
    the former. Parts that wait take no memory; the worker keeps to `limits`.

    Attributes
    ----------
    memory : int
        Bytes that are carried at once.
    parallelism : Parallelism
        Number that is carried at once.
    """

    memory: int
    parallelism: Parallelism = field(default_factory=Parallelism)
    _flying: dict[int, Flight] = field(default_factory=dict)
    _delayed: list[tuple[float, int, Flight]] = field(default_factory=list)
    _bytes: int = 0
    _number: int = 0

    def __len__(self) -> int:
        return len(self._flying)

    @property
    def has_delayed(self) -> bool:
        """Whether parts wait for another attempt."""
        return bool(self._delayed)

    def has_room(self, size: int) -> bool:
        """Whether a part of `size` may start; a single one always may.

        Where only one is carried at once, none waits: they end in their order.
        """
        if not self._flying:
            return True
        carried = min(self.parallelism.limit, self.memory // max(1, size))
        return carried > 1 and len(self) < 2 * carried and self._bytes + size <= 2 * self.memory

    @property
    def limits(self) -> Limits:
        """Limits of the worker."""
        return Limits(self.parallelism.limit, self.memory)

    def start(self, flight: Flight) -> int:
        """Count a part as in flight and return its number."""
        self._number += 1
        flight.attempt += 1
        self._flying[self._number] = flight
        self._bytes += flight.size
        return self._number

    def land(self, number: int) -> Flight:
        """Return the part of this number, which is not in flight any more."""
        flight = self._flying.pop(number)
        self._bytes -= flight.size
        return flight

    def delay(self, flight: Flight, until: float) -> None:
        """Let a part wait for another attempt."""
        self._number += 1
        heapq.heappush(self._delayed, (until, self._number, flight))

    def due(self, now: float) -> Iterator[Flight]:
        """Yield parts whose wait is over while there is room."""
        while self._delayed and self._delayed[0][0] <= now:
            if not self.has_room(self._delayed[0][2].size):
                return
            flight = heapq.heappop(self._delayed)[2]
            if flight.is_current:
                yield flight

    def patience(self, now: float, most: float) -> float:
        """Return the seconds until a wait is over, up to `most`."""
        until = self._delayed[0][0] - now if self._delayed else most
        return min(most, max(0.0, until))
