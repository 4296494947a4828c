"""Requests of tasks to the shared state of their pool; values travel beside them, as frames."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_sky.base.messages import Message


@dataclass(frozen=True, slots=True)
class SharedRequest(Message):
    """Request to a shared object, which has a kind and a name; the kind ``pool`` is the server."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class WaitingRequest(SharedRequest):
    """Request that may wait for other tasks, for at most `timeout` seconds."""

    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Cancel(SharedRequest, op="cancel"):
    """Request to cancel an earlier request of this client, by its number."""

    number: int


@dataclass(frozen=True, slots=True)
class Length(SharedRequest, op="len"):
    """Request for the number of entries, items or arrived tasks."""


@dataclass(frozen=True, slots=True)
class Clear(SharedRequest, op="clear"):
    """Request to remove all entries or items."""


# -- dicts and sets ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GetEntry(SharedRequest, op="get"):
    """Request for the value of a key."""


@dataclass(frozen=True, slots=True)
class PutEntries(SharedRequest, op="put"):
    """Request to set entries: token, key and value of each."""


@dataclass(frozen=True, slots=True)
class SetDefault(SharedRequest, op="default"):
    """Request for the value of a key, which is set if it is missing."""


@dataclass(frozen=True, slots=True)
class PopEntry(SharedRequest, op="pop"):
    """Request to remove a key and return its value."""


@dataclass(frozen=True, slots=True)
class HasEntry(SharedRequest, op="has"):
    """Question whether a key exists."""


@dataclass(frozen=True, slots=True)
class ListKeys(SharedRequest, op="keys"):
    """Request for all keys."""


@dataclass(frozen=True, slots=True)
class ListItems(SharedRequest, op="items"):
    """Request for all keys and values."""


@dataclass(frozen=True, slots=True)
class AddElement(SharedRequest, op="add"):
    """Request to add an element to a set."""


# -- counters ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddAmount(SharedRequest, op="add"):
    """Request to add an amount to a counter."""

    amount: float


@dataclass(frozen=True, slots=True)
class ResetCounter(SharedRequest, op="reset"):
    """Request to set a counter and return its previous value."""

    value: float


# -- queues, locks and barriers ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PutItem(WaitingRequest, op="put"):
    """Request to add an item to a queue of at most `maxsize` items."""

    maxsize: int | None = None


@dataclass(frozen=True, slots=True)
class GetItem(WaitingRequest, op="get"):
    """Request for the next item of a queue."""


@dataclass(frozen=True, slots=True)
class Acquire(WaitingRequest, op="acquire"):
    """Request for a lock, which is released after `ttl` seconds at the latest."""

    ttl: float | None = None


@dataclass(frozen=True, slots=True)
class Release(SharedRequest, op="release"):
    """Request to release a lock."""


@dataclass(frozen=True, slots=True)
class IsHeld(SharedRequest, op="held"):
    """Question whether a lock is held."""


@dataclass(frozen=True, slots=True)
class Wait(WaitingRequest, op="wait"):
    """Request to wait at a barrier until `parties` tasks have come."""

    parties: int = 0


@dataclass(frozen=True, slots=True)
class ResetBarrier(SharedRequest, op="reset"):
    """Request to abort waiting tasks."""


# -- the server ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CopyState(SharedRequest, op="copy"):
    """Request for a copy of the state if it has changed; with `move`, it is served no longer."""

    since: int
    move: bool = False


@dataclass(frozen=True, slots=True)
class LoadState(SharedRequest, op="load"):
    """Request to continue from a copy of another server's state."""
