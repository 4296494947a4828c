"""Claims on results: of two runs one makes a result while the other waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.remote.processes import identity
from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask
from jupyter_sky.workflows.pipelines.model.identity import TaskKey
from jupyter_sky.workflows.pipelines.model.kept_results import Claims, KeptResults
from jupyter_sky.workflows.pipelines.run.journal import RunJournal
from jupyter_sky.workflows.pipelines.run.state import Event, Kind

KEY = TaskKey("code", {}, {}, {}, {}, {}, {})


@pytest.fixture
def journal(tmp_path: Path) -> RunJournal:
    return RunJournal(tmp_path / "runs.db")


@pytest.fixture
def kept(tmp_path: Path) -> KeptResults:
    return KeptResults(tmp_path / "kept")


def _begin(journal: RunJournal, name: str, owner: Mapping[str, Any] | None = None) -> int:
    journal.add(name, RunGraph([RunTask("fit")]), {}, 0.0)
    return journal.take_over(name, owner or identity())


def test_one_of_two_runs_makes_a_result(journal: RunJournal, kept: KeptResults) -> None:
    epoch = _begin(journal, "one")
    _begin(journal, "two")
    one, two = Claims(kept, journal, "one"), Claims(kept, journal, "two")
    assert one.claim(KEY, "fit") == "" and one.claim(KEY, "fit") == ""
    assert two.claim(KEY, "fit") == "one"
    journal.append("one", epoch, [Event(Kind.GIVEN_UP, "fit", 1.0, {"reason": "no"})])
    assert two.claim(KEY, "fit") == "", "its task has ended without a result"
    assert one.claim(KEY, "fit") == "two"
    two.release()
    assert one.claim(KEY, "fit") == ""


def test_a_claim_ends_with_its_process_and_while_its_run_is_paused(
    journal: RunJournal, kept: KeptResults
) -> None:
    _begin(journal, "dead", {**identity(), "born": 1.0})
    epoch = _begin(journal, "paused")
    _begin(journal, "other")
    other = Claims(kept, journal, "other")
    for name in ("dead", "paused", "never begun"):
        assert Claims(kept, journal, name).claim(KEY, "fit") in ("", "paused")
        journal.append("paused", epoch, [Event(Kind.PAUSE, "", 1.0)])
        assert other.claim(KEY, "fit") == ""
        other.release()
