"""Bytecode that is made here for other machines: used there, and never for another source."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

from jupyter_sky.machines.provisioner.bytecode import ROOTS, compile_modules
from jupyter_sky.machines.provisioner.package_archive import _reset_owner


def _told(folder: Path) -> list[str]:
    """Import a module as a fresh machine does; return what it says, and whether it was compiled."""
    program = (
        "import sys; from importlib.machinery import SourceFileLoader as L\n"
        "L.source_to_code = lambda *a, **k: compile('said = \"compiled\"', 'f', 'exec')\n"
        "import inside.speaker as s, plain; print(s.said, plain.said)"
    )
    command = [sys.executable, "-B", "-c", program]
    return subprocess.check_output(command, cwd=folder, text=True).split()


def test_bytecode_is_sent_and_not_compiled_again(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside/__init__.py").touch()
    (tmp_path / "inside/speaker.py").write_text("said = 'hello'")
    (tmp_path / "plain.py").write_text("said = 'hello'")
    compile_modules(tmp_path, iter(["inside", "inside.speaker", "plain", "not_there", "sys"]))
    assert _told(tmp_path) == ["hello", "hello"]
    assert not list(tmp_path.rglob("not_there*")), "an empty folder would be a package"
    (tmp_path / "plain.py").write_text("said = 'later'")
    os.utime(tmp_path / "plain.py", (1_700_000_000, 1_700_000_000))  # as long, at another time
    assert _told(tmp_path) == ["hello", "compiled"]


def test_it_travels(tmp_path: Path) -> None:
    here, there, packed = tmp_path / "here", tmp_path / "there", tmp_path / "packed.tar"
    for folder in (here / "inside", there):
        folder.mkdir(parents=True)
    for name in ("inside/__init__.py", "inside/speaker.py", "plain.py"):
        (here / name).write_text("said = 'hello'")
        os.utime(here / name, (1_700_000_000.9, 1_700_000_000.9))
    compile_modules(here, iter(["inside", "inside.speaker", "plain"]))
    with tarfile.open(packed, "w") as tar:
        tar.add(here, ".", filter=_reset_owner)
    subprocess.run(["tar", "-xf", packed, "-C", there], check=True)
    assert _told(there) == ["hello", "hello"]


def test_a_source_that_cannot_be_compiled_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("print 'as of old'")
    compile_modules(tmp_path, iter(["old"]))
    assert [path.name for path in tmp_path.rglob("*.py*")] == ["old.py"]


def test_all_that_engines_begin_with_is_there() -> None:
    named = subprocess.check_output(
        [
            sys.executable,
            "-c",
            "from jupyter_sky.machines.provisioner.bytecode import import_roots as roots\n"
            "print(*roots())",
        ],
        text=True,
    ).split()
    assert set(ROOTS) <= set(named)
    assert {
        "jupyter_sky.machines.engines.wire.error_serialization",
        "IPython.core.interactiveshell",
    } <= set(named)
