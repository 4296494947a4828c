"""Copies of the shared state of a pool, which another server goes on from.

A copy is a list of frames, the first of which is JSON that says what the others are. Locks are free
in a copy and keep their fencing numbers; barriers are left out, and so is who waits: clients ask
again. The last response to each client is in it, so a repeated request is not carried out twice.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from jupyter_sky.execution.functions.shared.messages import SharedRequest
from jupyter_sky.execution.functions.shared.shared_objects import Request, Response
from jupyter_sky.execution.functions.shared.shared_state import SharedState

COPY_SECONDS = 2.0
"""Period in which changes are copied."""
MAX_COPY_BYTES = 64_000_000
"""Most bytes of a copy; larger states are not copied."""
_VERSION = 1
_LENGTH = struct.Struct("<Q")


def dump_state(state: SharedState) -> list[bytes]:
    """Return a copy of a state.

    Examples
    --------
    >>> state, other = SharedState(), SharedState()
    >>> from jupyter_sky.execution.functions.shared.messages import AddAmount
    >>> add = AddAmount("counter", "n", amount=2)
    >>> __ = state.handle_request(b"me", 1, add, ())
    >>> load_state(other, dump_state(state))
    >>> other.objects["counter", "n"].value, other.revision
    (2, 1)
    """
    frames: list[bytes] = []
    objects, last = [], []
    for (kind, name), shared_object in state.objects.items():
        if (dumped := shared_object.dump()) is not None:
            number, parts = dumped
            objects.append([kind, name, number, len(parts)])
            frames += parts
    for client, response in state.last.items():
        sent = [response.request.number, response.error, response.value]
        last.append([client.hex(), *sent, len(response.frames)])
        frames += response.frames
    head = {"version": _VERSION, "revision": state.revision, "objects": objects, "last": last}
    return [json.dumps(head).encode(), *frames]


def load_state(state: SharedState, copy: Sequence[bytes]) -> None:
    """Let a state that is older than a copy go on from it.

    Raises
    ------
    ValueError
        It is no copy, or one of another version.
    """
    head = json.loads(copy[0])
    if head.get("version") != _VERSION:
        raise ValueError(f"a copy of version {head.get('version')}, not {_VERSION}")
    if head["revision"] <= state.revision:
        return
    frames = iter(copy[1:])
    for kind, name, number, count in head["objects"]:
        state.objects[kind, name] = shared_object = state.KINDS[kind]()
        shared_object.load(number, [next(frames) for __ in range(count)])
    for client, number, error, value, count in head["last"]:
        request = Request(bytes.fromhex(client), number, SharedRequest("", ""))
        parts = tuple(next(frames) for __ in range(count))
        state.last[request.client] = Response(request, value, parts, error)
    state.revision = head["revision"]


def write_copy(path: Path, copy: Sequence[bytes]) -> None:
    """Write a copy to a file, whole or not at all."""
    lengths = b"".join(_LENGTH.pack(len(frame)) for frame in copy)
    part = path.with_suffix(".partial")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.writelines((_LENGTH.pack(len(copy)), lengths, *copy))
    part.replace(path)


def read_copy(path: Path) -> list[bytes]:
    """Return the copy in a file; empty if there is none, or none that can be read."""
    with suppress(OSError, struct.error):
        data = path.read_bytes()
        (count,) = _LENGTH.unpack_from(data)
        lengths = [_LENGTH.unpack_from(data, _LENGTH.size * (1 + n))[0] for n in range(count)]
        start = _LENGTH.size * (1 + count)
        frames: list[bytes] = []
        for length in lengths:
            frames.append(data[start : start + length])
            start += length
        if start == len(data):
            return frames
    return []
