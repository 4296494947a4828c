"""JSON over HTTPS for clouds without an SDK: one try per request, refusals with their codes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.http import HttpRefusal, JsonClient
from jupyter_sky.clouds.provider.classification import ProviderError, is_html

if TYPE_CHECKING:
    import requests


class RestClient:
    """Client of a REST API; retries are left to `RetryingCaller`.

    Parameters
    ----------
    base
        Address before the paths of requests.
    headers
        Headers of each request; they hold the key.
    code, message
        Paths of the error's code and text in a refusal, such as ``error.code``.

    Examples
    --------
    >>> RestClient("https://cloud.example/api/v1", {"Authorization": "Bearer K"})
    RestClient('https://cloud.example/api/v1')
    """

    def __init__(
        self,
        base: str,
        headers: Mapping[str, str],
        code: str = "error.code",
        message: str = "error.message",
    ) -> None:
        self._base, self._headers = base.rstrip("/"), dict(headers)
        self._code, self._message = code, message

    def __repr__(self) -> str:
        return f"RestClient({self._base!r})"

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request; return the decoded answer, None where it is empty.

        Raises
        ------
        ProviderError
            The cloud refuses.
        ConnectionError
            No answer has come; the request may have been performed.
        """
        import requests

        client = JsonClient(self._base, self._headers)
        try:
            answer = client.send(method, path, body, query)
        except HttpRefusal as refusal:
            raise self._to_provider_error(refusal) from None
        except requests.RequestException as error:
            raise ConnectionError(f"{method} {path}: {type(error).__name__}") from None
        finally:
            client.close()
        return _decode(answer) if answer.content else None

    def _to_provider_error(self, refusal: HttpRefusal) -> ProviderError:
        try:
            body = json.loads(refusal.text)
        except ValueError:
            body = {}
        text = "" if is_html(refusal.text) else refusal.text
        return ProviderError(
            str(_find(body, self._message) or text or refusal.reason),
            code=str(_find(body, self._code) or ""),
            status=refusal.status,
            retry_after=refusal.headers.get("Retry-After"),
        )


def _decode(answer: requests.Response) -> Any:
    """Return an answer; one that is not JSON, such as a bare ID, as its text."""
    try:
        return answer.json()
    except ValueError:
        if "json" in answer.headers.get("Content-Type", ""):
            raise ConnectionError("the answer is cut off") from None
        return answer.text.strip()


def _find(body: Any, path: str) -> Any:
    """Return the value at a path of names; None where there is none."""
    for name in path.split("."):
        body = body.get(name) if isinstance(body, Mapping) else None
    return body
