"""JSON over HTTPS for clouds without an SDK: one try per request, refusals with their codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_sky.clouds.provider.classification import ProviderError, is_html

TIMEOUT_SECONDS = (10, 60)
"""Seconds to connect, and between two pieces of an answer."""


class RestClient:
    """Client of a REST API; retries are left to `RetryingCaller`.

    Parameters
    ----------
    base
        Address that paths are added to.
    headers
        Sent with each request; they hold the key.
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
            No answer has come; the request may have been carried out.
        """
        import requests

        try:
            answer = requests.request(
                method,
                self._base + path,
                json=body,
                params=query,
                headers=self._headers,
                timeout=TIMEOUT_SECONDS,
            )
        except requests.RequestException as error:
            raise ConnectionError(f"{method} {path}: {type(error).__name__}") from None
        if answer.ok:
            return _decode(answer) if answer.content else None
        raise self._read_refusal(answer)

    def _read_refusal(self, answer: Any) -> ProviderError:
        try:
            told = answer.json()
        except ValueError:
            told = {}
        text = "" if is_html(answer.text) else answer.text
        return ProviderError(
            str(_find(told, self._message) or text or answer.reason),
            code=str(_find(told, self._code) or ""),
            status=answer.status_code,
            retry_after=answer.headers.get("Retry-After"),
        )


def _decode(answer: Any) -> Any:
    """Return an answer; one that is no JSON, such as a bare ID, as its text."""
    try:
        return answer.json()
    except ValueError:
        if "json" in answer.headers.get("Content-Type", ""):
            raise ConnectionError("the answer is cut off") from None
        return answer.text.strip()


def _find(told: Any, path: str) -> Any:
    """Return the value at a path of names; None where there is none."""
    for name in path.split("."):
        told = told.get(name) if isinstance(told, Mapping) else None
    return told
