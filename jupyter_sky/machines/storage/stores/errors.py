"""Failures of stores and of transfers, each with a class of its own."""

from __future__ import annotations

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
