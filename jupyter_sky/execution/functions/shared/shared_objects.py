"""Objects of the shared state of a pool: dict, set, counter, queue, lock and barrier.

Values are bytes that only tasks open. An operation takes a request and returns responses, to its
client or to others that have waited.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from jupyter_sky.base.messages import Receiver, handles
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.shared.messages import (
    Acquire,
    AddAmount,
    AddElement,
    Clear,
    GetEntry,
    GetItem,
    HasEntry,
    IsHeld,
    Length,
    ListItems,
    ListKeys,
    PopEntry,
    PutEntries,
    PutItem,
    Release,
    ResetBarrier,
    ResetCounter,
    SetDefault,
    SharedRequest,
    Wait,
)

Frames = tuple[bytes, ...]
Key = tuple[str, str]
"""Kind and name of a shared object."""


@dataclass(frozen=True, slots=True)
class Request:
    """Request of a client: number, arguments and values."""

    client: bytes
    number: int
    arguments: SharedRequest
    frames: Frames = ()
    deadline: float = math.inf


@dataclass(frozen=True, slots=True)
class Response:
    """Response to a request; `undo` reverts it if it cannot be delivered."""

    request: Request
    value: Any = None
    frames: Frames = ()
    error: str = ""
    undo: Callable[[], Responses] | None = None


Responses = list[Response]


READS = (GetEntry, HasEntry, IsHeld, Length, ListItems, ListKeys)
"""Requests that change nothing."""


class SharedObject(Receiver):
    """Shared object with a name; its handlers return responses."""

    def dump(self) -> tuple[float, Frames] | None:
        """Return what a copy of it is made from, a number and frames; None for no copy."""
        return None

    def load(self, number: float, frames: Sequence[bytes]) -> None:
        """Take over what `dump` has returned."""

    @property
    def has_state(self) -> bool:
        """Whether it has state worth keeping."""
        return True

    def waiting_requests(self) -> Iterator[Request]:
        """Yield waiting requests."""
        return iter(())

    def expire(self, now: float) -> Responses:
        """Answer requests that have timed out."""
        return []

    def remove_client(self, client: bytes, number: int | None = None) -> Responses:
        """Remove a lost client, or one cancelled request."""
        return []


class DictObject(SharedObject):
    """Dict of encoded keys, each with the bytes of key and value."""

    def __init__(self) -> None:
        self.entries: dict[bytes, tuple[bytes, bytes]] = {}

    def dump(self) -> tuple[float, Frames]:
        """Return token, key and value of all entries, one after the other."""
        return 0, tuple(part for token, entry in self.entries.items() for part in (token, *entry))

    def load(self, number: float, frames: Sequence[bytes]) -> None:
        """Take over entries."""
        triples = zip(frames[::3], frames[1::3], frames[2::3], strict=True)
        self.entries = {token: (key, value) for token, key, value in triples}

    @handles(GetEntry)
    def _get(self, arguments: GetEntry, request: Request) -> Responses:
        entry = self.entries.get(request.frames[0])
        return [Response(request, entry is not None, entry[1:] if entry else ())]

    @handles(PutEntries)
    def _put(self, arguments: PutEntries, request: Request) -> Responses:
        frames = request.frames
        for start in range(0, len(frames), 3):
            token, key, value = frames[start : start + 3]
            self.entries[token] = key, value
        return [Response(request)]

    @handles(SetDefault)
    def _set_default(self, arguments: SetDefault, request: Request) -> Responses:
        token, key, value = request.frames
        return [Response(request, True, (self.entries.setdefault(token, (key, value))[1],))]

    @handles(PopEntry)
    def _pop(self, arguments: PopEntry, request: Request) -> Responses:
        token = request.frames[0]
        entry = self.entries.pop(token, None)
        if entry is None:
            return [Response(request, False)]

        def undo() -> Responses:
            self.entries.setdefault(token, entry)
            return []

        return [Response(request, True, entry[1:], undo=undo)]

    @handles(HasEntry)
    def _has(self, arguments: HasEntry, request: Request) -> Responses:
        return [Response(request, request.frames[0] in self.entries)]

    @handles(Length)
    def _length(self, arguments: Length, request: Request) -> Responses:
        return [Response(request, len(self.entries))]

    @handles(ListKeys)
    def _list_keys(self, arguments: ListKeys, request: Request) -> Responses:
        return [Response(request, None, tuple(key for key, __ in self.entries.values()))]

    @handles(ListItems)
    def _list_items(self, arguments: ListItems, request: Request) -> Responses:
        return [
            Response(
                request, None, tuple(frame for entry in self.entries.values() for frame in entry)
            )
        ]

    @handles(Clear)
    def _clear(self, arguments: Clear, request: Request) -> Responses:
        self.entries.clear()
        return [Response(request)]


class SetObject(DictObject):
    """Set of encoded keys."""

    @handles(AddElement)
    def _add(self, arguments: AddElement, request: Request) -> Responses:
        token, *pair = request.frames
        new = token not in self.entries
        self.entries.setdefault(token, (pair[0], pair[1]))
        return [Response(request, new)]


class CounterObject(SharedObject):
    """Counter with one number."""

    def __init__(self) -> None:
        self.value: float = 0

    def dump(self) -> tuple[float, Frames]:
        """Return the number."""
        return self.value, ()

    def load(self, number: float, frames: Sequence[bytes]) -> None:
        """Take over a number."""
        self.value = number

    @handles(AddAmount)
    def _add(self, arguments: AddAmount, request: Request) -> Responses:
        self.value += arguments.amount
        return [Response(request, self.value)]

    @handles(ResetCounter)
    def _reset(self, arguments: ResetCounter, request: Request) -> Responses:
        before, self.value = self.value, arguments.value
        return [Response(request, before)]


def _max_size(put: Request) -> float:
    arguments = put.arguments
    return (isinstance(arguments, PutItem) and arguments.maxsize) or math.inf


@dataclass
class QueueObject(SharedObject):
    """Queue of items, with waiting gets and puts."""

    items: deque[bytes] = field(default_factory=deque)
    waiting_gets: deque[Request] = field(default_factory=deque)
    waiting_puts: deque[Request] = field(default_factory=deque)

    def dump(self) -> tuple[float, Frames]:
        """Return the items."""
        return 0, tuple(self.items)

    def load(self, number: float, frames: Sequence[bytes]) -> None:
        """Take over items."""
        self.items = deque(frames)

    @handles(PutItem)
    def _put(self, arguments: PutItem, request: Request) -> Responses:
        self.waiting_puts.append(request)
        return self._match_waiters()

    @handles(GetItem)
    def _get(self, arguments: GetItem, request: Request) -> Responses:
        self.waiting_gets.append(request)
        return self._match_waiters()

    @handles(Length)
    def _length(self, arguments: Length, request: Request) -> Responses:
        return [Response(request, len(self.items))]

    @handles(Clear)
    def _clear(self, arguments: Clear, request: Request) -> Responses:
        self.items.clear()
        return [Response(request), *self._match_waiters()]

    def _match_waiters(self) -> Responses:
        """Match waiting puts and gets."""
        responses: Responses = []
        while True:
            if self.items and self.waiting_gets:
                item = self.items.popleft()
                responses.append(
                    Response(self.waiting_gets.popleft(), True, (item,), undo=self._make_undo(item))
                )
            elif self.waiting_puts and len(self.items) < _max_size(self.waiting_puts[0]):
                putter = self.waiting_puts.popleft()
                self.items.append(putter.frames[0])
                responses.append(Response(putter, True))
            else:
                return responses

    def _make_undo(self, item: bytes) -> Callable[[], Responses]:
        def undo() -> Responses:
            self.items.appendleft(item)
            return self._match_waiters()

        return undo

    def waiting_requests(self) -> Iterator[Request]:
        """Yield waiting gets and puts."""
        yield from self.waiting_gets
        yield from self.waiting_puts

    def expire(self, now: float) -> Responses:
        """Answer gets and puts that have timed out."""
        late = [each for each in self.waiting_requests() if each.deadline <= now]
        for each in late:
            self._remove_waiters(lambda other, each=each: other is each)
        return [Response(each, False) for each in late] + self._match_waiters()

    def remove_client(self, client: bytes, number: int | None = None) -> Responses:
        """Remove the gets and puts of a lost client, or one cancelled request."""
        self._remove_waiters(lambda each: each.client == client and number in (None, each.number))
        return self._match_waiters()

    def _remove_waiters(self, is_removed: Callable[[Request], bool]) -> None:
        self.waiting_gets = deque(each for each in self.waiting_gets if not is_removed(each))
        self.waiting_puts = deque(each for each in self.waiting_puts if not is_removed(each))


class LockObject(SharedObject):
    """Lock with its holder, fencing number and waiting requests."""

    def __init__(self) -> None:
        self.holder: Request | None = None
        self.fence = 0
        self.expires_at = math.inf
        self.queue: deque[Request] = deque()

    def dump(self) -> tuple[float, Frames]:
        """Return the fencing number, which goes on; the lock itself is free in a copy."""
        return self.fence, ()

    def load(self, number: float, frames: Sequence[bytes]) -> None:
        """Take over a fencing number."""
        self.fence = int(number)

    @handles(Acquire)
    def _acquire(self, arguments: Acquire, request: Request) -> Responses:
        if self.holder is not None and self.holder.client == request.client:
            return [
                Response(request, error=_("this task holds it already: a lock is not taken twice"))
            ]
        self.queue.append(request)
        return self._grant()

    @handles(Release)
    def _release(self, arguments: Release, request: Request) -> Responses:
        holder = self.holder
        if holder is None or holder.client != request.client:
            reason = _("nobody holds it") if holder is None else _("another task holds it")
            return [
                Response(request, error=_("it cannot be released: {reason}").format(reason=reason))
            ]
        self.holder = None
        return [Response(request), *self._grant()]

    @handles(IsHeld)
    def _is_held(self, arguments: IsHeld, request: Request) -> Responses:
        return [Response(request, self.holder is not None)]

    def _grant(self) -> Responses:
        if self.holder is not None or not self.queue:
            return []
        holder = self.holder = self.queue.popleft()
        self.fence += 1
        self.expires_at = math.inf  # until the clock is known: see `expire`
        return [Response(holder, self.fence, undo=lambda: self.remove_client(holder.client))]

    def waiting_requests(self) -> Iterator[Request]:
        """Yield waiting requests, and that of the holder."""
        yield from self.queue
        if self.holder is not None:
            yield self.holder

    def expire(self, now: float) -> Responses:
        """Answer requests that have timed out; release a lock that was held for too long."""
        late = [each for each in self.queue if each.deadline <= now]
        self.queue = deque(each for each in self.queue if each.deadline > now)
        held = self.holder.arguments if self.holder else None
        ttl = held.ttl if isinstance(held, Acquire) else None
        if ttl and self.expires_at == math.inf:
            self.expires_at = now + ttl
        if self.expires_at <= now:
            self.holder, self.expires_at = None, math.inf
        return [Response(each, False) for each in late] + self._grant()

    def remove_client(self, client: bytes, number: int | None = None) -> Responses:
        """Remove the requests of a lost client, or one cancelled request; release its lock."""
        self.queue = deque(
            each
            for each in self.queue
            if each.client != client or number not in (None, each.number)
        )
        holder = self.holder
        if holder and holder.client == client and number in (None, holder.number):
            self.holder = None
        return self._grant()


class BarrierObject(SharedObject):
    """Barrier with arrived clients and their values."""

    def __init__(self) -> None:
        self.parties = 0
        self.arrived: list[Request] = []

    @property
    def has_state(self) -> bool:
        """Whether a client has arrived."""
        return bool(self.arrived)

    @handles(Wait)
    def _wait(self, arguments: Wait, request: Request) -> Responses:
        parties = arguments.parties
        if self.arrived and parties != self.parties:
            error = _("{parties} tasks meet here, and one came to meet {parties2}").format(
                parties=self.parties, parties2=parties
            )
            return [Response(request, error=error)]
        self.parties = parties
        self.arrived.append(request)
        if len(self.arrived) < parties:
            return []
        complete, self.arrived = self.arrived, []
        values = tuple(frame for party in complete for frame in party.frames)
        return [Response(party, index, values) for index, party in enumerate(complete)]

    @handles(Length)
    def _length(self, arguments: Length, request: Request) -> Responses:
        return [Response(request, len(self.arrived))]

    @handles(ResetBarrier)
    def _reset(self, arguments: ResetBarrier, request: Request) -> Responses:
        return [Response(request), *self._abort_waiters()]

    def _abort_waiters(self) -> Responses:
        broken, self.arrived = self.arrived, []
        return [Response(each, -1) for each in broken]

    def waiting_requests(self) -> Iterator[Request]:
        """Yield the requests of arrived clients."""
        return iter(self.arrived)

    def expire(self, now: float) -> Responses:
        """Break the barrier when one of its waits has timed out."""
        return self._abort_waiters() if any(each.deadline <= now for each in self.arrived) else []

    def remove_client(self, client: bytes, number: int | None = None) -> Responses:
        """Break the barrier of a lost client or cancelled request."""
        removed = [e for e in self.arrived if e.client == client and number in (None, e.number)]
        self.arrived = [each for each in self.arrived if each not in removed]
        return self._abort_waiters() if removed else []
