"""Sizes of what travels between notebook and cluster: said, refused, shown as it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import SkyTransferError
from .transfer import Progress

if TYPE_CHECKING:
    from .run import SkyRun


def announce_transfer(run: SkyRun, name: str, nbytes: int, way: str) -> None:
    """Note a large value on its way ``to`` or ``from`` the cluster; refuse a very large one."""
    config = run.session.config
    if nbytes > config.refuse_gb * 1e9 and not run.options.yes:
        keep = "" if way == "to" else f", or keep it there: -o {name}!"
        raise SkyTransferError(
            f"{name} has {format_size(nbytes)}, more than {config.refuse_gb:g} GB: not sent",
            hint=f"add --yes to send it all the same{keep}",
        )
    if nbytes > config.announce_mb * 1e6:
        run.notes.append(f"{name}: {format_size(nbytes)} {way} the cluster")


def progress_callback(run: SkyRun, what: str) -> Progress:
    """Return what shows the progress of a transfer in a run's status line."""

    def show(done: int, total: int) -> None:
        run.report("syncing", f"{what} {format_size(done)} of {format_size(total)}")

    return show


def format_size(nbytes: float) -> str:
    """Say a number of bytes as people do.

    Examples
    --------
    >>> format_size(2_400_121)
    '2.4 MB'
    """
    if nbytes < 1000:
        return f"{nbytes:.0f} B"
    for unit in ("kB", "MB", "GB"):
        nbytes /= 1000
        if nbytes < 1000 or unit == "GB":
            break
    return f"{nbytes:.1f} {unit}"
