"""Operations on files of a host of ``ssh:`` addresses, and their replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.messages import Buffers, Done, Message, Request

ReplyT = TypeVar("ReplyT", bound=Message)
ObjectRecord = tuple[str, int, str, Mapping[str, str], float]
"""Key, size in bytes, version, checksums and modification time of an object."""


class FileOperation(Request[ReplyT]):
    """Operation on files of a host."""

    __slots__ = ()
    op_key: ClassVar[str] = "do"


@dataclass(frozen=True, slots=True)
class ObjectReply(Message):
    """An object."""

    object: ObjectRecord


@dataclass(frozen=True, slots=True)
class Stat(FileOperation[ObjectReply], op="stat"):
    """Request for an object."""

    key: str


@dataclass(frozen=True, slots=True)
class PageReply(Message):
    """Page of a listing; `cursor` is the number of the next one, 0 at the end."""

    objects: Sequence[ObjectRecord]
    cursor: int


@dataclass(frozen=True, slots=True)
class ListPage(FileOperation[PageReply], op="list"):
    """Request for a page of a listing; 0 is the cursor of the first."""

    prefix: str
    after: str
    cursor: int


@dataclass(frozen=True, slots=True)
class SumsReply(Message):
    """Checksums in hexadecimal, by kind."""

    sums: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ComputeSums(FileOperation[SumsReply], op="sums"):
    """Request for the checksums of an object."""

    key: str


@dataclass(frozen=True, slots=True)
class UploadReply(Message):
    """An upload, as `ssh_server.encode_upload` encodes it."""

    upload: JsonObject


@dataclass(frozen=True, slots=True)
class BeginUpload(FileOperation[UploadReply], op="begin"):
    """Begin of an upload, or of the rest of one that has an id."""

    key: str
    bytes: int
    part_size: int
    condition: JsonObject
    upload_id: str


@dataclass(frozen=True, slots=True)
class PartsReply(Message):
    """Number, CRC32C and tag of each written part."""

    parts: Sequence[tuple[int, int | None, str]]


@dataclass(frozen=True, slots=True)
class FindParts(FileOperation[PartsReply], op="have"):
    """Request for the written parts of an upload."""

    upload: JsonObject


@dataclass(frozen=True, slots=True)
class EndUpload(FileOperation[ObjectReply], op="end"):
    """End of an upload, with number, start, stop and CRC32C of all parts."""

    upload: JsonObject
    parts: Sequence[tuple[int, int, int, int | None]]


@dataclass(frozen=True, slots=True)
class AbortUpload(FileOperation[Done], op="abort"):
    """Request to remove what has been written."""

    upload: JsonObject


@dataclass(frozen=True, slots=True)
class Remove(FileOperation[Done], op="remove"):
    """Request to delete files."""

    keys: Sequence[str]


@dataclass(frozen=True, slots=True)
class PartReply(Message):
    """Bytes of a file."""

    buffers: Buffers = ()


@dataclass(frozen=True, slots=True)
class ReadPart(FileOperation[PartReply], op="read"):
    """Request for bytes of a file."""

    url: str
    headers: Mapping[str, str]
    span: tuple[int, int]


@dataclass(frozen=True, slots=True)
class TagReply(Message):
    """Checksum of a written part, as the host has computed it."""

    tag: str


@dataclass(frozen=True, slots=True)
class WritePart(FileOperation[TagReply], op="write"):
    """Bytes for a file."""

    url: str
    headers: Mapping[str, str]
    span: tuple[int, int]
    buffers: Buffers = ()
