"""Commands of a notebook to the node worker of an engine, orders to its call processes, reports.

They travel as tuples in pickles: calls take microseconds, of which JSON would be half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jupyter_sky.base.messages import Buffers, Message, Request
from jupyter_sky.execution.serialization.payload import Payload

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments."""
CallCommand = tuple[Any, ...]
"""Call: ``key, function, arguments, timeout, stream_inputs, broadcast, saves``; see `Call`."""
StreamItem = tuple[str, Any]
"""Kind and pickle of an item of a streamed argument."""


# -- commands of the notebook --------------------------------------------------------------------


class Command(Message):
    """Command of a pool to an engine, which takes it whatever its main thread does."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class OpenPool(Command, op="open"):
    """Context of a pool on a node, before its first call and after each change."""

    context: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ClosePool(Command, op="close"):
    """End of a pool."""

    pool: str


@dataclass(frozen=True, slots=True)
class ReleaseFiles(Command, op="release"):
    """Memory files that the notebook has read."""

    descriptors: list[int]


@dataclass(frozen=True, slots=True)
class RunCalls(Command, op="calls"):
    """Calls of a pool."""

    pool: str
    calls: list[CallCommand]


@dataclass(frozen=True, slots=True)
class RunPlainCalls(Command, op="plain_calls"):
    """Calls of one function whose arguments are numbers and short texts."""

    pool: str
    timeout: float | None
    function: Payload
    keys: Sequence[int]
    arguments: Sequence[Arguments]


@dataclass(frozen=True, slots=True)
class Feed(Command, op="feed"):
    """Items of a streamed argument of a call."""

    batch: str
    key: int
    number: int
    items: list[StreamItem]


@dataclass(frozen=True, slots=True)
class Consumed(Command, op="consumed"):
    """Number of items of a call's stream that the notebook has consumed."""

    batch: str
    key: int
    count: int


@dataclass(frozen=True, slots=True)
class StopCalls(Command, op="stop"):
    """Request to stop calls, with the reason."""

    batch: str
    keys: list[int]
    why: str


# -- orders of an engine to a call process -------------------------------------------------------


class Order(Message):
    """Order of an engine to a process that runs its calls."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class RunCall(Order, op="run"):
    """Call, and the context of its pool if that is new to the process."""

    context: dict[str, Any] | None
    command: CallCommand


@dataclass(frozen=True, slots=True)
class FilesAdopted(Order, op="adopted"):
    """The engine has taken over the memory files of the last result."""


@dataclass(frozen=True, slots=True)
class StopCall(Order, op="stop"):
    """Request to stop a call."""

    key: int
    why: str


@dataclass(frozen=True, slots=True)
class FeedCall(Order, op="feed"):
    """Items of a streamed argument."""

    key: int
    number: int
    items: list[StreamItem]


@dataclass(frozen=True, slots=True)
class ItemsConsumed(Order, op="consumed"):
    """Number of consumed items of the call's stream."""

    key: int
    count: int


# -- reports of calls ----------------------------------------------------------------------------


class Report(Message):
    """Report of a node on its calls."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class FinalReport(Report):
    """Last report of a call."""

    key: int


@dataclass(frozen=True, slots=True)
class PlainResult(FinalReport, op="plain"):
    """Result that is a number or a short text; those of a batch travel as `Values`."""

    value: Any
    seconds: float


@dataclass(frozen=True, slots=True)
class Values(Report, op="values"):
    """Results that are numbers and short texts."""

    keys: list[int]
    values: list[Any]
    seconds: list[float]


@dataclass(frozen=True, slots=True)
class Value(FinalReport, op="value"):
    """Result of a call."""

    payload: Payload
    seconds: float


@dataclass(frozen=True, slots=True)
class Failed(FinalReport, op="error"):
    """Error of a call: name, text, traceback, pickle, and why it was stopped."""

    failure: dict[str, Any]
    seconds: float


@dataclass(frozen=True, slots=True)
class StreamBegun(Report, op="stream"):
    """The result of a call is a generator."""

    key: int


@dataclass(frozen=True, slots=True)
class Item(Report, op="item"):
    """Pickled item of a generator."""

    key: int
    data: bytes


@dataclass(frozen=True, slots=True)
class StreamUnread(Report, op="unread"):
    """A generator has waited for its reader for some time."""

    key: int


@dataclass(frozen=True, slots=True)
class StreamEnded(FinalReport, op="end"):
    """End of a generator."""

    seconds: float


@dataclass(frozen=True, slots=True)
class InputConsumed(Report, op="input_consumed"):
    """Number of consumed items of a streamed argument."""

    key: int
    number: int
    count: int


@dataclass(frozen=True, slots=True)
class Saved(Report, op="saved"):
    """Saved state of a call that recovers."""

    key: int
    state: str
    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Returned(Report, op="returned"):
    """Calls that have not begun and go back."""

    keys: list[int]


@dataclass(frozen=True, slots=True)
class MissingPart(FinalReport, op="missing"):
    """Name of a blob that the node lacks for a call."""

    name: str


@dataclass(frozen=True, slots=True)
class ProcessLost(FinalReport, op="lost"):
    """Death of the process of a call."""

    why: str


@dataclass(frozen=True, slots=True)
class Text(Report, op="text"):
    """Output of a call process to a standard stream."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Ready(Report, op="ready"):
    """The call process has started."""


_PROCESS_REPORTS: dict[str, type[Report]] = {
    kind.op: kind
    for kind in (
        PlainResult,
        Value,
        Failed,
        StreamBegun,
        Item,
        StreamUnread,
        StreamEnded,
        InputConsumed,
        Saved,
        MissingPart,
        Text,
        Ready,
    )
}


def process_report(values: Sequence[Any]) -> Report:
    """Return the report of a call process from its tuple; both run the same version."""
    return _PROCESS_REPORTS[values[0]](*values[1:])


# -- blobs: large parts of arguments that several calls share ------------------------------------


@dataclass(frozen=True, slots=True)
class BlobsReply(Message):
    """Whether all blobs are present, and the identity of the blob cache of the machine."""

    here: bool
    blob_cache: str


@dataclass(frozen=True, slots=True)
class FindBlobs(Request[BlobsReply], op="find_blobs"):
    """Question whether blobs are present."""

    asked: list[str]


@dataclass(frozen=True, slots=True)
class BlobPartReply(Message):
    """Whether the blob is complete."""

    whole: bool


@dataclass(frozen=True, slots=True)
class BlobPart(Request[BlobPartReply], op="blob_part"):
    """Bytes of a blob of `size` bytes, from byte `start`."""

    name: str
    start: int
    size: int
    buffers: Buffers = ()
