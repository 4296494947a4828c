"""Runs of notebooks, past and present, and their journals."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.store.store import RunRow, Store
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.output_area import Entry, entry_text
from jupyter_sky.machines.engines.controller.journal import Journal
from jupyter_sky.machines.engines.wire.controller_requests import ReadJournal

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import ClusterHandle

LATE_SECONDS = 2.0
"""Longest wait for outputs of a run that has ended; its controller gives up after half of it."""


class RunHistory:
    """Runs in the store, and everything that they printed.

    Parameters
    ----------
    connected
        Connections of this process to clusters, by name; read at each use.
    data_dir
        Folder in which clusters leave their journals.
    notebook
        Path of the notebook whose runs are looked up; None for all notebooks.
    """

    def __init__(
        self,
        store: Store,
        connected: Mapping[str, ClusterHandle],
        data_dir: Path,
        notebook: str | None,
    ) -> None:
        self.store, self._connected = store, connected
        self._data_dir, self._notebook = data_dir, notebook
        self._journals: dict[Path, Journal] = {}

    def find_run(self, which: str | None = None) -> RunRow:
        """Return a run by name, id or cell number; without, the last one.

        Raises
        ------
        SkyUsageError
            There is none.
        """
        rows = self.store.runs(notebook=self._notebook, limit=1000)
        rows = sorted(rows, key=lambda row: row.started, reverse=True)
        if which is None:
            matching = rows
        else:
            matching = [r for r in rows if which in (r.name, str(r.cell), r.run_id)]
        if not matching:
            known = [r.name or str(r.cell) for r in rows[:20]]
            raise SkyUsageError(
                _("no cell {which!r} has run on a cluster").format(which=which)
                if which
                else _("no cell has run yet"),
                hint=_("known: {known}").format(known=", ".join(dict.fromkeys(known)))
                if known
                else None,
            )
        return matching[0]

    def read_journal(self, run_id: str, start: int = 0) -> tuple[list[Entry], int]:
        """Return some entries of a run's journal from a number on, and the number of the next.

        They come from the cluster or, when it has ended, from its remains.

        Raises
        ------
        SkyUsageError
            The journal is no longer kept.
        """
        entries, following, _settled = self._read(run_id, start)
        return entries, following

    def _read(self, run_id: str, start: int) -> tuple[list[Entry], int, bool]:
        """Return entries, the number of the next, and False if some may be on their way."""
        row = self.store.run(run_id)
        cluster = self._connected.get(row.cluster) if row else None
        if cluster is not None and not cluster.connection.is_lost:
            answer = cluster.connection.ask_controller(ReadJournal(run_id, start))
            following = answer.next if answer.entries else start
            # the end of a cell may reach the notebook before its outputs reach the controller, or
            # even before it knows of the cell
            known = answer.status
            is_behind = row is not None and (
                (known == "running" and row.ended is not None)
                or (known == "unknown" and row.status in ("ok", "error"))
            )
            return answer.entries, following, not is_behind
        file = self.journal_file(run_id)
        if file is None and row is not None and row.ended is None:
            return [], start, True  # it has printed nothing yet
        if file is None:
            raise SkyUsageError(
                _("the journal of run {run_id} is no longer kept").format(run_id=run_id)
            )
        journal = self._journals.setdefault(file.parent, Journal(file.parent))
        entries, following = journal.read(run_id, start)
        if not entries:  # the file may have grown since it was read
            journal.forget(run_id)
            entries, following = journal.read(run_id, start)
        return entries, following, True

    def journal_file(self, run_id: str) -> Path | None:
        """Return the file of a run's journal on this machine, if there is one."""
        return next(self._data_dir.glob(f"*/*/journal/{run_id}.jsonl"), None)

    def read_all(self, run_id: str) -> Iterator[Entry]:
        """Yield all entries of a run's journal; of one that goes on, those so far.

        Raises
        ------
        SkyError
            The journal is no longer kept, or its cluster is lost meanwhile.
        """
        start = 0
        waited_until = time.monotonic() + LATE_SECONDS
        while True:
            entries, start, settled = self._read(run_id, start)
            yield from entries
            if not entries:
                if settled or time.monotonic() > waited_until:
                    return
                time.sleep(LATE_SECONDS / 100)

    def log_text(self, run_id: str) -> str:
        """Return everything that a run has printed, as text."""
        return "".join(map(entry_text, self.read_all(run_id)))
