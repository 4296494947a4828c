"""Stores of addresses, with the credentials that this machine has."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.azure import AzureStore
from jupyter_sky.machines.storage.stores.azure_login import find_account
from jupyter_sky.machines.storage.stores.azure_signing import AzureGrant, SasSigner
from jupyter_sky.machines.storage.stores.dialects import (
    AmazonDialect,
    CompatibleDialect,
    GoogleDialect,
)
from jupyter_sky.machines.storage.stores.endpoints import with_endpoint
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
from jupyter_sky.machines.storage.stores.uri import StorageUri

if TYPE_CHECKING:
    from jupyter_sky.machines.storage.stores.access import Access

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
