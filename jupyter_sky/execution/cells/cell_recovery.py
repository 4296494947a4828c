"""Recovery of a cell whose machine was lost: its saves come here, and go on elsewhere with it."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from jupyter_sky import clouds
from jupyter_sky.base.errors import (
    SkyClusterLost,
    SkyError,
    SkyNoCapacity,
    SkyNodeLost,
    SkyNoOffer,
    SkyPreempted,
    SkyUsageError,
)
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.inputs import Replies, Sending
from jupyter_sky.execution.checkpoints.leave_watch import SkyLeaving
from jupyter_sky.execution.checkpoints.places import SaveNumber
from jupyter_sky.execution.checkpoints.state import (
    EVERY_VARIABLE,
    FOLDER_VARIABLE,
    GENERATION_VARIABLE,
)
from jupyter_sky.execution.clusters.cluster import Placement
from jupyter_sky.execution.clusters.cluster_request import ClusterRequest
from jupyter_sky.execution.clusters.machine_notices import Notices
from jupyter_sky.execution.files.file_transfer import (
    FileSource,
    FoundFiles,
    RemoteFile,
    choose_targets,
    copy_files,
    plan_copies,
)
from jupyter_sky.execution.files.transfer import sync_files
from jupyter_sky.machines.engines.node.notices import NoticeKind
from jupyter_sky.machines.engines.wire.controller_requests import ApproveEnd

if TYPE_CHECKING:
    from jupyter_sky.base.requests.cell_options.values import CellOptions
    from jupyter_sky.base.requests.resources import Resources
    from jupyter_sky.base.store.store import ClusterRow
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.execution.clusters.clusters import ClusterRegistry
    from jupyter_sky.knowledge.lifetimes.recovery import Strategy

FOLDER = "sky-saves"
"""Folder of saves below the one that a cell works in."""
FETCH_SECONDS = 1.0
MAX_LOSSES = 3
"""Losses in a row without a new save, after which the cell itself is taken for their cause."""


@dataclass(frozen=True, slots=True)
class LossCount:
    """Losses of one cell.

    Attributes
    ----------
    total : int
        All of them.
    in_vain : int
        Losses since the last new save that no cloud has owned up to.
    newest : SaveNumber or None
        Newest save at the last of them.
    """

    total: int = 0
    in_vain: int = 0
    newest: SaveNumber | None = None

    def add(self, error: SkyError, newest: SaveNumber | None) -> LossCount:
        """Return the count after another loss.

        Examples
        --------
        >>> LossCount().add(SkyClusterLost("gone"), None)
        LossCount(total=1, in_vain=1, newest=None)
        """
        is_vain = newest == self.newest and not isinstance(error, SkyPreempted)
        return LossCount(self.total + 1, self.in_vain + 1 if is_vain else 0, newest)


def is_loss(error: BaseException) -> bool:
    """Return whether a machine was lost that nobody meant to end.

    Examples
    --------
    >>> is_loss(SkyClusterLost("cluster a is gone: it was killed"))
    True
    >>> is_loss(ValueError("of the cell"))
    False
    """
    if isinstance(error, SkyClusterLost):
        return not error.is_intended
    return isinstance(error, SkyNodeLost)


class CellRecovery:
    """Saves and losses of one cell.

    Parameters
    ----------
    options : CellOptions
        Options of the cell; without ``--recover`` every loss is final.
    run_id : str
        Id of the run.
    data_dir : Path
        Data directory of this machine, in which saves are kept while the cell runs.
    """

    def __init__(self, options: CellOptions, run_id: str, data_dir: Path) -> None:
        self._options, self._run_id = options, run_id
        self._root = data_dir / "checkpoints" / "runs" / run_id
        self.losses = LossCount()
        self._strategy: Strategy | None = None
        """Strategy that the cell names; None for the one that is best in a simulation."""
        self._lost: tuple[str, str, str | None] | None = None
        self._begun = time.time()

    @property
    def is_on(self) -> bool:
        """Whether the cell goes on elsewhere after a loss."""
        return self._options.recover is not None

    def check(self, namespace: Mapping[str, Any]) -> None:
        """Look up the strategy that the cell names.

        Raises
        ------
        SkyUsageError
            There is none of that name.
        """
        if self._options.recover:
            from jupyter_sky.execution.cells.recovery_places import find_strategy

            self._strategy = find_strategy(self._options.recover, namespace)

    def obtain(
        self,
        request: ClusterRequest,
        obtain: Callable[[ClusterRequest], tuple[ClusterHandle, list[str]]],
    ) -> tuple[ClusterHandle, list[str]]:
        """Return a cluster for the cell: after a loss in the places of the strategy first.

        Where all places refuse after a loss, they are asked again until one has a machine.

        Parameters
        ----------
        obtain
            Launches, or finds, a cluster; asks all places where the request names none.
        """
        notes = list[str]()
        if self.losses.total:
            last = replace(request, until_up=True)
            try:
                for need in self._next_requests(request.resources):
                    with contextlib.suppress(SkyNoCapacity, SkyNoOffer):
                        return obtain(replace(request, resources=need))
            except SkyUsageError as error:  # the user's own strategy has failed
                notes.append(str(error).replace("\n", "; "))
                if self._strategy is not None:
                    self._strategy = None
                    return self._with_notes(notes, self.obtain(request, obtain))
            return self._with_notes(notes, obtain(last))
        return self._with_notes(notes, obtain(request))

    @staticmethod
    def _with_notes(
        notes: list[str], obtained: tuple[ClusterHandle, list[str]]
    ) -> tuple[ClusterHandle, list[str]]:
        return obtained[0], [*notes, *obtained[1]]

    def _next_requests(self, need: Resources) -> Iterator[Resources]:
        """Yield where to ask; nothing for machines of one's own."""
        if self._lost is None:
            return iter(())
        from jupyter_sky.execution.cells import recovery_places  # numpy, after a loss only

        worked = (time.time() - self._begun) / 3600
        return recovery_places.next_requests(self._strategy, need, self._lost, worked)

    def leave(self, row: ClusterRow, clusters: ClusterRegistry) -> None:
        """Note the place of a cluster that is lost, and end what is left of it."""
        with contextlib.suppress(SkyError):  # its cloud cannot be asked now: the reaper will
            is_up = row.id in {other.id for other in clusters.records.reconcile()}
            if is_up:
                clusters.terminate(row.name)
        is_rented = clouds.is_rented(row.cloud)
        self._lost = (row.cloud, row.region, row.offer.get("zone")) if is_rented else None

    def prepare(self, sending: Sending) -> Sending:
        """Return the sending with the variables by which the cell finds its saves."""
        if not self.is_on:
            return sending
        variables = {
            FOLDER_VARIABLE: f"{FOLDER}/{self._run_id}",
            GENERATION_VARIABLE: str(self.losses.total),
        }
        if self._options.checkpoint:
            variables[EVERY_VARIABLE] = str(self._options.checkpoint)
        return replace(sending, env={**variables, **sending.env})

    def restore(self, placement: Placement, progress: Callable[[int, int], None]) -> None:
        """Bring the saves that are here to the engines of the cell."""
        if self.is_on and (self._root / FOLDER).is_dir():
            sync_files(placement.cluster, placement.ranks, self._root, [FOLDER], progress)

    def take_loss(self, error: SkyError) -> str:
        """Count a loss; return a note, or raise it where the cell does not go on.

        Raises
        ------
        SkyError
            Recovery is off, somebody has ended the machine, or it is lost again and again.
        """
        newest = find_newest(self._root / FOLDER)
        losses = self.losses.add(error, newest)
        if not self.is_on or not is_loss(error) or losses.in_vain >= MAX_LOSSES:
            raise error
        self.losses = losses
        if newest is None:
            return _("{why}; it begins anew elsewhere: nothing was saved").format(why=error.message)
        return _("{why}; it goes on elsewhere from its last save").format(why=error.message)

    def check_replies(self, replies: Replies) -> None:
        """Take the interruption of work whose machine is taken away for its loss.

        Raises
        ------
        SkyPreempted
            An engine was interrupted, and the cell goes on elsewhere.
        """
        if self.is_on and any(reply.error.get("ename") == SkyLeaving.__name__ for reply in replies):
            raise SkyPreempted(_("the machine is taken away before a safe point was reached"))

    def fetching(self, placement: Placement) -> contextlib.AbstractContextManager[None]:
        """Bring new saves here while the cell runs, and once more at its end."""
        if not self.is_on:
            return contextlib.nullcontext()
        return _fetching(SaveFetcher(placement, self._root, self._run_id))

    def forget(self) -> None:
        """Remove the saves that are here: the cell has ended."""
        if self.is_on:
            shutil.rmtree(self._root, ignore_errors=True)


@contextlib.contextmanager
def _fetching(fetcher: SaveFetcher) -> Iterator[None]:
    fetcher.start()
    try:
        yield
    finally:
        fetcher.stop()


class SaveFetcher(threading.Thread):
    """Thread that brings the newest saves of a running cell to this machine.

    The head node's are sent by the controller while the cell runs; engines of other nodes answer
    after it only: states of other ranks need a store, ``checkpointed(..., to=)``.

    Once all states that were saved since the cloud's notice are here, it may take the machine away:
    what the cell does from then on would be done again.
    """

    def __init__(self, placement: Placement, root: Path, run_id: str) -> None:
        super().__init__(name="sky-saves", daemon=True)
        self._cluster, self._source = placement.cluster, FileSource(placement.cluster, 0)
        self._root, self._run_id, self._folder = root, run_id, f"{FOLDER}/{run_id}"
        self._approved = False
        self._ended = threading.Event()

    def run(self) -> None:
        """Fetch until stopped; a cluster that does not answer is asked again."""
        while not self._ended.wait(FETCH_SECONDS):
            with contextlib.suppress(SkyError, OSError):  # also a save that has just been replaced
                self._fetch()

    def stop(self) -> None:
        """Fetch no more."""
        self._ended.set()
        self.join(FETCH_SECONDS)

    def _fetch(self) -> None:
        found = self._source.find(self._folder)
        newest = newest_saves(found)
        targets = choose_targets(newest, self._root)
        copy_files(self._source, plan_copies(targets, None), lambda done, total: None)
        for target in targets.values():
            for old in target.parent.glob("*.sky"):
                if old.name < target.name:
                    old.unlink(missing_ok=True)
        if not self._approved and is_saved_since(self._cluster.notices.current, newest):
            self._approved = True
            self._cluster.connection.ask_controller(ApproveEnd(self._run_id))


def is_saved_since(notices: Notices, newest: FoundFiles) -> bool:
    """Return whether all states were saved since the notice that the head node is taken away.

    Parameters
    ----------
    newest
        Newest save of each state.

    Examples
    --------
    >>> from jupyter_sky.machines.engines.node.notices import Notice
    >>> notice = Notice(NoticeKind.PREEMPT, "terminate", seen=10.0, ends=40.0)
    >>> save = RemoteFile("s/fit/0/000000-0000000001.sky", "", 1, int(12e9), 0)
    >>> found = FoundFiles("s", (save,), False, True)
    >>> is_saved_since({0: (notice,)}, found), is_saved_since({}, found)
    (True, False)
    """
    seen = [n.seen for n in notices.get(0, ()) if n.kind is NoticeKind.PREEMPT]
    saved = [file.modified / 1e9 for file in newest.files]
    return bool(seen and saved) and min(saved) > max(seen)


def newest_saves(found: FoundFiles) -> FoundFiles:
    """Return the newest save of each state and rank.

    Examples
    --------
    >>> files = [RemoteFile(f"s/fit/0/{SaveNumber(0, n).name}", "", 1, 0, 0) for n in (1, 2)]
    >>> newest_saves(FoundFiles("s", (*files,), False, True)).files[0].path
    's/fit/0/000000-0000000002.sky'
    """
    newest: dict[str, RemoteFile] = {}
    for file in sorted(found.files, key=lambda file: file.path):
        path = PurePosixPath(file.path)
        if SaveNumber.parse(path.name) is not None:
            newest[str(path.parent)] = file
    return replace(found, files=tuple(newest.values()))


def find_newest(folder: Path) -> SaveNumber | None:
    """Return the number of the newest save below a folder of this machine."""
    numbers = (SaveNumber.parse(path.name) for path in folder.glob("**/*.sky"))
    return max(filter(None, numbers), default=None)
