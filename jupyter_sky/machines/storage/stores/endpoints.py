"""Endpoints of stores that are not at their cloud's own address, ``Sky.endpoints``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import parse_qsl

from jupyter_sky.machines.storage.stores.uri import WITH_ACCOUNT, StorageUri


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
