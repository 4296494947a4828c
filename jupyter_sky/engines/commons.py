"""What the tasks of a pool share: dicts, sets, counters, queues, barriers and locks, by name.

This is the state alone, without sockets or clocks: requests go in, answers come out, at once or
later. Values are bytes that only tasks open. One request is carried out after the other, so all
see the same order.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

Frames = tuple[bytes, ...]
Key = tuple[str, str]
"""The kind of a thing and its name."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: who asks, its number there, what it says and the values with it."""

    client: bytes
    number: int
    arguments: dict[str, Any]
    frames: Frames = ()
    deadline: float = math.inf


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a request; `undo` takes back what nobody has received."""

    asked: Asked
    value: Any = None
    frames: Frames = ()
    failed: str = ""
    undo: Callable[[], Answers] | None = None


Answers = list[Answer]


class Thing:
    """One named thing: its operations are methods ``op_NAME``, which return what is answered."""

    @property
    def used(self) -> bool:
        """Whether there is anything to remember of it."""
        return True

    def waiting(self) -> Iterator[Asked]:
        """Yield who waits."""
        return iter(())

    def expire(self, now: float) -> Answers:
        """Answer those who have waited long enough."""
        return []

    def leave(self, client: bytes, number: int | None = None) -> Answers:
        """Let go of a client that is gone, or of one request that it has taken back."""
        return []


class Dict(Thing):
    """Keys by their tokens, each with its own bytes and those of its value."""

    def __init__(self) -> None:
        self.held: dict[bytes, tuple[bytes, bytes]] = {}

    def op_get(self, asked: Asked) -> Answers:
        found = self.held.get(asked.frames[0])
        return [Answer(asked, found is not None, found[1:] if found else ())]

    def op_put(self, asked: Asked) -> Answers:
        frames = asked.frames
        for at in range(0, len(frames), 3):
            self.held[frames[at]] = frames[at + 1], frames[at + 2]
        return [Answer(asked)]

    def op_default(self, asked: Asked) -> Answers:
        token, key, value = asked.frames
        return [Answer(asked, True, (self.held.setdefault(token, (key, value))[1],))]

    def op_pop(self, asked: Asked) -> Answers:
        token = asked.frames[0]
        found = self.held.pop(token, None)
        if found is None:
            return [Answer(asked, False)]

        def undo() -> Answers:
            self.held.setdefault(token, found)
            return []

        return [Answer(asked, True, found[1:], undo=undo)]

    def op_has(self, asked: Asked) -> Answers:
        return [Answer(asked, asked.frames[0] in self.held)]

    def op_len(self, asked: Asked) -> Answers:
        return [Answer(asked, len(self.held))]

    def op_keys(self, asked: Asked) -> Answers:
        return [Answer(asked, None, tuple(key for key, _ in self.held.values()))]

    def op_items(self, asked: Asked) -> Answers:
        return [Answer(asked, None, tuple(each for pair in self.held.values() for each in pair))]

    def op_clear(self, asked: Asked) -> Answers:
        self.held.clear()
        return [Answer(asked)]


class Set(Dict):
    """Members are keys."""

    def op_add(self, asked: Asked) -> Answers:
        token, *pair = asked.frames
        new = token not in self.held
        self.held.setdefault(token, (pair[0], pair[1]))
        return [Answer(asked, new)]


class Counter(Thing):
    """A number."""

    def __init__(self) -> None:
        self.value: float = 0

    def op_add(self, asked: Asked) -> Answers:
        self.value += asked.arguments["amount"]
        return [Answer(asked, self.value)]

    def op_reset(self, asked: Asked) -> Answers:
        before, self.value = self.value, asked.arguments["value"]
        return [Answer(asked, before)]


@dataclass
class Queue(Thing):
    """Items, those who wait for one, and those who wait for room."""

    items: deque[bytes] = field(default_factory=deque)
    getting: deque[Asked] = field(default_factory=deque)
    putting: deque[Asked] = field(default_factory=deque)

    def op_put(self, asked: Asked) -> Answers:
        self.putting.append(asked)
        return self._move()

    def op_get(self, asked: Asked) -> Answers:
        self.getting.append(asked)
        return self._move()

    def op_len(self, asked: Asked) -> Answers:
        return [Answer(asked, len(self.items))]

    def op_clear(self, asked: Asked) -> Answers:
        self.items.clear()
        return [Answer(asked), *self._move()]

    def _move(self) -> Answers:
        """Take in and hand out as much as can be."""
        answers: Answers = []
        while True:
            if self.items and self.getting:
                item = self.items.popleft()
                answers.append(
                    Answer(self.getting.popleft(), True, (item,), undo=self._giver(item))
                )
            elif self.putting and len(self.items) < (
                self.putting[0].arguments.get("maxsize") or math.inf
            ):
                putter = self.putting.popleft()
                self.items.append(putter.frames[0])
                answers.append(Answer(putter, True))
            else:
                return answers

    def _giver(self, item: bytes) -> Callable[[], Answers]:
        def undo() -> Answers:
            self.items.appendleft(item)
            return self._move()

        return undo

    def waiting(self) -> Iterator[Asked]:
        yield from self.getting
        yield from self.putting

    def expire(self, now: float) -> Answers:
        late = [each for each in self.waiting() if each.deadline <= now]
        for each in late:
            self._forget(lambda other, each=each: other is each)
        return [Answer(each, False) for each in late] + self._move()

    def leave(self, client: bytes, number: int | None = None) -> Answers:
        self._forget(lambda each: each.client == client and number in (None, each.number))
        return self._move()

    def _forget(self, which: Callable[[Asked], bool]) -> None:
        self.getting = deque(each for each in self.getting if not which(each))
        self.putting = deque(each for each in self.putting if not which(each))


class Lock(Thing):
    """Who holds it, by what number, and who waits for it."""

    def __init__(self) -> None:
        self.holder: Asked | None = None
        self.fence = 0
        self.until = math.inf
        self.queue: deque[Asked] = deque()

    def op_acquire(self, asked: Asked) -> Answers:
        if self.holder is not None and self.holder.client == asked.client:
            return [Answer(asked, failed="this task holds it already: a lock is not taken twice")]
        self.queue.append(asked)
        return self._grant()

    def op_release(self, asked: Asked) -> Answers:
        holder = self.holder
        if holder is None or holder.client != asked.client:
            whose = "nobody holds it" if holder is None else "another task holds it"
            return [Answer(asked, failed=f"it cannot be released: {whose}")]
        self.holder = None
        return [Answer(asked), *self._grant()]

    def op_held(self, asked: Asked) -> Answers:
        return [Answer(asked, self.holder is not None)]

    def _grant(self) -> Answers:
        if self.holder is not None or not self.queue:
            return []
        holder = self.holder = self.queue.popleft()
        self.fence += 1
        self.until = math.inf  # until the clock is known: see `expire`
        return [Answer(holder, self.fence, undo=lambda: self.leave(holder.client))]

    def waiting(self) -> Iterator[Asked]:
        yield from self.queue
        if self.holder is not None:
            yield self.holder

    def expire(self, now: float) -> Answers:
        late = [each for each in self.queue if each.deadline <= now]
        self.queue = deque(each for each in self.queue if each.deadline > now)
        ttl = self.holder.arguments.get("ttl") if self.holder else None
        if ttl and self.until == math.inf:
            self.until = now + ttl
        if self.until <= now:
            self.holder, self.until = None, math.inf
        return [Answer(each, False) for each in late] + self._grant()

    def leave(self, client: bytes, number: int | None = None) -> Answers:
        self.queue = deque(
            each
            for each in self.queue
            if each.client != client or number not in (None, each.number)
        )
        holder = self.holder
        if holder and holder.client == client and number in (None, holder.number):
            self.holder = None
        return self._grant()


class Barrier(Thing):
    """Who has arrived, and what they have brought for all."""

    def __init__(self) -> None:
        self.parties = 0
        self.arrived: list[Asked] = []

    @property
    def used(self) -> bool:
        return bool(self.arrived)

    def op_wait(self, asked: Asked) -> Answers:
        parties = asked.arguments["parties"]
        if self.arrived and parties != self.parties:
            what = f"{self.parties} tasks meet here, and one came to meet {parties}"
            return [Answer(asked, failed=what)]
        self.parties = parties
        self.arrived.append(asked)
        if len(self.arrived) < parties:
            return []
        together, self.arrived = self.arrived, []
        brought = tuple(frame for each in together for frame in each.frames)
        return [Answer(each, index, brought) for index, each in enumerate(together)]

    def op_len(self, asked: Asked) -> Answers:
        return [Answer(asked, len(self.arrived))]

    def op_reset(self, asked: Asked) -> Answers:
        return [Answer(asked), *self._break()]

    def _break(self) -> Answers:
        broken, self.arrived = self.arrived, []
        return [Answer(each, -1) for each in broken]

    def waiting(self) -> Iterator[Asked]:
        return iter(self.arrived)

    def expire(self, now: float) -> Answers:
        return self._break() if any(each.deadline <= now for each in self.arrived) else []

    def leave(self, client: bytes, number: int | None = None) -> Answers:
        gone = [e for e in self.arrived if e.client == client and number in (None, e.number)]
        self.arrived = [each for each in self.arrived if each not in gone]
        return self._break() if gone else []


class Commons:
    """All things by name, and what each client was last answered.

    Examples
    --------
    >>> commons = Commons()
    >>> commons.ask(b"me", 1, {"kind": "counter", "name": "n", "op": "add", "amount": 2}, ())
    [Answer(asked=..., value=2, frames=(), failed='', undo=None)]
    """

    KINDS: ClassVar[dict[str, Callable[[], Thing]]] = {
        "dict": Dict,
        "set": Set,
        "counter": Counter,
        "queue": Queue,
        "lock": Lock,
        "barrier": Barrier,
    }

    def __init__(self) -> None:
        self.things: dict[Key, Thing] = {}
        self.busy: dict[Key, Thing] = {}
        """Those that somebody waits for or holds."""
        self.last: dict[bytes, Answer] = {}
        self.open: dict[bytes, int] = {}
        """What each client waits for."""

    def ask(
        self,
        client: bytes,
        number: int,
        arguments: dict[str, Any],
        frames: Sequence[bytes],
        now: float = 0.0,
    ) -> Answers:
        """Carry out a request; return the answers that it brings about, also to others.

        One that was sent again because its answer was lost is not carried out twice.
        """
        if arguments["op"] == "cancel":
            return self._cancel(client, arguments["number"])
        last = self.last.get(client)
        if last is not None and last.asked.number >= number:
            return [last] if last.asked.number == number else []
        if self.open.get(client) == number:
            return []
        timeout = arguments.get("timeout")
        deadline = math.inf if timeout is None else now + timeout
        asked = Asked(client, number, arguments, tuple(frames), deadline)
        key = arguments["kind"], arguments["name"]
        thing = self.things.get(key) or self.KINDS[key[0]]()
        self.things[key] = thing
        self.open[client] = number
        answers = getattr(thing, f"op_{arguments['op']}")(asked)
        if deadline <= now:
            answers += thing.expire(now)
        self._note(key, thing)
        return self._kept(answers)

    def _note(self, key: Key, thing: Thing) -> None:
        if any(True for _ in thing.waiting()):
            self.busy[key] = thing
        else:
            self.busy.pop(key, None)
        if not thing.used:
            self.things.pop(key, None)

    def _of_busy(self, change: Callable[[Thing], Answers]) -> Answers:
        answers: Answers = []
        for key, thing in list(self.busy.items()):
            answers += change(thing)
            self._note(key, thing)
        return self._kept(answers)

    def _cancel(self, client: bytes, number: int) -> Answers:
        """Take back a request that its client no longer waits for."""
        last = self.last.get(client)
        if last is not None and last.asked.number == number:
            self.last[client] = replace(last, undo=None)
            return self.undelivered(last)
        return self._of_busy(lambda thing: thing.leave(client, number))

    def expire(self, now: float) -> Answers:
        """Answer those who have waited long enough."""
        return self._of_busy(lambda thing: thing.expire(now))

    def undelivered(self, answer: Answer) -> Answers:
        """Take back what could not be handed over."""
        return self._kept(answer.undo() if answer.undo else [])

    def gone(self, client: bytes) -> Answers:
        """Let go of all that a client holds and waits for."""
        self.last.pop(client, None)
        self.open.pop(client, None)
        return self._of_busy(lambda thing: thing.leave(client))

    def _kept(self, answers: Answers) -> Answers:
        for answer in answers:
            self.last[answer.asked.client] = answer
            self.open.pop(answer.asked.client, None)
        return answers
