"""Preparation of engines before a cell runs: packages, files, large values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import SkyUsageError
from . import transfer
from .requirements import imported_modules, type_modules
from .transfer import RemoteValue
from .transfer_progress import TransferReporter, format_size
from .values import Placement, Sending


def prepare_engines(
    sending: Sending,
    placement: Placement,
    root: Path,
    sync_packages: bool,
    reporter: TransferReporter,
) -> None:
    """Bring packages, files and large values to the engines of a cell.

    Parameters
    ----------
    root
        Folder of the notebook, where files for ``--sync`` are.
    sync_packages
        Whether packages that the cell imports are brought, too.
    """
    cluster, ranks, options = placement.cluster, placement.ranks, sending.options
    if options.sync:
        files = reporter.progress("files")
        for note in transfer.sync_files(cluster, ranks, root, options.sync, files):
            reporter.note(note)
    sync_packages = sync_packages and cluster.row.cloud != "local"
    if options.pip or sync_packages:
        from .package_transfer import PackageTransfer

        packages = PackageTransfer(placement, reporter)
        if options.pip:  # may name a file that has just been brought
            packages.install_named(options.pip)
        if sync_packages:
            packages.sync(imported_modules(sending.code) | type_modules(sending.types))
    for name, values in sending.handles.items():
        _bind_handles(name, values, placement, reporter)
    for name, parcel in sending.large.items():
        if not transfer.send_value(cluster, ranks, name, parcel, reporter.progress(name)):
            reporter.note(f"{name} is there already ({format_size(parcel.nbytes)}): not sent")
    for note in sending.notes:
        reporter.note(note)


def _bind_handles(
    name: str, values: Sequence[RemoteValue], placement: Placement, reporter: TransferReporter
) -> None:
    """Bind values that are on the cluster to a name, without moving them if possible.

    One value is for every engine; of several, each engine has its own.
    """
    cluster, by_rank = placement.cluster, {value.rank: value for value in values}
    for rank in placement.ranks:
        value = values[0] if len(values) == 1 else by_rank.get(rank)
        if value is None:
            raise SkyUsageError(f"-i {name}: it has no value for engine {rank}")
        if value.cluster is cluster and value.rank == rank:
            cluster.connection.ask_engine(rank, "bind", name=name, ref=value.ref)
            continue
        parcel = transfer.Parcel.of(value.fetch(reporter.progress(name)), name)
        reporter.announce(name, parcel.nbytes, "to")
        transfer.send_value(cluster, [rank], name, parcel, reporter.progress(name))


def check_input_sizes(sending: Sending, reporter: TransferReporter) -> None:
    """Refuse inputs that are too large to be sent without ``--yes``, before anything is launched.

    Raises
    ------
    SkyTransferError
        Names the value and its size.
    """
    for name, parcel in sending.large.items():
        reporter.announce(name, parcel.nbytes, "to")
