"""Shared state of a pool: dicts, sets, counters, queues, barriers and locks, by name.

This is the state alone, without sockets or clocks: requests go in, responses come out, at once or
later. Values are bytes that only tasks open. Requests are handled one after the other, so all
clients see the same order.

The alternative is `distributed` (``Lock``, ``Queue``, ``Variable``, ``Semaphore``, ``Event`` over
its scheduler). Measured on one machine (``tests/benchmarks/run.py shared_objects``), this module
against it: lock and unlock 0.17 against 0.68 ms, put and get 0.18 against 0.66 ms, first operation
of a fresh process 0.18 against 1.01 s, memory of a client 19 against 58 MiB, and the lock of a
killed process is free after 1.8 against 30.8 s (its lease). It has no atomic dict, set or counter,
no barrier and no fencing numbers, which would have to be written all the same, and every engine
would have to install it. Hence own code.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ...translation import _

Frames = tuple[bytes, ...]
Key = tuple[str, str]
"""Kind and name of a shared object."""


@dataclass(frozen=True, slots=True)
class Request:
    """Request of a client: number, arguments and values."""

    client: bytes
    number: int
    arguments: dict[str, Any]
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


class SharedObject:
    """Shared object with a name; operations are methods ``_op_NAME`` that return responses."""

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

    def _op_get(self, request: Request) -> Responses:
        entry = self.entries.get(request.frames[0])
        return [Response(request, entry is not None, entry[1:] if entry else ())]

    def _op_put(self, request: Request) -> Responses:
        frames = request.frames
        for start in range(0, len(frames), 3):
            token, key, value = frames[start : start + 3]
            self.entries[token] = key, value
        return [Response(request)]

    def _op_default(self, request: Request) -> Responses:
        token, key, value = request.frames
        return [Response(request, True, (self.entries.setdefault(token, (key, value))[1],))]

    def _op_pop(self, request: Request) -> Responses:
        token = request.frames[0]
        entry = self.entries.pop(token, None)
        if entry is None:
            return [Response(request, False)]

        def undo() -> Responses:
            self.entries.setdefault(token, entry)
            return []

        return [Response(request, True, entry[1:], undo=undo)]

    def _op_has(self, request: Request) -> Responses:
        return [Response(request, request.frames[0] in self.entries)]

    def _op_len(self, request: Request) -> Responses:
        return [Response(request, len(self.entries))]

    def _op_keys(self, request: Request) -> Responses:
        return [Response(request, None, tuple(key for key, __ in self.entries.values()))]

    def _op_items(self, request: Request) -> Responses:
        return [
            Response(
                request, None, tuple(frame for entry in self.entries.values() for frame in entry)
            )
        ]

    def _op_clear(self, request: Request) -> Responses:
        self.entries.clear()
        return [Response(request)]


class SetObject(DictObject):
    """Set of encoded keys."""

    def _op_add(self, request: Request) -> Responses:
        token, *pair = request.frames
        new = token not in self.entries
        self.entries.setdefault(token, (pair[0], pair[1]))
        return [Response(request, new)]


class CounterObject(SharedObject):
    """Counter with one number."""

    def __init__(self) -> None:
        self.value: float = 0

    def _op_add(self, request: Request) -> Responses:
        self.value += request.arguments["amount"]
        return [Response(request, self.value)]

    def _op_reset(self, request: Request) -> Responses:
        before, self.value = self.value, request.arguments["value"]
        return [Response(request, before)]


@dataclass
class QueueObject(SharedObject):
    """Queue of items, with waiting gets and puts."""

    items: deque[bytes] = field(default_factory=deque)
    waiting_gets: deque[Request] = field(default_factory=deque)
    waiting_puts: deque[Request] = field(default_factory=deque)

    def _op_put(self, request: Request) -> Responses:
        self.waiting_puts.append(request)
        return self._match_waiters()

    def _op_get(self, request: Request) -> Responses:
        self.waiting_gets.append(request)
        return self._match_waiters()

    def _op_len(self, request: Request) -> Responses:
        return [Response(request, len(self.items))]

    def _op_clear(self, request: Request) -> Responses:
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
            elif self.waiting_puts and len(self.items) < (
                self.waiting_puts[0].arguments.get("maxsize") or math.inf
            ):
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

    def _op_acquire(self, request: Request) -> Responses:
        if self.holder is not None and self.holder.client == request.client:
            return [
                Response(request, error=_("this task holds it already: a lock is not taken twice"))
            ]
        self.queue.append(request)
        return self._grant()

    def _op_release(self, request: Request) -> Responses:
        holder = self.holder
        if holder is None or holder.client != request.client:
            reason = _("nobody holds it") if holder is None else _("another task holds it")
            return [
                Response(request, error=_("it cannot be released: {reason}").format(reason=reason))
            ]
        self.holder = None
        return [Response(request), *self._grant()]

    def _op_held(self, request: Request) -> Responses:
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
        ttl = self.holder.arguments.get("ttl") if self.holder else None
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

    def _op_wait(self, request: Request) -> Responses:
        parties = request.arguments["parties"]
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

    def _op_len(self, request: Request) -> Responses:
        return [Response(request, len(self.arrived))]

    def _op_reset(self, request: Request) -> Responses:
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


class SharedState:
    """All shared objects by name, and the last response to each client.

    Examples
    --------
    >>> state = SharedState()
    >>> add = {"kind": "counter", "name": "n", "op": "add", "amount": 2}
    >>> (response,) = state.handle_request(b"me", 1, add, ())
    >>> response.value
    2
    """

    KINDS: ClassVar[dict[str, Callable[[], SharedObject]]] = {
        "dict": DictObject,
        "set": SetObject,
        "counter": CounterObject,
        "queue": QueueObject,
        "lock": LockObject,
        "barrier": BarrierObject,
    }

    def __init__(self) -> None:
        self.objects: dict[Key, SharedObject] = {}
        self.active_objects: dict[Key, SharedObject] = {}
        """Objects with waiting requests or holders."""
        self.last: dict[bytes, Response] = {}
        self.pending_numbers: dict[bytes, int] = {}
        """Number of the request that each client waits for."""

    def handle_request(
        self,
        client: bytes,
        number: int,
        arguments: dict[str, Any],
        frames: Sequence[bytes],
        now: float = 0.0,
    ) -> Responses:
        """Handle a request; return the responses that it causes, also to other clients.

        A request that was sent again because its response was lost is not carried out twice.
        """
        if arguments["op"] == "cancel":
            return self._cancel(client, arguments["number"])
        last_response = self.last.get(client)
        if last_response is not None and last_response.request.number >= number:
            return [last_response] if last_response.request.number == number else []
        if self.pending_numbers.get(client) == number:
            return []
        timeout = arguments.get("timeout")
        deadline = math.inf if timeout is None else now + timeout
        request = Request(client, number, arguments, tuple(frames), deadline)
        key = arguments["kind"], arguments["name"]
        shared_object = self.objects.get(key) or self.KINDS[key[0]]()
        self.objects[key] = shared_object
        self.pending_numbers[client] = number
        responses = getattr(shared_object, f"_op_{arguments['op']}")(request)
        if deadline <= now:
            responses += shared_object.expire(now)
        self._track(key, shared_object)
        return self._remember(responses)

    def _track(self, key: Key, shared_object: SharedObject) -> None:
        if any(True for __ in shared_object.waiting_requests()):
            self.active_objects[key] = shared_object
        else:
            self.active_objects.pop(key, None)
        if not shared_object.has_state:
            self.objects.pop(key, None)

    def _apply_to_active(self, change: Callable[[SharedObject], Responses]) -> Responses:
        responses: Responses = []
        for key, shared_object in list(self.active_objects.items()):
            responses += change(shared_object)
            self._track(key, shared_object)
        return self._remember(responses)

    def _cancel(self, client: bytes, number: int) -> Responses:
        """Cancel a request that its client has abandoned."""
        last = self.last.get(client)
        if last is not None and last.request.number == number:
            self.last[client] = replace(last, undo=None)
            return self.revert_response(last)
        return self._apply_to_active(
            lambda shared_object: shared_object.remove_client(client, number)
        )

    def expire(self, now: float) -> Responses:
        """Answer requests that have timed out."""
        return self._apply_to_active(lambda shared_object: shared_object.expire(now))

    def revert_response(self, response: Response) -> Responses:
        """Revert a response that could not be delivered."""
        return self._remember(response.undo() if response.undo else [])

    def remove_client(self, client: bytes) -> Responses:
        """Release locks and cancel requests of a client."""
        self.last.pop(client, None)
        self.pending_numbers.pop(client, None)
        return self._apply_to_active(lambda shared_object: shared_object.remove_client(client))

    def _remember(self, responses: Responses) -> Responses:
        for response in responses:
            self.last[response.request.client] = response
            self.pending_numbers.pop(response.request.client, None)
        return responses
