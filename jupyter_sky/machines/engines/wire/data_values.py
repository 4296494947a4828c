# pyright: strict
"""Values as data: JSON with arrays in NumPy's format and tables in Arrow's beside it.

Where a machine is not trusted, its values come home in this form. Unlike a pickle it cannot name
code: whatever it says, opening it makes numbers, texts, containers, arrays and tables, no more.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from typing import Any

from jupyter_sky.base.errors import SkyTransferError
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.wire.narrowing import class_of, is_list
from jupyter_sky.machines.engines.wire.values import Parcel

KINDS = (
    "numbers, text, bytes, dates, lists, tuples, dicts and sets of these, NumPy arrays, and tables "
    "of pandas, Polars or Arrow"
)
MAX_DEPTH = 100


def encode(value: Any, name: str = "value") -> Parcel:
    """Return a value as data.

    Raises
    ------
    SkyTransferError
        It, or something in it, is more than data; says which part and of what type.

    Examples
    --------
    >>> decode(encode({"loss": (0.5, float("inf"))}))
    {'loss': (0.5, inf)}
    """
    segments: list[bytes] = [b""]
    tree = _encode_tree(value, name, segments, 0)
    try:
        segments[0] = json.dumps(tree, separators=(",", ":")).encode()
    except ValueError as error:  # an integer of thousands of digits
        raise SkyTransferError(
            _("{name} cannot be written as data: {error}").format(name=name, error=error)
        ) from None
    return Parcel(tuple(memoryview(segment) for segment in segments))


def decode(parcel: Parcel) -> Any:
    """Rebuild a value from untrusted data.

    Raises
    ------
    SkyTransferError
        It is not what `encode` makes.
    """
    try:
        tree = json.loads(bytes(parcel.segments[0]))
        return _decode_tree(tree, parcel.segments, 0)
    except SkyTransferError:
        raise
    except RecursionError:
        raise SkyTransferError(_("the message is nested too deeply")) from None
    except Exception as error:
        kind = type(error).__name__
        raise SkyTransferError(
            _("what has come is not data: {kind}: {error}").format(kind=kind, error=error)
        ) from None


# -- encoding --------------------------------------------------------------------------------------


def _encode_tree(value: Any, path: str, segments: list[bytes], depth: int) -> Any:
    kind = class_of(value)
    if depth > MAX_DEPTH:
        raise SkyTransferError(
            _("{path} is nested more than {max_depth} deep").format(path=path, max_depth=MAX_DEPTH)
        )
    if value is None or kind in (bool, int):
        return value
    if kind is str:
        # a lone surrogate is not text in JSON
        return value if value.isascii() or _is_text(value) else {"wide": _wide(value)}
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if kind in _SCALARS:
        return {kind.__name__: _SCALARS[kind](value)}
    if kind in (list, tuple, set, frozenset):
        parts = [
            _encode_tree(part, f"{path}[{at}]", segments, depth + 1)
            for at, part in enumerate(value)
        ]
        return parts if kind is list else {kind.__name__: parts}
    if kind is dict:
        pairs = [
            [
                _encode_tree(key, f"a key of {path}", segments, depth + 1),
                _encode_tree(part, f"{path}[{key!r:.40}]", segments, depth + 1),
            ]
            for key, part in value.items()
        ]
        return {"dict": pairs}
    return _encode_segment(value, path, segments)


_SCALARS: dict[type, Callable[[Any], Any]] = {
    complex: lambda value: [repr(value.real), repr(value.imag)],
    bytes: lambda value: base64.b64encode(value).decode(),
    bytearray: lambda value: base64.b64encode(value).decode(),
    datetime: lambda value: value.isoformat(),
    date: lambda value: value.isoformat(),
    timedelta: lambda value: [value.days, value.seconds, value.microseconds],
    Decimal: str,
}


def _encode_segment(value: Any, path: str, segments: list[bytes]) -> dict[str, int]:
    """Append an array or a table to `segments`, and return its index."""
    kind = class_of(value)
    root, name = kind.__module__.partition(".")[0], kind.__name__
    tag, data = "", b""
    try:
        if root == "numpy" and _is_array(value):
            tag, data = ("npy" if name == "ndarray" else "scalar"), _npy(value)
        elif root == "pandas" and name in ("DataFrame", "Series"):
            tag, data = name, _arrow(value)
        elif root == "polars" and name == "DataFrame":
            tag, data = "polars", _ipc(value.to_arrow())
        elif root == "pyarrow" and name == "Table":
            tag, data = "arrow", _ipc(value)
    except Exception as error:
        raise SkyTransferError(
            _("{path} is a {name} that is not plain data ({error})").format(
                path=path, name=name, error=error
            )
        ) from None
    if not tag:
        module = "" if root == "builtins" else f"{kind.__module__}."
        raise SkyTransferError(
            _("{path} is a {module}{qualname}, not plain data").format(
                path=path, module=module, qualname=kind.__qualname__
            )
        )
    segments.append(data)
    return {tag: len(segments) - 1}


def _is_array(value: Any) -> bool:
    import numpy as np

    return type(value) is np.ndarray or isinstance(value, np.generic)


def _npy(value: Any) -> bytes:
    import numpy as np

    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(value), allow_pickle=False)
    return stream.getvalue()


def _arrow(value: Any) -> bytes:
    pa: Any = import_module("pyarrow")

    frame = value.to_frame("" if value.name is None else value.name) if value.ndim == 1 else value
    table = pa.Table.from_pandas(frame)
    if value.ndim == 1:
        table = table.replace_schema_metadata(
            {**(table.schema.metadata or {}), b"sky_unnamed": b"1" if value.name is None else b""}
        )
    return _ipc(table)


def _ipc(table: Any) -> bytes:
    pa: Any = import_module("pyarrow")

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _wide(value: str) -> str:
    return base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()


# -- decoding --------------------------------------------------------------------------------------


def _decode_tree(tree: Any, segments: Sequence[memoryview], depth: int) -> Any:
    if depth > MAX_DEPTH + 1:
        raise SkyTransferError(_("the message is nested too deeply"))
    if tree is None or isinstance(tree, str | bool | int | float):
        return tree
    if is_list(tree):
        return [_decode_tree(part, segments, depth + 1) for part in tree]
    ((tag, content),) = tree.items()
    if tag in ("tuple", "set", "frozenset"):
        parts = (_decode_tree(part, segments, depth + 1) for part in content)
        return {"tuple": tuple, "set": set, "frozenset": frozenset}[tag](parts)
    if tag == "dict":
        return {
            _decode_tree(key, segments, depth + 1): _decode_tree(part, segments, depth + 1)
            for key, part in content
        }
    if tag in _SCALAR_DECODERS:
        return _SCALAR_DECODERS[tag](content)
    if isinstance(content, bool) or not isinstance(content, int) or not 0 < content < len(segments):
        raise SkyTransferError(_("the message has no part {content!r:.40}").format(content=content))
    return _SEGMENT_DECODERS[tag](segments[content])


_SCALAR_DECODERS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "wide": lambda told: base64.b64decode(told).decode("utf-8", "surrogatepass"),
    "complex": lambda told: complex(float(told[0]), float(told[1])),
    "bytes": base64.b64decode,
    "bytearray": lambda told: bytearray(base64.b64decode(told)),
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "timedelta": lambda told: timedelta(*told),
    "Decimal": Decimal,
}


def _read_npy(data: memoryview) -> Any:
    import numpy as np

    return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)


def _read_arrow(data: memoryview) -> Any:
    pa: Any = import_module("pyarrow")

    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()


def _read_series(data: memoryview) -> Any:
    table = _read_arrow(data)
    series = table.to_pandas().iloc[:, 0]
    metadata: dict[bytes, bytes] = table.schema.metadata or {}
    return series.rename(None) if metadata.get(b"sky_unnamed") else series


def _read_polars(data: memoryview) -> Any:
    polars: Any = import_module("polars")

    return polars.from_arrow(_read_arrow(data))


_SEGMENT_DECODERS: dict[str, Callable[[memoryview], Any]] = {
    "npy": _read_npy,
    "scalar": lambda data: _read_npy(data)[()],
    "arrow": _read_arrow,
    "DataFrame": lambda data: _read_arrow(data).to_pandas(),
    "Series": _read_series,
    "polars": _read_polars,
}
