"""Folders of this machine as a store."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from jupyter_sky.base.requests.quantities import format_size
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.checksums import crc32c, crc_to_hex
from jupyter_sky.machines.storage.stores.errors import (
    SkyDiskFull,
    SkyInvalidKey,
    SkyObjectMissing,
    SkyTargetExists,
    SkyUploadMissing,
)
from jupyter_sky.machines.storage.stores.file_parts import (
    DONE_HEADER,
    SUM_HEADER,
    VERSION_HEADER,
    done_path,
    file_error,
    file_url,
    file_version,
    read_file_part,
)
from jupyter_sky.machines.storage.stores.journal import own_token
from jupyter_sky.machines.storage.stores.store import (
    ALWAYS,
    LAST_NAME,
    Capability,
    Checksums,
    Condition,
    Part,
    PartRequest,
    Span,
    Store,
    StoreDefaults,
    StoredObject,
    Upload,
    choose_part_size,
    combined_crc32c,
    part_span,
)
from jupyter_sky.machines.storage.stores.uri import StorageUri

PART_PREFIX = ".sky-part-"
_INVALID_PART = re.compile(r"(\A|/)\.{0,2}(/|\Z)|\0")
FILES_CAPABILITY = Capability(
    min_part=1, max_parts=10**9, max_object=2**63 - 1, equal_parts=False, part_checksum=""
)


class FilesStore(StoreDefaults):
    """The file system below a folder.

    Parameters
    ----------
    root : Path
        Folder that keys are below; ``/`` for all.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self._prefix = f"{root}/" if str(root) != "/" else "/"
        self.uri = StorageUri("file", "", str(root).strip("/") + "/" if str(root) != "/" else "")
        self.capability = FILES_CAPABILITY

    def path(self, key: str) -> Path:
        """Return the path of a key, which never leaves the root.

        Raises
        ------
        SkyInvalidKey
            The key has parts that no file name can have, or that climb out of the folder.
        """
        return Path(self._checked(key))

    def stat(self, key: str) -> StoredObject:
        """Return size and version of a file."""
        path = self.path(key)
        try:
            status = path.stat()
        except OSError as error:
            raise file_error(error, str(path)) from error
        if not S_ISREG(status.st_mode):
            raise SkyObjectMissing(_("{path} is a folder, and no file").format(path=path))
        return _stored(key, status)

    def list(self, prefix: str = "", after: str = "") -> Iterator[StoredObject]:
        """Yield files in the order of their keys; links are followed within the prefix's folder."""
        folder, __, __ = prefix.rpartition("/")
        base = self.path(folder) if folder else self.root
        if not base.is_dir():
            return
        span = _KeySpan(prefix, after)
        for key, status in _walk(base, folder + "/" if folder else "", span, base.resolve(), ()):
            yield _stored(key, status)

    def read(self, obj: StoredObject, span: Span | None = None) -> PartRequest:
        """Return a request that reads a span of this version."""
        url = file_url(self._checked(obj.key))
        headers = {VERSION_HEADER: obj.version}
        return PartRequest("GET", url, headers, span or Span(0, obj.size))

    def begin(
        self,
        key: str,
        size: int,
        *,
        part_size: int = 0,
        condition: Condition = ALWAYS,
        upload_id: str = "",
    ) -> Upload:
        """Begin a file beside its final name; larger ones note the parts that are written."""
        part_size = part_size or choose_part_size(size, self.capability)
        path = self.path(key)
        has_parts = size > part_size
        part_path = path.with_name(f"{PART_PREFIX}{upload_id or _new_id()}")
        upload = FileUpload(key, size, part_size, condition, path, part_path, has_parts)
        if upload_id:
            return upload
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if has_parts:
                _reserve(part_path, size)
        except OSError as error:
            raise file_error(error, str(path)) from error
        return upload

    def end(self, upload: Upload, parts: Sequence[Part]) -> StoredObject:
        """Give the file its name, in one step.

        As other programs that copy, it leaves the time of writing to the system.
        """
        assert isinstance(upload, FileUpload)
        crc = combined_crc32c(sorted(parts, key=lambda part: part.number))
        try:
            status = upload.part_path.stat()
            _publish(upload)
            done_path(upload.part_path).unlink(missing_ok=True)
        except FileNotFoundError as error:
            raise SkyUploadMissing(
                _("{part_path} is gone").format(part_path=upload.part_path)
            ) from error
        except OSError as error:
            raise file_error(error, str(upload.path)) from error
        sums = {} if crc is None else {"crc32c": crc_to_hex(crc)}
        return StoredObject(upload.key, upload.size, file_version(status), sums, status.st_mtime)

    def check_room(self, prefix: str, size: int) -> None:
        """Raise SkyDiskFull where the disk has no room for `size` more bytes below a prefix.

        What an interrupted transfer has written there already counts as room.
        """
        folder = Path(self._prefix, prefix)
        there = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
        free = shutil.disk_usage(there).free
        if size > free and there == folder:
            parts = folder.rglob(f"{PART_PREFIX}*")
            free += sum(path.stat().st_blocks * 512 for path in parts)
        if size > free:
            raise _disk_error(folder, size, free)

    def remove(self, keys: Iterable[str]) -> None:
        """Delete files."""
        for key in keys:
            path = self.path(key)
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise file_error(error, str(path)) from error

    def _checked(self, key: str) -> str:
        """Return the path of a key as text."""
        if not key or _INVALID_PART.search(key):
            raise SkyInvalidKey(_("the key {key!r} cannot be a path of a file").format(key=key))
        if len(key) > 63 and any(len(os.fsencode(part)) > 255 for part in key.split("/")):
            raise SkyInvalidKey(
                _("the key {key!r} has a name of more than 255 bytes").format(key=key)
            )
        return self._prefix + key

    def can_copy_from(self, other: Store) -> bool:
        """Files are copied as part of a transfer."""
        return False


@dataclass(frozen=True, slots=True)
class FileUpload:
    """A file that is being written; see `Upload`."""

    key: str
    size: int
    part_size: int
    condition: Condition
    path: Path
    part_path: Path
    has_parts: bool

    @property
    def id(self) -> str:
        """Name by which the upload goes on; empty for files of one part."""
        return self.part_path.name.removeprefix(PART_PREFIX) if self.has_parts else ""

    def write(self, number: int, sums: Checksums) -> PartRequest:
        """Return a request that writes a part."""
        headers = {SUM_HEADER: crc_to_hex(sums.crc32c)}
        if self.has_parts:
            headers[DONE_HEADER] = str(number)
        span = part_span(number, self.size, self.part_size)
        return PartRequest("PUT", file_url(self.part_path), headers, span)

    def have(self) -> dict[int, Part]:
        """Return the parts that are written, after comparing each with its checksum."""
        if not self.part_path.exists():  # it may have its name already, and its list be left
            raise SkyUploadMissing(_("{part_path} is gone").format(part_path=self.part_path))
        try:
            lines = done_path(self.part_path).read_text().splitlines()
        except FileNotFoundError:
            return {}
        parts: dict[int, Part] = {}
        for line in lines:
            number, __, tag = line.partition(" ")
            if len(tag) != 8 or not number.isdigit():
                continue  # the last line of a process that was killed
            span = part_span(int(number), self.size, self.part_size)
            request = PartRequest("GET", file_url(self.part_path), {}, span)
            if crc_to_hex(crc32c(read_file_part(request))) == tag:
                parts[int(number)] = Part(int(number), span, int(tag, 16), tag)
        return parts

    def copy(self, number: int, source: Store, obj: StoredObject) -> Part:
        """Files have no copy without passing through the machine."""
        raise NotImplementedError

    def abort(self) -> None:
        """Remove what has been written."""
        self.part_path.unlink(missing_ok=True)
        done_path(self.part_path).unlink(missing_ok=True)


def remove_parts(folder: Path, owner: str, kept: Collection[str]) -> int:
    """Remove the unfinished files of a process below a folder; return how many there were.

    Parameters
    ----------
    folder
        Folder that is searched, with all below it.
    owner
        Token of the process, see `own_token`.
    kept
        Names of uploads that are left alone.
    """
    count = 0
    for base, __, names in os.walk(folder):
        for name in names:
            upload_id = name.removeprefix(PART_PREFIX).removesuffix(".done")
            if name.startswith(f"{PART_PREFIX}{owner}-") and upload_id not in kept:
                Path(base, name).unlink(missing_ok=True)
                count += not name.endswith(".done")
    return count


def _new_id() -> str:
    """Return a name for an upload, by which the files of a process that was killed are found."""
    return f"{own_token()}-{secrets.token_hex(8)}"


def _stored(key: str, status: os.stat_result) -> StoredObject:
    return StoredObject(key, status.st_size, file_version(status), modified=status.st_mtime)


@dataclass(frozen=True, slots=True)
class _KeySpan:
    """Keys that a listing asks for: those that begin with `prefix` and come behind `after`."""

    prefix: str
    after: str

    def may_have(self, key: str) -> bool:
        """Return whether a file, or a folder whose key ends with ``/``, may be one or have one."""
        is_above = key.endswith("/") and self.prefix.startswith(key)
        if not key.startswith(self.prefix) and not is_above:
            return False
        if key.endswith("/") and self.after.startswith(key):
            return not self.after.startswith(key + LAST_NAME)
        return key > self.after


def _walk(
    folder: Path, prefix: str, span: _KeySpan, root: Path, above: tuple[str, ...]
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield keys and states of files below a folder, in the order of whole keys."""
    real = os.path.realpath(folder)
    if real in above:
        raise SkyInvalidKey(
            _("{folder} is a link that leads back to a folder above it").format(folder=folder)
        )
    try:
        entries = [(entry.name + "/" * entry.is_dir(), entry) for entry in os.scandir(folder)]
    except OSError as error:
        raise file_error(error, str(folder)) from error
    for name, entry in sorted(entries, key=lambda pair: pair[0]):
        if name.startswith(PART_PREFIX) or not span.may_have(prefix + name):
            continue
        if entry.is_symlink():
            _check_link(entry, root)
        try:
            name.encode()
        except UnicodeEncodeError:
            raise SkyInvalidKey(
                _("the name {name!r} in {folder} is not UTF-8").format(name=name, folder=folder)
            ) from None
        if name.endswith("/"):
            yield from _walk(Path(entry.path), prefix + name, span, root, (*above, real))
        elif entry.is_file():
            yield prefix + name, entry.stat()


def _check_link(entry: os.DirEntry[str], root: Path) -> None:
    """Refuse a link that leads out of the folder that is listed, or nowhere."""
    target = Path(os.path.realpath(entry.path))
    if not target.is_relative_to(root):
        raise SkyInvalidKey(
            _("{path} is a link to {target}, outside of {root}").format(
                path=entry.path, target=target, root=root
            )
        )
    if not target.exists():
        raise SkyObjectMissing(
            _("{path} is a link to {target}, which does not exist").format(
                path=entry.path, target=target
            )
        )


def _reserve(path: Path, size: int) -> None:
    """Make room for a file, or say before the first byte that there is none."""
    free = shutil.disk_usage(path.parent).free
    if size > free:
        raise _disk_error(path.parent, size, free)
    with path.open("xb") as file:
        file.truncate(size)


def _disk_error(folder: Path, size: int, free: int) -> SkyDiskFull:
    return SkyDiskFull(
        _("{parent} needs room for {need} and has {have}").format(
            parent=folder, need=format_size(size), have=format_size(free)
        )
    )


def _publish(upload: FileUpload) -> None:
    """Move a file to its name, if the condition holds."""
    condition, path = upload.condition, upload.path
    if condition.absent:
        try:
            os.link(upload.part_path, path)  # refuses a name that is taken, unlike a rename
        except FileExistsError:
            raise SkyTargetExists(_("{path} exists").format(path=path)) from None
        upload.part_path.unlink()
        return
    if condition.version:
        there = file_version(path.stat()) if path.exists() else ""
        if there != condition.version:
            raise SkyTargetExists(_("{path} has been written by another").format(path=path))
    os.replace(upload.part_path, path)
