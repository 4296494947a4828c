"""Places of clusters, as the catalog and the prices of storage write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_sky.machines.storage.stores.places import LOCAL

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import ClusterRow


def place_of_cluster(row: ClusterRow) -> str:
    """Return the place of a cluster, as the catalog writes it."""
    return place_of_machine(row.cloud, row.region)


def place_of_machine(cloud: str, region: str | None) -> str:
    """Return the place of a machine, as the catalog writes it.

    Examples
    --------
    >>> place_of_machine("aws", "us-east-1"), place_of_machine("local", "this-machine")
    ('aws/us-east-1', 'local')
    """
    return f"{cloud}/{region}" if region and cloud != LOCAL else cloud
