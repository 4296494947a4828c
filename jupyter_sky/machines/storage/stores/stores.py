"""Stores of addresses, with the credentials that this machine has."""

from __future__ import annotations

import os
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, parse_qsl, urlsplit

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.answers import raise_for_status
from jupyter_sky.machines.storage.stores.azure import AzureStore
from jupyter_sky.machines.storage.stores.azure_signing import (
    VERSION,
    AccountKey,
    AzureGrant,
    DelegationKey,
    SasSigner,
    SharedAccess,
    azure_time,
)
from jupyter_sky.machines.storage.stores.connections import Connections
from jupyter_sky.machines.storage.stores.dialects import (
    AmazonDialect,
    CompatibleDialect,
    GoogleDialect,
)
from jupyter_sky.machines.storage.stores.errors import SkyStoragePermission
from jupyter_sky.machines.storage.stores.files import FilesStore
from jupyter_sky.machines.storage.stores.google_login import google_credentials
from jupyter_sky.machines.storage.stores.s3 import S3Store
from jupyter_sky.machines.storage.stores.signing import (
    BearerSigner,
    BearerToken,
    Clock,
    S3Credentials,
    SigV4Signer,
)
from jupyter_sky.machines.storage.stores.store import Store
from jupyter_sky.machines.storage.stores.uri import WITH_ACCOUNT, StorageUri

if TYPE_CHECKING:
    from jupyter_sky.machines.storage.stores.signing import Access


GOOGLE = "https://storage.googleapis.com"


def open_store(uri: StorageUri | str, endpoints: Mapping[str, str] | None = None) -> Store:
    """Return the store that an address lies in.

    Parameters
    ----------
    uri : StorageUri or str
        An address of an object, a prefix or a bucket.
    endpoints : mapping of str to str, optional
        Options of compatible stores, see `with_endpoint`; ``Sky.endpoints`` unless given.

    Raises
    ------
    SkyUsageError
        There are no credentials, or the scheme has no store yet.
    """
    uri = StorageUri.parse(uri) if isinstance(uri, str) else uri
    if uri.is_local:
        return FilesStore()
    if uri.scheme == "ssh":
        from jupyter_sky.machines.storage.stores.ssh_store import SshStore

        return SshStore(uri)
    uri = with_endpoint(uri, Sky.load().endpoints if endpoints is None else endpoints)
    endpoint = uri.options.get("endpoint", "")
    if uri.scheme == "s3":
        return _amazon(uri, endpoint)
    if uri.scheme == "r2":
        origin = endpoint or f"https://{uri.account}.r2.cloudflarestorage.com"
        return s3_store(uri, origin, "auto", _credentials_of(uri), CompatibleDialect())
    if uri.scheme == "gs":
        return google_store(uri, endpoint or GOOGLE, google_token, narrowed_google_token)
    if uri.scheme == "az":
        account = find_account(uri.account, endpoint)
        return azure_store(uri, account.endpoint, account.grant)
    raise SkyUsageError(
        _("{uri}: there is no store yet for {scheme}://").format(uri=uri, scheme=uri.scheme)
    )


def s3_store(
    uri: StorageUri,
    endpoint: str,
    region: str,
    credentials: Callable[[], S3Credentials],
    dialect: CompatibleDialect,
) -> S3Store:
    """Return a store with Amazon's interface at an endpoint; empty for Amazon itself."""
    bucket = uri.bucket

    def locate(region: str) -> tuple[str, str]:
        if endpoint:
            return endpoint.rstrip("/"), f"/{bucket}"
        domain = f"s3.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")
        if "." in bucket:  # the certificate of Amazon does not cover names with dots
            return f"https://{domain}", f"/{bucket}"
        return f"https://{bucket}.{domain}", ""

    return S3Store(uri, locate, SigV4Signer(region, credentials, Clock()), dialect)


def google_store(
    uri: StorageUri,
    endpoint: str,
    token: Callable[[], BearerToken],
    narrow: Callable[[StorageUri, Access], Callable[[], BearerToken]] | None = None,
) -> S3Store:
    """Return a store of Google by its XML interface; see `BearerSigner` for `narrow`."""
    origin = endpoint.rstrip("/")
    signer = BearerSigner(token, Clock(), narrow)
    return S3Store(uri, lambda __: (origin, f"/{uri.bucket}"), signer, GoogleDialect())


def azure_store(uri: StorageUri, endpoint: str, grant: Callable[[], AzureGrant]) -> AzureStore:
    """Return a store of Azure at the address of its account."""
    protocol = "https" if endpoint.startswith("https:") else ""
    return AzureStore(uri, endpoint, SasSigner(uri.bucket, grant, Clock(), protocol))


def _amazon(uri: StorageUri, endpoint: str) -> S3Store:
    region = uri.options.get("region") or os.environ.get("AWS_REGION", "")
    region = region or os.environ.get("AWS_DEFAULT_REGION", "") or "us-east-1"
    is_amazon = not endpoint or (urlsplit(endpoint).hostname or "").endswith(".amazonaws.com")
    dialect = AmazonDialect() if is_amazon else CompatibleDialect()
    return s3_store(uri, endpoint, region, _credentials_of(uri), dialect)


def _credentials_of(uri: StorageUri) -> Callable[[], S3Credentials]:
    return partial(amazon_credentials, uri.options.get("profile", ""))


def amazon_credentials(profile: str = "") -> S3Credentials:
    """Return the credentials of Amazon's usual places; renewed when a session nears its end.

    Parameters
    ----------
    profile : str
        Profile of ``~/.aws`` that is used even where the environment has keys.
    """
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    if not profile and all(os.environ.get(name) for name in names):
        key, secret = (os.environ[name] for name in names)
        return S3Credentials(key, secret, os.environ.get("AWS_SESSION_TOKEN", ""))
    source = _boto_credentials(profile)
    frozen = source.get_frozen_credentials()
    ends = getattr(source, "_expiry_time", None)  # boto3 tells the end of a session nowhere else
    expires = ends.timestamp() if ends else float("inf")
    return S3Credentials(frozen.access_key, frozen.secret_key, frozen.token or "", expires)


@lru_cache(maxsize=16)
def _boto_credentials(profile: str):
    hint = "run aws configure, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    try:
        import boto3
    except ImportError:
        raise SkyUsageError(
            _("no credentials for S3 in the environment, and boto3 is missing"),
            hint=_('pip install "jupyter_sky[aws]"'),
        ) from None
    known = boto3.Session().available_profiles
    if profile and profile not in known:
        raise SkyUsageError(
            _("there is no profile {profile} in ~/.aws").format(profile=profile),
            hint=suggest(profile, known),
        )
    credentials = boto3.Session(profile_name=profile or None).get_credentials()
    if credentials is None:
        raise SkyUsageError(_("no credentials for S3"), hint=hint)
    return credentials


def google_token() -> BearerToken:
    """Return an access token of Google's default credentials."""
    credentials = google_credentials()
    if not credentials.valid:
        from google.auth.transport.requests import Request

        credentials.refresh(Request())
    from jupyter_sky.machines.storage.stores.delegation import token_of

    return token_of(credentials)


def narrowed_google_token(uri: StorageUri, access: Access) -> Callable[[], BearerToken]:
    """Return a function for tokens of an address, exchanged for those of this machine."""
    from google.auth.transport.requests import Request

    from jupyter_sky.machines.storage.stores.delegation import NarrowedToken

    return NarrowedToken(google_credentials(), uri, access, Request())


# -- Credentials of storage accounts, from the environment variables of Azure's tools or a --------

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


# -- Endpoints of stores that are not at their cloud's own address, -------------------------------


def with_endpoint(uri: StorageUri, endpoints: Mapping[str, str]) -> StorageUri:
    """Return an address with the options that the settings have for its bucket or its scheme.

    Options of the address itself win.

    Parameters
    ----------
    uri : StorageUri
        An address.
    endpoints : mapping of str to str
        ``Sky.endpoints``: options by bucket (``s3://bucket``), account (``az://account``) or
        scheme (``s3``).

    Examples
    --------
    >>> endpoints = {"s3": "https://minio.lab:9000?region=lab&profile=lab"}
    >>> with_endpoint(StorageUri.parse("s3://data/k"), endpoints).options
    {'endpoint': 'https://minio.lab:9000', 'region': 'lab', 'profile': 'lab'}
    >>> print(with_endpoint(StorageUri.parse("gs://data/k"), endpoints))
    gs://data/k
    """
    account = f"{uri.account}/" if uri.scheme in WITH_ACCOUNT else ""
    names = (f"{uri.scheme}://{account}{uri.bucket}", f"{uri.scheme}://{uri.account}", uri.scheme)
    text = next((endpoints[name] for name in names if name in endpoints), "")
    if not text:
        return uri
    return replace(uri, options={**endpoint_options(text), **uri.options})


def endpoint_options(text: str) -> dict[str, str]:
    """Return the options of a value of ``Sky.endpoints``.

    Examples
    --------
    >>> endpoint_options("?profile=lab")
    {'profile': 'lab'}
    """
    endpoint, __, rest = text.partition("?")
    options = {"endpoint": endpoint.rstrip("/")} if endpoint else {}
    return options | dict(parse_qsl(rest))
