# pyright: strict
"""Requests of notebooks and observers to a controller, and its replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Final, Literal, TypedDict, TypeVar

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.messages import Buffers, Done, Message, Request
from jupyter_sky.machines.engines.wire.messages import NoticeRecord

PROTOCOL = 2
"""Number of the messages' version: a cluster takes cells from notebooks of the same number only.

Version 1 had no number. Requests to a controller of version 1 still work: they list, read and end
its cluster. Raise the number when a message of a cell or a call changes its meaning.
"""

ReplyT = TypeVar("ReplyT", bound=Message)


class Absent(Enum):
    """Value of a field that is left out, where None has a meaning."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


class ControllerRequest(Request[ReplyT]):
    """Request to the controller of a cluster."""

    __slots__ = ()
    envelope: ClassVar[Mapping[str, str | int]] = {"protocol": PROTOCOL}


@dataclass(frozen=True, slots=True)
class HelloReply(Message):
    """Facts of a cluster; `running` are the ids of its runs."""

    cluster: str
    python: str
    version: str
    nodes: int
    running: list[str]
    protocol: int = 1


@dataclass(frozen=True, slots=True)
class Hello(ControllerRequest[HelloReply], op="hello"):
    """Request for the facts of a cluster."""


class LastUse(TypedDict):
    """Label of the last use of a cluster, and its age in seconds."""

    what: str
    ago: float


@dataclass(frozen=True, slots=True)
class UseReply(Message):
    """Current uses of a cluster, its idle limit and the seconds left of it."""

    idle_left: float
    idle: float
    users: list[str]
    last_use: LastUse
    connected: list[str]


@dataclass(frozen=True, slots=True)
class Use(ControllerRequest[UseReply], op="use"):
    """Request for the uses of a cluster."""


@dataclass(frozen=True, slots=True)
class BeatReply(UseReply):
    """Reply to a heartbeat: reason of the end, if it has begun, and notices by rank."""

    stopping: str = ""
    notices: dict[str, list[NoticeRecord]] = field(default_factory=dict[str, list[NoticeRecord]])


@dataclass(frozen=True, slots=True)
class Beat(ControllerRequest[BeatReply], op="beat"):
    """Heartbeat of a notebook.

    Attributes
    ----------
    ago : float, optional
        Seconds since its last use of the cluster, which was `what`; `uses` continue.
    idle : float, optional
        New idle limit in seconds.
    left : float, optional
        Seconds until the day's budget is spent; None for no deadline.
    """

    notebook: str = ""
    ago: float | None = None
    what: str = ""
    uses: str = ""
    idle: float | None = None
    left: float | Absent | None = ABSENT


@dataclass(frozen=True, slots=True)
class DeadlineReply(Message):
    """Seconds until the deadline."""

    left: float | None


@dataclass(frozen=True, slots=True)
class SetDeadline(ControllerRequest[DeadlineReply], op="deadline"):
    """Seconds until the day's budget is spent; None for no deadline."""

    left: float | None


@dataclass(frozen=True, slots=True)
class Extend(ControllerRequest[UseReply], op="extend"):
    """Request to keep an idle cluster for some seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class MetricsReply(UseReply):
    """Samples of all nodes, taken each `period` seconds until `at`, and the running runs."""

    at: float
    period: float
    running: list[str]
    nodes: list[JsonObject]


@dataclass(frozen=True, slots=True)
class ReadMetrics(ControllerRequest[MetricsReply], op="metrics"):
    """Request for the metrics of the nodes."""


@dataclass(frozen=True, slots=True)
class JournalReply(Message):
    """Entries of a journal, number of the next one, status of the run and time of its end."""

    entries: list[JsonObject]
    next: int
    status: str
    ended: float | None


@dataclass(frozen=True, slots=True)
class ReadJournal(ControllerRequest[JournalReply], op="journal"):
    """Request for outputs of a run, from entry number `start`."""

    run: str
    start: int


@dataclass(frozen=True, slots=True)
class InterruptReply(Message):
    """Ranks of the interrupted engines."""

    interrupted: list[int]


@dataclass(frozen=True, slots=True)
class Interrupt(ControllerRequest[InterruptReply], op="interrupt"):
    """Request to interrupt a run."""

    run: str | None
    ranks: Sequence[int]


@dataclass(frozen=True, slots=True)
class KillReply(Message):
    """Ranks of the killed engines."""

    killed: list[int]


@dataclass(frozen=True, slots=True)
class Kill(ControllerRequest[KillReply], op="kill"):
    """Request to kill the engines that execute a run; all engines of `ranks` without one."""

    run: str | None
    ranks: Sequence[int]
    why: str = "it was told to"


@dataclass(frozen=True, slots=True)
class GiveUp(ControllerRequest[Done], op="give_up"):
    """Request to expect nothing more of nodes: they have ended, or a pool has replaced them."""

    ranks: Sequence[int]
    why: str


@dataclass(frozen=True, slots=True)
class ApproveEndReply(Message):
    """Whether the cloud was told that it may take the machine away."""

    approved: bool


@dataclass(frozen=True, slots=True)
class ApproveEnd(ControllerRequest[ApproveEndReply], op="approve_end"):
    """Permission to take the machine away now: a run on it, alone, has saved its state."""

    run: str


@dataclass(frozen=True, slots=True)
class SharedStateReply(Message):
    """Endpoint of the shared state, ports for rendezvous, and whether a client has connected."""

    key: str
    local_url: str
    remote_url: str
    head_addr: str
    head_port: int
    is_used: bool


@dataclass(frozen=True, slots=True)
class FindSharedState(ControllerRequest[SharedStateReply], op="shared_state"):
    """Request for the endpoint of the shared state."""


@dataclass(frozen=True, slots=True)
class DataEngineReply(Message):
    """State of a data engine; `facts` are its version and pages."""

    state: str
    detail: str
    hint: str | None
    facts: JsonObject = field(default_factory=JsonObject)
    serial: int = 0


@dataclass(frozen=True, slots=True)
class StartDataEngine(ControllerRequest[DataEngineReply], op="data_engine"):
    """Request for the state of a data engine, which `start` starts where it does not run."""

    engine: str
    version: str
    start: bool


class EngineState(TypedDict):
    """State of an engine: run that it executes, reasons of its exit and of its node's loss."""

    rank: int
    pid: int
    running: str | None
    exit_reason: str
    lost: str


@dataclass(frozen=True, slots=True)
class EnginesReply(Message):
    """States of the engines of a cluster."""

    engines: list[EngineState]


@dataclass(frozen=True, slots=True)
class ListEngines(ControllerRequest[EnginesReply], op="engines"):
    """Request for the states of all engines."""


@dataclass(frozen=True, slots=True)
class FilesReply(Message):
    """Files or entries of a folder, or bytes of a file with its state; or why it is refused."""

    refused: str = ""
    files: Sequence[list[str | int]] = ()
    found: bool = False
    is_file: bool = False
    entries: Sequence[list[str | int | float]] = ()
    more: int = 0
    size: int = 0
    modified: int = 0
    digest: str = ""
    buffers: Buffers = ()


@dataclass(frozen=True, slots=True)
class ReadFiles(Request[FilesReply], op="outgoing"):
    """Request for files of a node; the controller of node 0 and engines of others answer it.

    Attributes
    ----------
    do : str
        Operation: files behind a path or pattern, entries of a folder, files changed between
        `since` and `until`, or bytes `start` to `stop` of a file.
    is_confined : bool
        Whether only files below the folder of the cluster are found, links resolved.
    """

    envelope: ClassVar[Mapping[str, str | int]] = {"protocol": PROTOCOL}
    since_protocol: ClassVar[int] = 1
    do: Literal["find", "list", "changed", "read"]
    path: str
    start: int | None = None
    stop: int | None = None
    since: float | None = None
    until: float | None = None
    is_confined: bool = False
