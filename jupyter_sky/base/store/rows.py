"""Rows of the store: clusters, intervals of their bills, other amounts, runs.

Times are unix seconds, prices USD/h of a whole cluster, ``None`` an unknown price.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from jupyter_sky.base.remote.processes import is_alive
from jupyter_sky.base.translation import _

LIVE_STATES = ("starting", "up", "stopped")
"""States of clusters that may have machines; a name has one live cluster at most."""


class ClusterId(NamedTuple):
    """Identity of a cluster: names are used again.

    Attributes
    ----------
    name : str
    created : float
        Unix seconds.
    """

    name: str
    created: float


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """Cluster: its request, its machines, its connection (paths and ids, no secrets)."""

    name: str
    state: str  # 'starting', 'up', 'stopped', 'down' or 'lost'
    cloud: str
    region: str
    instance_type: str
    spot: bool
    price: float | None  # USD/h of all nodes
    nodes: int
    resources: str  # as on the command line
    offer: dict[str, Any]
    machines: list[dict[str, Any]]
    connection: dict[str, Any]
    notebook: str
    created: float
    idle: float  # seconds
    price_source: str
    price_date: str
    note: str = ""  # why it ended
    kept: float = 0.0  # it does not end for idleness before this time
    renewed: float = 0.0  # last sign of life of the process that launches it

    @property
    def id(self) -> ClusterId:
        """Its name and the time of its creation."""
        return ClusterId(self.name, self.created)

    @property
    def is_live(self) -> bool:
        """Whether it is up, coming up, or stopped with its disks kept."""
        return self.state in LIVE_STATES

    def is_being_launched(self, now: float | None = None) -> bool:
        """Return whether the process that recorded it still launches it."""
        launcher = self.connection.get("launcher") or {}
        return self.state == "starting" and is_alive(launcher, self.renewed, now)


@dataclass(frozen=True, slots=True)
class IntervalRow:
    """Interval of a cluster's bill at one price, with the keys that the ledger groups by."""

    cluster: str
    cluster_created: float
    notebook: str
    cloud: str
    price: float | None
    started: float
    last_beat: float
    ended: float | None
    price_source: str
    price_date: str
    bounded: bool = False  # its end was not observed: `ended` is the latest possible time
    begun: float | None = None  # when its cluster began to be billed, where that was earlier
    is_last: bool = True  # of its cluster: with it end the billing units
    surcharge_share: float = 0.0  # of the price, what a managed service takes beside machines

    @property
    def cluster_id(self) -> ClusterId:
        """Identity of its cluster."""
        return ClusterId(self.cluster, self.cluster_created)


TRANSFERS = "transfers"
"""Name by which the ledger sums up the transfers between stores."""


@dataclass(frozen=True, slots=True)
class SpendRow:
    """Amount that is not by the hour, such as the egress of a transfer.

    Transfers between stores belong to no cluster, and count as one that is called `TRANSFERS`.
    """

    cluster: str
    notebook: str
    cloud: str
    what: str
    usd: float | None
    at: float


def run_label(name: str | None, cell: int) -> str:
    """Return the name of a run in messages: its own, else that of its cell.

    Examples
    --------
    >>> run_label("train", 7), run_label(None, 7)
    ('train', 'cell 7')
    """
    return name or _("cell {number}").format(number=cell)


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run of a cell on a cluster."""

    run_id: str
    notebook: str
    session: str
    cell: int  # execution count
    name: str | None
    cluster: str
    code: str  # its beginning: see `executor.run_record.recorded_code`
    price: float | None  # USD/h of the whole cluster when the run began
    nodes: int  # that have it; 0 as long as it has reached none, and costs nothing
    started: float  # when it was sent to them; before, when its cell began
    ended: float | None
    last_beat: float
    status: str  # 'waiting', 'running', 'ok', 'error', 'interrupted', 'lost' or 'cancelled'
    shown: int  # messages already shown in the notebook
    cell_id: str | None = None  # JupyterLab's own name of the cell
    stage: str = "running"  # as in the status line
    stop: str = ""  # latest requester of its stop, such as 'in the browser'
    allowed: float | None = None  # seconds that it may take, by --timeout and --max-cost
    owner: str = "{}"  # identity of the process that watches it, as JSON: see `processes.identity`
    outputs: str = ""  # names and paths of -o that are still on the cluster, with commas
    waited: float = 0.0  # seconds from the begin of its cell until it was sent
    stops: int = 0  # times that it was asked to stop
    warning: str = ""  # why it does not stop, and what a second request would lose
    code_digest: str = ""  # of the whole code: see `executor.run_record.digest_code`

    @property
    def label(self) -> str:
        """Name of the run in messages."""
        return run_label(self.name, self.cell)

    def is_monitored(self, now: float | None = None) -> bool:
        """Return whether the process that watches it lives."""
        try:
            owner = json.loads(self.owner)
        except ValueError:
            owner = {}
        return is_alive(owner if isinstance(owner, dict) else {}, self.last_beat, now)
