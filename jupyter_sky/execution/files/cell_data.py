"""Data and files of a cell, before and after it runs; a cell without any loads nothing for it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyError, SkyUsageError
from jupyter_sky.base.remote.supervisor import write_private
from jupyter_sky.base.requests.cell_options.values import SCRATCH
from jupyter_sky.base.translation import _
from jupyter_sky.execution.clusters.cluster import Placement
from jupyter_sky.execution.files.file_transfer import (
    FileSource,
    choose_targets,
    copy_files,
    plan_copies,
)
from jupyter_sky.execution.files.transfer import TransferReporter, format_size

if TYPE_CHECKING:
    from jupyter_sky.base.requests.cell_options.values import CellOptions
    from jupyter_sky.base.requests.dag.dag import Data
    from jupyter_sky.base.settings.settings import Sky
    from jupyter_sky.execution.files.dataset_listing import CellDataset
    from jupyter_sky.execution.files.mounts import CellMounts
    from jupyter_sky.execution.files.upload_targets import UploadTarget
    from jupyter_sky.machines.storage.stores.store import Store
    from jupyter_sky.machines.storage.stores.uri import StorageUri


class CellData:
    """Data that a cell reads (``--data``, ``--mount``) and files that it makes (``--out``, ``-o``).

    Parameters
    ----------
    options
        Options of the cell: addresses are listed and checked, before anything is spent.
    folder
        Folder of the notebook.
    config
        Settings.
    reporter
        Callbacks of the cell.

    Raises
    ------
    SkyError
        Data are not there, or a file of the user is in the way of one that the cell makes.
    """

    def __init__(
        self, options: CellOptions, folder: Path, config: Sky, reporter: TransferReporter
    ) -> None:
        self._reporter = reporter
        record = FetchedFiles(Path(config.data_dir) / "fetched_files.json")
        self._files = OutputFiles(options.files, folder, record, options.yes)
        self._files.check()
        self._residency = config.residency
        self._datasets: Sequence[CellDataset] = ()
        self._mounts: CellMounts | None = None
        self._targets: Sequence[UploadTarget] = ()
        self._placement: Placement | None = None
        if options.data:
            from jupyter_sky.execution.files.dataset_listing import list_data

            self._datasets = list_data(options.data, folder, options.resources)
        if options.mounts:
            from jupyter_sky.execution.files.mounts import list_mounts

            self._mounts = list_mounts(options.mounts, folder)
        if options.uploads:
            from jupyter_sky.execution.files.upload_targets import open_targets

            self._targets = open_targets(options.uploads, folder)
        self._has_scratch = any(output.uri == SCRATCH for output in options.outputs)
        for output in options.outputs:
            if output.uri and output.uri != SCRATCH:
                from jupyter_sky.execution.files.stored_values import output_uri
                from jupyter_sky.machines.storage.stores.stores import open_store

                open_store(output_uri(output, folder))  # raises before anything is launched

    @property
    def planned(self) -> tuple[Data, ...]:
        """Datasets as the plan of a new cluster counts them."""
        if not self._datasets:
            return ()
        from jupyter_sky.execution.files.data_estimate import planned_data

        return planned_data(self._datasets)

    @property
    def areas(self) -> tuple[str, ...]:
        """Areas in which a new cluster must be."""
        if not self._residency or not self._ends:
            return ()
        from jupyter_sky.execution.files.data_estimate import area_names

        return area_names([uri for __, uri in self._ends], self._residency)

    @property
    def _ends(self) -> list[tuple[Store, StorageUri]]:
        datasets = [*self._datasets, *(self._mounts.streamed if self._mounts else ())]
        read = [(each.store, each.manifest.uri) for each in datasets]
        return [*read, *((each.store, each.uri) for each in self._targets)]

    def bring(self, placement: Placement) -> None:
        """Bring data to the cell's machines; let engines remember the files before the cell."""
        if self._has_scratch:  # a place without a store is said before the cell runs
            from jupyter_sky.execution.files.scratch import place_of_scratch, scratch_of

            scratch_of(place_of_scratch(placement.row.cloud, placement.row.region))
        if self._residency and self._ends:
            from jupyter_sky.execution.files.data_estimate import check_cell_residency

            check_cell_residency(self._ends, self._residency, placement.row)
        if self._datasets:
            from jupyter_sky.execution.files.datasets import bring_data

            bring_data(self._datasets, placement, self._reporter)
        if self._mounts is not None:
            self._mounts.mount(placement, self._reporter)
        if self._targets:
            from jupyter_sky.execution.files.upload_targets import (
                check_target_paths,
                remember_files,
            )

            check_target_paths(self._targets, placement.row.cloud)
            remember_files(self._targets, placement)
        self._placement = placement

    @contextmanager
    def after_cell(self, show_uploading: Callable[[], None]) -> Iterator[None]:
        """Upload and bring files once results have been collected; after an error as asked for.

        An error of an upload after an error of the cell becomes a note: the cell's is raised.
        """
        try:
            yield
        except BaseException:
            wanted = [each for each in self._targets if each.option.also_after_error]
            try:
                self._upload(wanted, show_uploading)
            except SkyError as error:
                self._reporter.note(error.message)
            raise
        self._upload(self._targets, show_uploading)
        if self._placement is not None:
            self._files.bring(self._placement, self._reporter)

    def _upload(self, targets: Sequence[UploadTarget], show_uploading: Callable[[], None]) -> None:
        if targets and self._placement is not None:
            from jupyter_sky.execution.files.uploads import upload_new_files

            show_uploading()
            upload_new_files(targets, self._placement, self._reporter)


# -- Files that a cell's ``-o file:PATH`` names: checked before it runs, brought when it has ------


@dataclass(frozen=True, slots=True)
class OutputFiles:
    """Files and folders that a cell makes on its cluster, and that the notebook is to have.

    Attributes
    ----------
    paths
        Paths or patterns below the folder that the cell works in.
    folder
        Folder of the notebook, below which they keep their place.
    record
        Files that earlier cells have brought, which may be replaced.
    replaces_all
        Whether other files may be replaced, too.
    """

    paths: Sequence[str]
    folder: Path
    record: FetchedFiles
    replaces_all: bool = False

    def check(self) -> None:
        """Raise SkyUsageError where a file of the user is in the way, before anything is spent."""
        if self.replaces_all:
            return
        for path in self.paths:
            target = self.folder / path
            if target.is_file() and not self.record.unchanged([target]):
                raise SkyUsageError(
                    _(
                        "-o file:{path}: {target} is there already, and no cell has brought it"
                    ).format(path=path, target=target),
                    hint=_("move it away, or let the cell replace it: --yes"),
                )

    def bring(self, placement: Placement, reporter: TransferReporter) -> None:
        """Bring the files from the first engine of the cell.

        Raises
        ------
        SkyTransferError
            One is not there or cannot come; those before it are here.
        """
        source = FileSource(placement.cluster, placement.ranks[0])
        for path in self.paths:
            found = source.find(path)
            if not found.exists:
                raise source.missing_error(path)
            reporter.announce(path, found.nbytes, "from")
            targets = choose_targets(found, self.folder)
            may_replace = None if self.replaces_all else self.record.unchanged(targets.values())
            planned = plan_copies(targets, may_replace)
            copy_files(source, planned, reporter.progress(path))
            self.record.add(targets.values())
            size = format_size(sum(file.size for file in planned.copies))
            what = (
                _("{path}: {size} brought").format(path=path, size=size)
                if planned.copies
                else _("{path} is here already").format(path=path)
            )
            reporter.note(what)


# -- Files that cells have brought to this machine: the next run may replace its own copies -------

MAX_KEPT = 2000


class FetchedFiles:
    """Record of the files that ``-o file:`` has brought, each with its size and time.

    Parameters
    ----------
    path
        File of the record, which outlives kernels.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def unchanged(self, paths: Iterable[Path]) -> list[Path]:
        """Return those that were brought and have not been changed here since."""
        known = self._read()
        return [path for path in paths if known.get(_key(path)) == _state(path)]

    def add(self, paths: Iterable[Path]) -> None:
        """Record files that have just been brought."""
        known = self._read() | {_key(path): _state(path) for path in paths}
        with contextlib.suppress(OSError):  # the next run asks before it replaces them
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_private(self._path, dict(list(known.items())[-MAX_KEPT:]))

    def _read(self) -> dict[str, list[int]]:
        try:
            known = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}


def _key(path: Path) -> str:
    return str(path.absolute())


def _state(path: Path) -> list[int]:
    try:
        facts = path.lstat()
    except OSError:
        return []
    return [facts.st_size, facts.st_mtime_ns]
