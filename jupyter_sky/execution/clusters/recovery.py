"""Recovery of store rows for launches that are recorded in files alone.

The store may have been corrupt and begun anew, or a row been dropped because a cloud could not be
asked whether anything had come up. Launch records are files of their own, written before a launch:
from them the bill is made again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jupyter_sky.base.errors import SkyNameTaken
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.store.store import ClusterRow, Store
from jupyter_sky.clouds.launches.launch_records import is_launching
from jupyter_sky.clouds.launches.machine_records import launch_records


def recover_rows(store: Store) -> list[ClusterRow]:
    """Enter launches of processes that are gone, and that the store does not know; return them.

    Launches that have not ended are entered as abandoned; the bill of others is closed.
    """
    rows = store.clusters(live_only=False)
    tokens = {row.connection.get("token", "") for row in rows}
    found = []
    for token, record in list(launch_records().list_all()):
        ended = record.get("ended")
        if token in tokens or (not ended and is_launching(record)):
            continue
        if ended and not record["machines"]:
            continue
        row = _recovered_row(token, record)
        try:
            store.save_cluster(row)
        except SkyNameTaken:  # another cluster has that name now
            row = replace(row, name=token)
            store.save_cluster(row)
        if ended:
            machines = record["machines"]
            row = replace(row, machines=machines)
            store.record_launch(row, min(machine["started"] for machine in machines))
            store.end_cluster(row.id, "down", ended["time"], ended.get("reason", ""))
        found.append(row)
    return found


def _recovered_row(token: str, record: Mapping[str, Any]) -> ClusterRow:
    """Return the row that the launch would have written."""
    offer, nodes = Offer(**record["offer"]), max(1, len(record["machines"]))
    return ClusterRow(
        name=record["cluster"],
        state="starting",
        cloud=offer.cloud,
        region=offer.region,
        instance_type=offer.instance_type,
        spot=offer.spot,
        price=None if offer.price is None else offer.price * nodes / offer.hosts,
        nodes=nodes,
        resources="",
        offer=record["offer"],
        machines=[],
        connection={"token": token},
        notebook=record["notebook"],
        created=record["started"],
        idle=0.0,
        price_source=offer.source,
        price_date=offer.date,
    )
