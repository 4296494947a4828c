"""Values of an engine that are also in the notebook: the state in which they last agreed."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from jupyter_sky.base.errors import SkyTransferError
from jupyter_sky.machines.engines.wire.auto_inputs import AutoInput, Decision
from jupyter_sky.machines.engines.wire.values import Parcel
from jupyter_sky.machines.engines.wire.widget_state import is_shared, open_model, shared_digest


@dataclass(frozen=True, slots=True)
class SentValue:
    """Value of a name when notebook and engine last agreed on it.

    Attributes
    ----------
    digest : str
        Hash of the content as the notebook pickles it.
    state : str
        Hash of the content as this engine pickles it.
    identity : int
        Id of the object on this engine.
    modules : str
        Digests of the files of the notebook's modules that came with it; empty if none did.
    """

    digest: str
    state: str
    identity: int
    modules: str = ""

    def is_edited(self, offered: AutoInput) -> bool:
        """Return whether the files of its modules have changed in the notebook since."""
        return bool(self.modules and offered.modules) and self.modules != offered.modules


class SentValues:
    """Values that were sent from a notebook, or to it.

    Parameters
    ----------
    namespace
        The variables of cells.
    """

    def __init__(self, namespace: MutableMapping[str, Any]) -> None:
        self._namespace = namespace
        self._sent: dict[str, SentValue] = {}

    def record(self, name: str, digest: str, state: str = "", modules: str = "") -> None:
        """Record that the notebook has the value of a name now, with the given hash."""
        value = self._namespace[name]
        self._sent[name] = SentValue(digest, state or self._state(value), id(value), modules)

    def has(self, name: str, digest: str) -> bool:
        """Return whether a name still holds the content that was last sent under it."""
        sent, value = self._sent.get(name), self._namespace.get(name)
        if sent is None or (sent.digest, sent.identity) != (digest, id(value)):
            return False
        return sent.state == self._state(value)  # it may have changed in place

    def decide(self, name: str, offered: AutoInput) -> Decision:
        """Decide whether a cell with ``--auto`` uses the notebook's value or that of this engine.

        A value that changed on one side only is the newer one. Where both have changed, that of
        the notebook is used if its cells changed it after the last cell here that mentions it.
        """
        if name not in self._namespace:
            return "bind"
        sent, state = self._sent.get(name), self._state(self._namespace[name])
        if state == offered.digest and is_shared(state):  # of a widget the rest may differ
            return "bind" if offered.mentioned_later else "same"
        is_edited = sent is not None and sent.is_edited(offered)
        if state == offered.digest:
            return "bind" if is_edited else "same"
        if sent is None:
            return "replace" if offered.assigned_later else "keep"
        is_changed_here = state != sent.state
        is_changed_there = is_edited or offered.digest != sent.digest
        if not is_changed_here:
            return "bind" if is_changed_there else "same"
        later = offered.mentioned_later if is_changed_there else offered.assigned_later
        return "replace" if later else "keep"

    def decide_reference(self, name: str, value: Any, offered: AutoInput) -> Decision:
        """Decide the same for a value of this engine that the notebook has a handle of."""
        if name not in self._namespace:
            return "bind"
        if self._namespace[name] is value:
            return "same"
        return "replace" if offered.assigned_later else "keep"

    def _state(self, value: Any) -> str:
        """Return a hash of the content of a value, or its identity where it cannot be pickled."""
        if model := open_model(value):
            return shared_digest(model)
        try:
            return Parcel.of(value, namespace=self._namespace, models=set()).digest()
        except SkyTransferError:
            return f"object {id(value)}"
