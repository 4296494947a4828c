"""Files of the runs of a user, below the folder of their data."""

from __future__ import annotations

from pathlib import Path

from ..config.settings import Sky
from ..runs.journal import RunJournal
from .kept_results import KeptResults
from .shared_results import SharedResults


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
