"""Volumes of pools: data of stores that every node has in a folder before its first call."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.execution.files.dataset_listing import CellDataset
    from jupyter_sky.machines.storage.stores.uri import StorageUri

SYSTEM_FOLDERS = ("/", "/bin", "/boot", "/dev", "/etc", "/lib", "/opt", "/proc", "/root", "/run")
SYSTEM_FOLDERS += ("/sbin", "/sys", "/tmp", "/usr", "/var")


@dataclass(frozen=True, slots=True)
class Volume:
    """Data of a store as a read-only folder of each node, brought before the first call.

    Attributes
    ----------
    bucket : str
        Address of the data (``gs://bucket/prefix/``), or the name of a bucket of Amazon S3.
    mount : str
        Path of the folder: absolute, or below the working folder of the nodes. Machines that
        others use, too, take the latter only.
    prefix : str
        Beginning of the names of the objects, below the address.
    read_only : bool
        True; results are written with ``sky.copy`` or ``sky.Storage(uri).write``.

    Examples
    --------
    >>> print(Volume("my-data", "/data", prefix="raw/").uri)
    s3://my-data/raw/
    >>> print(Volume("gs://my-data/raw/", "data").uri)
    gs://my-data/raw/
    """

    bucket: str
    mount: str
    prefix: str = ""
    read_only: bool = True

    def __post_init__(self) -> None:
        path = PurePosixPath(self.mount)
        if ".." in path.parts or str(path) in (".", *SYSTEM_FOLDERS):
            raise SkyUsageError(
                _("Volume(mount={mount!r}): a folder of the system, or above the nodes'").format(
                    mount=self.mount
                ),
                hint=_('sky.Volume({bucket!r}, mount="/data")').format(bucket=self.bucket),
            )
        if not self.read_only:
            raise SkyUsageError(
                _("Volume(read_only=False): nodes share what they read, and cannot write there"),
                hint=_("write results with sky.Storage({uri!r}).write(key, data)").format(
                    uri=str(self.uri)
                ),
            )
        self.uri  # noqa: B018 - raises for what is no address

    @property
    def uri(self) -> StorageUri:
        """Address of the data.

        Raises
        ------
        SkyUsageError
            `bucket` is neither an address nor a name of a bucket.
        """
        from jupyter_sky.machines.storage.stores.uri import StorageUri

        is_name = ":" not in self.bucket and not self.bucket.startswith((".", "/", "~"))
        uri = StorageUri.parse(f"s3://{self.bucket}" if is_name else self.bucket)
        return uri.child(self.prefix.lstrip("/")) if self.prefix else uri

    @property
    def path(self) -> str:
        """Path as nodes use it."""
        return str(PurePosixPath(self.mount))


def checked_volumes(values: Iterable[Any], owner: str) -> tuple[Volume, ...]:
    """Return volumes as a tuple.

    Parameters
    ----------
    owner
        Class that they are given to, for messages.

    Raises
    ------
    SkyUsageError
        One of them is not a `Volume`, or two have the same path.
    """
    by_path: dict[str, Volume] = {}
    for each in (values,) if isinstance(values, str | Volume) else values:
        if not isinstance(each, Volume):
            raise SkyUsageError(
                _("{owner}(volumes=...): {each!r} is not a volume").format(owner=owner, each=each),
                hint=_('sky.Volume({each!r}, mount="/data")').format(each=str(each)),
            )
        if by_path.setdefault(each.path, each) != each:
            raise SkyUsageError(
                _("{owner}(volumes=...): {uri} and {other} would both be at {path}").format(
                    owner=owner, uri=by_path[each.path].uri, other=each.uri, path=each.path
                )
            )
    return tuple(by_path.values())


class NodeVolumes:
    """Volumes as they are listed before machines are paid for, and brought to nodes afterwards."""

    def __init__(self) -> None:
        self._listed: dict[Volume, CellDataset] = {}

    def check(self, volumes: Sequence[Volume], cloud: str | None) -> None:
        """List volumes, and raise what can be known before a machine is paid for.

        Parameters
        ----------
        cloud
            Cloud of the nodes where it is known.

        Raises
        ------
        SkyError
            There is nothing at an address, or a path cannot be had on machines of the cloud.
        """
        from jupyter_sky.execution.files.dataset_listing import check_paths, list_dataset

        for each in volumes:
            if each not in self._listed:
                listed = list_dataset(each.uri, each.path)
                self._listed[each] = replace(listed, option="Volume")
        if cloud is not None:
            check_paths([self._listed[each] for each in volumes], cloud)

    def bring(
        self, volumes: Sequence[Volume], nodes: Iterable[tuple[ClusterHandle, Sequence[int]]]
    ) -> None:
        """Bring volumes to nodes; a machine that has them gets nothing.

        Parameters
        ----------
        nodes
            Clusters with ranks in them.

        Raises
        ------
        SkyStorageError
            A machine could not get them.
        """
        if not volumes:
            return
        self.check(volumes, None)
        listed = [self._listed[each] for each in volumes]
        for cluster, ranks in nodes:
            bring_to_nodes(listed, cluster, ranks)


def bring_to_nodes(
    listed: Sequence[CellDataset], cluster: ClusterHandle, ranks: Sequence[int]
) -> None:
    """Bring data to nodes of a cluster without a word, where they may be.

    Raises
    ------
    SkyResidency
        The data must not leave their area.
    SkyStorageError
        A machine could not get them.
    """
    from jupyter_sky.base.settings.settings import Sky
    from jupyter_sky.execution.clusters.cluster import Placement
    from jupyter_sky.execution.files.data_estimate import check_cell_residency
    from jupyter_sky.execution.files.datasets import bring_data
    from jupyter_sky.execution.files.transfer import TransferReporter

    if not ranks:
        return
    ends = [(each.store, each.manifest.uri) for each in listed]
    check_cell_residency(ends, Sky.load().residency, cluster.row)
    silent = TransferReporter(lambda *__: None, lambda __: None, math.inf, math.inf)
    bring_data(listed, Placement(cluster, tuple(ranks)), silent)
