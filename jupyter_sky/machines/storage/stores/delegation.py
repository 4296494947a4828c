"""Stores whose requests another machine may hold: they grant one object or one prefix, for a while.

Signed requests of Amazon's kind grant one object each. A request to Google bears a token, which
grants all that its owner may do: machines get one that is narrowed to a prefix.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jupyter_sky.machines.storage.stores.errors import SkyStorageError
from jupyter_sky.machines.storage.stores.s3 import S3Store
from jupyter_sky.machines.storage.stores.signing import Access, BearerSigner, BearerToken
from jupyter_sky.machines.storage.stores.store import Store, grants_only_parts
from jupyter_sky.machines.storage.stores.uri import StorageUri

if TYPE_CHECKING:
    from google.auth.downscoped import CredentialAccessBoundary


def delegate(store: Store, uri: StorageUri, access: Access) -> Store | None:
    """Return a store whose requests grant nothing outside of an address.

    Parameters
    ----------
    store
        Store of this machine.
    uri
        Object or prefix that a machine needs.
    access
        Right that it needs.

    Returns
    -------
    Store or None
        None where there is no such store: the bytes must pass through this machine.
    """
    if grants_only_parts(store):
        return store
    if not isinstance(store, S3Store) or not isinstance(store.signer, BearerSigner):
        return None
    if store.signer.narrow is None:
        return None
    signer = replace_token(store.signer, store.signer.narrow(uri, access))
    narrowed = store.with_signer(signer)
    try:  # the bucket may have rights of single objects, for which tokens cannot be narrowed
        next(iter(narrowed.list(uri.key)), None)
    except SkyStorageError:
        return None
    return narrowed


def replace_token(signer: BearerSigner, token: Callable[[], BearerToken]) -> BearerSigner:
    """Return a signer with another token, which cannot be narrowed further."""
    return BearerSigner(token, replace(signer.clock))


class NarrowedToken:
    """Token of Google for one prefix, exchanged anew when half of its time is over.

    Parameters
    ----------
    credentials
        Credentials of this machine.
    uri
        Object or prefix.
    access
        Right that it grants.
    request
        Sends requests, as `google.auth.transport.Request` does.
    """

    def __init__(self, credentials: Any, uri: StorageUri, access: Access, request: Any) -> None:
        from google.auth.downscoped import Credentials

        self._credentials = Credentials(credentials, access_boundary(uri, access))
        self._request, self._renewal = request, 0.0
        self._token = BearerToken("", 0.0)

    def __call__(self) -> BearerToken:
        """Return a token with at least half of its time left.

        Raises
        ------
        SkyStorageError
            It could not be exchanged.
        """
        from google.auth.exceptions import GoogleAuthError

        now = time.time()
        if now >= self._renewal:
            try:
                self._credentials.refresh(self._request)
            except GoogleAuthError as error:
                raise SkyStorageError(f"{type(error).__name__}: {error}") from None
            self._token = token_of(self._credentials)
            self._renewal = now + (self._token.expires - now) / 2
        return self._token


def token_of(credentials: Any) -> BearerToken:
    """Return the token of Google's credentials, with its end as Unix time."""
    from datetime import UTC

    expiry = credentials.expiry
    expires = expiry.replace(tzinfo=UTC).timestamp() if expiry else float("inf")
    return BearerToken(credentials.token, expires)


def access_boundary(uri: StorageUri, access: Access) -> CredentialAccessBoundary:
    """Return Google's condition on a token: one bucket, and names that begin with a prefix."""
    from google.auth.downscoped import (
        AccessBoundaryRule,
        AvailabilityCondition,
        CredentialAccessBoundary,
    )

    prefix = uri.key.replace("\\", "\\\\").replace("'", "\\'")
    name = f"projects/_/buckets/{uri.bucket}/objects/{prefix}"
    listed = "api.getAttribute('storage.googleapis.com/objectListPrefix', '')"
    expression = f"resource.name.startsWith('{name}') || {listed}.startsWith('{prefix}')"
    rule = AccessBoundaryRule(
        available_resource=f"//storage.googleapis.com/projects/_/buckets/{uri.bucket}",
        available_permissions=[access.value],
        availability_condition=AvailabilityCondition(expression) if prefix else None,
    )
    return CredentialAccessBoundary(rules=[rule])
