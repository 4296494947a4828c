"""Outputs of runs that have ended, read from a controller that is behind."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_sky.execution.cells.run_history import RunHistory
from jupyter_sky.machines.engines.wire.controller_requests import JournalReply, ReadJournal

ENTRY = {"msg_type": "stream", "content": {"name": "stdout", "text": "scaled\n"}}


@pytest.mark.parametrize("behind", ["unknown", "running"])
def test_outputs_that_the_controller_does_not_have_yet_are_waited_for(
    behind: str, tmp_path: Path
) -> None:
    nothing = JournalReply([], 0, behind, None)
    answers = [nothing, nothing, JournalReply([ENTRY], 1, "ok", 5.0)]

    def ask(request: ReadJournal) -> JournalReply:
        return answers.pop(0) if answers else JournalReply([], 1, "ok", 5.0)

    row = SimpleNamespace(cluster="c", ended=5.0, status="ok")
    store: Any = SimpleNamespace(run=lambda run_id: row)
    live: Any = SimpleNamespace(connection=SimpleNamespace(is_lost=False, ask_controller=ask))
    assert list(RunHistory(store, {"c": live}, tmp_path, None).read_all("r")) == [ENTRY]
