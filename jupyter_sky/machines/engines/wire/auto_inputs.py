# pyright: strict
"""Values that ``--auto`` offers an engine, which may have a newer one of the same name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Decision = Literal["bind", "same", "keep", "replace"]
"""``bind`` an offered value, or not because the ``same`` is there; ``keep`` the engine's changed
one, or ``replace`` it."""


@dataclass(frozen=True, slots=True)
class AutoInput:
    """Offered value of one name.

    Attributes
    ----------
    digest : str
        Hash of the content; empty for a value that is on the engine already.
    assigned_later : bool
        Whether the notebook has assigned the name after the last cell on a cluster that mentions
        it.
    mentioned_later : bool
        Whether a cell of the notebook has mentioned the name after that: one that changes a value
        in place does.
    modules : str
        Digests of the files of the local modules that it refers to, as they are now.
    """

    digest: str
    assigned_later: bool = False
    mentioned_later: bool = True
    modules: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as part of a message."""
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> AutoInput:
        """Return the offer in a message."""
        return cls(**told)


def read_offers(inputs: Mapping[str, Mapping[str, Any]]) -> dict[str, AutoInput]:
    """Return what ``--auto`` offers among the inputs in a message."""
    offered = {name: told["auto"] for name, told in inputs.items() if "auto" in told}
    return {name: AutoInput.from_json(told) for name, told in offered.items()}
