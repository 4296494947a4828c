"""Remedies for the failures of a transfer."""

from __future__ import annotations

from enum import Enum

from jupyter_sky.machines.storage.stores.errors import (
    SkyChecksumMismatch,
    SkyConnectionLost,
    SkyInvalidKey,
    SkyObjectArchived,
    SkyObjectMissing,
    SkyRequestExpired,
    SkySourceChanged,
    SkyStorageError,
    SkyStoreBusy,
    SkyTargetExists,
    SkyTransferRunning,
    SkyUploadConflict,
    SkyUploadMissing,
    SkyWorkerLost,
)


class Remedy(Enum):
    """Reaction to a failure."""

    RETRY = "send the part again"
    SLOW_DOWN = "send the part again, with fewer in flight"
    REVIVE = "start another worker and send the part again"
    RESTART = "begin the object anew"
    COMPARE = "look whether the target has the same content"
    SKIP = "give up the object, go on with others"
    STOP = "give up the transfer"


_REMEDIES: tuple[tuple[type[SkyStorageError], Remedy], ...] = (
    (SkyConnectionLost, Remedy.RETRY),
    (SkyRequestExpired, Remedy.RETRY),
    (SkyChecksumMismatch, Remedy.RETRY),
    (SkyStoreBusy, Remedy.SLOW_DOWN),
    (SkyWorkerLost, Remedy.REVIVE),
    (SkySourceChanged, Remedy.RESTART),
    (SkyUploadConflict, Remedy.RESTART),
    (SkyUploadMissing, Remedy.RESTART),
    (SkyTargetExists, Remedy.COMPARE),
    (SkyObjectMissing, Remedy.SKIP),
    (SkyObjectArchived, Remedy.SKIP),
    (SkyInvalidKey, Remedy.SKIP),
    (SkyTransferRunning, Remedy.SKIP),
)


def remedy_of(error: SkyStorageError) -> Remedy:
    """Return the remedy for a failure; what is not known stops the transfer.

    Examples
    --------
    >>> remedy_of(SkyConnectionLost("reset by peer"))
    <Remedy.RETRY: 'send the part again'>
    """
    return next((remedy for kind, remedy in _REMEDIES if isinstance(error, kind)), Remedy.STOP)
