"""Files of the runs of a user, below the folder of their data."""

from __future__ import annotations

from pathlib import Path

from ..runs.journal import RunJournal
from .kept_results import KeptResults


def open_kept(folder: Path) -> KeptResults:
    """Return the results that are kept of a user's runs."""
    return KeptResults(folder / "kept-results")


def open_journal(folder: Path) -> RunJournal:
    """Return the journal of a user's runs."""
    return RunJournal(folder / "runs.db")
