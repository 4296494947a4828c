"""Preparation of engines before a cell runs: packages, files, large values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import SkyUsageError
from . import transfer
from .inputs import PackedInputs
from .requirements import imported_modules, type_modules
from .transfer import RemoteValue
from .transfer_progress import announce_transfer, format_size, progress_callback

if TYPE_CHECKING:
    from .run import SkyRun


def prepare_engines(run: SkyRun, sending: PackedInputs) -> None:
    """Bring packages, files and large values to a run's engines, saying how far it is."""
    assert run.cluster is not None
    if run.options.sync:
        root = run.session.folder
        files = progress_callback(run, "files")
        run.notes += transfer.sync_files(run.cluster, run.ranks, root, run.options.sync, files)
    is_sync_on = run.session.config.sync_packages and run.cluster.row.cloud != "local"
    if run.options.pip or is_sync_on:
        from .package_transfer import install_named, sync_packages

        if run.options.pip:  # may name a file that has just been brought
            install_named(run, run.options.pip)
        if is_sync_on:
            sync_packages(run, imported_modules(run.code) | type_modules(sending.types))
    for name, values in sending.handles.items():
        _bind_handles(run, name, values)
    for name, parcel in sending.large.items():
        if not transfer.send_value(
            run.cluster, run.ranks, name, parcel, progress_callback(run, name)
        ):
            run.notes.append(f"{name} is there already ({format_size(parcel.nbytes)}): not sent")
    run.notes += sending.notes


def _bind_handles(run: SkyRun, name: str, values: Sequence[RemoteValue]) -> None:
    """Let values that are on the cluster pass into a cell, without moving them if need be.

    One value is for every engine; of several, each engine has its own.
    """
    assert run.cluster is not None
    by_rank = {value.rank: value for value in values}
    for rank in run.ranks:
        value = values[0] if len(values) == 1 else by_rank.get(rank)
        if value is None:
            raise SkyUsageError(f"-i {name}: it has no value for engine {rank}")
        if value.cluster is run.cluster and value.rank == rank:
            run.cluster.connection.ask_engine(rank, "bind", name=name, ref=value.ref)
            continue
        parcel = transfer.Parcel.of(value.fetch(progress_callback(run, name)), name)
        announce_transfer(run, name, parcel.nbytes, "to")
        transfer.send_value(run.cluster, [rank], name, parcel, progress_callback(run, name))


def check_input_sizes(run: SkyRun, sending: PackedInputs) -> None:
    """Refuse inputs that are too large to be sent without ``--yes``, before anything is launched.

    Raises
    ------
    SkyTransferError
        Names the value and its size.
    """
    for name, parcel in sending.large.items():
        announce_transfer(run, name, parcel.nbytes, "to")
