"""Archive of the classes of Spark's processes, with which those start in half of the time.

A JVM that starts reads, verifies and links thousands of classes. An archive has them as they are
in memory, and its processes share them (`class data sharing`_ of the JVM). Where a machine has no
archive yet, Spark's processes list the classes that they load; when Spark has been up for a while,
an archive is made of the lists, at the lowest priority, for the starts to come.

.. _class data sharing: https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from jupyter_sky.machines.services.engine_node import end_with_parent

DELAY_SECONDS = 60.0
"""Time for which Spark is up before an archive is made, which then has classes of queries, too."""
NEEDED_GB = 1.5
"""Memory that is to be free, in GiB: making an archive takes some 0.8."""
KEPT_SECONDS = 90 * 86400.0
"""Time for which an archive stays that nobody uses: it has some 100 MB."""
UNFINISHED_SECONDS = 86400.0
"""Age of an unfinished archive whose maker was killed: to make one takes a minute."""
LOWEST_PRIORITY = 19
USE_OPTIONS = "-Xlog:cds=off -XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"
"""Options with an archive: without warnings where it does not fit, and at the same address in all
processes, which share its pages then."""


class ClassArchive:
    """Archive of a version of Spark on one machine, as the processes of a node use it.

    Parameters
    ----------
    java, spark
        Homes of both.
    folder
        Folder of the processes of the node.
    """

    def __init__(self, java: Path, spark: Path, folder: Path) -> None:
        self._java, self._folder = java, folder
        self.path = archive_path(java, spark)
        self._homes = java, spark
        self._is_used = self.path.exists()
        if self._is_used:
            with suppress(OSError):  # its time says when it was used last
                os.utime(self.path)
        self._maker: subprocess.Popen[bytes] | None = None
        self._begin = math.inf
        # executors of a cluster have the same options on all machines, but not the same archives
        link, base = folder / "classes.jsa", java / "lib" / "server" / "classes.jsa"
        link.unlink(missing_ok=True)
        link.symlink_to(self.path if self._is_used else base)

    def options(self, name: str, folder: Path | None = None) -> str:
        """Return the options of the JVM of a process: to use the archive, or to list its classes.

        Parameters
        ----------
        name
            Of the process; it has a list of its own.
        folder
            Folder of the processes of the node, as the process sees it.
        """
        folder = folder or self._folder
        if self._is_used:
            return f'"-XX:SharedArchiveFile={folder / "classes.jsa"}" {USE_OPTIONS}'
        return f'"-XX:DumpLoadedClassList={folder / name}.classes"'

    def make_later(self) -> None:
        """Make the archive in some time, unless there is one."""
        if not self._is_used:
            self._begin = time.monotonic() + DELAY_SECONDS

    def make(self, pid: int) -> None:
        """Begin to make the archive if it is time to, or take it once it is made.

        Where that fails, as on a full disk, Spark goes on without one.

        Parameters
        ----------
        pid
            Process of Spark, whose class path an archive has to have.
        """
        if self._maker is not None:
            with suppress(OSError):
                self._take()
        elif time.monotonic() > self._begin:
            self._begin = math.inf
            is_room = psutil.virtual_memory().available > NEEDED_GB * 2**30
            if is_room and not self.path.exists():
                # Spark has ended or its start hangs, or the archive cannot be written
                with suppress(psutil.Error, ValueError, OSError):
                    self._begin_to_make(psutil.Process(pid).cmdline())

    def _take(self) -> None:
        """Put the archive where others find it, once it is made."""
        assert self._maker is not None
        code = self._maker.poll()
        if code is not None:
            self._maker = None
            if code == 0:
                self._unfinished.chmod(0o600)
                os.replace(self._unfinished, self.path)
                _write_homes(self.path, *self._homes)
                remove_unused(self.path.parent, time.time())
            self._unfinished.unlink(missing_ok=True)

    def _begin_to_make(self, command: Sequence[str]) -> None:
        listed = self._folder / "archive.list"
        lists = [path.read_text(errors="replace") for path in self._folder.glob("*.classes")]
        listed.write_text("\n".join(merge_class_lists(lists)) + "\n")
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self._folder / "archive.log").open("wb") as log:
            self._maker = subprocess.Popen(
                [
                    str(self._java / "bin" / "java"),
                    *("-Xshare:dump", "-Xmx512m", f"-XX:SharedClassListFile={listed}"),
                    f"-XX:SharedArchiveFile={self._unfinished}",
                    *class_path_options(command),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_at_lowest_priority,
            )

    def stop(self) -> None:
        """Give up an archive that is being made."""
        if self._maker is not None:
            self._maker.kill()
            self._maker.wait()
            self._maker = None
            self._unfinished.unlink(missing_ok=True)

    @property
    def _unfinished(self) -> Path:
        return self.path.with_suffix(f".{os.getpid()}")


def archive_path(java: Path, spark: Path) -> Path:
    """Return the file of an archive, which holds for one build of Java and one set of jars.

    A JVM checks both itself, and goes on without an archive that is not its own.
    """
    release, jars = java / "release", spark / "jars"
    key = [str(java), release.read_text() if release.exists() else "", str(jars)]
    key += sorted(f"{jar.name} {jar.stat().st_mtime_ns}" for jar in jars.glob("*.jar"))
    digest = hashlib.sha256("\n".join(key).encode()).hexdigest()[:16]
    return Path.home() / ".cache" / "jupyter_sky" / f"spark-{digest}.jsa"


def _write_homes(archive: Path, java: Path, spark: Path) -> None:
    """Keep for which homes an archive is, so that it can be told whether these are as they were."""
    homes = json.dumps({"java": str(java), "spark": str(spark)})
    archive.with_suffix(".json").write_text(homes)


def remove_unused(folder: Path, now: float) -> list[Path]:
    """Remove archives of versions that are not installed any more or that nobody uses.

    A JVM that has one open keeps its pages. What was left unfinished goes with them.

    Parameters
    ----------
    folder
        Folder of the archives.
    now
        Unix seconds.

    Returns
    -------
    list of Path
        The archives that were removed.
    """
    removed = []
    for path in folder.glob("spark-*"):
        with suppress(OSError):  # another process removes it, too
            unused = now - path.stat().st_mtime
            if path.suffix == ".jsa" and (unused > KEPT_SECONDS or not _is_installed(path)):
                path.unlink()
                path.with_suffix(".json").unlink(missing_ok=True)
                removed.append(path)
            elif path.suffix[1:].isdigit() and unused > UNFINISHED_SECONDS:
                path.unlink()
    return removed


def _is_installed(archive: Path) -> bool:
    """Whether the homes of an archive are as they were; so are those that nobody has kept."""
    try:
        homes = json.loads(archive.with_suffix(".json").read_text())
        java, spark = Path(homes["java"]), Path(homes["spark"])
    except (OSError, ValueError, LookupError, TypeError):
        return True
    return archive_path(java, spark).name == archive.name


def merge_class_lists(lists: Iterable[str]) -> list[str]:
    """Return the lines of several lists of classes, each once, without comments.

    Examples
    --------
    >>> merge_class_lists(["# of a JVM", "java/lang/Object", "java/lang/Object"])
    ['java/lang/Object']
    """
    lines = (line for text in lists for line in text.splitlines() if not line.startswith("#"))
    return list(dict.fromkeys(lines))


def class_path_options(command: Sequence[str]) -> list[str]:
    """Return the words of a command of Java that name its classes.

    Examples
    --------
    >>> class_path_options(["java", "-cp", "a:b/*", "-Xmx1g", "--add-modules=jdk.x", "Main"])
    ['--add-modules=jdk.x', '-cp', 'a:b/*']
    """
    modules = [word for word in command if word.startswith("--add-modules=")]
    at = list(command).index("-cp")
    return [*modules, *command[at : at + 2]]


def _at_lowest_priority() -> None:
    end_with_parent()
    os.nice(LOWEST_PRIORITY)
