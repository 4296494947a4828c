"""Saves of calls that go on elsewhere, as the notebook keeps them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class CallRecovery:
    """Newest save of each state of a call, which goes with it to its next node.

    Attributes
    ----------
    id : str
        Name of the call in stores.
    sent : int
        How often the call has been sent.
    saves : dict
        Name and content of the newest save, by the name of the state.

    Examples
    --------
    >>> recovery = CallRecovery("call")
    >>> recovery.next_sending()
    ('call', 0, ())
    >>> recovery.take("fit", "000000-0000000001.sky", b"...")
    >>> recovery.next_sending()
    ('call', 1, (('fit', '000000-0000000001.sky', b'...'),))
    """

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    sent: int = 0
    saves: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    def next_sending(self) -> tuple[str, int, tuple[tuple[str, str, bytes], ...]]:
        """Return what a node must know of the call's saves, and count the sending."""
        saves = tuple((state, name, data) for state, (name, data) in self.saves.items())
        sending = self.id, self.sent, saves
        self.sent += 1
        return sending

    def take(self, state: str, name: str, data: bytes) -> None:
        """Keep a save in place of the one before it."""
        self.saves[state] = name, data
