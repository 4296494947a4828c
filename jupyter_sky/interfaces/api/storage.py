"""Copies between stores as Python calls."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.execution.files.transfer_account import (
    TransferAccount,
    check_budget,
    dear_error,
    is_dear,
    observe_transfer,
)
from jupyter_sky.execution.sessions import session as _sessions
from jupyter_sky.execution.sessions.copy_ends import CopyEnds
from jupyter_sky.machines.storage.datasets.data import Storage, usage_memory
from jupyter_sky.machines.storage.stores.places import Charge
from jupyter_sky.machines.storage.stores.store import PART_SIZE
from jupyter_sky.machines.storage.stores.traffic import TransferTraffic
from jupyter_sky.machines.storage.transfers.copying import CopyPlan, check_replaced
from jupyter_sky.machines.storage.transfers.estimate import Estimate
from jupyter_sky.machines.storage.transfers.progress import Progress

if TYPE_CHECKING:
    from jupyter_sky.machines.storage.transfers.transfer import Transfer


@dataclass(frozen=True, slots=True)
class CopyEstimate:
    """Amount, time and price of a copy that was not made.

    Attributes
    ----------
    plan
        Objects that would move.
    estimate
        Objects, bytes, seconds and USD.
    """

    plan: CopyPlan
    estimate: Estimate

    @property
    def usd(self) -> float | None:
        """Price; None where a part of it is not known."""
        return self.estimate.usd

    def __str__(self) -> str:
        return _("{plan}, {way}: {price}; nothing was copied").format(
            plan=self.plan, way=self.estimate.way, price=self.estimate.price
        )

    __repr__ = __str__


class Copy:
    """A copy that is going on; it ends by itself, also when nobody waits for it.

    Attributes
    ----------
    plan : CopyPlan
        Objects that move.
    progress : Progress or None
        State of the copy, once it has one.
    charge : Charge or None
        What it has cost, once it has ended.
    route : str
        Machine through which the bytes pass; empty where none is between.
    """

    def __init__(
        self,
        plan: CopyPlan,
        transfer: Transfer | None,
        account: TransferAccount | None = None,
        route: str = "",
    ) -> None:
        self.plan, self.progress, self.charge, self.route = plan, None, None, route
        self._account = account
        self._transfer, self._error = transfer, None
        self._shown: Callable[[Progress], None] = lambda progress: None
        self._ended = threading.Event()
        if transfer is None:
            self.charge = None if account is None else account.book(TransferTraffic())
            self._ended.set()
            return
        transfer.on_progress = self._note
        threading.Thread(target=self._run, name="sky-copy").start()

    progress: Progress | None
    charge: Charge | None
    _error: BaseException | None

    def wait(self, show: Callable[[Progress], None] | None = None) -> Copy:
        """Wait for the end; an interrupt stops it after the parts that are under way.

        What was sent is kept: the same copy goes on with it. A second interrupt gives it up.

        Parameters
        ----------
        show
            Called with the progress, about twice a second.

        Raises
        ------
        SkyStorageError
            Objects could not be copied; the others were.
        """
        self._shown = show or self._shown
        try:
            self._wait()
        except KeyboardInterrupt:
            self.cancel()
            try:
                self._wait()
            except KeyboardInterrupt:
                self.cancel(abort=True)
                self._wait()
            raise
        if self._error is not None:
            raise self._error
        return self

    def cancel(self, *, abort: bool = False) -> None:
        """Stop after the parts that are under way.

        Parameters
        ----------
        abort
            Remove what was sent of objects that are not complete; else the same copy goes on.
        """
        if self._transfer is not None and not self._ended.is_set():
            self._transfer.cancel(abort=abort)

    def done(self) -> bool:
        """Return whether it has ended."""
        return self._ended.is_set()

    def _wait(self) -> None:
        while not self._ended.wait(0.1):
            pass

    def _note(self, progress: Progress) -> None:
        self.progress = progress
        if self._transfer is not None and self._account is not None:
            self._account.book_now_and_then(self._transfer.traffic())
        self._shown(progress)

    def _run(self) -> None:
        assert self._transfer is not None
        begun = time.monotonic()
        try:
            self._note(self._transfer.run().progress)
            self._observe(time.monotonic() - begun)
            usage_memory().forget(self.plan.target)
        except BaseException as error:
            self._error = error
        finally:
            if self._account is not None:
                self.charge = self._account.book(self._transfer.traffic())
            self._ended.set()

    def _observe(self, seconds: float) -> None:
        """Tell the tracker how fast it was."""
        if self._account is None or self.progress is None:
            return
        route, moved = self._account.route, self.progress.bytes_total - self.progress.bytes_resumed
        if all(route):
            observe_transfer(route[0], route[-1], PART_SIZE, 1, moved, seconds)

    def __repr__(self) -> str:
        if not self.done():
            return f"<copying {self.plan}: {self.progress or 'begins'}>"
        return f"<copied {self.plan}>" if self._error is None else f"<not copied: {self._error}>"


def copy(
    source: str | Path | Storage,
    target: str | Path | Storage,
    *,
    dry_run: bool = False,
    overwrite: bool = False,
    via: str = "",
    residency: str = "",
    yes: bool = False,
) -> Any:
    """Copy data between stores, folders and clouds; nothing is deleted at the target.

    Inside a store it copies by itself. A final ``/`` on both sides means the contents. Objects
    that the target has already, with equal checksums, are not copied again, and a copy that was
    interrupted goes on where it stopped.

    Parameters
    ----------
    source, target
        Addresses.
    dry_run
        Return an estimate, and copy nothing.
    overwrite
        Replace objects of the target that differ.
    via
        Name of a cluster whose first machine moves the bytes between two clouds, or ``here`` for
        this machine. Unless given, it is a connected cluster at the destination, else at the
        source.
    residency
        Areas that the data may not leave, such as ``"eu"``: source, target and the machine between
        them are asked for their places before the first byte.
    yes
        Copy without a question also what costs more than ``Sky.ask_usd``.

    Returns
    -------
    Copy or CopyEstimate
        The copy that goes on: ``.wait()``, ``.cancel()``.

    Examples
    --------
    >>> sky.copy("s3://a/x/", "gs://b/x/", dry_run=True)  # doctest: +SKIP
    150.0 GB in 1,281,167 objects, s3://a/x/ → gs://b/x/, aws/us-east-1 → gcp/us-central1: about
    4 min, $13.50 egress (listed) + $6.92 requests (assumed); nothing was copied
    """
    ends = CopyEnds(_storage(source), _storage(target), via)
    ends.check_residency(residency)
    plan = ends.plan()
    estimate = ends.estimate(plan)
    if dry_run:
        return CopyEstimate(plan, estimate)
    if not overwrite:
        check_replaced(plan)
    if not plan.items:
        return Copy(plan, None, ends.account(plan))
    ends.check_way(plan, estimate)
    _check_price(plan, estimate, yes)
    account = ends.account(plan)
    title = ends.way.title if ends.way is not None else ""
    return Copy(plan, ends.transfer(plan, account), account, title)


def _check_price(plan: CopyPlan, estimate: Estimate, yes: bool) -> None:
    """Raise where the price is above a limit and the user does not agree to it."""
    if not estimate.usd:
        return
    way = f"{plan.source} → {plan.target}"
    check_budget(_sessions.current().store, estimate.usd, way)
    if yes or not is_dear(estimate.usd, Sky.load().ask_usd):
        return
    from jupyter_sky.interfaces.api.confirmation import confirm

    confirm(
        _("{estimate}\nCopy? [y/N] ").format(estimate=estimate),
        dear_error(estimate, _("yes=True (%sky storage cp --yes)")),
        _("nothing was copied"),
    )


def _storage(value: str | Path | Storage) -> Storage:
    return value if isinstance(value, Storage) else Storage(value)


def scratch(place: str) -> Storage:
    """Return a new folder for intermediate data, in the bucket that ``Sky.scratch`` names.

    It lasts as long as this process, and a day at most where the bucket is ours: `%sky reap`
    removes what processes have left that have ended.

    Parameters
    ----------
    place
        Cloud and region, such as ``"aws/us-east-1"``.

    Returns
    -------
    Storage
        The folder.

    Examples
    --------
    >>> sky.scratch("aws/us-east-1").write("model", b"...")  # doctest: +SKIP
    """
    from jupyter_sky.execution.files.scratch import open_scratch

    with open_scratch() as opened:
        return Storage(str(opened.prefix(place)))


PROGRESS_COLUMNS = 78
"""Width of the line of a copy, of which each report overwrites the one before."""


def show_progress(progress: Progress) -> None:
    """Show the progress of a copy on one line of the output; its end clears the line."""
    has_ended = progress.objects_done == progress.objects_total
    print(f"\r{'' if has_ended else str(progress):<{PROGRESS_COLUMNS}}\r", end="", flush=True)
    sys.stdout.flush()
