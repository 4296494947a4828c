"""Loss of a machine of a cluster that goes on without it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.wire.controller_requests import GiveUp
from jupyter_sky.machines.provisioner import record_observation

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import ClusterRow
    from jupyter_sky.clouds.provider.values import Machine
    from jupyter_sky.execution.clusters.cluster import ClusterHandle


def keep_without_losses(cluster: ClusterHandle) -> None:
    """Record that a cluster goes on while its head node does: a pool replaces its other nodes."""
    if len(cluster.row.machines) > 1 and "essential" not in cluster.row.connection:
        connection = {**cluster.row.connection, "essential": [0]}
        cluster.row = replace(cluster.row, connection=connection)
        cluster.store.save_cluster(cluster.row)


def without_machine(row: ClusterRow, rank: int, ended: float) -> ClusterRow:
    """Return the record of a cluster one of whose machines has ended; its price is less.

    Examples
    --------
    >>> without_machine(row, 1, 1000.0).price  # doctest: +SKIP
    0.3
    """
    live = [machine for machine in row.machines if machine["state"] != "ended"]
    machines: Sequence[dict[str, Any]] = [
        {**machine, "state": "ended", "ended": ended} if machine["rank"] == rank else machine
        for machine in row.machines
    ]
    price = row.price if row.price is None else row.price * (len(live) - 1) / len(live)
    return replace(row, machines=list(machines), price=price)


def give_up_ended(cluster: ClusterHandle, ranks: Sequence[int]) -> None:
    """Give up those of some machines that have ended, by the word of their cloud.

    Raises
    ------
    SkyError
        The cloud does not answer.
    """
    machines = {m["id"]: m for m in _live_machines(cluster) if m["rank"] in ranks}
    for report in cluster.cloud.describe(list(machines)) if machines else ():
        if report.state == "ended":
            taken, other = _("its cloud has taken the machine away"), _("its machine has ended")
            why = taken if report.preempted else other
            _give_up(cluster, machines[report.id], report, why)


def give_up_machine(cluster: ClusterHandle, rank: int, why: str) -> None:
    """End a machine other than the head, its bill, and what is expected of it."""
    machine = next((m for m in _live_machines(cluster) if m["rank"] == rank), None)
    if machine is None:
        return
    report = None
    with contextlib.suppress(SkyError):
        (report,) = cluster.cloud.describe([machine["id"]])
    _give_up(cluster, machine, report, why)


def _live_machines(cluster: ClusterHandle) -> list[dict[str, Any]]:
    return [machine for machine in cluster.row.machines if machine["state"] != "ended"]


def _give_up(
    cluster: ClusterHandle, machine: dict[str, Any], report: Machine | None, why: str
) -> None:
    ended, kind = time.time(), "ended"
    if report is not None and report.state == "ended":
        ended, kind = report.ended or ended, "preempted" if report.preempted else kind
    with contextlib.suppress(SkyError):  # the reaper finds it
        cluster.cloud.terminate([machine["id"]])
    offer, seconds = Offer(**cluster.row.offer), max(0.0, ended - machine["started"])
    record_observation(kind, offer, seconds=seconds)
    rank = machine["rank"]
    cluster.row = without_machine(cluster.row, rank, ended)
    with contextlib.suppress(SkyError):
        cluster.store.save_cluster(cluster.row)
        cluster.store.change_price(cluster.row.id, cluster.row.price, ended)
    with contextlib.suppress(SkyError):
        cluster.connection.ask_controller(GiveUp([rank], why))
