"""Division of an object into parts."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.errors import SkyStorageError
from jupyter_sky.machines.storage.stores.store import MIB, Capability, Part, Span

PART_SIZE = 16 * MIB
"""Size from which larger parts gain little, by the figures of Skyplane."""


def choose_part_size(size: int, capability: Capability, wanted: int = PART_SIZE) -> int:
    """Return the size of parts in bytes, in whole MiB, so that few enough parts hold the object.

    Raises
    ------
    SkyStorageError
        The object is larger than the store takes.

    Examples
    --------
    >>> choose_part_size(100 * 10**9, Capability()) // MIB
    16
    >>> choose_part_size(10**12, Capability()) // MIB
    96
    """
    if size > capability.max_object:
        limit = capability.max_object / 1e12
        raise SkyStorageError(
            _("an object of {size:.1f} TB is more than {limit:.1f} TB").format(
                size=size / 1000000000000.0, limit=limit
            )
        )
    spare = capability.max_parts - max(1, capability.max_parts // 1000)
    needed = -(-size // spare)
    whole = -(-max(wanted, needed) // MIB) * MIB
    return min(max(whole, capability.min_part), capability.max_part)


def part_count(size: int, part_size: int) -> int:
    """Return the number of parts; an empty object has one."""
    return max(1, -(-size // part_size))


def part_span(number: int, size: int, part_size: int) -> Span:
    """Return the bytes of part `number`, from 1.

    Examples
    --------
    >>> part_span(3, 40, 16)
    Span(start=32, stop=40)
    """
    start = (number - 1) * part_size
    return Span(start, min(size, start + part_size))


def combined_crc32c(parts: Sequence[Part]) -> int | None:
    """Return the CRC-32C of an object from its parts, None if one of them is not known."""
    from jupyter_sky.machines.storage.stores.checksums import combine_crc32c

    sums = [(part.crc32c, part.span.size) for part in parts if part.crc32c is not None]
    return combine_crc32c(sums) if len(sums) == len(parts) else None
