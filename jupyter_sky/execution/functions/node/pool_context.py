"""Context of a pool on a node: its functions, setups, wrappers and topology."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from jupyter_sky.execution.serialization.payload import Blob, BlobStore, Payload, join

LoadedFunction = tuple[Callable[..., Any], dict[str, Any]]
"""Function with its options."""


class MissingBlob(Exception):
    """Missing piece of a call's arguments on this node."""


class PoolContext:
    """Context of a pool on a node: instance information, setups and wrappers of calls.

    Parameters
    ----------
    open_blob
        Gives the memory of a blob.
    results
        Takes the large parts of results; None if they travel in messages.
    """

    def __init__(
        self,
        description: dict[str, Any],
        open_blob: Callable[[Blob], memoryview],
        results: BlobStore | None = None,
    ) -> None:
        self.description, self.open_blob, self.results = description, open_blob, results
        self.pool: str = description["pool"]
        self._functions: dict[Payload, LoadedFunction] = {}
        self._latest: tuple[Payload | None, LoadedFunction | None] = None, None
        """Payload that was asked for last, and its function: calls of a message share them."""
        self._topologies: dict[int, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._wrappers: list[Callable] | None = None

    def function(self, payload: Payload) -> LoadedFunction:
        """Return a function and its options, unpickled once."""
        latest, function = self._latest
        if latest is payload and function is not None:
            return function
        key = tuple(
            bytes(s) if not isinstance(s, (bytes, Blob)) else s  # type: ignore[arg-type]
            for s in payload
        )
        function = self._functions.get(key)
        if function is None:
            function = join(payload, self.open_blob)
            if len(self._functions) > 200:
                self._functions.clear()
            self._functions[key] = function
        self._latest = payload, function
        return function

    def topology(self, worker: int, broadcast: str) -> dict[str, Any]:
        """Return the topology of the node for a call."""
        topology = self._topologies.get(worker)
        if topology is None:
            topology = {**self.description["topology"], "worker": worker}
            self._topologies[worker] = topology
        return {**topology, "broadcast": broadcast} if broadcast else topology

    def reuse(self, before: PoolContext) -> None:
        """Take over functions and setups of an earlier context of the same pool."""
        self._functions = before._functions
        if before.description["setups"] == self.description["setups"]:
            self._wrappers = before._wrappers

    def run_setups(self) -> None:
        """Run the setups of a fresh process, before its first call."""
        if self._wrappers is not None:
            return
        with self._lock:
            if self._wrappers is None:
                setups, around = join(self.description["setups"], self.open_blob)
                for setup in setups:
                    setup()
                self._wrappers = around

    def call_wrapped(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a function inside the wrappers of the plug-ins."""
        if not self._wrappers:
            return function(*args, **kwargs)
        call = partial(function, *args, **kwargs)
        for wrapper in reversed(self._wrappers):
            call = partial(wrapper, call)
        return call()
