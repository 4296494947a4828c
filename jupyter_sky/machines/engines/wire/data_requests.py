# pyright: strict
"""Requests of notebooks to an engine for datasets, mounts and uploads, and its replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.messages import Buffers, Done, Message, Request
from jupyter_sky.machines.engines.wire.controller_requests import PROTOCOL
from jupyter_sky.machines.engines.wire.engine_requests import DATA_OP, EngineRequest, PieceReply

ReplyT = TypeVar("ReplyT", bound=Message)


class DataRequest(EngineRequest[ReplyT]):
    """Step of the transfer of data to a machine, or from it to a store."""

    __slots__ = ()
    op_key: ClassVar[str] = "step"
    envelope: ClassVar[Mapping[str, str | int]] = {"op": DATA_OP, "protocol": PROTOCOL}


@dataclass(frozen=True, slots=True)
class ReadPart(DataRequest[PieceReply], op="read"):
    """Request for bytes of a file of the machine."""

    request: JsonObject


# -- data to the machine -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BeginReply(Message):
    """Identity of the cache of the machine."""

    cache: str


@dataclass(frozen=True, slots=True)
class BeginArrival(DataRequest[BeginReply], op="begin"):
    """Begin of a dataset, whose packed description is the buffer."""

    id: str
    path: str
    single: bool
    buffers: Buffers = ()


@dataclass(frozen=True, slots=True)
class AddPlans(DataRequest[Done], op="requests"):
    """Signed requests by identity of an object."""

    id: str
    requests: Mapping[str, JsonObject]


@dataclass(frozen=True, slots=True)
class AddPiece(DataRequest[Done], op="piece"):
    """Bytes of an object, from byte `start`."""

    id: str
    identity: str
    start: int
    size: int
    buffers: Buffers = ()


@dataclass(frozen=True, slots=True)
class TaskState(Message):
    """Progress of a transfer: bytes and requests, the objects that it waits for, and its path."""

    done: int
    ended: bool
    error: str
    reads: int = 0
    received: int = 0
    wanted: Sequence[str] = ()
    missing: int = 0
    listed: bool = False
    lost_peer: bool = False
    path: str = ""


@dataclass(frozen=True, slots=True)
class ReadState(DataRequest[TaskState], op="state"):
    """Request for the progress of a transfer; its end is reported once."""

    id: str


@dataclass(frozen=True, slots=True)
class Cancel(DataRequest[Done], op="cancel"):
    """Request to end a transfer."""

    id: str


@dataclass(frozen=True, slots=True)
class ServeReply(Message):
    """Origin and key of the server of a dataset."""

    origin: str
    key: str


@dataclass(frozen=True, slots=True)
class Serve(DataRequest[ServeReply], op="serve"):
    """Request to serve the objects of a dataset to the other machines of the cluster."""

    id: str
    buffers: Buffers = ()


@dataclass(frozen=True, slots=True)
class HeldReply(Message):
    """Objects that a machine serves."""

    held: list[str]


@dataclass(frozen=True, slots=True)
class FindHeld(DataRequest[HeldReply], op="held"):
    """Question which of some objects a machine serves now."""

    id: str
    identities: Sequence[str]


@dataclass(frozen=True, slots=True)
class EndServe(DataRequest[Done], op="end_serve"):
    """Request to end the server of a dataset."""

    id: str


@dataclass(frozen=True, slots=True)
class MountReply(Message):
    """Id of a mount; empty where another engine has mounted it."""

    id: str


@dataclass(frozen=True, slots=True)
class MountData(DataRequest[MountReply], op="mount"):
    """Request to mount a dataset of a store."""

    path: str
    single: bool
    buffers: Buffers = ()


@dataclass(frozen=True, slots=True)
class Link(DataRequest[Done], op="link"):
    """Request to let a path lead to a folder of the machine."""

    path: str
    target: str


@dataclass(frozen=True, slots=True)
class MountState(Message):
    """Counts of a mount, windows whose requests it wants, and errors since the last reply."""

    ended: bool
    reads: int = 0
    received: int = 0
    wanted: Sequence[tuple[str, int]] = ()
    errors: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ServeMount(Request[MountState]):
    """Signed windows for a mounted dataset, by a ``sky_mount`` message; the reply may wait."""

    id: str
    windows: Sequence[Sequence[object]]
    refused: str = ""


# -- files from the machine ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Remember(DataRequest[Done], op="remember"):
    """Request to remember the files at a path, before the cell runs."""

    path: str


@dataclass(frozen=True, slots=True)
class ChangedFiles(Message):
    """New and changed files: path, size and version; number of all files, folder and machine."""

    files: list[tuple[str, int, str]]
    count: int
    is_file: bool
    root: str
    machine: str


@dataclass(frozen=True, slots=True)
class FindChanged(DataRequest[ChangedFiles], op="changed"):
    """Request for the files at a path that are new or have changed since they were remembered."""

    path: str


@dataclass(frozen=True, slots=True)
class ExchangeReply(Message):
    """Messages of a worker."""

    messages: list[JsonObject]


@dataclass(frozen=True, slots=True)
class Exchange(DataRequest[ExchangeReply], op="exchange"):
    """Messages for a worker of the machine."""

    id: str
    messages: Sequence[JsonObject]


@dataclass(frozen=True, slots=True)
class EndExchange(DataRequest[Done], op="end_exchange"):
    """Request to end a worker."""

    id: str


@dataclass(frozen=True, slots=True)
class DiskReply(Message):
    """Bytes of the disk of the cache."""

    total: int
    free: int


@dataclass(frozen=True, slots=True)
class MeasureDisk(DataRequest[DiskReply], op="disk"):
    """Request for the bytes of the disk of the cache."""
