"""State that the runs of one process share: store, clusters, variables, and the runs that go on."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections import deque
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.store import Store
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.cell_names import assigned_names
from jupyter_sky.execution.cells.live_run import describe_wait
from jupyter_sky.execution.cells.run_history import RunHistory
from jupyter_sky.execution.clusters.clusters import ClusterRegistry
from jupyter_sky.execution.files import transfer
from jupyter_sky.knowledge.ledger.ledger import Ledger
from jupyter_sky.machines.engines.wire.engine_requests import Pack

if TYPE_CHECKING:
    from jupyter_sky.execution.cells.live_run import LiveRun
    from jupyter_sky.execution.clusters.cluster import ClusterHandle


USD_SECONDS = 1.0
"""Longest age of the notebook's cost that is shown."""


class SessionState:
    """State of `jupyter_sky` in one process.

    Parameters
    ----------
    namespace
        The notebook's variables, where inputs come from and outputs go.
    notebook
        Its path; clusters and costs belong to it.
    is_persistent
        Whether the notebook outlives this process (a notebook of a Jupyter server does; a
        headless run does not, and its clusters end with it).
    everywhere
        Whether runs of all notebooks are looked up, not of this one alone.
    """

    def __init__(
        self,
        namespace: MutableMapping[str, Any],
        notebook: str,
        is_persistent: bool,
        everywhere: bool = False,
    ) -> None:
        self.namespace, self.notebook = namespace, notebook
        self.everywhere = everywhere
        self.config = Sky.load()
        self.id = uuid.uuid4().hex[:12]
        self.folder = Path.cwd()
        self.store = Store.open(Path(self.config.data_dir))
        # clusters of a store that is in no file could not be found again
        self.lasting = is_persistent and self.store.durable
        self._scratch = None if self.store.durable else _use_temporary_folder(self.config)
        self.ledger = Ledger(self.store)
        self.clusters = ClusterRegistry(self.store, notebook, self.id)
        self.variables = Variables(namespace, self.clusters)
        self.history = RunHistory(
            self.store,
            self.clusters.connected,
            Path(self.config.data_dir),
            None if everywhere else notebook,
        )
        self.live: dict[str, LiveRun] = {}
        self._usd: tuple[float, float | None] = (0.0, 0.0)

    def notebook_usd(self) -> float | None:
        """Return the cost of this notebook so far in USD (read at most once a second)."""
        now = time.monotonic()
        if now - self._usd[0] > USD_SECONDS:
            self._usd = (now, self.ledger.notebook_usd(self.notebook))
        return self._usd[1]

    @staticmethod
    def is_kernel_ending() -> bool:
        """Return whether the kernel of this process was asked to restart or to shut down."""
        from IPython import get_ipython  # type: ignore[attr-defined]

        return bool(getattr(get_ipython(), "exit_now", False))


def _use_temporary_folder(config: Sky) -> Path:
    """Keep clusters in a temporary directory: the data directory cannot be written."""
    config.data_dir = tempfile.mkdtemp(prefix="jupyter-sky-")
    config.origins["data_dir"] = _("a temporary folder, because the other cannot be used")
    return Path(config.data_dir)


# -- Variables of a notebook and of its clusters: sent, fetched, listed ---------------------------

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
        described = live.connection.ask_engine(rank, Pack(name, as_data=not trusted)).described
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
