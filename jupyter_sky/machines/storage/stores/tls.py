"""Verification of the certificates of stores."""

from __future__ import annotations

import os
import socket
import ssl
from functools import cache
from pathlib import Path

from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.errors import SkyCertificateRefused

BUNDLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE")
"""Environment variables by which clients of stores are told authorities to trust."""


def encrypt(connection: socket.socket, host: str) -> ssl.SSLSocket:
    """Return an encrypted connection to a host whose certificate is valid for its name.

    Raises
    ------
    SkyCertificateRefused
        No authority that this machine trusts has signed the certificate for this host.
    """
    bundles = tuple(os.environ.get(name, "") for name in BUNDLES)
    try:
        return _context(bundles).wrap_socket(connection, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise SkyCertificateRefused(
            _("the certificate of {host} is not accepted: {reason}").format(
                host=host, reason=error.verify_message
            ),
            hint=_(
                "nothing was sent; if the host, or a proxy before it, has an authority of its own, "
                "name its file in SSL_CERT_FILE"
            ),
        ) from error


@cache
def _context(bundles: tuple[str, ...]) -> ssl.SSLContext:
    """Return the context for values of `BUNDLES`: their authorities beside those of the system."""
    context = ssl.create_default_context()
    for name, value in zip(BUNDLES, bundles, strict=True):
        if not value:
            continue
        try:
            if Path(value).is_dir():
                context.load_verify_locations(capath=value)
            else:
                context.load_verify_locations(cafile=value)
        except OSError as error:
            raise SkyCertificateRefused(
                _("{name}={value}: no authorities can be read from it").format(
                    name=name, value=value
                )
            ) from error
    return context
