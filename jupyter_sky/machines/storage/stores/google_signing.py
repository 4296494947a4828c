"""Signed addresses of Google Cloud Storage, version 4, by the key of a service account."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.google_login import google_credentials

ALGORITHM = "GOOG4-RSA-SHA256"


@dataclass(frozen=True, slots=True)
class GoogleSigner:
    """Service account that signs.

    Attributes
    ----------
    email : str
        Its name.
    sign : callable
        Signs bytes by its key, here or by a request to Google.
    """

    email: str
    sign: Callable[[bytes], bytes]


def sign_address(
    signer: GoogleSigner, method: str, origin: str, path: str, now: int, seconds: int
) -> str:
    """Return an address that grants `method` on an object.

    Parameters
    ----------
    signer : GoogleSigner
        Who grants it.
    method : str
        HTTP method.
    origin, path : str
        Scheme and host, and the quoted path.
    now : int
        Time of the store (unix seconds).
    seconds : int
        Validity.
    """
    date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    scope = f"{date[:8]}/auto/storage/goog4_request"
    parameters = {
        "X-Goog-Algorithm": ALGORITHM,
        "X-Goog-Credential": f"{signer.email}/{scope}",
        "X-Goog-Date": date,
        "X-Goog-Expires": str(seconds),
        "X-Goog-SignedHeaders": "host",
    }
    query = "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in parameters.items())
    host = origin.partition("://")[2]
    canonical = f"{method}\n{path}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    signature = signer.sign(f"{ALGORITHM}\n{date}\n{scope}\n{digest}".encode()).hex()
    return f"{origin}{path}?{query}&X-Goog-Signature={signature}"


def find_signer() -> GoogleSigner:
    """Return the service account of Google's default credentials.

    Raises
    ------
    SkyUsageError
        They are those of a person, who has no key that signs.
    """
    from google.auth.credentials import Signing

    credentials = google_credentials()
    if not isinstance(credentials, Signing):
        raise SkyUsageError(
            _("the login of a person at Google cannot sign addresses: a service account can"),
            hint=_(
                "gcloud auth application-default login --impersonate-service-account=ACCOUNT, or "
                "GOOGLE_APPLICATION_CREDENTIALS with the file of a key"
            ),
        )
    return GoogleSigner(str(credentials.signer_email), credentials.sign_bytes)
