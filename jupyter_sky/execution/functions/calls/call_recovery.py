"""Saves of calls that go on elsewhere, as the notebook keeps them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from jupyter_sky.execution.checkpoints.places import SaveNumber


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
    earlier : dict
        The same of the save before it.

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
    earlier: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    def next_sending(self) -> tuple[str, int, tuple[tuple[str, str, bytes], ...]]:
        """Return what a node must know of the call's saves, and count the sending."""
        saves = tuple((state, name, data) for state, (name, data) in self.saves.items())
        sending = self.id, self.sent, saves
        self.sent += 1
        return sending

    def take(self, state: str, name: str, data: bytes) -> None:
        """Keep a save in place of the one before it."""
        if state in self.saves:
            self.earlier[state] = self.saves[state]
        self.saves[state] = name, data


def align_saves(recoveries: Sequence[CallRecovery]) -> None:
    """Let calls of one group go on from saves of the same number, where each has one.

    A node that was faster may have saved once more than the others. One that has never saved a
    state leaves that to the others.

    Examples
    --------
    >>> fast, slow = CallRecovery("a"), CallRecovery("b")
    >>> for name in ("000000-0000000001.sky", "000000-0000000002.sky"):
    ...     fast.take("fit", name, b"")
    >>> slow.take("fit", "000000-0000000001.sky", b"")
    >>> align_saves([fast, slow])
    >>> fast.saves["fit"][0]
    '000000-0000000001.sky'
    """
    for state in {state for recovery in recoveries for state in recovery.saves}:
        having = [recovery for recovery in recoveries if state in recovery.saves]
        common = min(_step(recovery.saves[state]) for recovery in having)
        for recovery in having:
            if state in recovery.earlier and _step(recovery.saves[state]) > common:
                recovery.saves[state] = recovery.earlier.pop(state)


def _step(save: tuple[str, bytes]) -> int:
    number = SaveNumber.parse(save[0])
    return -1 if number is None else number.step
