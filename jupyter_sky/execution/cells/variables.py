"""Variables of a notebook and of its clusters: sent, fetched, listed."""

from __future__ import annotations

from collections import deque
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.cell_names import assigned_names
from jupyter_sky.execution.cells.engine_queue import describe_wait
from jupyter_sky.execution.clusters.clusters import ClusterRegistry
from jupyter_sky.execution.files import transfer

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import ClusterHandle

RECENT_CELLS = 100
"""Number of cells whose names are offered for completion."""


@dataclass(frozen=True, slots=True)
class FetchedVariable:
    """A variable that has been brought; its value may be None."""

    value: Any


class Variables:
    """Variables of a notebook, beside those of its clusters.

    Parameters
    ----------
    namespace
        Variables of the notebook.
    """

    def __init__(self, namespace: MutableMapping[str, Any], clusters: ClusterRegistry) -> None:
        self.namespace, self._clusters = namespace, clusters
        self._codes: deque[str] = deque(maxlen=RECENT_CELLS)

    def put(self, names: list[str], cluster: str | None = None) -> None:
        """Send local variables to every engine of a cluster."""
        live = self._clusters.find(cluster)
        if note := describe_wait(live, live.connection.ranks()):
            print(note, flush=True)
        for name in names:
            if name not in self.namespace:
                raise SkyUsageError(
                    _("put: there is no variable {name!r} here").format(name=name),
                    hint=suggest(name, self.namespace),
                )
            parcel = transfer.Parcel.of(self.namespace[name], name)
            transfer.send_value(
                live, live.connection.ranks(), name, parcel, lambda done, total: None
            )

    def fetch(self, name: str, live: ClusterHandle, rank: int = 0) -> FetchedVariable | None:
        """Bring a remote variable here under the same name; return None where there is none."""
        trusted = Sky.load().trust
        described = live.connection.ask_engine(rank, "pack", name=name, as_data=not trusted)
        if described.get("missing"):
            return None
        value = transfer.receive_value(live, rank, name, described, trusted=trusted)
        self.namespace[name] = value
        return FetchedVariable(value)

    def remember_cell(self, code: str) -> None:
        """Remember a cell that is sent to a cluster, for the names that it makes there."""
        self._codes.append(code)

    def remote_names(self) -> list[str]:
        """Return names that recent cells have made on clusters; nothing is asked."""
        return sorted({name for code in self._codes for name in assigned_names(code)})
