"""Saves of a call that goes on elsewhere: they come with it, and go to the notebook at once.

A call of ``sky.function(recover=True)`` has states of its own: two calls of one function that say
``checkpointed("fit")`` do not meet, whichever nodes they run on.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import BinaryIO

from jupyter_sky.base.translation import _
from jupyter_sky.execution.checkpoints.places import PlaceError, SaveNumber
from jupyter_sky.execution.checkpoints.save_format import PackedState, write_state

MAX_SAVE_BYTES = 200_000_000
"""Largest save that comes to the notebook; larger ones need a store."""

SendSave = Callable[[str, str, bytes], None]
"""Sends a save to the notebook: name of the state, name of the save, content."""
SentSave = tuple[str, str, bytes]


@dataclass(frozen=True, slots=True)
class CallSaves:
    """Saves of one call, on the node that runs it.

    Attributes
    ----------
    owner : str
        Id of the call, under which a store keeps its states.
    generation : int
        How often the call was sent before.
    received : iterable of SentSave
        Newest save of each state, from nodes that had the call before.
    send : SendSave
        Sends a new save to the notebook.
    """

    owner: str
    generation: int
    received: Iterable[SentSave]
    send: SendSave

    def open(self, name: str) -> NotebookPlace:
        """Return the place of a state's saves."""
        saves = {
            number: data
            for state, saved, data in self.received
            if state == name and (number := SaveNumber.parse(saved)) is not None
        }
        return NotebookPlace(name, self.send, saves)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let `checkpointed` keep the states of this thread with the call."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_current: ContextVar[CallSaves | None] = ContextVar("jupyter_sky_call_saves", default=None)


def current_saves() -> CallSaves | None:
    """Return the saves of the call that this thread runs; None where it need not go on."""
    return _current.get()


@dataclass(slots=True)
class NotebookPlace:
    """Place of saves in the notebook that has sent a call.

    Attributes
    ----------
    name : str
        Name of the state.
    send : SendSave
        Sends a save to the notebook.
    saves : dict
        Saves that the notebook has.
    """

    name: str
    send: SendSave
    saves: dict[SaveNumber, bytes] = field(default_factory=dict)

    def __str__(self) -> str:
        return _("the notebook")

    def numbers(self) -> list[SaveNumber]:
        """Return the numbers of its saves, the newest first."""
        return sorted(self.saves, reverse=True)

    def open(self, number: SaveNumber) -> BinaryIO:
        """Open a save for reading."""
        return io.BytesIO(self.saves[number])

    def write(self, number: SaveNumber, packed: PackedState, keep: int) -> None:
        """Send a save, which takes the place of all before it.

        Raises
        ------
        PlaceError
            It is too large to come to the notebook.
        """
        if packed.size > MAX_SAVE_BYTES:
            raise PlaceError(
                _("a save of {size:,} bytes is too large to come to the notebook").format(
                    size=packed.size
                ),
                hint=_("name a store: sky.checkpointed({name!r}, to='s3://bucket/runs/')").format(
                    name=self.name
                ),
            )
        file = io.BytesIO()
        write_state(packed, file)
        self.saves = {number: file.getvalue()}
        self.send(self.name, number.name, file.getvalue())
