# pyright: strict
"""Values on the wire: pickled once, buffers out of band, no copy that can be avoided.

A `Parcel` is a value as a sequence of memory segments: the pickle stream first, then each
out-of-band buffer (PEP 574). Parcels are cut into chunks of a flat address range, so neither
side ever holds a second copy, and are rebuilt into writable memory, so arrays arrive writable
whatever their size.
"""

from __future__ import annotations

import base64
import io
import mmap
import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any

from jupyter_sky.base.errors import SkyTransferError
from jupyter_sky.base.store.pickles import open_pickle
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.wire.narrowing import is_dict, is_list_or_tuple
from jupyter_sky.machines.engines.wire.widget_state import open_model, reduce_widget

INLINE_BYTES = 64 * 1024
"""Parcels up to this many bytes ride inside the cell's own messages."""

CHUNK_BYTES = 2**20
ARENA_BYTES = 2**20
ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Parcel:
    """Pickled value: the pickle stream and its out-of-band buffers.

    Attributes
    ----------
    codes : tuple
        Code objects of the functions in it, where it was pickled here.
    names : frozenset
        Names that these functions read in a namespace which does not travel with them.

    Examples
    --------
    >>> Parcel.of([1, 2]).load()
    [1, 2]
    """

    segments: tuple[memoryview, ...]
    codes: tuple[CodeType, ...] = field(default=(), compare=False, repr=False)
    names: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @classmethod
    def of(
        cls,
        value: Any,
        name: str = "value",
        namespace: Mapping[str, Any] | None = None,
        models: set[str] | None = None,
    ) -> Parcel:
        """Pickle `value` with cloudpickle.

        Parameters
        ----------
        namespace
            Variables of cells here. Functions of these cells become functions of the cells there,
            without the variables that they read; others take a copy of their globals along.
        models
            Receives the models of the widgets in it, which both sides share then; without it
            they cannot be sent.

        Raises
        ------
        SkyTransferError
            Naming the part of `value` that cannot be pickled, and why.
        """
        try:
            return cls.pickled(value, namespace=namespace, models=models)
        except SkyTransferError:  # it knows better, as a handle of a remote value does
            raise
        except Exception as error:
            culprit = _find_unpicklable(value, name, models)
            raise SkyTransferError(
                _("{name} cannot be sent: {culprit}").format(
                    name=name, culprit=culprit or f"{type(value).__name__}: {error}"
                ),
                hint=_("leave it out, or make it where it is needed; {name} is unchanged").format(
                    name=name
                ),
            ) from error

    @classmethod
    def small(cls, value: Any, limit: int) -> Parcel | None:
        """Pickle `value` if that takes at most about `limit` bytes; else return None."""
        try:
            parcel = cls.pickled(value, _BoundedBuffer(limit))
        except Exception:
            return None
        return parcel if parcel.nbytes <= limit else None

    @classmethod
    def pickled(
        cls,
        value: Any,
        stream: io.BytesIO | None = None,
        namespace: Mapping[str, Any] | None = None,
        models: set[str] | None = None,
    ) -> Parcel:
        """Pickle `value`; errors are those of its parts."""
        stream = stream or io.BytesIO()
        buffers: list[pickle.PickleBuffer] = []
        pickler = pickler_class()(stream, protocol=5, buffer_callback=buffers.append)
        pickler.namespace, pickler.models = namespace, models
        pickler.dump(value)
        views = [stream.getbuffer(), *(buffer.raw() for buffer in buffers)]
        segments = (view.cast("B") if view.nbytes else memoryview(b"") for view in views)
        return cls(tuple(segments), tuple(pickler.codes), frozenset(pickler.names))

    @property
    def sizes(self) -> list[int]:
        """Bytes of each segment."""
        return [segment.nbytes for segment in self.segments]

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return sum(self.sizes)

    def digest(self) -> str:
        """Return a 128-bit content hash (xxh3, against accidental change only)."""
        from xxhash import xxh3_128

        state = xxh3_128()
        for segment in self.segments:
            state.update(segment)
        return state.hexdigest()

    def views(self, start: int, stop: int) -> list[memoryview]:
        """Return the pieces of segments that lie in the flat range [start, stop)."""
        pieces: list[memoryview] = []
        offset = 0
        for segment in self.segments:
            low, high = max(start - offset, 0), min(stop - offset, segment.nbytes)
            if low < high:
                pieces.append(segment[low:high])
            offset += segment.nbytes
            if offset >= stop:
                break
        return pieces

    def fill(self, start: int, buffers: Iterable[Any]) -> int:
        """Write consecutive `buffers` at flat offset `start`; return the bytes written."""
        position = start
        for buffer in buffers:
            source = memoryview(buffer).cast("B")
            done = 0
            for piece in self.views(position, position + source.nbytes):
                piece[:] = source[done : done + piece.nbytes]
                done += piece.nbytes
            position += done
        return position - start

    def load(self) -> Any:
        """Rebuild the value over this parcel's own memory."""
        return open_pickle(self.segments[0], self.segments[1:])

    def to_bytes(self) -> bytes:
        """Join all segments (for parcels small enough to ride inline)."""
        return b"".join(self.segments)

    @classmethod
    def empty(cls, sizes: Sequence[int]) -> Parcel:
        """Return a writable parcel to be filled; small segments share one arena."""
        small = sum(_aligned(size) for size in sizes if size < ARENA_BYTES)
        arena, used = memoryview(bytearray(small)), 0
        segments: list[memoryview] = []
        for size in sizes:
            if size < ARENA_BYTES:
                segments.append(arena[used : used + size])
                used += _aligned(size)
            else:
                segments.append(_allocate(size))
        return cls(tuple(segments))

    def inline(self) -> dict[str, Any]:
        """Return a small parcel as part of a message."""
        return {"inline": base64.b64encode(self.to_bytes()).decode(), "sizes": self.sizes}

    @classmethod
    def from_inline(cls, described: Mapping[str, Any]) -> Parcel:
        """Rebuild a parcel that was part of a message."""
        return cls.from_bytes(described["sizes"], base64.b64decode(described["inline"]))

    @classmethod
    def from_bytes(cls, sizes: Sequence[int], data: bytes) -> Parcel:
        """Rebuild an inline parcel."""
        parcel = cls.empty(sizes)
        parcel.fill(0, [data])
        return parcel


class _BoundedBuffer(io.BytesIO):
    """Stream that aborts a pickle which grows past a limit."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def write(self, data: Any) -> int:
        """Add `data`, or raise if the limit would be passed."""
        if self.tell() + memoryview(data).nbytes > self.limit:
            raise pickle.PicklingError("too large")
        return super().write(data)


class _CellNamespace:
    """Stand-in in a pickle for the variables of cells, wherever it is loaded."""

    def __reduce__(self) -> Any:
        return cell_namespace, ()


def cell_namespace() -> dict[str, Any]:
    """Return the variables of the cells that run in this process."""
    return vars(sys.modules["__main__"])


def chunks(nbytes: int) -> Iterator[tuple[int, int]]:
    """Yield the flat ranges in which a parcel of `nbytes` travels."""
    for start in range(0, nbytes, CHUNK_BYTES):
        yield start, min(start + CHUNK_BYTES, nbytes)


def _allocate(size: int) -> memoryview:
    """Return memory that is not zeroed in advance, unlike a bytearray."""
    try:
        return memoryview(mmap.mmap(-1, size, **_PRIVATE))
    except OSError as error:
        raise MemoryError(f"no memory for {size:,} bytes") from error


_PRIVATE: dict[str, int] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


_CachedFunction: Any = type(cache(len))
"""Functions that keep their results; cloudpickle sends them by name, even those of cells."""


def _is_in_module(function: Any) -> bool:
    """Return whether a module other than that of the cells has a function under its name."""
    found: Any = sys.modules.get(function.__module__)
    if found is None or function.__module__ == "__main__":
        return False
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function


def _reduce_cached_function(function: Any) -> Any:
    return _cached_function, (function.__wrapped__, function.cache_parameters())


def _cached_function(function: Any, parameters: Mapping[str, Any]) -> Any:
    return lru_cache(**parameters)(function)


def _name_file(code: CodeType, reduced: Any) -> Any:
    """Keep the name of a code's file, which cloudpickle 3.1.3 drops: source lines go by it."""
    make, arguments = reduced
    named = (code.co_filename if part == "<dynamic-code>" else part for part in arguments)
    return make, tuple(named)


@cache
def pickler_class() -> Any:
    """Return the class of picklers of values; cloudpickle is imported at the first use."""
    cloudpickle: Any = import_module("cloudpickle")

    class ValuePickler(cloudpickle.Pickler):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            cloudpickle.Pickler.__init__(self, *args, **kwargs)
            self.codes: list[CodeType] = []
            self.names: set[str] = set()
            self.namespace: Mapping[str, Any] | None = None
            self.models: set[str] | None = None

        def reducer_override(self, obj: Any) -> Any:
            # cloudpickle would send the contents of an open file as if it were the file.
            in_memory = isinstance(obj, io.StringIO | io.BytesIO)
            if isinstance(obj, io.IOBase) and not in_memory and not obj.closed:
                raise pickle.PicklingError("an open file stays on the machine that opened it")
            if isinstance(obj, CodeType):
                self.codes.append(obj)
                return _name_file(obj, self.dispatch_table[CodeType](obj))
            if self.models is not None and (model := open_model(obj)):
                self.models.add(model)
                return reduce_widget(obj)
            if (reference := reduce_shell_part(obj)) is not None:
                return reference
            if isinstance(obj, _CachedFunction) and not _is_in_module(obj):
                return _reduce_cached_function(obj)
            reduced = cloudpickle.Pickler.reducer_override(self, obj)
            is_in_cell = isinstance(obj, FunctionType) and obj.__globals__ is self.namespace
            return self._reduce_in_cell(reduced) if is_in_cell else reduced

        def _reduce_in_cell(self, reduced: Any) -> Any:
            """Let a function have the variables of cells at its destination as globals."""
            try:
                make, (code, __, *more), (state, slots), *rest = reduced
                names = slots["__globals__"].keys()
            except (TypeError, ValueError, LookupError):  # by reference, or by another cloudpickle
                return reduced
            self.names |= names
            arguments = (code, _CellNamespace(), *more)
            return make, arguments, (state, {**slots, "__globals__": {}}), *rest

    return ValuePickler


def _find_unpicklable(
    value: Any,
    path: str,
    models: set[str] | None = None,
    depth: int = 4,
    seen: frozenset[int] = frozenset(),
) -> str | None:
    """Find the innermost part of `value` that does not pickle, as ``path is a type (why)``."""
    try:
        Parcel.pickled(value, models=models)
        return None
    except Exception as error:
        reason = str(error)
    seen |= {id(value)}
    if depth:
        for label, part in _parts(value):
            description = (
                None
                if id(part) in seen
                else _find_unpicklable(part, f"{path}{label}", models, depth - 1, seen)
            )
            if description:
                return description
    return f"{path} is a {type(value).__name__} ({reason})"


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if is_dict(value):
        yield from ((f"[{key!r}]", part) for key, part in list(value.items())[:1000])
    elif is_list_or_tuple(value):
        yield from ((f"[{index}]", part) for index, part in enumerate(value[:1000]))
    elif isinstance(value, FunctionType):
        yield from ((f".<{name}>", part) for name, part in _captured_values(value).items())
    elif is_dict(attributes := getattr(value, "__dict__", None)) and not isinstance(value, type):
        yield from ((f".{key}", part) for key, part in attributes.items())


def _captured_values(function: FunctionType) -> dict[str, Any]:
    """Return the globals and closure values that a function uses."""
    code = function.__code__
    values: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    names = (name for name in code.co_names if name in function.__globals__)
    return values | {name: function.__globals__[name] for name in names}


# -- References to IPython's shell in pickles: every process has a shell of its own ---------------

_PARTS = (
    "display_formatter",
    "events",
    "history_manager",
    "input_transformer_manager",
    "magics_manager",
    "display_pub",
    "displayhook",
    "kernel",
)
_PACKAGES = ("IPython", "ipykernel", "ipyparallel", "jupyter_sky")


def reduce_shell_part(value: Any) -> tuple[Any, ...] | None:
    """Return the shell, or one of its parts, in the form of ``__reduce__``; None for all else."""
    if type(value).__module__.partition(".")[0] not in _PACKAGES:
        return None
    for path, part in _parts_shell_references():
        if part is value:
            return find_shell_part, path
    return None


def find_shell_part(*path: str) -> Any:
    """Return a part of this process's shell."""
    for known, part in _parts_shell_references():
        if known == path:
            return part
    raise LookupError(f"there is no IPython shell here with {'.'.join(path) or 'a kernel'}")


def _parts_shell_references() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the shell and its parts, each with its path."""
    if "IPython" not in sys.modules:
        return
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    if shell is None:
        return
    yield (), shell
    for name in _PARTS:
        if (part := getattr(shell, name, None)) is not None:
            yield (name,), part
    for kind, formatter in shell.display_formatter.formatters.items():
        yield ("formatters", kind), formatter
