"""Data of stores as arguments of calls: on a node they are paths in the cache of its machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.machines.storage.datasets.data import Storage

LINKS = ".sky-data"
"""Folder in the working folder of a node with a link to each dataset that is an argument."""


@dataclass(frozen=True, slots=True)
class NodeData:
    """Placeholder of data in the arguments of a call; unpickled on a node it is a path."""

    tree: str
    file: str
    uri: str

    def __reduce__(self) -> tuple[Any, ...]:
        from jupyter_sky.machines.engines.node.datasets import cached_data

        return cached_data, (self.tree, self.file, self.uri)


class DataArguments:
    """Delivery of data that calls of one submission have as arguments.

    Parameters
    ----------
    clusters
        Returns the clusters of the pool, whose machines all get the data.
    """

    def __init__(self, clusters: Callable[[], Sequence[ClusterHandle]]) -> None:
        self._clusters = clusters
        self._delivered: dict[Storage, NodeData] = {}

    def replace(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Bring the data among some arguments to the nodes; return placeholders in their place.

        Raises
        ------
        SkyStorageError
            A machine could not get the data.
        """
        module = sys.modules.get("jupyter_sky.machines.storage.datasets.data")
        if module is None:  # nobody has made any
            return args, dict(kwargs)
        kind = module.Storage
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, kind)]
        for data in given:
            if data not in self._delivered:
                self._delivered[data] = self._deliver(data)
        found = self._delivered
        return (
            tuple(found[value] if isinstance(value, kind) else value for value in args),
            {n: found[value] if isinstance(value, kind) else value for n, value in kwargs.items()},
        )

    def _deliver(self, data: Storage) -> NodeData:
        from jupyter_sky.execution.files.dataset_listing import CellDataset
        from jupyter_sky.execution.functions.images.volumes import bring_to_nodes

        manifest = data.list()
        manifest.check_readable()
        tree = manifest.dataset().id
        listed = CellDataset(f"{LINKS}/{tree}", data.store, manifest)
        for cluster in self._clusters():
            bring_to_nodes([listed], cluster, range(cluster.row.nodes))
        file = manifest.dataset().objects[0].path if manifest.is_single else ""
        return NodeData(tree, file, str(data.uri))
