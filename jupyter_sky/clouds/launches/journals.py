"""Copies of the journals of machines that are about to end.

The machine may be broken, out of reach or in the wrong hands: what comes from it is limited in
seconds and bytes, is never held in memory, and only plain files are taken out of it.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import selectors
import shutil
import subprocess
import tarfile
import tempfile
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.remote import ssh
from jupyter_sky.base.remote.ssh_address import Address
from jupyter_sky.clouds.launches.ssh_slot import Slot

TRANSFER_SECONDS = 60.0
"""Longest time that the end of a machine waits for its journal."""
MAX_BYTES = 2**28
"""Of a packed journal."""
MAX_UNPACKED_BYTES = 2**31
CHUNK_BYTES = 2**18
TAR_CHANGED_EXIT_CODE = 1
"""GNU tar's exit code where a file has grown as it was read: a cell was still printing."""

_PACK_SCRIPT = """
cd "$1/journal" 2>/dev/null || exit 0
logs() { [ ! -d spark ] || find spark -type f; }
outputs() { find . -path ./spark -prune -o -type f -print; }
{ [ -n "$2" ] || outputs; logs; } | tar -czf - -T -
"""
"""Packs what cells have printed and then, as that may be cut off, the event logs of Spark."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The end of a command whose output was written into a file.

    Attributes
    ----------
    code : int
        Its exit code; None where it was cut off.
    errors : str
        The end of its standard error.
    cut : str
        Where it was cut off, in words; empty if all has come.
    """

    code: int | None
    errors: str
    cut: str = ""


def collect_journals(nodes: Sequence[Slot], into: Path, ended: bool = False) -> str:
    """Copy the journal of a cluster to this machine; return what is missing, in words.

    Nothing that goes wrong here is raised, as a machine must end all the same; what could be read
    of a journal that is damaged is kept.

    Parameters
    ----------
    nodes
        Of the cluster, by rank: the first one has the journal.
    into
        Folder for it; made when there is something to keep.
    ended
        Whether the machine with the journal has ended: it is not asked.
    """
    if not nodes:
        return ""
    try:
        missing = "its machine has ended" if ended else _collect_journal(nodes[0], into)
    except SkyError as error:
        missing = f"it could not be copied: {error.message}"
    except Exception as error:  # also MemoryError: whatever it is, the machine must end
        missing = f"it could not be copied: {type(error).__name__}: {error}"
    if missing:
        log.warning("The log of %s is not complete: %s", nodes[0].host, missing)
        with suppress(OSError):  # the disk is full, say
            _append_log_notice(into, f"jupyter_sky: this log is not complete: {missing}\n")
    return missing


def _append_log_notice(folder: Path, text: str) -> None:
    """Add a line to the journal that was written last, in place of an entry that was cut off."""
    paths = sorted(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    content = {"name": "stderr", "text": text}
    entry = {"time": time.time(), "rank": 0, "type": "stream", "content": content}
    for path in paths[-1:]:
        with path.open("rb+") as file:
            file.truncate(_complete_lines_length(file))
            file.seek(0, os.SEEK_END)
            file.write(json.dumps(entry).encode() + b"\n")


def _complete_lines_length(file: IO[bytes]) -> int:
    """Return how many bytes of a file are whole lines."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(end - CHUNK_BYTES, 0)
        file.seek(start)
        if (at := file.read(end - start).rfind(b"\n")) >= 0:
            return start + at + 1
        end = start
    return 0


def collect_event_logs(node: Slot, into: Path) -> str:
    """Copy the event logs of Spark of a cluster that goes on; return what is missing, in words.

    Raises
    ------
    SkyError
        The machine cannot be reached.
    """
    return _collect_journal(node, into, "only")


def _collect_journal(node: Slot, into: Path, event_logs: str = "") -> str:
    if not node.directory:
        return ""
    with tempfile.TemporaryFile() as packed:
        fetched = fetch(node.address, _PACK_SCRIPT, node.directory, event_logs, into=packed)
        size = packed.tell()
        if not size:
            return fetched.cut and f"nothing came {fetched.cut}"
        packed.seek(0)
        missing = unpack(packed, into)
    if fetched.cut:
        return f"it was cut off {fetched.cut}"
    if fetched.code not in (0, TAR_CHANGED_EXIT_CODE):
        return missing or f"tar ended with code {fetched.code}: {fetched.errors[-200:]}"
    return missing


def fetch(
    address: Address,
    script: str,
    *arguments: str,
    into: IO[bytes],
    most: int | None = None,
    timeout: float | None = None,
) -> FetchResult:
    """Run a shell script on a machine and write its output into a file, as far as limits allow.

    Parameters
    ----------
    most, timeout
        Bytes and seconds after which it is cut off: a machine may send for ever, or nothing.

    Raises
    ------
    SkyUnreachable
        The machine cannot be reached.
    """
    ssh.check_key(address)
    most, timeout = most or MAX_BYTES, timeout or TRANSFER_SECONDS
    process = ssh.start(address, script, arguments)
    try:
        errors, cut = _copy(process, into, most, timeout)
    finally:
        process.kill()
        process.wait()
    if not cut and (process.returncode == 255 or process.returncode < 0):
        raise ssh.explain_failure(address, errors)
    return FetchResult(None if cut else process.returncode, errors, cut)


def _copy(
    process: subprocess.Popen[bytes], into: IO[bytes], most: int, timeout: float
) -> tuple[str, str]:
    """Copy a process's output until its end or a limit; return its errors, and which limit."""
    errors, size, cut = b"", 0, ""
    deadline = time.monotonic() + timeout
    assert process.stdout and process.stderr
    with selectors.DefaultSelector() as pipes, process.stdout, process.stderr:
        for pipe in (process.stdout, process.stderr):
            pipes.register(pipe, selectors.EVENT_READ)
        while pipes.get_map() and not cut:
            ready = pipes.select(max(deadline - time.monotonic(), 0.0))
            if not ready or time.monotonic() > deadline:
                cut = f"after {timeout:g} s"
            for key, _ in ready:
                chunk = os.read(key.fd, CHUNK_BYTES)
                if not chunk:
                    pipes.unregister(key.fileobj)
                elif key.fileobj is process.stderr:
                    errors = (errors + chunk)[-CHUNK_BYTES:]
                else:
                    into.write(chunk[: most - size])
                    size += len(chunk)
                    cut = f"after {most / 1e6:.3g} MB" if size > most else cut
        if not cut:
            process.wait(max(deadline - time.monotonic(), 1.0))
    return errors.decode(errors="replace").strip(), cut


def unpack(packed: IO[bytes], into: Path, most: int = MAX_UNPACKED_BYTES) -> str:
    """Write the plain files of a packed tar below a folder; return in words what was left out.

    Nothing but files is made, and none outside of the folder, so that no filter of `tarfile` is
    needed, which Python 3.11.0 to 3.11.3 have not.
    """
    left, refused = most, 0
    try:
        plain = gzip.GzipFile(fileobj=packed)
        with plain, tarfile.open(fileobj=plain, mode="r|") as archive:
            for member in archive:
                path = PurePosixPath(member.name)
                if member.isdir():
                    continue
                if not member.isreg() or path.is_absolute() or ".." in path.parts:
                    refused += 1
                    continue
                left -= member.size
                if left < 0:
                    return f"it is longer than {most / 1e6:g} MB"
                source = archive.extractfile(member)
                if source is not None:
                    _write(source, into / path)
    except (gzip.BadGzipFile, EOFError, tarfile.TarError, zlib.error, ValueError, TypeError):
        return "its end could not be read"
    return f"{refused} entries were refused, which no log has" if refused else ""


def _write(source: IO[bytes], path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        shutil.copyfileobj(source, file, CHUNK_BYTES)
