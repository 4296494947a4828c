"""Launch records: a folder for each launch, written before its request is sent.

A launch that loses its answer, or this process, leaves a note that says where to look for what may
have come up. Nothing here is a secret but the keys, which only this user can read.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from jupyter_sky.base.errors import SkyStoreError
from jupyter_sky.base.json_types import JsonMapping, JsonObject
from jupyter_sky.base.remote import processes
from jupyter_sky.base.remote.supervisor import write_private
from jupyter_sky.base.translation import _

FILE = "machines.json"
LAUNCH_SECONDS = 900.0
"""A launch by a process that cannot be looked at from here counts as over after so long."""
KEEP_DAYS = 7.0
"""Records of requests that ended longer ago are deleted at the next launch."""
_ROOM = "make room on its disk, or set another folder: SKY_DATA_DIR=..."
_NO_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


@contextmanager
def translate_write_errors(folder: Path) -> Iterator[None]:
    """Say in a clear error that what is written of a request cannot be written."""
    try:
        yield
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "strerror", None) or getattr(error, "stderr", None) or str(error)
        why = why.decode(errors="replace").strip() if isinstance(why, bytes) else why
        raise SkyStoreError(
            _("what is launched cannot be noted in {folder} ({why})").format(
                folder=folder, why=why
            ),
            hint=_ROOM,
        ) from error


@contextmanager
def translate_disk_errors() -> Iterator[None]:
    """Say in a clear error that the disk takes nothing more; other errors pass."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_DISK:
            raise
        raise SkyStoreError(
            _("{filename} cannot be written ({strerror})").format(
                filename=error.filename or _("a note of this launch"), strerror=error.strerror
            ),
            hint=_ROOM,
        ) from error


class LaunchRecords:
    """The notes below one folder.

    Examples
    --------
    >>> records = LaunchRecords(Path("machines"))  # doctest: +SKIP
    >>> records.create("train-3f2a91c0", {"cloud": "aws", "region": "us-east-1"})  # doctest: +SKIP
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, token: str) -> Path:
        """Return the folder of a request.

        A token may come from a tag, which others can write: it must not lead elsewhere.
        """
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", token):
            token = f"unnamed-{hashlib.blake2b(token.encode(), digest_size=8).hexdigest()}"
        return self.root / token

    def create(self, token: str, record: JsonMapping) -> JsonObject:
        """Note a request that is about to be sent, and by which process; forget old ones."""
        with translate_write_errors(self.folder(token)):
            self.folder(token).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._remove_old()
        return self.write(token, dict(record) | {"launching": processes.identity()})

    def read(self, token: str) -> JsonObject:
        """Return the note of a request; empty if there is none."""
        try:
            return json.loads(_read_text(self.folder(token) / FILE))
        except (OSError, ValueError):
            return {}

    def records_naming(self, ids: Collection[str]) -> Iterator[JsonObject]:
        """Yield the notes in which one of some names of machines stands."""
        words = [json.dumps(name) for name in ids]
        for path in sorted(self.root.glob(f"*/{FILE}")):
            with suppress(OSError, ValueError):
                text = _read_text(path)
                if any(word in text for word in words):
                    yield json.loads(text)

    def write(self, token: str, record: JsonObject) -> JsonObject:
        """Write a note anew.

        Raises
        ------
        SkyStoreError
            The disk refuses.
        """
        with translate_write_errors(self.folder(token)):
            write_private(self.folder(token) / FILE, record)
        return record

    def mark_ended(self, token: str, ended: JsonMapping) -> None:
        """Note that the cloud has confirmed the end of all machines of a request.

        Where the disk refuses, the request stays unfinished, and the reaper asks the cloud again.
        """
        if record := self.read(token):
            with suppress(SkyStoreError):
                self.write(token, record | {"ended": dict(ended)})

    def list_unfinished(self) -> Iterator[tuple[str, JsonObject]]:
        """Yield requests whose machines are not known to have ended."""
        return ((token, record) for token, record in self.list_all() if "ended" not in record)

    def list_all(self) -> Iterator[tuple[str, JsonObject]]:
        """Yield all requests that are noted."""
        for path in sorted(self.root.glob(f"*/{FILE}")):
            if record := self.read(path.parent.name):
                yield path.parent.name, record

    def _remove_old(self) -> None:
        for path in self.root.glob(f"*/{FILE}"):
            ended = self.read(path.parent.name).get("ended", {}).get("time")
            if ended and time.time() - ended > KEEP_DAYS * 86400:
                shutil.rmtree(path.parent, ignore_errors=True)


def _read_text(path: Path) -> str:
    """Return what a note says; one that has not changed is not read again.

    Notes are replaced as a whole, and after a week of work there are hundreds of them.
    """
    found = path.stat()
    state = (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
    return _read_cached(path, state)


@lru_cache(maxsize=4096)
def _read_cached(path: Path, state: tuple[int, ...]) -> str:
    return path.read_text()


def is_launching(record: JsonMapping) -> bool:
    """Whether the process that noted a request is still at it."""
    at_it, since = record.get("launching"), record.get("started", 0.0)
    return bool(at_it) and processes.is_alive(at_it, seen=since + LAUNCH_SECONDS)


def installation_id(data_dir: Path) -> str:
    """Return the name of this user of this installation, made at first use.

    It is written on machines, so that only who launched them takes them for their own.

    Raises
    ------
    SkyStoreError
        It cannot be written now.
    """
    path = data_dir / "identity"
    if not path.exists():
        with translate_write_errors(data_dir):
            _create_installation_id(path)
    return path.read_text().strip()


def _create_installation_id(path: Path) -> None:
    import getpass

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    user = re.sub(r"[^a-z0-9]+", "-", getpass.getuser().lower()).strip("-")[:24] or "user"
    partial = path.with_name(f"identity.{os.getpid()}-{threading.get_ident()}")
    try:
        partial.write_text(f"{user}-{secrets.token_hex(4)}")
        os.link(partial, path)  # the first of several at once decides
    except FileExistsError:
        pass
    finally:
        partial.unlink(missing_ok=True)
