"""Default credentials of Google on this machine."""

from __future__ import annotations

from functools import lru_cache

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _


@lru_cache(maxsize=1)
def google_credentials():
    """Return the default credentials of this machine, asked for once."""
    try:
        import google.auth
        from google.auth.exceptions import DefaultCredentialsError
    except ImportError:
        hint = 'pip install "jupyter_sky[gcp]"'
        raise SkyUsageError(_("google-auth is missing"), hint=hint) from None
    scopes = ["https://www.googleapis.com/auth/devstorage.read_write"]
    try:
        return google.auth.default(scopes=scopes)[0]
    except DefaultCredentialsError:
        hint = "run gcloud auth application-default login"
        raise SkyUsageError(_("no credentials for Google Cloud Storage"), hint=hint) from None
