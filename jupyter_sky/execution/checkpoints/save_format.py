"""Format of a save: a header, parts of a pickle, and a digest of both.

A pickle of protocol 5 leaves large buffers (arrays) out of its stream; they follow as parts of
their own, so that nothing is copied in memory. Layout, all numbers little-endian::

    b"SKYSAVE" and the version      8 bytes
    length of the header            8 bytes
    header                          JSON
    parts                           pickle, then its buffers
    digest of all before            16 bytes, BLAKE2b
"""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, BinaryIO

from jupyter_sky._version import __version__
from jupyter_sky.base.errors import SkyCheckpointError
from jupyter_sky.base.store.pickles import open_pickle
from jupyter_sky.base.translation import _

MAGIC = b"SKYSAVE"
VERSION = 1
DIGEST_BYTES = 16
PIECE_BYTES = 1 << 20
MAX_HEADER_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class PackedState:
    """State that is ready to be written.

    Attributes
    ----------
    header : mapping
        Facts about the save, as JSON can hold them.
    parts : tuple of buffers
        The pickle and the buffers that it leaves out.
    """

    header: Mapping[str, Any]
    parts: tuple[Any, ...]

    @property
    def size(self) -> int:
        """Bytes of the parts."""
        return sum(len(memoryview(part).cast("B")) for part in self.parts)


@dataclass(frozen=True, slots=True)
class SavedState:
    """State that was read.

    Attributes
    ----------
    header : mapping
        Facts about the save.
    values : dict
        State by name.
    """

    header: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


class DamagedSave(Exception):
    """A save is cut off, or its digest does not hold."""


def pack_state(
    values: Mapping[str, Any], facts: Mapping[str, Any], named: Mapping[str, Any] | None = None
) -> PackedState:
    """Pickle a state as a whole, so that what is shared between its values stays shared.

    Parameters
    ----------
    values
        State by name.
    facts
        What the header says beside versions and lengths.
    named
        Those of the values that the user has named, for errors; all unless given.

    Raises
    ------
    SkyCheckpointError
        Values cannot be pickled; names them.
    """
    import cloudpickle

    buffers: list[pickle.PickleBuffer] = []
    try:
        stream = cloudpickle.dumps(dict(values), protocol=5, buffer_callback=buffers.append)
        parts = (stream, *(buffer.raw() for buffer in buffers))
    except Exception as error:  # whatever the values raise
        raise _unpicklable(values if named is None else named, error) from error
    header = {
        **facts,
        "jupyter_sky": __version__,
        "python": _python_version(),
        "lengths": [len(memoryview(part).cast("B")) for part in parts],
    }
    return PackedState(header, parts)


def _unpicklable(values: Mapping[str, Any], error: Exception) -> SkyCheckpointError:
    import cloudpickle

    refused = []
    for key, value in values.items():
        try:
            cloudpickle.dumps(value, protocol=5)
        except Exception as reason:
            refused.append(f"{key!r} ({type(value).__name__}: {reason})")
    return SkyCheckpointError(
        _("a save cannot hold {refused}").format(refused=", ".join(refused) or error),
        hint=_(
            "keep what makes it instead, such as a path or a state_dict, or leave it out of the "
            "state"
        ),
    )


def _python_version() -> str:
    import sys

    return f"{sys.version_info.major}.{sys.version_info.minor}"


def write_state(packed: PackedState, file: BinaryIO) -> None:
    """Write a save with its digest."""
    header = json.dumps(packed.header).encode()
    digest = blake2b(digest_size=DIGEST_BYTES)
    for piece in (MAGIC, bytes([VERSION]), struct.pack("<Q", len(header)), header, *packed.parts):
        view = memoryview(piece).cast("B")
        for start in range(0, len(view), PIECE_BYTES):
            digest.update(view[start : start + PIECE_BYTES])
            file.write(view[start : start + PIECE_BYTES])
    file.write(digest.digest())


def read_state(file: BinaryIO, name: str) -> SavedState:
    """Read a save whose digest holds.

    Parameters
    ----------
    file
        Open file.
    name
        Name of the save, for errors.

    Raises
    ------
    DamagedSave
        The save is cut off or changed.
    SkyCheckpointError
        It was written by another version, or its values cannot be made here.
    """
    digest = blake2b(digest_size=DIGEST_BYTES)
    first = _read(file, len(MAGIC) + 1, digest)
    if first[: len(MAGIC)] != MAGIC:
        raise DamagedSave
    if first[-1] != VERSION:
        raise SkyCheckpointError(
            _("{name} is a save of format {found}, and this jupyter_sky reads format {own}").format(
                name=name, found=first[-1], own=VERSION
            ),
            hint=_("take the jupyter_sky that wrote it, or begin anew: fresh=True"),
        )
    (length,) = struct.unpack("<Q", _read(file, 8, digest))
    if length > MAX_HEADER_BYTES:
        raise DamagedSave
    raw = _read(file, length, digest)
    try:
        header = json.loads(raw)
        lengths = [int(number) for number in header["lengths"]]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedSave from error
    parts = [_read(file, number, digest) for number in lengths]
    if file.read(DIGEST_BYTES) != digest.digest():
        raise DamagedSave
    return SavedState(header, _unpickle(parts, header, name))


def _read(file: BinaryIO, length: int, digest: Any) -> bytearray:
    """Read exactly so many bytes; damaged lengths must not claim the memory of a machine."""
    found = bytearray()
    while len(found) < length:
        piece = file.read(min(PIECE_BYTES, length - len(found)))
        if not piece:
            raise DamagedSave
        digest.update(piece)
        found += piece
    return found


def _unpickle(
    parts: Iterable[bytearray], header: Mapping[str, Any], name: str
) -> Mapping[str, Any]:
    stream, *buffers = parts
    try:
        return open_pickle(stream, buffers)
    except Exception as error:  # whatever classes raise that have changed since
        raise SkyCheckpointError(
            _(
                "{name} is whole and cannot be read here: {error!r}. It was written by Python "
                "{python} with jupyter_sky {version}, and this is Python {own}"
            ).format(
                name=name,
                error=error,
                python=header.get("python", "?"),
                version=header.get("jupyter_sky", "?"),
                own=_python_version(),
            ),
            hint=_("define the same classes and install the same packages, or fresh=True"),
        ) from error
