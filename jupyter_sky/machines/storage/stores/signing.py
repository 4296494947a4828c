"""Signatures of requests: Signature Version 4 in the query, as S3, R2 and MinIO take it.

A signed address grants one request until it expires, and holds no key. Signing costs about 30 µs,
because the key derived for the day is kept.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Protocol
from urllib.parse import quote

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.google_login import google_credentials
from jupyter_sky.machines.storage.stores.uri import StorageUri

ALGORITHM = "AWS4-HMAC-SHA256"
UNRESERVED = "-_.~"


@dataclass(frozen=True, slots=True)
class S3Credentials:
    """Keys of an account or of a session; secrets stay out of its representation.

    Attributes
    ----------
    access_key, secret_key, session_token : str
        As Amazon calls them; the token is empty for lasting keys.
    expires : float
        Unix time when the session ends: no address lives longer than what signed it.
    """

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)
    expires: float = float("inf")


@dataclass(frozen=True, slots=True)
class BearerToken:
    """Access token of Google or Azure.

    Attributes
    ----------
    token : str
        Sent as ``Authorization: Bearer``.
    expires : float
        Unix time.
    """

    token: str = field(repr=False)
    expires: float = float("inf")


@dataclass(frozen=True, slots=True)
class SignedUrl:
    """Address and headers that need no other credentials.

    Attributes
    ----------
    url : str
        Address.
    headers : mapping of str to str
        All headers to send.
    expires : float
        Unix time by the clock of this machine.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    expires: float


@dataclass
class Clock:
    """Time of a store, learned from the ``Date`` of its answers.

    Stores refuse clocks that are more than 15 minutes wrong.
    """

    offset: float = 0.0
    read: Callable[[], float] = time.time

    def now(self) -> float:
        """Return the store's time (unix seconds)."""
        return self.read() + self.offset

    def learn(self, date: str | None) -> bool:
        """Take over the time of an answer; return whether ours was wrong by 30 s or more."""
        from email.utils import parsedate_to_datetime

        if not date:
            return False
        try:
            offset = parsedate_to_datetime(date).timestamp() - self.read()
        except ValueError:
            return False
        if abs(offset - self.offset) < 30:
            return False
        self.offset = offset
        return True


class Signer(Protocol):
    """Turns requests into ones that need no other credentials."""

    region: str
    clock: Clock

    def sign(
        self,
        method: str,
        origin: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        seconds: int,
    ) -> SignedUrl:
        """Return the request, valid for up to `seconds`; see `SigV4Signer.sign`."""
        ...

    def presign(self, method: str, origin: str, path: str, seconds: int) -> SignedUrl:
        """Return an address for somebody else, valid for up to `seconds`."""
        ...


class SigV4Signer:
    """Signer of requests to one region.

    Parameters
    ----------
    region : str
        Region of the bucket; ``auto`` for R2.
    credentials : callable
        Returns the credentials that hold now.
    clock : Clock
        Time of the store.

    Examples
    --------
    >>> credentials = S3Credentials("AK", "secret")
    >>> signer = SigV4Signer("us-east-1", lambda: credentials, Clock())
    >>> signer.sign("GET", "https://h", "/b/k", {}, {}, 900).url[:46]
    'https://h/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256'
    """

    def __init__(self, region: str, credentials: Callable[[], S3Credentials], clock: Clock) -> None:
        self.region, self.credentials, self.clock = region, credentials, clock

    def sign(
        self,
        method: str,
        origin: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        seconds: int,
    ) -> SignedUrl:
        """Return an address that holds for `seconds`, and not longer than the credentials.

        Parameters
        ----------
        method : str
            HTTP method.
        origin : str
            Scheme and host, such as ``https://bucket.s3.us-east-1.amazonaws.com``.
        path : str
            Quoted path.
        query, headers : mapping of str to str
            Parameters, not quoted, and headers that the request will have; all are signed.
        seconds : int
            Validity.
        """
        credentials, now = self.credentials(), self.clock.now()
        date = _date(int(now))
        day = date[:8]
        ends = min(now + seconds, credentials.expires + self.clock.offset)
        scope = f"{day}/{self.region}/s3/aws4_request"
        signed = {name.lower(): value for name, value in headers.items()}
        signed["host"] = origin.partition("://")[2]
        names = ";".join(sorted(signed))
        parameters = {
            **query,
            "X-Amz-Algorithm": ALGORITHM,
            "X-Amz-Credential": f"{credentials.access_key}/{scope}",
            "X-Amz-Date": date,
            "X-Amz-Expires": str(max(1, int(ends - now))),
            "X-Amz-SignedHeaders": names,
        }
        if credentials.session_token:
            parameters["X-Amz-Security-Token"] = credentials.session_token
        pairs = sorted((_quote(name), _quote(value)) for name, value in parameters.items())
        text = "&".join(f"{name}={value}" for name, value in pairs)
        lines = "".join(f"{name}:{signed[name].strip()}\n" for name in sorted(signed))
        canonical = f"{method}\n{path}\n{text}\n{lines}\n{names}\nUNSIGNED-PAYLOAD"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        key = _day_key(credentials.secret_key, day, self.region)
        signature = hmac.digest(
            key, f"{ALGORITHM}\n{date}\n{scope}\n{digest}".encode(), "sha256"
        ).hex()
        url = f"{origin}{path}?{text}&X-Amz-Signature={signature}"
        return SignedUrl(url, headers, ends - self.clock.offset)

    def presign(self, method: str, origin: str, path: str, seconds: int) -> SignedUrl:
        """Return an address for somebody else, who needs no headers."""
        return self.sign(method, origin, path, {}, {}, seconds)


class BearerSigner:
    """Signer that adds an access token to every request, as Google's XML interface takes it.

    Whoever carries out such a request holds the token: it stays on this machine, unless it is
    narrowed to a prefix.

    Parameters
    ----------
    token : callable
        Returns the token that holds now.
    clock : Clock
        Time of the store.
    narrow : callable, optional
        Returns a function for tokens of one address and one right; see `delegation`.
    """

    region = ""

    def __init__(
        self,
        token: Callable[[], BearerToken],
        clock: Clock,
        narrow: Callable[[StorageUri, Access], Callable[[], BearerToken]] | None = None,
    ) -> None:
        self.token, self.clock, self.narrow = token, clock, narrow

    def sign(
        self,
        method: str,
        origin: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        seconds: int,
    ) -> SignedUrl:
        """Return the address and the headers with the token; see `SigV4Signer.sign`."""
        token = self.token()
        text = "&".join(f"{_quote(name)}={_quote(value)}" for name, value in query.items())
        url = f"{origin}{path}?{text}" if text else f"{origin}{path}"
        return SignedUrl(url, {**headers, "Authorization": f"Bearer {token.token}"}, token.expires)

    def presign(self, method: str, origin: str, path: str, seconds: int) -> SignedUrl:
        """Return an address signed by a service account: a token must not be given away."""
        now = self.clock.now()
        url = sign_address(find_signer(), method, origin, path, int(now), seconds)
        return SignedUrl(url, {}, int(now) + seconds - self.clock.offset)


def quote_path(key: str) -> str:
    """Return a key as the path of an address; slashes stay."""
    return quote(key, safe="/" + UNRESERVED)


@lru_cache(maxsize=4096)
def _quote(text: str) -> str:
    return quote(text, safe=UNRESERVED)


@lru_cache(maxsize=16)
def _date(second: int) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))


@lru_cache(maxsize=16)
def _day_key(secret: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for step in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, step.encode(), "sha256")
    return key


# -- Signed addresses of Google Cloud Storage, version 4, by the key of a service account ---------

GOOGLE_ALGORITHM = "GOOG4-RSA-SHA256"


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
        "X-Goog-Algorithm": GOOGLE_ALGORITHM,
        "X-Goog-Credential": f"{signer.email}/{scope}",
        "X-Goog-Date": date,
        "X-Goog-Expires": str(seconds),
        "X-Goog-SignedHeaders": "host",
    }
    query = "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in parameters.items())
    host = origin.partition("://")[2]
    canonical = f"{method}\n{path}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    signature = signer.sign(f"{GOOGLE_ALGORITHM}\n{date}\n{scope}\n{digest}".encode()).hex()
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


class Access(Enum):
    """Right that a machine gets, with Google's role for it."""

    READ = "inRole:roles/storage.objectViewer"
    WRITE = "inRole:roles/storage.objectUser"
