"""Serialization of calls: large pieces are separate blobs, so that each is sent once.

A payload is a tuple of segments: the pickle stream, then its out-of-band buffers (PEP 574). A
segment of `BLOB_BYTES` or more stays behind as a `Blob`, a name made of its content. Nodes of the
same machine map it from a memory file, others keep it in a file; each call maps it anew, so a call
may write into its arrays.
"""

from __future__ import annotations

import ctypes
import inspect
import io
import pickle
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from jupyter_sky.base.errors import SkyTransferError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.serialization.memory_files import FileName, MemoryFile
from jupyter_sky.machines.engines.wire.values import Parcel, pickler_class
from jupyter_sky.machines.packages.installed_modules import is_installed

BLOB_BYTES = 2**20
APART_BYTES = 2**14
"""Segments of this many bytes are not copied into a message's own pickle."""
NUMBERS = frozenset({int, float, bool, type(None), complex})
_TEXTS = frozenset({str, bytes})
_PLAIN = NUMBERS | _TEXTS


@dataclass(frozen=True, slots=True)
class Blob:
    """Segment that is sent separately.

    Attributes
    ----------
    digest : str
        Content hash; empty for a part of a result, which has a file.
    file : FileName, optional
        Memory file with the same content, for processes of the same machine.
    """

    digest: str
    size: int
    file: FileName | None = field(default=None, compare=False)


Segment = bytes | bytearray | memoryview | pickle.PickleBuffer | Blob
Payload = tuple[Segment, ...]
Blobs = dict[str, memoryview | MemoryFile]
"""Sources of blobs by digest: the caller's own memory, or a copy."""


class BlobStore(Protocol):
    """Place for the large segments of payloads."""

    def add(self, segment: memoryview) -> Blob | None:
        """Return a segment as a blob; None if it has to travel in the message."""
        ...


class ArgumentBlobs:
    """Large segments of the calls of one submission, each read once.

    Parameters
    ----------
    find_file
        Returns a memory file with a copy of a segment, by digest; None for no file.
    """

    def __init__(
        self, find_file: Callable[[str, memoryview], MemoryFile | None] = lambda *__: None
    ) -> None:
        self._find_file = find_file
        self._known: dict[tuple[int, int], tuple[Blob, memoryview | MemoryFile, memoryview]] = {}
        self._added: Blobs = {}

    def add(self, segment: memoryview) -> Blob:
        """Return a segment as a blob; memory that was seen before is not read again."""
        place = _address(segment), segment.nbytes
        if place not in self._known:
            name = digest(segment)
            file = self._find_file(name, segment)
            blob = Blob(name, segment.nbytes, file.name if file is not None else None)
            # the segment stays, so that its address is not given away again
            self._known[place] = blob, segment if file is None else file, segment
        blob, source, __ = self._known[place]
        self._added[blob.digest] = source
        return blob

    def put(self, blob: Blob, content: memoryview) -> Blob:
        """Add a blob that is sent to each node once; return it."""
        self._added[blob.digest] = content
        return blob

    def take(self) -> Blobs:
        """Return the blobs that were added since the last time."""
        added, self._added = self._added, {}
        return added


class _BufferView(ctypes.Structure):
    """``Py_buffer`` of the C interface of Python."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("rest", ctypes.c_char * 128),
    )


def _address(memory: memoryview) -> int:
    """Return the address of memory; ``ctypes`` gives that of writable memory only."""
    view, api = _BufferView(), ctypes.pythonapi
    api.PyObject_GetBuffer(ctypes.py_object(memory), ctypes.byref(view), 0)
    try:
        return view.buf or 0
    finally:
        api.PyBuffer_Release(ctypes.byref(view))


def digest(data: memoryview) -> str:
    """Return the content hash of a buffer (xxh3, against accidental change only)."""
    from xxhash import xxh3_128_hexdigest

    return xxh3_128_hexdigest(data)


def dumps(value: Any) -> bytes:
    """Pickle a value in one piece."""
    if type(value) in _PLAIN:
        return pickle.dumps(value, protocol=5)
    stream = io.BytesIO()
    pickler_class()(stream, protocol=5).dump(value)
    return stream.getvalue()


def is_plain(value: Any) -> bool:
    """Return whether a value is a number or a short text, which needs no analysis to be sent."""
    kind = type(value)
    return kind in NUMBERS or (kind in _TEXTS and len(value) < APART_BYTES)


def plain_pickle(parts: Iterable[Any], value: Any) -> bytes | None:
    """Pickle a small value all of whose parts are numbers and texts, or return None.

    Such a pickle needs no import and no analysis, which take longer than a quick call.
    """
    if not all(map(is_plain, parts)):
        return None
    data = pickle.dumps(value, protocol=5)
    return data if len(data) < APART_BYTES else None


def split(parcel: Parcel, blobs: BlobStore | None) -> Payload:
    """Return a parcel's segments for a message; move large ones to `blobs` if given."""
    segments: list[Segment] = []
    for segment in parcel.segments:
        is_large = blobs is not None and segment.nbytes >= BLOB_BYTES
        if is_large and (blob := blobs.add(segment)) is not None:
            segments.append(blob)
        elif segment.nbytes >= APART_BYTES:
            # a copy: what is on its way does not change any more
            segments.append(pickle.PickleBuffer(bytearray(segment)))
        else:
            segments.append(bytes(segment))
    return tuple(segments)


def join(payload: Payload, open_blob: Callable[[Blob], memoryview]) -> Any:
    """Rebuild the value of a payload, over writable memory."""
    segments: list[Any] = []
    for index, segment in enumerate(payload):
        if isinstance(segment, Blob):
            segments.append(open_blob(segment))
        elif index == 0 or isinstance(segment, bytearray):
            segments.append(segment)
        else:
            segments.append(bytearray(segment))
    return pickle.loads(segments[0], buffers=segments[1:])


def has_blobs(payload: Payload) -> bool:
    """Return whether parts of a payload are sent separately."""
    return any(isinstance(segment, Blob) for segment in payload)


def wrap(commands: Any) -> list[Any]:
    """Return the buffers of a message: its pickle, then the out-of-band buffers."""
    apart: list[pickle.PickleBuffer] = []
    first = pickle.dumps(commands, protocol=5, buffer_callback=apart.append)
    return [first, *(buffer.raw() for buffer in apart)]


def unwrap(buffers: Sequence[Any]) -> Any:
    """Return the value of wrapped buffers."""
    return pickle.loads(buffers[0], buffers=buffers[1:])


# -- functions and arguments -------------------------------------------------------------------


def pack_arguments(
    function: Callable[..., Any],
    name: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Parcel:
    """Pickle the arguments of a call.

    Raises
    ------
    SkyTransferError
        One of them cannot be pickled; says which one, and where inside it.
    """
    try:
        return Parcel.pickled((args, dict(kwargs)))
    except Exception as error:
        for label, value in _label_arguments(function, args, kwargs):
            Parcel.of(value, f"argument {label} of {name}")
        raise SkyTransferError(
            _("the arguments of {name} cannot be sent: {error}").format(name=name, error=error)
        ) from error


def pack_function(function: Callable[..., Any], options: dict[str, Any], name: str) -> Parcel:
    """Pickle a function with the globals it uses, and its options.

    Raises
    ------
    SkyTransferError
        Something that it uses cannot be pickled.
    """
    try:
        return Parcel.pickled((function, options))
    except Exception:
        Parcel.of(function, f"function {name}")
        raise


def _label_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Return arguments by the names of the parameters."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        bound = {**{str(number): value for number, value in enumerate(args, 1)}, **kwargs}
    yield from bound.items()


_by_value: dict[str, int] = {}
_by_value_lock = threading.Lock()


@contextmanager
def pickled_by_value(module: str | None) -> Iterator[None]:
    """Pickle the definitions of a user module by value: nodes cannot import it.

    Packages that are installed stay what they are, a name to import.
    """
    import cloudpickle

    definitions = sys.modules.get(module or "")
    file = getattr(definitions, "__file__", None)
    if definitions is None or module == "__main__" or file is None or is_installed(Path(file)):
        yield
        return
    name = definitions.__name__
    with _by_value_lock:
        already = name in cloudpickle.list_registry_pickle_by_value() and not _by_value.get(name)
        if not already:
            _by_value[name] = _by_value.get(name, 0) + 1
            cloudpickle.register_pickle_by_value(definitions)
    try:
        yield
    finally:
        with _by_value_lock:
            if not already:
                _by_value[name] -= 1
                if not _by_value[name]:
                    del _by_value[name]
                    cloudpickle.unregister_pickle_by_value(definitions)
