"""Encoding of values and keys as bytes: equal keys have equal bytes in every process."""

from __future__ import annotations

import io
import numbers
import pickle
from typing import Any

from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.wire.values import Parcel


def dump(value: Any, whose: object) -> bytes:
    """Serialize a value to bytes.

    Raises
    ------
    SkyTransferError
        It cannot be pickled; says which part of it.
    """
    try:
        return pickle.dumps(value, protocol=5) if type(value) in _PLAIN else _parcel(value, whose)
    except RecursionError:
        return _parcel(value, whose)


_PLAIN = {int, float, str, bytes, bool, type(None)}


def _parcel(value: Any, whose: object) -> bytes:
    parcel = Parcel.of(value, _("a value for {whose!r}").format(whose=whose))
    if len(parcel.segments) == 1:
        return parcel.to_bytes()
    # arrays: their memory behind the stream, and how much of it each has
    return pickle.dumps((_LARGE, parcel.sizes), protocol=5) + parcel.to_bytes()


_LARGE = "jupyter_sky.parcel"


def load(data: bytes) -> Any:
    """Deserialize bytes to their value."""
    stream = io.BytesIO(data)
    value = pickle.load(stream)
    if isinstance(value, tuple) and len(value) == 2 and value[0] == _LARGE:
        return Parcel.from_bytes(value[1], data[stream.tell() :]).load()
    return value


def encode_key(key: Any) -> bytes:
    """Return bytes that are equal for equal keys.

    Raises
    ------
    TypeError
        The key is not hashable, as for any dict.

    Examples
    --------
    >>> encode_key((1, "a")) == encode_key((1.0, "a")), encode_key("1") == encode_key(1)
    (True, False)
    """
    hash(key)
    if key is None:
        return b"n"
    if isinstance(key, str):
        return b"s" + str(key).encode("utf-8", "surrogatepass")
    if isinstance(key, bytes):
        return b"b" + key
    if isinstance(key, numbers.Number):
        return b"i" + _encode_number(key)
    if type(key) is tuple:
        return b"t" + _join_parts(encode_key(part) for part in key)
    if isinstance(key, frozenset):
        return b"f" + _join_parts(sorted(encode_key(part) for part in key))
    return b"p" + _pickle_key(key)


def _encode_number(key: Any) -> bytes:
    number = key.item() if hasattr(key, "item") else key
    whole = isinstance(number, float) and number.is_integer()
    return repr(int(number) if whole or isinstance(number, bool) else number).encode()


def _join_parts(parts: Any) -> bytes:
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def _pickle_key(key: Any) -> bytes:
    """Pickle a key independently of references shared within it."""
    import cloudpickle

    stream = io.BytesIO()
    try:
        pickler = pickle.Pickler(stream, protocol=5)
        pickler.fast = True  # no memo: "the same object again" is not written down
        pickler.dump(key)
    except Exception:
        return cloudpickle.dumps(key)
    return stream.getvalue()
