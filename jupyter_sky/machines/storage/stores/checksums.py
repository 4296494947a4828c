"""CRC-32C of bytes, and of a whole from its parts; names and forms of other checksums.

CRC-32C is the checksum of transfers because sums of parts combine to the sum of the whole, and
because Amazon and Google verify it themselves.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from functools import lru_cache

_POLYNOMIAL = 0x82F63B78
_ONE = 1 << 31
_PIECE = 256 * 1024


def crc32c(data: bytes | bytearray | memoryview, start: int = 0) -> int:
    """Return the CRC-32C of `data`, going on from the sum `start`.

    Examples
    --------
    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    import google_crc32c

    if isinstance(data, bytes):
        return google_crc32c.extend(start, data)
    view = memoryview(data)  # the library takes nothing but bytes: copy pieces that fit a cache
    for offset in range(0, len(view), _PIECE):
        start = google_crc32c.extend(start, bytes(view[offset : offset + _PIECE]))
    return start


def combine_crc32c(parts: Iterable[tuple[int, int]]) -> int:
    """Return the CRC-32C of parts put together, from the sum and the size in bytes of each.

    Examples
    --------
    >>> whole = combine_crc32c([(crc32c(b"1234"), 4), (crc32c(b"56789"), 5)])
    >>> whole == crc32c(b"123456789")
    True
    """
    combined = 0
    for part, size in parts:
        combined = (_multiply(_shift(size), combined) if combined else 0) ^ part
    return combined


def crc_to_base64(value: int) -> str:
    """Return a CRC as stores write it in headers: base64 of four bytes, the highest first."""
    return base64.b64encode(value.to_bytes(4, "big")).decode()


def crc_from_base64(text: str) -> int:
    """Return the CRC that a store wrote in a header."""
    return int.from_bytes(base64.b64decode(text), "big")


def crc_to_hex(value: int) -> str:
    """Return a CRC as `StoredObject.sums` holds it."""
    return f"{value:08x}"


@lru_cache(maxsize=1024)
def _shift(size: int) -> int:
    """Return x to the power of 8 `size`, modulo the polynomial: `size` zero bytes follow."""
    power, square, bits = _ONE, _ONE >> 1, size * 8
    while bits:
        if bits & 1:
            power = _multiply(square, power)
        square = _multiply(square, square)
        bits >>= 1
    return power


def _multiply(a: int, b: int) -> int:
    """Return the product of two polynomials, modulo the polynomial of CRC-32C, bits reflected."""
    product, mask = 0, _ONE
    while mask:
        if a & mask:
            product ^= b
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1
        mask >>= 1
    return product
