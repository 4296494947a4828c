"""Step of a cell that uploads its files, which costs a cell without ``--out`` nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..cell_options.values import CellUpload
from ..errors import SkyError
from .transfer_progress import TransferReporter

if TYPE_CHECKING:
    from .uploads import UploadTarget
    from .values import Placement


class CellUploads:
    """Uploads of one cell, from the check of their addresses to their end.

    Parameters
    ----------
    uploads
        Values of ``--out``.
    folder
        Folder of the notebook.
    reporter
        Callbacks of the cell.
    """

    def __init__(
        self, uploads: Sequence[CellUpload], folder: Path, reporter: TransferReporter
    ) -> None:
        self._targets: Sequence[UploadTarget] = ()
        self._reporter = reporter
        self._placement: Placement | None = None
        if uploads:
            from .uploads import open_targets

            self._targets = open_targets(uploads, folder)

    def begin(self, placement: Placement) -> None:
        """Let engines remember the files that are there before the cell."""
        if self._targets:
            from .uploads import check_target_paths, remember_files

            check_target_paths(self._targets, placement.row.cloud)
            remember_files(self._targets, placement)
            self._placement = placement

    @contextmanager
    def after_cell(self, show: Callable[[], None]) -> Iterator[None]:
        """Upload after the results have been collected; after an error only what asks for it.

        An error of an upload after an error of the cell becomes a note: the cell's is raised.
        """
        try:
            yield
        except BaseException:
            wanted = [each for each in self._targets if each.option.also_after_error]
            try:
                self._upload(wanted, show)
            except SkyError as error:
                self._reporter.note(error.message)
            raise
        self._upload(self._targets, show)

    def _upload(self, targets: Sequence[UploadTarget], show: Callable[[], None]) -> None:
        if targets and self._placement is not None:
            from .uploads import upload_new_files

            show()
            upload_new_files(targets, self._placement, self._reporter)
