"""Positions of resumable loops: items that are done, by loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class LoopPositions:
    """Positions of loops, which may lie in each other.

    A loop is known by its place: ``"0"`` is the first, ``"0.1"`` the second within an item of it.
    When an item of a loop is done, the loops within it begin anew with the next one.

    Attributes
    ----------
    done : dict
        What each loop has done: a number of items, or the state of a loader.
    """

    done: dict[str, Any] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)
    _begun: dict[str, int] = field(default_factory=dict)

    @property
    def is_inside(self) -> bool:
        """Whether an item is being worked on."""
        return bool(self._open)

    def begin(self) -> str:
        """Begin a loop; return its name."""
        parent = self._open[-1] if self._open else ""
        number = self._begun.get(parent, 0)
        self._begun[parent] = number + 1
        return f"{parent}.{number}" if parent else str(number)

    def enter(self, loop: str) -> None:
        """Begin an item."""
        self._open.append(loop)
        self._begun[loop] = 0

    def leave(self, loop: str) -> None:
        """End an item that was not completed, and all within it."""
        if loop in self._open:
            del self._open[self._open.index(loop) :]

    def commit(self, loop: str, position: Any) -> None:
        """Note that an item is done."""
        self.leave(loop)
        self.done = {
            name: done for name, done in self.done.items() if not name.startswith(loop + ".")
        }
        self.done[loop] = position
