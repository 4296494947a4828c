"""Exceptions on their way to the notebook: what is needed to raise them there."""

from __future__ import annotations

from typing import Any

from .values import INLINE_BYTES, Parcel


def describe_error(error: BaseException) -> dict[str, Any]:
    """Return what a client needs to raise `error` under its own class.

    ``classes`` names the class and its bases as (module, qualified name), nearest first;
    ``inline`` is a parcel of what the exception carries, where that travels. The exception itself
    does not: it may be of a class that is not there, or whose ``__init__`` wants anything.
    """
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
    more = {name: getattr(error, name) for name in _MORE if getattr(error, name, None) is not None}
    state = {"args": error.args, "dict": vars(error), "more": more}
    for kept in (state, state | {"dict": {}}):
        if parcel := Parcel.small(kept, INLINE_BYTES):
            return described | parcel.inline()
    return described


_MORE = (
    "name path msg errno strerror filename filename2 lineno offset text end_lineno end_offset code "
    "value"
).split()
"""What builtin exceptions carry beside their arguments and attributes."""
