"""Sizes of what travels between notebook and cluster: said, refused, shown as it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import SkyTransferError
from .transfer import Progress

if TYPE_CHECKING:
    from .run import SkyRun


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


def progress(run: SkyRun, what: str) -> Progress:
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
