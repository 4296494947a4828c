"""Addresses that grant one request on one object to whoever has them."""

from __future__ import annotations

import time
from contextlib import suppress

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.resources import format_duration
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.errors import SkyObjectMissing
from jupyter_sky.machines.storage.stores.store import PresigningStore, Store
from jupyter_sky.machines.storage.stores.uri import StorageUri

MOST_HOURS = 7 * 24
"""Longest validity: that of Amazon and of Google."""

METHODS = ("GET", "PUT")
TOLERANCE_SECONDS = 60


def presign(store: Store, uri: StorageUri, hours: float, method: str) -> str:
    """Return an address for one request.

    The object is looked at first: for a sentence where it is missing, and because the answer tells
    region and time of the store, without which no signature holds.

    Parameters
    ----------
    store : Store
        Store of the object.
    uri : StorageUri
        The object.
    hours : float
        Validity.
    method : str
        One of `METHODS`.

    Raises
    ------
    SkyUsageError
        The address would not hold that long, or the store has no such addresses.
    SkyObjectMissing
        There is nothing to read.
    """
    if method not in METHODS:
        raise SkyUsageError(
            _("method={method!r}: an address reads or writes").format(method=method),
            hint=_('method="GET", method="PUT"'),
        )
    if not 0 < hours <= MOST_HOURS:
        raise SkyUsageError(
            _("hours={hours:g}: stores sign for more than 0 and up to {most} hours").format(
                hours=hours, most=MOST_HOURS
            )
        )
    if uri.is_folder or not isinstance(store, PresigningStore):
        raise SkyUsageError(
            _("{uri}: an address can be signed for one object of a store").format(uri=uri),
            hint=_('name it: sky.Storage("s3://bucket/").presign("key")'),
        )
    with suppress(*([] if method == "GET" else [SkyObjectMissing])):
        store.stat(uri.key)
    seconds = round(hours * 3600)
    signed = store.presign(uri.key, method, seconds)
    left = signed.expires - time.time()
    if left < seconds - TOLERANCE_SECONDS:
        raise SkyUsageError(
            _("{uri}: the credentials end in {left}, and addresses end with them").format(
                uri=uri, left=format_duration(max(1, round(left)))
            ),
            hint=_("hours={hours:.2f} or less, or lasting credentials").format(
                hours=max(0.0, left / 3600 - 0.01)
            ),
        )
    return signed.url
