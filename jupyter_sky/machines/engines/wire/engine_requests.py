# pyright: strict
"""Requests of notebooks to an engine for values, packages and files, and its replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self, TypeVar

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.messages import Buffers, Done, Message, Request
from jupyter_sky.machines.engines.wire.auto_inputs import AutoInput, Decision
from jupyter_sky.machines.engines.wire.code_sources import CodeSource
from jupyter_sky.machines.engines.wire.controller_requests import PROTOCOL

ReplyT = TypeVar("ReplyT", bound=Message)
DATA_OP = "data"
"""Name of the requests of `data_requests`, which have a ``step``."""


class EngineRequest(Request[ReplyT]):
    """Request to an engine, by a ``sky_value`` message.

    Attributes
    ----------
    since_protocol : int
        First version of clusters that it is sent to: those that only read work on older ones.
    """

    __slots__ = ()
    envelope: ClassVar[Mapping[str, str | int]] = {"protocol": PROTOCOL}
    since_protocol: ClassVar[int] = PROTOCOL


@dataclass(frozen=True, slots=True)
class PingReply(Message):
    """Ports at which notebooks on this machine reach the engine directly, or names of sockets."""

    ports: Sequence[int | str] = ()


@dataclass(frozen=True, slots=True)
class Ping(EngineRequest[PingReply], op="ping"):
    """Request for the direct ports of an engine; its output proves the way of outputs."""

    since_protocol: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class DecisionReply(Message):
    """Decision of an engine on an offered value."""

    decision: Decision


class OfferRequest(EngineRequest[DecisionReply]):
    """Request about a value for a name; one of ``--auto`` may yield to another."""

    __slots__ = ()
    auto: JsonObject | None

    @property
    def offer(self) -> AutoInput | None:
        """Offer of ``--auto``."""
        return None if self.auto is None else AutoInput.from_json(self.auto)


@dataclass(frozen=True, slots=True)
class Same(OfferRequest, op="same"):
    """Question whether a value must be sent."""

    name: str
    digest: str
    auto: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Begin(EngineRequest[Done], op="begin"):
    """Begin of a value in chunks, with the sizes of its segments."""

    id: str
    sizes: list[int]


@dataclass(frozen=True, slots=True)
class Chunk(EngineRequest[Done], op="chunk"):
    """Bytes of a value, from byte `start`."""

    id: str
    start: int
    buffers: Buffers = ()


@dataclass(frozen=True, slots=True)
class End(EngineRequest[Done], op="end"):
    """End of a value in chunks: it is bound to a name."""

    id: str
    name: str
    digest: str
    modules: str = ""
    sources: Sequence[CodeSource] = ()


@dataclass(frozen=True, slots=True)
class DescribedReply(Message):
    """Described value: its parcel where it is small, else a reference, or why it cannot be sent."""

    described: JsonObject

    def encode(self) -> JsonObject:
        """Return the description."""
        return dict(self.described)

    @classmethod
    def decode(cls, content: Mapping[str, object], buffers: Buffers = ()) -> Self:
        """Return the reply of a description."""
        return cls({name: value for name, value in content.items() if name != "status"})


@dataclass(frozen=True, slots=True)
class Pack(EngineRequest[DescribedReply], op="pack"):
    """Request to pack the value behind a name or a reference for fetching."""

    since_protocol: ClassVar[int] = 1
    name: str
    as_data: bool = False
    ref: str | None = None


@dataclass(frozen=True, slots=True)
class PieceReply(Message):
    """Bytes of a value or a file."""

    buffers: Buffers = ()


@dataclass(frozen=True, slots=True)
class Fetch(EngineRequest[PieceReply], op="fetch"):
    """Request for bytes `start` to `stop` of a packed value."""

    since_protocol: ClassVar[int] = 1
    ref: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class SpoolReply(Message):
    """File of a packed value."""

    path: str
    size: int
    version: str


@dataclass(frozen=True, slots=True)
class Spool(EngineRequest[SpoolReply], op="spool"):
    """Request to write a packed value to a file, behind a header."""

    ref: str
    header: str


@dataclass(frozen=True, slots=True)
class Unspool(EngineRequest[Done], op="unspool"):
    """Request to remove the file of a value, and the packed value."""

    ref: str


@dataclass(frozen=True, slots=True)
class Packed(EngineRequest[Done], op="packed"):
    """Request to drop a fetched parcel and, with `release`, the value behind its reference."""

    since_protocol: ClassVar[int] = 1
    ref: str
    release: bool = True


@dataclass(frozen=True, slots=True)
class Bind(OfferRequest, op="bind"):
    """Request to bind a value of this engine to a name."""

    name: str
    ref: str
    auto: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class KeepResult(EngineRequest[DescribedReply], op="result"):
    """Request to keep the result of a cell that the notebook could not unpickle."""

    cell: int


@dataclass(frozen=True, slots=True)
class NamesReply(Message):
    """Variables that cells have made: name, type, bytes and a short text of each."""

    names: list[tuple[str, str, int, str]]


@dataclass(frozen=True, slots=True)
class ListNames(EngineRequest[NamesReply], op="names"):
    """Request for the variables that cells have made."""

    since_protocol: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class InstallPackages(EngineRequest[Done], op="packages"):
    """Request to install packages over the engine's own, and to import from there first."""

    packages: Sequence[str]
    without: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class MissingModulesReply(Message):
    """Modules that cannot be imported, and digests of the packages that were sent, by name."""

    missing: list[str]
    sent: dict[str, str]


@dataclass(frozen=True, slots=True)
class MissingModules(EngineRequest[MissingModulesReply], op="missing"):
    """Question which modules cannot be imported."""

    modules: Sequence[str]


@dataclass(frozen=True, slots=True)
class MissingPackagesReply(Message):
    """Packages that are not installed."""

    lacking: list[str]


@dataclass(frozen=True, slots=True)
class MissingPackages(EngineRequest[MissingPackagesReply], op="lacking"):
    """Question which packages are not installed."""

    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class PlatformReply(Message):
    """Fields of `jupyter_sky.machines.engines.node.platforms.Platform`."""

    platform: tuple[str, str, str, str, list[str]]


@dataclass(frozen=True, slots=True)
class FindPlatform(EngineRequest[PlatformReply], op="platform"):
    """Request for the interpreter and machine of an engine."""


@dataclass(frozen=True, slots=True)
class MissingFilesReply(Message):
    """Missing files, by digest or by path."""

    missing: list[str]


@dataclass(frozen=True, slots=True)
class MissingPackageFiles(EngineRequest[MissingFilesReply], op="lacking_files"):
    """Question which files of packages are missing in the cache: path to digest and mode."""

    known: Mapping[str, Sequence[str | int]]


@dataclass(frozen=True, slots=True)
class FileParts(EngineRequest[Done], op="file_parts"):
    """Pieces of files of packages: digest and first byte of each buffer."""

    parts: Sequence[tuple[str, int]]
    buffers: Buffers = ()


@dataclass(frozen=True, slots=True)
class ImportPackages(EngineRequest[Done], op="sent"):
    """Request to import packages from their files, which have all arrived."""

    packages: Mapping[str, Mapping[str, Sequence[str | int]]]


FileFacts = dict[str, list[int]]
"""Size in bytes, modification time in ns and mode of files, by path."""


@dataclass(frozen=True, slots=True)
class MissingFiles(EngineRequest[MissingFilesReply], op="files"):
    """Question which files of a manifest are missing in the working folder."""

    manifest: FileFacts


@dataclass(frozen=True, slots=True)
class FilePiece(EngineRequest[Done], op="file"):
    """Bytes of a file of the working folder, from byte `start`."""

    path: str
    start: int
    mode: int
    buffers: Buffers = ()


@dataclass(frozen=True, slots=True)
class TakeFiles(EngineRequest[Done], op="take_files"):
    """Request to take files of a sync from a dataset that has arrived."""

    folder: str
    manifest: FileFacts


@dataclass(frozen=True, slots=True)
class SyncedReply(Message):
    """Modules that are imported again."""

    forgotten: list[str]


@dataclass(frozen=True, slots=True)
class Synced(EngineRequest[SyncedReply], op="synced"):
    """End of a sync: modules of written files are imported again, removed files are deleted."""

    manifest: FileFacts
    written: Sequence[str]
    paths: Sequence[str] = ()
