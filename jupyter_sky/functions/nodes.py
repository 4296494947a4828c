"""Nodes of a pool as the notebook sees them, and what was sent there."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..engines.link import Link
    from .tasks import Task


@dataclass(slots=True, eq=False)
class Node:
    """A node that takes calls.

    Attributes
    ----------
    rank : int
        Its place in the pool; `place` is its rank in the cluster of `link`.
    engine : str
        The process there now; empty while there is none.
    """

    rank: int
    link: Link
    place: int
    slots: int
    lane: str
    engine: str = ""
    batches: dict[str, Batch] = field(default_factory=dict)
    pinned: deque[Task] = field(default_factory=deque)
    reserved: bool = False
    aside: bool = False
    """Whether only calls for this very node go there: it is being made ready."""
    told: Any = None

    @property
    def free(self) -> int:
        """Slots that nothing runs in."""
        if not self.engine or self.reserved or not self.alive:
            return 0
        return self.slots - len(self.batches)

    @property
    def alive(self) -> bool:
        """Whether its engine is there, as far as is known."""
        return not self.link.lost and self.link.client._engines.get(self.place) == self.engine


@dataclass(slots=True, eq=False)
class Batch:
    """Calls that went to a node in one message."""

    node: Node
    tasks: dict[int, Task]
    id: str = ""
    sent: float = field(default_factory=time.monotonic)
    printed: int = 0
    held: deque[tuple[int, list[tuple]]] = field(default_factory=deque)
    final: bool = False
    crowded: bool = False
    """Whether others ran beside it when its engine died."""
    stopped: tuple[str, float] | None = None
    """Why and when it was told to stop."""
