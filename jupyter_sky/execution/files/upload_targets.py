"""Targets of uploads: where the files that a cell writes are to go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.values import CellUpload
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.wire.data_requests import Remember
from jupyter_sky.machines.storage.stores.file_parts import VERSION_HEADER, file_url
from jupyter_sky.machines.storage.stores.store import (
    Capability,
    PartRequest,
    Span,
    Store,
    StoredObject,
)
from jupyter_sky.machines.storage.stores.stores import open_store
from jupyter_sky.machines.storage.stores.uri import StorageUri

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import Placement


@dataclass(frozen=True, slots=True)
class UploadTarget:
    """Address to which a path of a cell is uploaded, with its store."""

    option: CellUpload
    uri: StorageUri
    store: Store


@dataclass(frozen=True, slots=True)
class EngineFiles:
    """Files of an engine's machine as the source of a transfer: keys are their relative paths.

    Attributes
    ----------
    root
        Absolute path there, below which keys are.
    objects
        The files as they were when the cell ended.
    """

    root: PurePosixPath
    objects: Mapping[str, StoredObject]
    uri: StorageUri = StorageUri("file", "")  # noqa: RUF009 - a frozen value
    capability: Capability = Capability()  # noqa: RUF009 - a frozen value

    def read(self, obj: StoredObject, span: Span | None = None) -> PartRequest:
        """Return a request that reads a file there, of this very version."""
        headers = {VERSION_HEADER: obj.version}
        url = file_url(Path(self.root / obj.key))
        return PartRequest("GET", url, headers, span or Span(0, obj.size))

    def stat(self, key: str) -> StoredObject:
        """Return a file as it was when the cell ended; another version is not sent."""
        return self.objects[key]


def open_targets(uploads: Sequence[CellUpload], folder: Path) -> list[UploadTarget]:
    """Open the stores of ``--out``, before anything is launched.

    Raises
    ------
    SkyUsageError
        An address is not understood, or there are no credentials.
    """
    targets = []
    for each in uploads:
        uri = StorageUri.parse(each.uri, folder)
        targets.append(UploadTarget(each, uri, open_store(uri)))
    return targets


def remember_files(targets: Sequence[UploadTarget], placement: Placement) -> None:
    """Let engines remember the files at the paths of ``--out``, before the cell runs."""
    for target in targets:
        for rank in placement.ranks:
            placement.cluster.connection.ask_engine(rank, Remember(target.option.path))


def check_target_paths(targets: Sequence[UploadTarget], cloud: str) -> None:
    """Raise SkyUsageError for an absolute path on a machine that others use, too."""
    from jupyter_sky.clouds import ON_PREMISES

    for target in targets:
        path = target.option.path
        if PurePosixPath(path).is_absolute() and cloud in ON_PREMISES:
            raise SkyUsageError(
                _("--out {path}:{uri}: an absolute path on a machine of {cloud}").format(
                    path=path, uri=target.uri, cloud=cloud
                ),
                hint=_("write below the cell's own folder, such as ./model"),
            )
