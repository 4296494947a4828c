"""What must be on the engines before a cell runs: packages, files, large values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import SkyTransferError, SkyUsageError
from . import transfer
from .inputs import Sending
from .requirements import imported, made_of, pinned
from .transfer import RemoteValue

if TYPE_CHECKING:
    from .run import SkyRun


def prepare(run: SkyRun, sending: Sending) -> None:
    """Bring packages, files and large values to a run's engines, saying how far it is."""
    assert run.cluster is not None
    if run.options.sync:
        root = run.session.folder
        files = progress(run, "files")
        run.notes += transfer.sync(run.cluster, run.ranks, root, run.options.sync, files)
    if run.options.pip:  # may name a file that has just been brought
        _install(run, run.ranks, list(run.options.pip))
    if run.session.config.mirror and run.cluster.row.cloud != "local":
        _mirror(run, imported(run.code) | made_of(sending.types))
    for name, values in sending.handles.items():
        _bind(run, name, values)
    for name, parcel in sending.large.items():
        if not transfer.send(run.cluster, run.ranks, name, parcel, progress(run, name)):
            run.notes.append(f"{name} is there already ({size_text(parcel.nbytes)}): not sent")
    run.notes += sending.notes


def _install(run: SkyRun, ranks: Sequence[int], packages: list[str]) -> None:
    assert run.cluster is not None
    link = run.cluster.link
    run.report("syncing", f"installing {' '.join(packages)}")
    run.cluster.equip()
    # all at once: each takes its seconds on a machine of its own
    for reply in [link.value(rank, "packages", packages=packages) for rank in ranks]:
        link.content(link.wait(reply))


def _mirror(run: SkyRun, modules: set[str]) -> None:
    """Install what a cell imports here and the engines lack, in the versions that are here."""
    assert run.cluster is not None
    if not modules:
        return
    link, lacking = run.cluster.link, dict[tuple[str, ...], list[int]]()
    asked = [(rank, link.value(rank, "missing", modules=sorted(modules))) for rank in run.ranks]
    for rank, reply in asked:
        missing = link.content(link.wait(reply))["missing"]
        lacking.setdefault(tuple(pinned(missing)), []).append(rank)
    for packages, ranks in lacking.items():
        if packages:
            _install(run, ranks, list(packages))
            run.notes.append(f"installed there as here: {', '.join(packages)}")


def _bind(run: SkyRun, name: str, values: Sequence[RemoteValue]) -> None:
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
            run.cluster.link.ask(rank, "bind", name=name, ref=value.ref)
            continue
        parcel = transfer.Parcel.of(value.fetch(progress(run, name)), name)
        announce(run, name, parcel.nbytes, "to")
        transfer.send(run.cluster, [rank], name, parcel, progress(run, name))


def refuse_large(run: SkyRun, sending: Sending) -> None:
    """Refuse inputs that are too large to be sent without ``--yes``, before anything is launched.

    Raises
    ------
    SkyTransferError
        Names the value and its size.
    """
    for name, parcel in sending.large.items():
        announce(run, name, parcel.nbytes, "to")


def announce(run: SkyRun, name: str, nbytes: int, way: str) -> None:
    """Note a large value on its way ``to`` or ``from`` the cluster; refuse a very large one."""
    config = run.session.config
    if nbytes > config.refuse_gb * 1e9 and not run.options.yes:
        keep = "" if way == "to" else f", or keep it there: -o {name}!"
        raise SkyTransferError(
            f"{name} has {size_text(nbytes)}, more than {config.refuse_gb:g} GB: not sent",
            hint=f"add --yes to send it all the same{keep}",
        )
    if nbytes > config.announce_mb * 1e6:
        run.notes.append(f"{name}: {size_text(nbytes)} {way} the cluster")


def progress(run: SkyRun, what: str) -> transfer.Progress:
    """Return what shows the progress of a transfer in a run's status line."""

    def show(done: int, total: int) -> None:
        run.report("syncing", f"{what} {size_text(done)} of {size_text(total)}")

    return show


def size_text(nbytes: float) -> str:
    """Say a number of bytes as people do.

    Examples
    --------
    >>> size_text(2_400_121)
    '2.4 MB'
    """
    if nbytes < 1000:
        return f"{nbytes:.0f} B"
    for unit in ("kB", "MB", "GB"):
        nbytes /= 1000
        if nbytes < 1000 or unit == "GB":
            break
    return f"{nbytes:.1f} {unit}"
