"""Failed requests for price lists, and unexpected answers."""

from __future__ import annotations

from json import JSONDecodeError
from typing import Any

from jupyter_sky.base.errors import SkyError, SkyRefreshError
from jupyter_sky.base.http import HttpRefusal
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.prices.fetcher import TRY_LATER_HINT, Recovery


class InvalidResponse(ValueError):
    """Response with a missing member or one of another type."""


INVALID_RESPONSES = (InvalidResponse, JSONDecodeError, UnicodeDecodeError)


def explain_failure(error: Exception, cloud: str) -> Recovery | SkyError:
    """Classify a failed request of a `JsonClient`."""
    import requests

    if isinstance(error, HttpRefusal):
        code, address = error.status, error.url.partition("?")[0]
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
