"""Pickles of calls: functions, arguments, and the local modules that they need."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from jupyter_sky.execution.functions.calls.tasks import PackedCall
from jupyter_sky.execution.serialization.local_modules import (
    Archives,
    LocalModules,
    merge,
    with_modules,
)
from jupyter_sky.execution.serialization.payload import (
    ArgumentBlobs,
    Blobs,
    Payload,
    pack_arguments,
    pack_function,
    pickled_by_value,
    plain_pickle,
)
from jupyter_sky.machines.engines.wire.code_sources import carry_sources

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.data_arguments import DataArguments
    from jupyter_sky.execution.functions.calls.lazy_calls import Function, PendingFunction
    from jupyter_sky.execution.functions.calls.portable import MakePortable


class CallPickler:
    """Pickler of calls: functions that calls share are pickled once.

    Parameters
    ----------
    modules
        Local modules, which calls that need them carry.
    data
        Delivery of data that are arguments.
    portable
        Makes functions run in another Python than the engines'; None if they need none.
    """

    def __init__(
        self, modules: LocalModules, data: DataArguments, portable: MakePortable | None = None
    ) -> None:
        self.modules, self._data, self._portable = modules, data, portable
        self._functions: dict[int, tuple[Function, Payload, Archives, Blobs]] = {}
        self._plain: dict[int, tuple[Payload, Blobs]] = {}
        """Functions whose plain arguments need no analysis."""

    def _function(
        self, function: Function, module: str | None, blobs: ArgumentBlobs
    ) -> tuple[Payload, Archives, Blobs]:
        """Pickle a function with its options and the local modules that it needs."""
        packed = self._functions.get(id(function))
        if packed is None:
            local = function.local
            named = local if module else definition(local)
            if self._portable is not None:
                named = self._portable(local)
            parcel = pack_function(named, function.shown, function.name)
            archives = self.modules.needed_by(parcel.segments[0], local, module)
            payload = with_modules(carry_sources(parcel), archives, blobs)
            packed = self._functions[id(function)] = function, payload, archives, blobs.take()
        return packed[1:]

    def pack(self, call: PendingFunction[Any], blobs: ArgumentBlobs) -> PackedCall:
        """Pickle a call: its function, arguments and streams; large segments go to `blobs`.

        Raises
        ------
        SkyTransferError
            A part of it cannot be pickled.
        """
        from jupyter_sky.execution.functions.calls.streams import streamed, streams_arguments

        if (quick := self._pack_plain(call)) is not None:
            return quick
        local = call.function.local
        module = _sent_module(local)
        with pickled_by_value(module):
            function, archives, shared = self._function(call.function, module, blobs)
        if not archives and not streams_arguments(local):
            self._plain[id(call.function)] = function, shared
            if (quick := self._pack_plain(call)) is not None:
                return quick
        args, kwargs, stream_inputs, stream_senders = streamed(local, call, self.modules)
        args, kwargs = self._data.replace(args, kwargs)
        with pickled_by_value(module):
            parcel = pack_arguments(local, call.function.name, args, kwargs)
            # those of the function again: a node unpickles each function once
            others = self.modules.needed_by(parcel.segments[0], None, module)
        arguments = with_modules(parcel, merge(archives, others), blobs)
        return PackedCall(function, arguments, stream_inputs, stream_senders, shared | blobs.take())

    def is_plain(self, function: Function) -> bool:
        """Return whether numbers and short texts can be sent to a function without analysis."""
        return id(function) in self._plain and not function.shown

    def plain_function(self, function: Function) -> tuple[Payload, Blobs]:
        """Return the pickle of such a function, and its large segments."""
        return self._plain[id(function)]

    def _pack_plain(self, call: PendingFunction[Any]) -> PackedCall | None:
        """Pickle a further call of a function if its arguments are numbers and short texts."""
        known = self._plain.get(id(call.function))
        if known is None:
            return None
        args, kwargs = call.args, call.kwargs
        data = plain_pickle((*args, *kwargs.values()) if kwargs else args, (args, kwargs))
        return None if data is None else PackedCall(known[0], (data,), (), [], known[1])


def _sent_module(function: Any) -> str | None:
    """Return the module whose definitions travel by value with a function; None for no such."""
    module = getattr(function, "__module__", None)
    return None if is_edited(module) else module


# -- Functions of modules whose files have been edited since their definitions were first ---------
#
# Definitions of a function's own module travel as they are in this process. Once the file has
# changed, nodes import the module as it is in the file, like every other local module.

_first_states: dict[str, tuple[int, int]] = {}
"""Modification time (ns) and size of the files of modules when they were first looked at."""


def is_edited(module: str | None) -> bool:
    """Return whether the file of a module has changed since this was first asked."""
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    if module is None or module == "__main__" or file is None:
        return False
    try:
        status = os.stat(file)
    except OSError:
        return False
    state = status.st_mtime_ns, status.st_size
    return _first_states.setdefault(module, state) != state


def definition(function: Callable[..., Any]) -> Any:
    """Return what pickles as the name of a function, if it has one; else the function itself."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module not in sys.modules or _find(module, name) is not function:
        return function
    return _Definition(module, name)


class _Definition:
    """Name of a function, which nodes import."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __reduce__(self) -> tuple[Any, ...]:
        return _find, (self._module, self._name)


def _find(module: str, name: str) -> Any:
    """Return a function of a module; of a lazy one, the function itself."""
    from jupyter_sky.execution.functions.calls.lazy_calls import Function

    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found.local if isinstance(found, Function) else found
