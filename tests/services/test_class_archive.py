"""Archives of classes, made and used by real JVMs."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from jupyter_sky.machines.services import class_archive
from jupyter_sky.machines.services.class_archive import ClassArchive
from jupyter_sky.machines.services.spark_node import ensure_java, ensure_spark
from tests.conftest import wait_until

pytestmark = pytest.mark.timeout(900)
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


@pytest.mark.slow
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
    left = {archive.path, archive.path.with_suffix(".json")}
    assert set(archive.path.parent.iterdir()) == left, "nothing unfinished is left"
    assert ".jar" in source_of(WAITING, log)

    later = ClassArchive(java, spark, folder)
    process = start(java, spark, later.options("master"), log)
    try:
        wait_until(lambda: "New state: ALIVE" in log.read_text(), "no master")
    finally:
        process.kill()
        process.wait()
    assert "shared objects file" in source_of(WAITING, log)


@pytest.mark.slow
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


def install(folder: Path, jar: str) -> tuple[Path, Path]:
    """Return the homes of Java and of Spark with one jar."""
    java, spark = folder / "java", folder / "spark"
    java.mkdir(parents=True)
    (java / "release").write_text("JAVA_VERSION=17")
    (spark / "jars").mkdir(parents=True)
    (spark / "jars" / jar).touch()
    return java, spark


def make_archive(homes: tuple[Path, Path], folder: Path) -> Path:
    """Make an archive with a process that writes it, as Java would."""
    archive = ClassArchive(*homes, folder)
    archive.path.parent.mkdir(parents=True, exist_ok=True)
    archive._unfinished.write_bytes(b"classes")
    archive._maker = subprocess.Popen(["true"])
    archive._maker.wait()
    archive.make(os.getpid())
    assert archive.path.exists()
    return archive.path


def test_archives_that_nobody_uses_are_removed_with_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    first, gone, idle = (install(tmp_path / name, "a.jar") for name in ("first", "gone", "idle"))
    kept, removed, unused = (make_archive(homes, tmp_path) for homes in (first, gone, idle))
    foreign = kept.with_name("spark-0123456789abcdef.jsa")  # of a version that kept no homes
    for path in (foreign, kept.with_name("spark-0123456789abcdef.4711"), kept.with_name("notes")):
        path.write_bytes(b"x")
    (gone[1] / "jars" / "a.jar").rename(gone[1] / "jars" / "b.jar")
    long_ago = time.time() - 91 * 86400
    os.utime(unused, (long_ago, long_ago))
    os.utime(kept, (long_ago, long_ago))
    ClassArchive(*first, tmp_path)  # which uses it
    new = make_archive(install(tmp_path / "new", "c.jar"), tmp_path)
    assert kept.exists() and new.exists() and foreign.exists()
    assert not removed.exists(), "its jars are others now"
    assert not unused.exists(), "for three months"
    assert not removed.with_suffix(".json").exists()
    assert kept.with_name("spark-0123456789abcdef.4711").exists(), "it may be in the making"
    os.utime(foreign, (long_ago, long_ago))
    os.utime(kept.with_name("spark-0123456789abcdef.4711"), (long_ago, long_ago))
    make_archive(install(tmp_path / "newer", "d.jar"), tmp_path)
    assert not foreign.exists() and kept.with_name("notes").exists()
    assert not kept.with_name("spark-0123456789abcdef.4711").exists()
