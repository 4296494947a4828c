"""Shared access signatures of Azure Storage: grants for one blob or container, for a short time.

The functions are pure; `SasSigner` adds the time of the store. A signature covers neither method
nor headers, so that each names the one permission that its request needs.
"""

from __future__ import annotations

import base64
import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import urlencode

from jupyter_sky.machines.storage.stores.signing import Clock

VERSION = "2021-12-02"
"""Version of the interface and of the signatures: the first with encoded names in listings."""

_EMPTY_HEADERS = [""] * 5
"""Headers of the answer that a signature may prescribe; ours prescribe none."""


@dataclass(frozen=True, slots=True)
class AccountKey:
    """Key of a storage account, in base64 as Azure shows it."""

    account: str
    key: str = field(repr=False)
    expires: float = float("inf")


@dataclass(frozen=True, slots=True)
class DelegationKey:
    """Key that Azure gave a user or a service for signing; see `azure_login.ask_delegation_key`.

    Attributes
    ----------
    account : str
        Storage account.
    object_id, tenant_id : str
        Whom it was given to.
    start, expiry : str
        Validity, as Azure wrote it.
    service, version : str
        Scope of the key.
    key : str
        The key in base64.
    expires : float
        `expiry` as unix time: no signature lives longer.
    """

    account: str
    object_id: str
    tenant_id: str
    start: str
    expiry: str
    service: str
    version: str
    key: str = field(repr=False)
    expires: float = float("inf")


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """Signature that the user was given; it is passed on as it is, with all that it permits."""

    account: str
    token: str = field(repr=False)
    expires: float = float("inf")


AzureGrant: TypeAlias = AccountKey | DelegationKey | SharedAccess


@dataclass(frozen=True, slots=True)
class SasScope:
    """Extent of a signature.

    Attributes
    ----------
    container, key : str
        The blob; the whole container if the key is empty.
    permissions : str
        Letters in Azure's order, such as ``r`` or ``rw``.
    expiry : str
        End, as `azure_time` writes it.
    protocol : str
        ``https``; empty for any.
    """

    container: str
    key: str
    permissions: str
    expiry: str
    protocol: str = "https"

    @property
    def resource(self) -> str:
        """Letter of what is signed: blob or container."""
        return "b" if self.key else "c"


def sign_sas(grant: AzureGrant, scope: SasScope) -> str:
    """Return the query that grants `scope`.

    Examples
    --------
    >>> scope = SasScope("data", "a/b", "r", "2027-01-15T08:00:00Z")
    >>> sign_sas(AccountKey("me", "c2VjcmV0"), scope)[:62]
    'sv=2021-12-02&spr=https&se=2027-01-15T08%3A00%3A00Z&sr=b&sp=r&'
    """
    if isinstance(grant, SharedAccess):
        return grant.token
    path = f"/blob/{grant.account}/{scope.container}" + (f"/{scope.key}" if scope.key else "")
    first = [scope.permissions, "", scope.expiry, path]
    last = ["", scope.protocol, VERSION, scope.resource, "", "", *_EMPTY_HEADERS]
    fields: dict[str, str] = {}
    if isinstance(grant, DelegationKey):
        fields = {
            "skoid": grant.object_id,
            "sktid": grant.tenant_id,
            "skt": grant.start,
            "ske": grant.expiry,
            "sks": grant.service,
            "skv": grant.version,
        }
        middle = [*fields.values(), "", "", ""]  # neither other users nor a correlation id
    else:
        middle = [""]  # no stored policy
    signature = _sign("\n".join([*first, *middle, *last]), grant.key)
    protocol = {"spr": scope.protocol} if scope.protocol else {}
    parameters: Mapping[str, str] = {
        "sv": VERSION,
        **protocol,
        "se": scope.expiry,
        "sr": scope.resource,
        "sp": scope.permissions,
        **fields,
        "sig": signature,
    }
    return urlencode(parameters)


def azure_time(seconds: float) -> str:
    """Return a unix time as Azure writes it.

    Examples
    --------
    >>> azure_time(1.8e9)
    '2027-01-15T08:00:00Z'
    """
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


class SasSigner:
    """Signer of grants for one container.

    Parameters
    ----------
    container : str
        The container.
    grant : callable
        Returns the credentials that hold now.
    clock : Clock
        Time of the store.
    protocol : str
        ``https``; empty where the endpoint is not encrypted.
    """

    def __init__(
        self, container: str, grant: Callable[[], AzureGrant], clock: Clock, protocol: str = "https"
    ) -> None:
        self.container, self.grant, self.clock, self.protocol = container, grant, clock, protocol

    def sign(self, key: str, permissions: str, seconds: int) -> tuple[str, float]:
        """Return a query that grants `permissions` on a blob, and when it ends by our clock.

        Parameters
        ----------
        key : str
            The blob; empty for the whole container.
        permissions : str
            See `SasScope`.
        seconds : int
            Validity; it ends no later than the credentials.
        """
        grant, now = self.grant(), self.clock.now()
        ends = int(min(now + seconds, grant.expires + self.clock.offset))
        scope = SasScope(self.container, key, permissions, azure_time(ends), self.protocol)
        return _signed(grant, scope), ends - self.clock.offset


@lru_cache(maxsize=1024)
def _signed(grant: AzureGrant, scope: SasScope) -> str:
    return sign_sas(grant, scope)


def _sign(text: str, key: str) -> str:
    digest = hmac.digest(base64.b64decode(key), text.encode(), "sha256")
    return base64.b64encode(digest).decode()
