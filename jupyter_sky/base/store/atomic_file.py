"""Files that readers see whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_file(path: Path, *, mode: int | None = None, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a file for writing that takes its place when it is complete.

    An error leaves the file that was there before. A process that is killed leaves a hidden file
    beside it, whose name ends in ``.PID.partial``.

    Parameters
    ----------
    path
        File in an existing folder.
    mode
        Permissions, whatever the umask; by default those that the umask gives.
    durable
        Whether the file and its name are on the disk at the end; a cache need not wait for that.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_file(Path(folder, "value.json")) as file:
    ...         size = file.write(b"42")
    ...     os.listdir(folder)
    ['value.json']
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.{os.getpid()}.partial")
    permissions = 0o666 if mode is None else mode
    try:
        with open(
            partial, "xb", opener=lambda name, flags: os.open(name, flags, permissions)
        ) as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if mode is not None:
            os.chmod(partial, mode)
        os.replace(partial, path)
        if durable:
            _sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def write_atomically(
    path: Path, data: bytes, *, mode: int | None = None, durable: bool = True
) -> None:
    """Write a file as `atomic_file` does.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder, "value.json"), b"42")
    ...     Path(folder, "value.json").read_bytes()
    b'42'
    """
    with atomic_file(path, mode=mode, durable=durable) as file:
        file.write(data)


def _sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk: after a power cut, the new file is there."""
    if os.name == "nt":  # folders cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
