"""Errors of SQLite: their codes, and the errors that users are shown in their place."""

from __future__ import annotations

import sqlite3

from jupyter_sky.base.errors import SkyStoreError
from jupyter_sky.base.translation import _

LOCK_TIMEOUT_SECONDS = 3.0
"""Time that one statement waits for another process."""
CORRUPT_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
BUSY_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
UNWRITABLE_CODES = {
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
}


def primary_code(error: sqlite3.Error) -> int:
    """Return the primary result code, which is the low byte of an extended one."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def unrecorded_error(why: str) -> SkyStoreError:
    """Return the error of a durable write that is not possible now."""
    return SkyStoreError(
        _(
            "the store cannot be written now ({why}); what costs money is not started unrecorded"
        ).format(why=why),
        hint=_(
            "make room on its disk, close what holds it, or set another folder: SKY_DATA_DIR=..."
        ),
    )


def store_error(error: sqlite3.Error, where: str = "the store") -> SkyStoreError:
    """Return the error that users are shown in place of one of SQLite's."""
    if primary_code(error) in BUSY_CODES:
        hint = "another process holds it: close that one or try again"
        return SkyStoreError(
            _("{where} stayed locked for {lock_timeout_seconds:.0f} s").format(
                where=where, lock_timeout_seconds=LOCK_TIMEOUT_SECONDS
            ),
            hint=hint,
        )
    if primary_code(error) in CORRUPT_CODES:
        hint = "restart the kernel: the broken file is kept and a new one started"
        return SkyStoreError(
            _("{where} is corrupt: {error}").format(where=where, error=error), hint=hint
        )
    return SkyStoreError(f"{where}: {error}")
