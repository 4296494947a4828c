"""Java of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyError
from jupyter_sky.machines.services import spark_node


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of programs of a machine without Java, and without apt."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(spark_node, "INSTALLED_BELOW", tmp_path / "jvm")
    return tmp_path


def make_java(home: Path, version: str) -> Path:
    """Make a program that tells the version as Java does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return home


def test_old_java_is_passed_over(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(bare_machine / "old", "1.8.0_392")))
    assert spark_node.find_java() is None
    new = make_java(bare_machine / "jvm" / "new", "21.0.4")
    assert spark_node.find_java() == new


def test_missing_java_says_what_installs_it(bare_machine: Path) -> None:
    with pytest.raises(SkyError, match="Java 17 or later") as caught:
        spark_node.ensure_java()
    assert caught.value.hint is not None
    assert "apt-get install openjdk-17-jre-headless" in caught.value.hint
