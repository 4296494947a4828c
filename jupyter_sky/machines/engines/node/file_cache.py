"""Content-addressed cache of files on a machine, and folders built from it.

Below ``~/.cache/jupyter_sky`` of a machine, ``files/DIGEST`` hold contents of files and
``trees/DIGEST`` folders of them to import from. Cached contents are not sent again, and a tree
never changes: a process that imports from one keeps it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from jupyter_sky.base.errors import SkyBootstrapError
from jupyter_sky.base.store.atomic_file import write_atomically
from jupyter_sky.base.translation import _

FileEntries = Mapping[str, Sequence]
"""Files by the path that they get: ``[digest of the content, mode]``."""


def digest(parts: Iterable[str | bytes]) -> str:
    """Return a hash of `parts` as 16 hexadecimal digits."""
    state = hashlib.blake2b(digest_size=8)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "big") + data)
    return state.hexdigest()


def tree_digest(entries: FileEntries) -> str:
    """Return the hash of a tree of files."""
    return digest(
        f"{name}\n{content}\n{mode:o}" for name, (content, mode) in sorted(entries.items())
    )


@dataclass(frozen=True, slots=True)
class FileTree:
    """Files of this machine by the path that each gets on another one."""

    files: Mapping[str, Path]
    entries: FileEntries

    @classmethod
    def of(cls, files: Mapping[str, Path]) -> FileTree:
        """Build a tree of files, reading those that have changed since they were last read."""
        entries: dict[str, tuple[str, int]] = {}
        for name, file in files.items():
            status = file.stat()
            content = _file_digest(file, status.st_size, status.st_mtime_ns, status.st_ino)
            entries[name] = (content, status.st_mode & 0o777)
        return cls(files, entries)

    @property
    def digest(self) -> str:
        """Hash of this tree."""
        return tree_digest(self.entries)

    def by_digest(self) -> dict[str, Path]:
        """Return one file for each digest."""
        return {facts[0]: self.files[name] for name, facts in self.entries.items()}

    def size(self, digests: Iterable[str] | None = None) -> int:
        """Return the total bytes of `digests`; by default of all contents."""
        paths = self.by_digest()
        return sum(paths[name].stat().st_size for name in (paths if digests is None else digests))

    def parts(self, digests: Iterable[str], limit: int) -> Iterator[list[tuple[str, int, bytes]]]:
        """Yield batches of pieces of at most `limit` bytes: digest, start, piece."""
        batch: list[tuple[str, int, bytes]] = []
        paths, size = self.by_digest(), 0
        for name in digests:
            with paths[name].open("rb") as file:
                start = 0
                while True:
                    piece = file.read(limit - size)
                    if piece or not start:
                        batch.append((name, start, piece))
                    start, size = start + len(piece), size + len(piece)
                    if size < limit:
                        break
                    yield batch
                    batch, size = [], 0
        if batch:
            yield batch


@lru_cache(maxsize=100_000)
def _file_digest(path: Path, _size: int, _changed: int, _inode: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, _hash).hexdigest()


def content_digest(data: bytes) -> str:
    """Return the digest under which contents of a file are cached."""
    return _hash(data).hexdigest()


def _hash(data: bytes = b"") -> hashlib.blake2b:
    return hashlib.blake2b(data, digest_size=16)


# -- on the machine --------------------------------------------------------------------------


def cache_folder() -> Path:
    """Return the folder of caches on this machine."""
    return Path.home() / ".cache" / "jupyter_sky"


def missing_digests(entries: FileEntries) -> list[str]:
    """Return the digests of files that are not cached."""
    if (cache_folder() / "trees" / tree_digest(entries)).exists():
        return []
    digests = dict.fromkeys(name for name, __ in entries.values())
    return [name for name in digests if not (cache_folder() / "files" / name).exists()]


def store_contents(contents: Mapping[str, bytes]) -> None:
    """Store contents of files under their digests.

    Raises
    ------
    SkyBootstrapError
        A content is not that of its digest.
    """
    folder = cache_folder() / "files"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, data in contents.items():
        if _hash(data).hexdigest() != name:
            raise _changed()
        write_atomically(folder / name, data, durable=False)


class FileReceiver:
    """Receiver of files whose pieces arrive in order."""

    def __init__(self) -> None:
        self._partial: dict[str, tuple[Path, hashlib.blake2b]] = {}

    def add_piece(self, name: str, start: int, piece: bytes | memoryview) -> None:
        """Add a piece; one at offset 0 restarts the content."""
        if start == 0:
            folder = cache_folder() / "files"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._discard(name)
            handle, path = tempfile.mkstemp(dir=folder)
            os.close(handle)
            self._partial[name] = Path(path), _hash()
        path, state = self._partial[name]
        state.update(piece)
        with path.open("ab") as file:
            file.write(piece)

    def finish(self, wanted: Iterable[str]) -> None:
        """Store the contents of `digests`; drop incomplete others.

        Raises
        ------
        SkyBootstrapError
            A content is not that of its digest.
        """
        try:
            for name in {*wanted} & self._partial.keys():
                path, state = self._partial[name]
                if state.hexdigest() != name:
                    raise _changed()
                os.replace(path, cache_folder() / "files" / name)
        finally:
            for name in [*self._partial]:
                self._discard(name)

    def _discard(self, name: str) -> None:
        if name in self._partial:
            self._partial.pop(name)[0].unlink(missing_ok=True)


def _changed() -> SkyBootstrapError:
    return SkyBootstrapError(_("a file has changed while it was sent"), hint=_("try again"))


def build_folder(entries: FileEntries) -> str:
    """Build a folder of cached files unless it exists; return its path."""
    target = cache_folder() / "trees" / tree_digest(entries)
    if not target.exists():
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=target.parent))
        for name, (content, mode) in entries.items():
            path = work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            # a copy: what is written there must not change what is kept
            shutil.copyfile(cache_folder() / "files" / content, path)
            path.chmod(mode)
        try:
            work.rename(target)
        except OSError:  # another engine of this machine was quicker
            shutil.rmtree(work)
    return str(target)
