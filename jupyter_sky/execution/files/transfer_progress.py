"""Sizes of values that travel between notebook and cluster: announced, refused, shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jupyter_sky.base.errors import SkyTransferError
from jupyter_sky.base.requests.quantities import format_size as format_size
from jupyter_sky.base.translation import _
from jupyter_sky.execution.files.transfer import Progress


@dataclass(frozen=True, slots=True)
class TransferReporter:
    """Callbacks by which a transfer tells its cell how far it is.

    Attributes
    ----------
    report
        Called with a stage and a detail; raises when the cell has been cancelled.
    note
        Called with a sentence for the user.
    announce_bytes, refuse_bytes
        Sizes above which a value is announced, and above which it is refused.
    """

    report: Callable[[str, str], None]
    note: Callable[[str], None]
    announce_bytes: float
    refuse_bytes: float

    def announce(self, name: str, nbytes: int, way: str) -> None:
        """Announce a large value on its way ``to`` or ``from`` the cluster.

        Raises
        ------
        SkyTransferError
            It is too large to be sent without ``--yes``.
        """
        if nbytes > self.refuse_bytes:
            keep = "" if way == "to" else _(", or keep it there: -o {name}!").format(name=name)
            limit = _("{refuse_bytes:g} GB").format(refuse_bytes=self.refuse_bytes / 1e9)
            raise SkyTransferError(
                _("{name} has {nbytes}, more than {limit}: not sent").format(
                    name=name, nbytes=format_size(nbytes), limit=limit
                ),
                hint=_("add --yes to send it all the same{keep}").format(keep=keep),
            )
        if nbytes > self.announce_bytes:
            self.note(
                _("{name}: {nbytes} {way} the cluster").format(
                    name=name, nbytes=format_size(nbytes), way=way
                )
            )

    def progress(self, name: str) -> Progress:
        """Return the callback that shows the progress of a transfer."""

        def show(done: int, total: int) -> None:
            self.report(
                "syncing",
                _("{name} {done} of {total}").format(
                    name=name, done=format_size(done), total=format_size(total)
                ),
            )

        return show
