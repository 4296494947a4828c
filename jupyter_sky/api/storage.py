"""Copies between stores as Python calls."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.settings import Sky
from ..errors import SkyUsageError
from ..executor import session as _sessions
from ..quantities import format_size
from ..storage.copying import CopyPlan, check_replaced, plan_copy
from ..storage.data import Storage, usage_memory
from ..storage.progress import Progress
from ..storage.tree_names import exact_name, fold_of_platform

if TYPE_CHECKING:
    from ..storage.transfer import Transfer

HERE = "here"
"""Value of ``via`` for a copy that passes through this machine."""


@dataclass(frozen=True, slots=True)
class CopyEstimate:
    """Amount and price of a copy that was not made.

    Attributes
    ----------
    plan
        Objects that would move.
    usd
        Price of the bytes that leave a cloud or region; None where it is not known.
    basis
        Origin of the price.
    """

    plan: CopyPlan
    usd: float | None
    basis: str

    def __str__(self) -> str:
        usd = "price of the egress not known" if self.usd is None else f"${self.usd:.2f} egress"
        return f"{self.plan}: {usd} ({self.basis}); nothing was copied"

    __repr__ = __str__


class Copy:
    """A copy that is going on; it ends by itself, also when nobody waits for it.

    Attributes
    ----------
    plan : CopyPlan
        Objects that move.
    progress : Progress or None
        State of the copy, once it has one.
    """

    def __init__(self, plan: CopyPlan, transfer: Transfer | None) -> None:
        self.plan, self.progress = plan, None
        self._transfer, self._error = transfer, None
        self._shown: Callable[[Progress], None] = lambda progress: None
        self._ended = threading.Event()
        if transfer is None:
            self._ended.set()
            return
        transfer.on_progress = self._note
        threading.Thread(target=self._run, name="sky-copy").start()

    progress: Progress | None
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
        self._shown(progress)

    def _run(self) -> None:
        assert self._transfer is not None
        try:
            self._note(self._transfer.run().progress)
            usage_memory().forget(self.plan.target)
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

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
        this machine.

    Returns
    -------
    Copy or CopyEstimate
        The copy that goes on: ``.wait()``, ``.cancel()``.

    Examples
    --------
    >>> sky.copy("s3://a/x/", "gs://b/x/", dry_run=True)  # doctest: +SKIP
    150.0 GB in 1,281,167 objects, s3://a/x/ → gs://b/x/: $13.50 egress (listed)
    """
    begin, end = _storage(source), _storage(target)
    manifest = begin.list()
    manifest.check_readable()
    fold = fold_of_platform() if end.uri.is_local else exact_name
    plan = plan_copy(manifest, begin.store, end.store, end.uri, fold)
    estimate = _estimate(plan, begin, end)
    if dry_run:
        return estimate
    if not overwrite:
        check_replaced(plan)
    if not plan.items:
        return Copy(plan, None)
    return Copy(plan, _transfer(plan, begin, end, estimate, via))


def _storage(value: str | Path | Storage) -> Storage:
    return value if isinstance(value, Storage) else Storage(value)


def _estimate(plan: CopyPlan, begin: Storage, end: Storage) -> CopyEstimate:
    from ..executor.data_estimate import egress_between, place_of

    places = place_of(begin.store, begin.uri), place_of(end.store, end.uri)
    found = egress_between(*places, plan.nbytes / 1e9)
    return CopyEstimate(plan, *found)


def _transfer(
    plan: CopyPlan, begin: Storage, end: Storage, estimate: CopyEstimate, via: str
) -> Transfer:
    from ..storage.journal import Journal
    from ..storage.transfer import Transfer
    from ..storage.transfer_values import TransferOptions

    options = TransferOptions(condition=plan.condition)
    passes_here = not (begin.uri.is_local or end.uri.is_local)
    if passes_here and not end.store.can_copy_from(begin.store):
        if not via:
            raise SkyUsageError(
                f"{estimate}: between two clouds the bytes would pass through this machine, "
                f"{format_size(plan.nbytes)} down and up again",
                hint="via='CLUSTER' lets a cluster's machine do it, via='here' this one "
                "(%sky storage cp --via)",
            )
        if via != HERE:
            options = TransferOptions(condition=plan.condition, start_worker=_cluster_worker(via))
    folder = Path(Sky.load().data_dir)
    folder.mkdir(parents=True, exist_ok=True)
    return Transfer(begin.store, end.store, plan.items, Journal.open(folder), options)


def _cluster_worker(name: str) -> Any:
    from ..executor.engine_worker import EngineWorker

    cluster = _sessions.current().clusters.find(name)
    return partial(EngineWorker, link=cluster.connection, rank=0)


def show_progress(progress: Progress) -> None:
    """Show the progress of a copy on one line of the output."""
    end = "\n" if progress.objects_done == progress.objects_total else ""
    print(f"\r{progress}   ", end=end)
    sys.stdout.flush()
