"""Data and files of a cell, before and after it runs; a cell without any loads nothing for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import SkyError
from .fetched_files import FetchedFiles
from .output_files import OutputFiles
from .transfer_progress import TransferReporter

if TYPE_CHECKING:
    from ..cell_options.values import CellOptions
    from ..config.settings import Sky
    from .datasets import CellDataset
    from .uploads import UploadTarget
    from .values import Placement


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
        self._folder, self._reporter, self._mounts = folder, reporter, options.mounts
        record = FetchedFiles(Path(config.data_dir) / "fetched_files.json")
        self._files = OutputFiles(options.files, folder, record, options.yes)
        self._files.check()
        self._datasets: Sequence[CellDataset] = ()
        self._targets: Sequence[UploadTarget] = ()
        self._placement: Placement | None = None
        if options.data:
            from .datasets import list_data

            self._datasets = list_data(options.data, folder, options.resources)
        if options.uploads:
            from .uploads import open_targets

            self._targets = open_targets(options.uploads, folder)

    def bring(self, placement: Placement) -> None:
        """Bring data to the cell's machines; let engines remember the files before the cell."""
        if self._datasets or self._mounts:
            from .datasets import bring_data, check_mounts, mount_folders

            mounts = check_mounts(self._mounts, placement.row.cloud, self._folder)
            bring_data(self._datasets, placement, self._reporter)
            mount_folders(mounts, placement)
        if self._targets:
            from .uploads import check_target_paths, remember_files

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
            from .uploads import upload_new_files

            show_uploading()
            upload_new_files(targets, self._placement, self._reporter)
