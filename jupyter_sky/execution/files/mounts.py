"""Mounts of a cell (``--mount``): data of a store that its machines read as the cell asks for them.

Machines list nothing and hold no credentials: this process has listed the data, and signs requests
for the blocks that are read, also while the cell runs. Folders of this machine are linked.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyError, SkyTimeout, SkyTransferError, SkyUsageError
from jupyter_sky.base.requests.cell_options.data import with_plain_path
from jupyter_sky.base.requests.cell_options.values import CellData
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.launch_support import runs_here
from jupyter_sky.execution.clusters.cluster import place_of_cluster
from jupyter_sky.execution.files.dataset_listing import (
    CellDataset,
    check_paths,
    list_cell_data,
    path_advice,
)
from jupyter_sky.execution.files.datasets import delegate_data
from jupyter_sky.execution.files.transfer import TransferReporter
from jupyter_sky.execution.files.transfer_account import TransferAccount
from jupyter_sky.machines.engines.wire.data_requests import Link, MountData, MountState, ServeMount
from jupyter_sky.machines.storage.datasets.machine_data import request_to_json
from jupyter_sky.machines.storage.datasets.signed_windows import window_spans
from jupyter_sky.machines.storage.stores.errors import SkyStorageError
from jupyter_sky.machines.storage.stores.places import is_priced, place_of
from jupyter_sky.machines.storage.stores.store import Store
from jupyter_sky.machines.storage.stores.traffic import Traffic, TransferTraffic, traffic_of
from jupyter_sky.machines.storage.stores.uri import StorageUri

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_sky.execution.clusters.cluster import ClusterHandle, Placement

ANSWER_SECONDS = 20.0
"""Time for the answer of an engine, which waits for a few seconds itself."""


@dataclass(frozen=True)
class CellMounts:
    """Mounts of a cell, listed before anything is launched.

    Attributes
    ----------
    linked
        Paths of the cell, and addresses of folders of this machine.
    streamed
        Data of stores.
    """

    linked: Sequence[tuple[str, StorageUri]] = ()
    streamed: Sequence[CellDataset] = ()

    def mount(self, placement: Placement, reporter: TransferReporter) -> None:
        """Mount the data on the machines of a cell.

        Raises
        ------
        SkyUsageError
            Data of this machine, or a path that machines which others use cannot have.
        SkyStorageError
            A machine cannot mount, or there is no way to let it read the address alone.
        """
        cloud = placement.row.cloud
        for path, uri in self.linked:
            if not runs_here(cloud):
                raise _not_streamed(path, uri, _("only stores are streamed to other machines"))
            for rank in placement.ranks:
                placement.cluster.connection.ask_engine(rank, Link(path, str(uri.path)))
        check_paths(self.streamed, cloud)
        for each in self.streamed:
            _mount(each, placement, reporter)


def list_mounts(mounts: Sequence[CellData], folder: Path) -> CellMounts:
    """List the mounts of a cell, and raise what can be known before money is spent.

    Raises
    ------
    SkyUsageError
        There is no such folder, or the address is no store's.
    SkyObjectMissing
        There is nothing at an address.
    """
    linked, streamed = [], []
    for each in mounts:
        uri = StorageUri.parse(each.uri, folder)
        if uri.scheme == "ssh":
            raise _not_streamed(each.path, uri, _("files of an SSH host are not streamed"))
        if not uri.is_local:
            streamed.append(list_cell_data(each, folder, "--mount"))
        elif uri.path.exists():
            linked.append((each.path, uri))
        else:
            meant = with_plain_path(each.uri)
            raise SkyUsageError(
                _("--mount {uri}: there is nothing at {path}").format(uri=uri, path=uri.path),
                hint=path_advice("--mount", meant) if meant else None,
            )
    return CellMounts(linked, streamed)


def _not_streamed(path: str, uri: StorageUri, reason: str) -> SkyUsageError:
    return SkyUsageError(
        _("--mount {uri}: {reason}").format(uri=uri, reason=reason), hint=_data_hint(path, uri)
    )


def _data_hint(path: str, uri: StorageUri) -> str:
    path = path if path.startswith("/") else f"./{path}"
    return _("--data {uri}:{path} brings the data, once for each machine").format(
        uri=uri, path=path
    )


def _mount(data: CellDataset, placement: Placement, reporter: TransferReporter) -> None:
    """Mount a dataset on the machines of a cell; the first engine of each serves the others."""
    cluster, uri = placement.cluster, data.manifest.uri
    store = delegate_data(data, placement.row.cloud)
    if store is None:
        raise SkyStorageError(
            _("--mount {uri}: the credentials cannot be narrowed to this address").format(uri=uri),
            hint=_data_hint(data.path, uri),
        )
    request = MountData(data.path, data.manifest.is_single, buffers=(data.packed,))
    link = cluster.connection
    for rank in placement.ranks:
        try:
            name = link.ask_engine(rank, request).id
        except (SkyTransferError, SkyUsageError) as error:  # the machine's own, not of the line
            message = error.message.partition("\n")[0]
            raise SkyStorageError(
                _("--mount {uri}: {reason}").format(uri=uri, reason=message),
                hint=_data_hint(data.path, uri),
            ) from None
        if name and name not in cluster.mounts:
            cluster.mounts.add(name)
            server = MountServer(cluster, rank, name, data, store, reporter.note)
            threading.Thread(target=server.run, name=f"sky-mount-{name}", daemon=True).start()
    reporter.note(
        _("{path}: {title}: mounted, and read as the cell asks for it").format(
            path=data.path, title=data.title
        )
    )


class MountServer:
    """Signs requests for a mounted dataset until its engine or cluster is gone.

    Parameters
    ----------
    cluster, rank
        Engine that has mounted it.
    name
        Id of the mount there.
    data
        The dataset.
    store
        Store that signs the requests.
    note
        Called with a sentence for the user, where a read has failed.
    """

    def __init__(
        self,
        cluster: ClusterHandle,
        rank: int,
        name: str,
        data: CellDataset,
        store: Store,
        note: Callable[[str], None],
    ) -> None:
        self._cluster, self._rank, self._name = cluster, rank, name
        self._data, self._store, self._note = data, store, note
        self._listed = traffic_of(data.store)
        self._account: TransferAccount | None = None
        self._traffic = TransferTraffic()

    def run(self) -> None:
        """Serve the mount."""
        windows: list[Any] = []
        refused = ""
        try:
            while True:
                try:
                    state = self._cluster.connection.ask_mount(
                        self._rank, ANSWER_SECONDS, ServeMount(self._name, windows, refused)
                    )
                except SkyTimeout:  # the line is cut: what it has missed is sent again
                    continue
                self._book(state)
                for error in state.errors:
                    self._note(f"--mount {self._data.path}: {error}")
                if state.ended:
                    return
                windows, refused = self._sign(state.wanted)
        except (SkyError, OSError):  # the engine or the cluster is gone, or this kernel ends
            return
        finally:
            self._cluster.mounts.discard(self._name)
            if self._account is not None:
                self._account.book(self._traffic)

    def _sign(self, wanted: Sequence[tuple[str, int]]) -> tuple[list[Any], str]:
        """Return requests for windows; or the reason why they cannot be signed."""
        try:
            return [[*window, self._requests(*window)] for window in wanted], ""
        except SkyError as error:
            return [], error.message

    def _requests(self, identity: str, number: int) -> list[Any]:
        found = self._data.objects[identity]
        spans = window_spans(found.size, number)
        return [request_to_json(self._store.read(found, span)) for span in spans]

    def _book(self, state: MountState) -> None:
        """Enter what the store bills into the ledger."""
        source, row = place_of(self._data.store, self._data.manifest.uri), self._cluster.row
        if not state.received or not source or not is_priced(source):
            return
        if self._account is None:
            from jupyter_sky.knowledge import catalog

            title, route = str(self._data.manifest.uri), (source, place_of_cluster(row))
            store, notebook = self._cluster.store, self._cluster.notebook
            listed = TransferTraffic(self._listed)
            self._account = TransferAccount(
                store, notebook, catalog.load(), title, route, listed=listed
            )
        self._traffic = TransferTraffic(Traffic(reads=state.reads), moved=state.received)
        self._account.book_now_and_then(self._traffic)
