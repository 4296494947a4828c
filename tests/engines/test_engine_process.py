"""Start of an engine's process, and the part of the log that is its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jupyter_sky.engines.node import engine_process


class FinishedPopen(subprocess.Popen):
    """A process that has ended before its start returns, as on a busy machine."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[call-overload]
        self.wait()


def test_log_of_engine_that_fails_at_once_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    log = tmp_path / "engine-0.log"
    log.write_text("of an engine before\n")
    monkeypatch.setattr(subprocess, "Popen", FinishedPopen)
    process, _, start = engine_process.start_engine(tmp_path, tmp_path / "none.json", 0, 1)
    assert process.poll()
    assert log.read_bytes()[start:].startswith(b"Traceback")
