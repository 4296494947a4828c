"""Files of the runs of a user, below the folder of their data."""

from __future__ import annotations

from pathlib import Path

from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.workflows.pipelines.model.kept_results import KeptResults, RunResults
from jupyter_sky.workflows.pipelines.model.shared_results import SharedResults
from jupyter_sky.workflows.pipelines.run.journal import RunJournal
from jupyter_sky.workflows.pipelines.run.state import RunState, fold


def open_kept(folder: Path) -> KeptResults:
    """Return the results that are kept of a user's runs."""
    return KeptResults(folder / "kept-results")


def open_shared(config: Sky, kept: KeptResults) -> SharedResults | None:
    """Return the results that other machines share; None without a store for them.

    What lies there is opened as Python objects, and so it is left where settings forbid that.
    """
    return SharedResults(config.results, kept) if config.results and config.trust else None


def open_journal(folder: Path) -> RunJournal:
    """Return the journal of a user's runs."""
    return RunJournal(folder / "runs.db")


def needed_files(journal: RunJournal, kept: KeptResults) -> set[str]:
    """Return the kept files of the runs that have not ended."""
    needed: set[str] = set()
    for name in journal.names():
        recorded = journal.read(name)
        state = fold(RunState.begin(recorded.graph), journal.events(name))
        if not state.is_over:
            needed |= RunResults(name, kept).used_files()
    return needed
