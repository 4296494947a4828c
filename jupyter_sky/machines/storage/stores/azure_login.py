"""Credentials of storage accounts, from the environment variables of Azure's tools or a login."""

from __future__ import annotations

import os
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from urllib.parse import parse_qs

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.answers import raise_for_status
from jupyter_sky.machines.storage.stores.azure_signing import (
    VERSION,
    AccountKey,
    AzureGrant,
    DelegationKey,
    SharedAccess,
    azure_time,
)
from jupyter_sky.machines.storage.stores.connections import Connections
from jupyter_sky.machines.storage.stores.errors import SkyStoragePermission

SCOPE = "https://storage.azure.com/.default"
KEY_SECONDS = 2 * 3600
"""Validity of a delegation key; renewed at half."""

EARLIER = 15 * 60
"""Seconds before now at which a key begins: clocks differ."""

_KEYS = ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY")
_ACCOUNTS = ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")


@dataclass(frozen=True, slots=True)
class AzureAccount:
    """Storage account: address and source of its credentials."""

    name: str
    endpoint: str
    grant: Callable[[], AzureGrant]


def find_account(
    name: str, endpoint: str = "", environment: Mapping[str, str] = os.environ
) -> AzureAccount:
    """Return an account with the credentials that the environment has for it.

    In this order: ``AZURE_STORAGE_CONNECTION_STRING``, ``AZURE_STORAGE_KEY`` and
    ``AZURE_STORAGE_SAS_TOKEN``, unless they are of another account; else the login that
    azure-identity finds.

    Parameters
    ----------
    name : str
        Storage account.
    endpoint : str
        Its address; empty for Azure's.
    environment : mapping
        Environment variables.
    """
    connection = parse_connection(environment.get("AZURE_STORAGE_CONNECTION_STRING", ""))
    if connection.get("AccountName", name) != name:
        connection = {}
    suffix = connection.get("EndpointSuffix", "core.windows.net")
    address = endpoint or connection.get("BlobEndpoint", "") or f"https://{name}.blob.{suffix}"
    address = account_address(name, address)
    key, token = connection.get("AccountKey", ""), connection.get("SharedAccessSignature", "")
    if _first(environment, _ACCOUNTS) in ("", name):
        key = key or _first(environment, _KEYS)
        token = token or environment.get("AZURE_STORAGE_SAS_TOKEN", "")
    if key:
        grant: AzureGrant = AccountKey(name, key)
        return AzureAccount(name, address, lambda: grant)
    if token:
        shared = SharedAccess(name, token.lstrip("?"), _end_of_token(token))
        return AzureAccount(name, address, lambda: shared)
    return AzureAccount(name, address, _delegation_keys(name, address).find)


def parse_connection(text: str) -> dict[str, str]:
    """Return the fields of a connection string.

    Examples
    --------
    >>> parse_connection("AccountName=me;AccountKey=a2V5Cg==")["AccountKey"]
    'a2V5Cg=='
    """
    pairs = (field.partition("=") for field in text.split(";") if field.strip())
    fields = {name.strip(): value.strip() for name, __, value in pairs}
    if fields.get("UseDevelopmentStorage", "").lower() == "true":
        raise SkyUsageError(
            _("UseDevelopmentStorage has no account of its own"),
            hint=_("AZURE_STORAGE_CONNECTION_STRING with AccountName, AccountKey, BlobEndpoint"),
        )
    return fields


def account_address(name: str, endpoint: str) -> str:
    """Return the address of an account at an endpoint; emulators have the account in the path.

    Examples
    --------
    >>> account_address("me", "http://127.0.0.1:10000")
    'http://127.0.0.1:10000/me'
    >>> account_address("me", "https://me.blob.core.windows.net/")
    'https://me.blob.core.windows.net'
    """
    address = endpoint.rstrip("/")
    host, __, path = address.partition("://")[2].partition("/")
    return address if path or host.startswith(f"{name}.") else f"{address}/{name}"


class DelegationKeys:
    """Keys that Azure gives the user who is logged in for signing, renewed when half is over.

    Parameters
    ----------
    account, endpoint : str
        Storage account and its address.
    token : callable
        Returns an access token for `SCOPE`.
    """

    def __init__(self, account: str, endpoint: str, token: Callable[[], str]) -> None:
        self._account, self._endpoint, self._token = account, endpoint, token
        self._lock = threading.Lock()
        self._key: DelegationKey | None = None

    def find(self) -> DelegationKey:
        """Return a key that holds for an hour at least."""
        with self._lock:
            if self._key is None or self._key.expires - time.time() < KEY_SECONDS / 2:
                self._key = ask_delegation_key(self._account, self._endpoint, self._token())
            return self._key


def ask_delegation_key(account: str, endpoint: str, token: str) -> DelegationKey:
    """Ask an account for a key of the user or service that a token is of.

    Raises
    ------
    SkyStoragePermission
        The login may not have one: it lacks a role.
    """
    now = time.time()
    start, expiry = azure_time(now - EARLIER), azure_time(now + KEY_SECONDS)
    body = (
        '<?xml version="1.0" encoding="utf-8"?>'
        f"<KeyInfo><Start>{start}</Start><Expiry>{expiry}</Expiry></KeyInfo>"
    )
    headers = {"x-ms-version": VERSION, "Authorization": f"Bearer {token}"}
    url = f"{endpoint}/?restype=service&comp=userdelegationkey"
    answer = Connections().request("POST", url, headers, body.encode())
    try:
        raise_for_status(answer, f"POST az://{account}")
    except SkyStoragePermission as error:
        error.hint = _(
            "the login needs the roles Storage Blob Delegator and Storage Blob Data Contributor "
            "of the account {account}"
        ).format(account=account)
        raise
    root = ET.fromstring(bytes(answer.body).decode("utf-8-sig"))

    def text(name: str) -> str:
        return root.findtext(name) or ""

    return DelegationKey(
        account,
        text("SignedOid"),
        text("SignedTid"),
        text("SignedStart"),
        text("SignedExpiry"),
        text("SignedService"),
        text("SignedVersion"),
        text("Value"),
        datetime.fromisoformat(text("SignedExpiry")).timestamp(),
    )


def login_token() -> str:
    """Return an access token of the login that azure-identity finds."""
    from azure.core.exceptions import ClientAuthenticationError

    try:
        return _credential().get_token(SCOPE).token
    except ClientAuthenticationError:
        raise SkyUsageError(_("no credentials for Azure Storage"), hint=_CREDENTIALS_HINT) from None


_CREDENTIALS_HINT = "run az login, or set AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY"


@lru_cache(maxsize=1)
def _credential():
    from jupyter_sky.clouds.azure.clients import make_credential

    return make_credential()


@lru_cache(maxsize=64)
def _delegation_keys(account: str, endpoint: str) -> DelegationKeys:
    try:
        import azure.identity  # noqa: F401
    except ImportError:
        raise SkyUsageError(
            _("no credentials for Azure Storage in the environment, and azure-identity is missing"),
            hint=_('pip install "jupyter_sky[azure]", or {hint}').format(hint=_CREDENTIALS_HINT),
        ) from None
    return DelegationKeys(account, endpoint, login_token)


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")


def _end_of_token(token: str) -> float:
    """Return the unix time at which a signature ends."""
    ends = parse_qs(token.lstrip("?")).get("se", [""])[0]
    return datetime.fromisoformat(ends).timestamp() if ends else float("inf")
