"""HTTP client of JSON APIs, with one retry policy as a value.

Refusals are raised with status, headers and body: each caller classifies them in its own errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import requests
    from urllib3.util import Retry


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retries of idempotent requests, after pauses that double up to two minutes.

    A pause is as long as ``Retry-After`` says where an answer has it.

    Attributes
    ----------
    retries : int
        Retries of a request at most, whatever the failure; 0 sends each request once.
    connects : int
        Retries of a server that cannot be reached.
    backoff : float
        Seconds before the second retry, and greatest random addition to each pause.
    statuses : tuple of int
        HTTP statuses that are retried.
    connect_timeout, read_timeout : float
        Seconds to connect, and between two pieces of an answer.
    """

    retries: int = 0
    connects: int = 0
    backoff: float = 0.5
    statuses: tuple[int, ...] = (429, 500, 502, 503, 504)
    connect_timeout: float = 10.0
    read_timeout: float = 60.0

    def to_urllib3(self) -> Retry | int:
        """Return the policy as an adapter of requests takes it."""
        from urllib3.util import Retry

        if not self.retries:
            return 0
        return Retry(
            total=self.retries,
            connect=self.connects,
            backoff_factor=self.backoff,
            backoff_jitter=self.backoff,
            status_forcelist=self.statuses,
            raise_on_status=False,
        )


ONCE = RetryPolicy()
"""Each request is sent once: its caller knows which requests may be sent again."""
PATIENT = RetryPolicy(retries=8, connects=2, read_timeout=120.0)
"""Long lists of a busy server, which nobody waits for."""


class HttpRefusal(Exception):
    """Answer with a status of 400 or more.

    Attributes
    ----------
    status : int
    reason, url, text : str
        Reason phrase, address of the request, and body.
    headers : mapping of str to str
        Their names in any case.
    """

    def __init__(self, answer: requests.Response) -> None:
        super().__init__(f"{answer.url} answers {answer.status_code}")
        self.status, self.reason = answer.status_code, answer.reason or ""
        self.url, self.text = answer.url, answer.text
        self.headers: Mapping[str, str] = answer.headers


class JsonClient:
    """Client of one JSON API.

    Parameters
    ----------
    base
        Address before the paths of requests.
    headers
        Headers of each request, such as the key.
    policy
        Retries and timeouts.

    Examples
    --------
    >>> JsonClient("https://cloud.example/api/v1", policy=PATIENT)
    JsonClient('https://cloud.example/api/v1')
    """

    def __init__(
        self, base: str = "", headers: Mapping[str, str] | None = None, policy: RetryPolicy = ONCE
    ) -> None:
        self._base, self._headers, self._policy = base.rstrip("/"), dict(headers or {}), policy
        self._session: requests.Session | None = None

    def __repr__(self) -> str:
        return f"JsonClient({self._base!r})"

    def _open(self) -> requests.Session:
        """Return the session, which keeps connections open; this imports requests."""
        if self._session is None:
            import requests
            from requests.adapters import HTTPAdapter

            from jupyter_sky._version import __version__

            session = requests.Session()
            for scheme in ("https://", "http://"):
                session.mount(scheme, HTTPAdapter(max_retries=self._policy.to_urllib3()))
            session.headers.update({"User-Agent": f"jupyter_sky/{__version__}", **self._headers})
            self._session = session
        return self._session

    def close(self) -> None:
        """Close the connections; the next request opens others."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def send(
        self, method: str, path: str, body: Any = None, query: Mapping[str, str] | None = None
    ) -> requests.Response:
        """Send a request, and again by the policy; return the answer.

        Raises
        ------
        HttpRefusal
            The server refuses.
        requests.RequestException
            No whole answer has come; the request may have been performed.
        """
        policy = self._policy
        answer = self._open().request(
            method,
            self._base + path,
            json=body,
            params=query,
            timeout=(policy.connect_timeout, policy.read_timeout),
        )
        if answer.ok:
            return answer
        raise HttpRefusal(answer)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Return the decoded answer to a GET."""
        return self.send("GET", path, query=query).json()
