"""Files that a cell's ``-o file:PATH`` names: checked before it runs, brought when it has ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.clusters.values import Placement
from jupyter_sky.execution.files.fetched_files import FetchedFiles
from jupyter_sky.execution.files.file_targets import choose_targets, plan_copies
from jupyter_sky.execution.files.file_transfer import FileSource, copy_files
from jupyter_sky.execution.files.transfer_progress import TransferReporter, format_size


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
