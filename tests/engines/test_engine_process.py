"""Start of an engine's process, and the part of the log that is its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_sky.machines.engines.node import engine_process


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


FULL_DISK = """
import resource, tempfile
from ipykernel.compiler import get_file_name
from jupyter_sky.machines.engines.node.engine import choose_temporary_directory

if not {full_later}:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
choose_temporary_directory()
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
print(get_file_name("1 + 1"))
try:
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"some bytes")
        file.flush()
except OSError as error:
    print(error)
"""
"""Names the code of a cell where no byte can be written, as ipykernel does before it runs."""


@pytest.mark.parametrize("full_later", [True, False])
def test_cell_on_full_disk_can_be_compiled(full_later: bool, tmp_path: Path) -> None:
    code = FULL_DISK.format(full_later=full_later)
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    name, error = told.stdout.splitlines()
    assert name.startswith(f"{tmp_path}/ipykernel_")
    assert error == "[Errno 27] File too large"
