"""Archives of classes, made and used by real JVMs."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from jupyter_sky.services import class_archive
from jupyter_sky.services.class_archive import ClassArchive
from jupyter_sky.services.java import ensure_java
from jupyter_sky.services.spark_node import ensure_spark
from tests.conftest import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
WAITING = "org.apache.spark.deploy.master.Master"


def start(java: Path, spark: Path, options: str, log: Path) -> subprocess.Popen[bytes]:
    """Start a master of Spark with options for its JVM."""
    command = [str(java / "bin" / "java"), *shlex.split(options), "-Xlog:class+load"]
    command += ["-cp", f"{spark}/none:{spark}/jars/*", WAITING, "--host", "127.0.0.1"]
    with log.open("wb") as output:
        return subprocess.Popen([*command, "--webui-port", "0"], stdout=output, stderr=output)


def source_of(name: str, log: Path) -> str:
    """Return where a JVM has a class from, by its log."""
    (line,) = [line for line in log.read_text().splitlines() if f" {name} source:" in line]
    return line.partition("source:")[2]


def test_archive_is_made_of_lists_and_used(
    needs_java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java, spark = ensure_java(), ensure_spark(version("pyspark-client"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(class_archive, "DELAY_SECONDS", 0.0)
    folder = tmp_path / "a folder"
    folder.mkdir()
    archive = ClassArchive(java, spark, folder)
    assert "DumpLoadedClassList" in archive.options("master")
    log = tmp_path / "log"
    process = start(java, spark, archive.options("master"), log)
    try:
        wait_until(lambda: "New state: ALIVE" in log.read_text(), "no master")
        archive.make(process.pid)
        assert not archive.path.exists(), "nobody has asked for it"
        archive.make_later()

        def is_made() -> bool:
            archive.make(process.pid)
            return archive.path.exists()

        wait_until(is_made, "no archive")
    finally:
        process.kill()
        process.wait()
    assert stat.S_IMODE(archive.path.stat().st_mode) == 0o600
    assert list(archive.path.parent.iterdir()) == [archive.path], "nothing unfinished is left"
    assert ".jar" in source_of(WAITING, log)

    later = ClassArchive(java, spark, folder)
    process = start(java, spark, later.options("master"), log)
    try:
        wait_until(lambda: "New state: ALIVE" in log.read_text(), "no master")
    finally:
        process.kill()
        process.wait()
    assert "shared objects file" in source_of(WAITING, log)


def test_making_is_given_up_with_its_node(
    needs_java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java, spark = ensure_java(), ensure_spark(version("pyspark-client"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(class_archive, "DELAY_SECONDS", 0.0)
    archive = ClassArchive(java, spark, tmp_path)
    process = start(java, spark, archive.options("master"), tmp_path / "log")
    try:
        wait_until(lambda: (tmp_path / "master.classes").exists(), "no list")
        archive.make_later()
        archive.make(process.pid)
        assert archive._maker is not None
        archive.stop()
    finally:
        process.kill()
        process.wait()
    assert not list(archive.path.parent.iterdir())


def test_spark_goes_on_where_no_archive_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").write_text("no folder")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(class_archive, "DELAY_SECONDS", -1.0)
    monkeypatch.setattr(class_archive, "NEEDED_GB", 0.0)
    archive = ClassArchive(tmp_path / "java", tmp_path / "spark", tmp_path)
    archive.make_later()
    archive.make(os.getpid())
    assert (tmp_path / "archive.list").exists(), "it was tried"
    assert archive._maker is None and not archive.path.exists()
