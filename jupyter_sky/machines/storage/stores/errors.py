"""Failures of stores and of transfers, each with a class of its own."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from jupyter_sky.base.errors import SkyError, SkyPermission, SkyTransferError, SkyUsageError


class SkyStorageError(SkyTransferError):
    """A store refused a request, or a transfer could not end."""


class SkyBucketMissing(SkyStorageError):
    """The bucket or container does not exist."""


class SkyBucketOwned(SkyStorageError):
    """The bucket exists already, and is the user's own."""


class SkyObjectMissing(SkyStorageError, FileNotFoundError):
    """No object has this key, or the version that was asked is gone."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        SkyError.__init__(self, message, hint=hint)

    __str__ = SkyError.__str__


class SkyStoragePermission(SkyStorageError, SkyPermission):
    """The credentials do not allow the request."""


class SkyTargetExists(SkyStorageError):
    """The condition of a write does not hold: another has written the key."""


class SkySourceChanged(SkyStorageError):
    """The object that is read is not the version that was listed."""


class SkyUploadConflict(SkyStorageError):
    """The upload cannot be completed and has to begin anew."""


class SkyUploadMissing(SkyStorageError):
    """The upload does not exist any more: it was completed, aborted or has expired."""


class SkyChecksumMismatch(SkyStorageError):
    """Bytes that arrived are not those that were sent."""


class SkyStoreBusy(SkyStorageError):
    """The store asks for fewer requests, or cannot answer now.

    Attributes
    ----------
    retry_after : float
        Seconds that the store asks to wait; 0 where it says nothing.
    """

    retry_after: float = 0.0


class SkyConnectionLost(SkyStoreBusy):
    """The host cannot be reached, or its answer broke off."""


class SkyPeerLost(SkyStorageError):
    """Another machine of the cluster cannot be reached, or does not have what it should."""


class SkyCertificateRefused(SkyStorageError):
    """The certificate of a host is not valid for it, or nobody trusted has signed it."""


class SkyRequestExpired(SkyStorageError):
    """A signed request has expired, or its signature is not accepted."""


class SkyStorageRegion(SkyStorageError):
    """The bucket is in another region than the one that was asked.

    Attributes
    ----------
    region : str
        Region of the bucket, where the store tells it.
    """

    region: str = ""


class SkyRequesterPays(SkyStorageError):
    """Whoever reads this bucket pays for it, and has not agreed to."""


class SkyObjectArchived(SkyStorageError):
    """The object lies in an archive and must be restored before it can be read."""


class SkyResidency(SkyStorageError):
    """Data would leave the area that they must stay in."""


class SkyInvalidKey(SkyStorageError, SkyUsageError):
    """A key cannot exist in the store or on the file system that it is meant for."""


class SkyDiskFull(SkyStorageError):
    """The disk has no room for the object."""


class SkyWorkerLost(SkyStorageError):
    """The process that moved parts has ended."""


class SkyTransferRunning(SkyStorageError):
    """Another process writes the same object now."""


# -- Repetition of requests that a store could not answer: exponential, with full jitter ----------

Result = TypeVar("Result")


def backoff(attempt: int, retry_after: float, draw: float) -> float:
    """Return the seconds before attempt `attempt` + 1.

    Parameters
    ----------
    attempt : int
        Attempts so far, from 1.
    retry_after : float
        Seconds that the store asks for; never less.
    draw : float
        Random number from 0 to 1: full jitter keeps many clients from coming back together.
    """
    return retry_after + draw * min(20.0, 0.1 * 2**attempt)


@dataclass
class Retries:
    """Repeats a call while the store is busy.

    Attributes
    ----------
    limit : int
        Attempts in all.
    sleep, draw : callable
        Waits for seconds; draws from 0 to 1.
    """

    limit: int = 8
    sleep: Callable[[float], None] = time.sleep
    draw: Callable[[], float] = random.random

    def run(
        self,
        call: Callable[[], Result],
        before_retry: Callable[[], object] = lambda: None,
    ) -> Result:
        """Return what `call` returns; raise `SkyStoreBusy` when all attempts met it.

        Parameters
        ----------
        call : callable
            The request.
        before_retry : callable
            Removes what an attempt may have left whose answer did not come.
        """
        for attempt in range(1, self.limit):
            try:
                return call()
            except SkyStoreBusy as error:
                self.sleep(backoff(attempt, error.retry_after, self.draw()))
                before_retry()
        return call()


# -- Remedies for the failures of a transfer ------------------------------------------------------


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
