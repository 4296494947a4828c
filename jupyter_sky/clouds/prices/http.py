"""JSON over HTTPS where there is no SDK, with retries and proxies."""

from __future__ import annotations

from collections.abc import Mapping
from json import JSONDecodeError
from typing import Any

from jupyter_sky.base.errors import SkyError, SkyRefreshError
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.prices.fetcher import TRY_LATER_HINT, Recovery

_TIMEOUT = (10, 120)  # seconds to connect, and between two pieces of an answer
_RETRIES = 8  # of a busy server; of one that cannot be reached fewer:
_CONNECTS = 2
_BACKOFF = 0.5  # seconds; doubled at each retry, at most two minutes


class InvalidResponse(ValueError):
    """Response with a missing member or one of another type."""


INVALID_RESPONSES = (InvalidResponse, JSONDecodeError, UnicodeDecodeError)


class HttpSession:
    """A session that waits as long as a busy server asks it to.

    429 and 5xx are retried with growing pauses, or after what ``Retry-After`` says. A body that
    is cut short raises, and `explain` calls that a reason to ask again.

    Parameters
    ----------
    headers
        Sent with each request.
    backoff
        Seconds before the second retry.

    Examples
    --------
    >>> Web().json("https://prices.azure.com/api/retail/prices")["Items"]  # doctest: +SKIP
    """

    def __init__(self, headers: Mapping[str, str] | None = None, backoff: float = _BACKOFF) -> None:
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3.util import Retry

        from jupyter_sky._version import __version__

        patience = Retry(
            total=_RETRIES,
            connect=_CONNECTS,
            backoff_factor=backoff,
            backoff_jitter=backoff,
            status_forcelist=(429, 500, 502, 503, 504),
            raise_on_status=False,
        )
        self._session = requests.Session()
        self._session.mount("https://", HTTPAdapter(max_retries=patience))
        self._session.headers.update({"User-Agent": f"jupyter_sky/{__version__}"})
        self._session.headers.update(headers or {})

    def json(self, url: str, params: Mapping[str, str] | None = None) -> Any:
        """Return the answer to a GET, decoded."""
        answer = self._session.get(url, params=params, timeout=_TIMEOUT)
        answer.raise_for_status()
        return answer.json()


def explain_failure(error: Exception, cloud: str) -> Recovery | SkyError:
    """Classify a failed request of `HttpSession`."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        code, address = error.response.status_code, error.response.url.partition("?")[0]
        if code in (401, 403):
            return SkyRefreshError(
                _("{cloud}: {address} refuses us ({code})").format(
                    cloud=cloud, address=address, code=code
                ),
                hint=_("check the credentials"),
            )
        busy = "is too busy" if code == 429 else "answers"
        return SkyRefreshError(f"{cloud}: {address} {busy} ({code})", hint=TRY_LATER_HINT)
    damaged = (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError)
    if isinstance(error, (*damaged, *INVALID_RESPONSES)):
        return Recovery.RETRY
    if isinstance(error, requests.RequestException):
        asked = getattr(error.request, "url", None) or "its address"
        return SkyRefreshError(
            _("{cloud}: {partition} cannot be reached ({name})").format(
                cloud=cloud, partition=asked.partition("?")[0], name=type(error).__name__
            ),
            hint=_("check the network, and HTTPS_PROXY where a proxy is in the way"),
        )
    return SkyRefreshError(f"{cloud}: {type(error).__name__}: {error}", hint=TRY_LATER_HINT)


def get_member(answer: Any, name: str, kind: type) -> Any:
    """Return a member of a response; raise `InvalidResponse` when missing or of another type.

    Examples
    --------
    >>> get_member({"Items": [1]}, "Items", list)
    [1]
    """
    if not isinstance(answer, dict) or not isinstance(answer.get(name), kind):
        raise InvalidResponse(f"the answer has no {name}")
    return answer[name]
