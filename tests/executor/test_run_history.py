"""Outputs of runs that have ended, read from a controller that is behind."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_sky.execution.cells.run_history import RunHistory

ENTRY = {"msg_type": "stream", "content": {"name": "stdout", "text": "scaled\n"}}


@pytest.mark.parametrize("behind", ["unknown", "running"])
def test_outputs_that_the_controller_does_not_have_yet_are_waited_for(
    behind: str, tmp_path: Path
) -> None:
    nothing = {"entries": [], "next": 0, "status": behind}
    answers = [nothing, nothing, {"entries": [ENTRY], "next": 1, "status": "ok"}]

    def ask(op: str, run: str, start: int) -> dict[str, Any]:
        return answers.pop(0) if answers else {"entries": [], "next": 1, "status": "ok"}

    row = SimpleNamespace(cluster="c", ended=5.0, status="ok")
    store: Any = SimpleNamespace(run=lambda run_id: row)
    live: Any = SimpleNamespace(connection=SimpleNamespace(is_lost=False, ask_controller=ask))
    assert list(RunHistory(store, {"c": live}, tmp_path, None).read_all("r")) == [ENTRY]
