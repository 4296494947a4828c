# pyright: strict
"""Serialization of exceptions as JSON, to raise them again in the notebook."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jupyter_sky.base.errors import SkyTransferError
from jupyter_sky.machines.engines.wire.data_values import decode, encode
from jupyter_sky.machines.engines.wire.narrowing import is_list, is_list_or_tuple, is_mapping
from jupyter_sky.machines.engines.wire.values import INLINE_BYTES, Parcel

MAX_NESTED = 5
"""Deepest nesting of exceptions in groups."""
_EXTRA_ATTRIBUTES = (
    "name path msg errno strerror filename filename2 lineno offset text end_lineno end_offset code "
    "value"
).split()
"""State of builtin exceptions beside their arguments and attributes."""


def describe_error(error: BaseException, depth: int = 0) -> dict[str, Any]:
    """Return a description of `error` as plain JSON, from which a client raises its class.

    ``classes`` names the class and its bases as (module, qualified name), nearest first; ``args``,
    ``dict`` and ``more`` are what the exception carries as far as that is data, each value as
    `data_values` has it. Of anything else there is the text: the exception itself does not travel,
    since opening a pickle runs code of its author.
    """
    described = describe_origin(error) | {"text": _text(error)}
    more = {name: getattr(error, name, None) for name in _EXTRA_ATTRIBUTES}
    carried = {
        "args": [_data(value, depth, str) for value in error.args],
        "more": _mapping({name: value for name, value in more.items() if value is not None}, depth),
    }
    own = _mapping(vars(error), depth)
    for state in (carried | {"dict": own}, carried):
        if len(json.dumps(state)) <= INLINE_BYTES:
            return described | state
    return described


def describe_origin(error: BaseException) -> dict[str, Any]:
    """Return the classes of `error`, and the variable, module or file that it has not found."""
    classes = [
        [base.__module__, base.__qualname__]
        for base in type(error).__mro__
        if issubclass(base, BaseException)
    ]
    described: dict[str, Any] = {"classes": classes}
    if isinstance(error, NameError):
        described["name"] = error.name
    if isinstance(error, ModuleNotFoundError):
        described["module"] = error.name
    if isinstance(error, FileNotFoundError) and isinstance(error.filename, str):
        described["filename"] = error.filename
    return described


def decode_attributes(described: Mapping[str, Any], build: Any) -> dict[str, Any]:
    """Return the valid ones among ``args``, ``dict`` and ``more`` of a described exception.

    Parameters
    ----------
    build
        Makes an exception that is in a group from its description.
    """
    state: dict[str, Any] = {}
    args = described.get("args")
    if is_list(args):
        state["args"] = tuple(_decode_value(value, build) for value in args)
    for part in ("dict", "more"):
        described_part = described.get(part)
        if is_mapping(described_part):
            state[part] = {
                name: _decode_value(value, build)
                for name, value in described_part.items()
                if (name in _EXTRA_ATTRIBUTES if part == "more" else not str(name).startswith("_"))
            }
    return state


def _mapping(values: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    """Return the values that are data; others are left out."""
    mapping: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(name, str) and (data := _data(value, depth, None)) is not None:
            mapping[name] = data
    return mapping


def _data(value: Any, depth: int, instead: Any) -> Any:
    """Return a value as data, as text where it is not plain data, or None."""
    if isinstance(value, BaseException):
        return {"error": describe_error(value, depth + 1)} if depth < MAX_NESTED else None
    if is_list_or_tuple(value) and any(isinstance(part, BaseException) for part in value):
        return {"each": [_data(part, depth, instead) for part in value]}
    try:
        parcel = encode(value)
        if parcel.nbytes <= INLINE_BYTES:
            return parcel.inline()
    except SkyTransferError:
        pass
    return None if instead is None else {"text": _text(value)}


def _decode_value(described: Any, build: Any) -> Any:
    if not is_mapping(described):
        return None
    if "error" in described:
        return build(described["error"])
    if "each" in described:
        return [_decode_value(part, build) for part in described["each"]]
    if "text" in described:
        return str(described["text"])
    try:
        return decode(Parcel.from_inline(described))
    except (SkyTransferError, ValueError, TypeError, KeyError):
        return None


def _text(value: Any) -> str:
    try:
        return str(value)[:INLINE_BYTES]
    except Exception:
        return f"<no text: str() of {type(value).__name__} fails>"
