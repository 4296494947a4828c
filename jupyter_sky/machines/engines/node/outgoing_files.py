"""Files of a cluster's node that are read from elsewhere: found by path or pattern, read by pieces.

The controller answers for its own node, also while cells run there; engines of other nodes answer
for theirs.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from jupyter_sky.machines.engines.wire.controller_requests import FilesReply, ReadFiles
from jupyter_sky.machines.engines.wire.values import CHUNK_BYTES

MAX_FILES = 10_000
"""Most files of one answer: more are for an archive."""
MAX_PIECE_BYTES = 4 * CHUNK_BYTES


def answer(folder: Path, request: ReadFiles) -> FilesReply:
    """Reply to a request for files below a folder; a user's mistakes are named as ``refused``."""
    path, is_confined = request.path, request.is_confined
    try:
        if request.do == "read":
            return read_piece(_resolve(folder, path, is_confined), *_span(request))
        if request.do == "list":
            return list_folder(_resolve(folder, path, is_confined))
        if request.do == "changed":
            base = _resolve(folder, path, is_confined)
            return list_changed(base, request.since or 0.0, request.until or 0.0)
        return find_files(folder, path, is_confined)
    except OSError as error:
        return FilesReply(refused=f"{path}: {error.strerror or error}")
    except ValueError as error:
        return FilesReply(refused=str(error))


def _span(request: ReadFiles) -> tuple[int, int]:
    start, stop = request.start or 0, request.stop or 0
    if not 0 <= start <= stop <= start + MAX_PIECE_BYTES:
        raise ValueError(f"{request.path}: bytes {start} to {stop} cannot be read at once")
    return start, stop


def _resolve(folder: Path, path: str, is_confined: bool) -> Path:
    found = folder / os.path.expanduser(path)
    if is_confined and not found.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{path}: it lies outside the folder of the cluster")
    return found


def find_files(folder: Path, pattern: str, is_confined: bool = False) -> FilesReply:
    """Return the files behind a path or a pattern, those of folders with all that is in them.

    Each has its path to read, its place below a destination, its size in bytes, modification time
    in ns and mode.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "out").mkdir(), (folder / "out" / "loss.csv").write_text("1")
    >>> [file[:3] for file in find_files(folder, "out/*.csv").files]
    [['out/loss.csv', 'loss.csv', 1]]
    """
    literal = _resolve(folder, pattern, is_confined)
    if literal.exists():
        tops = [os.path.expanduser(pattern)]
    else:
        expanded = os.path.expanduser(pattern)
        tops = sorted(glob.glob(expanded, root_dir=folder, recursive=True))
    files: dict[str, list[str | int]] = {}
    for top in tops:
        for path, place in _walk(folder / top):
            if is_confined and not path.resolve().is_relative_to(folder.resolve()):
                continue  # a link that leads out
            facts = path.stat()
            if stat.S_ISREG(facts.st_mode):
                name = (PurePosixPath(top) / place).as_posix()
                # of a folder that is named `.` or `..` only what is in it
                below = (_own_name(top) / place).as_posix()
                mode = stat.S_IMODE(facts.st_mode) & 0o777
                files.setdefault(name, [name, below, facts.st_size, facts.st_mtime_ns, mode])
            if len(files) > MAX_FILES:
                raise ValueError(
                    f"{pattern}: more than {MAX_FILES:,} files; pack them in a cell: "
                    f"shutil.make_archive('packed', 'zip', '{pattern}')"
                )
    return FilesReply(files=[*files.values()], found=bool(tops), is_file=literal.is_file())


def _own_name(path: str) -> PurePosixPath:
    name = PurePosixPath(path).name
    return PurePosixPath("" if name == ".." else name)


def _walk(base: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of a path with their place below it; links to folders are not followed."""
    if not base.is_dir():
        yield base, ""
        return
    for root, folders, names in os.walk(base):
        folders.sort()
        for name in sorted(names):
            path = Path(root, name)
            if path.is_file():
                yield path, path.relative_to(base).as_posix()


def list_folder(folder: Path) -> FilesReply:
    """Return the entries of one folder, folders first: name, kind, size in bytes, time in s."""
    entries = []
    with os.scandir(folder) as found:
        for entry in found:
            try:
                facts = entry.stat()
            except OSError:
                continue  # a link that leads nowhere, or a file that has just gone
            if entry.is_dir() or stat.S_ISREG(facts.st_mode):
                kind = "folder" if entry.is_dir() else "file"
                entries.append([entry.name, kind, facts.st_size, facts.st_mtime])
    entries.sort(key=lambda entry: (entry[1] == "file", entry[0]))
    return FilesReply(entries=entries[:MAX_FILES], more=max(0, len(entries) - MAX_FILES))


def list_changed(base: Path, since: float, until: float) -> FilesReply:
    """Return the files below a folder that were last changed in a span of time, as `list_folder`.

    Hidden folders and caches of modules are left out: no result of a cell lies there.
    """
    entries = []
    for root, folders, names in os.walk(base):
        folders[:] = sorted(name for name in folders if name[0] != "." and name != "__pycache__")
        for path in (Path(root, name) for name in sorted(names)):
            try:
                facts = path.lstat()
            except OSError:
                continue  # it has just gone
            if stat.S_ISREG(facts.st_mode) and since <= facts.st_mtime <= until:
                place = path.relative_to(base).as_posix()
                entries.append([place, "file", facts.st_size, facts.st_mtime])
    entries.sort()
    return FilesReply(entries=entries[:MAX_FILES], more=max(0, len(entries) - MAX_FILES))


def read_piece(path: Path, start: int, stop: int) -> FilesReply:
    """Return some bytes of a file, with their hash and the state of the file as they were read."""
    from xxhash import xxh3_128

    # not to wait at a pipe, whose other end may never be opened
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise ValueError(f"{path}: it is no file")
        file.seek(start)
        data = file.read(stop - start)
    digest = xxh3_128(data).hexdigest()
    return FilesReply(
        size=facts.st_size, modified=facts.st_mtime_ns, digest=digest, buffers=(data,)
    )
