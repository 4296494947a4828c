"""Requests that a cloud throttles are sent again when it allows them."""

from __future__ import annotations

import json
from email.utils import formatdate
from pathlib import Path
from threading import Event
from time import time
from typing import Any, cast

import pytest
from requests import Response

from jupyter_sky.base.errors import SkyNoCapacity
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.clouds.aws.provider import Aws
from jupyter_sky.clouds.azure.provider import Azure
from jupyter_sky.clouds.gcp.provider import Gcp
from jupyter_sky.clouds.launches.retries import RetryingCaller
from jupyter_sky.clouds.provider.classification import parse_retry_after
from jupyter_sky.clouds.provider.values import LaunchRequest, MachineConfig
from tests.emulators.fleet import Fleet
from tests.emulators.toy import ToyCloud

HEADER = {"Retry-After": "7", "Content-Type": "application/json"}


def _aws_error() -> Exception:
    from botocore.exceptions import ClientError

    answer = {
        "Error": {"Code": "RequestLimitExceeded", "Message": "slow down"},
        "ResponseMetadata": {"HTTPStatusCode": 503, "HTTPHeaders": {"retry-after": "7"}},
    }
    return ClientError(cast(Any, answer), "RunInstances")


def _azure_error() -> Exception:
    from azure.core.exceptions import HttpResponseError
    from azure.core.rest import HttpRequest
    from azure.core.rest._requests_basic import RestRequestsTransportResponse

    answer = _answer({"error": {"code": "TooManyRequests", "message": "slow down"}})
    request = HttpRequest("GET", "https://management.azure.com")
    return HttpResponseError(
        response=RestRequestsTransportResponse(request=request, internal_response=answer)
    )


def _gcp_error() -> Exception:
    from google.api_core.exceptions import from_http_response

    answer = _answer({"error": {"code": 429, "message": "slow down"}})
    answer.request = cast(Any, type("Request", (), {"method": "GET", "url": "https://compute"}))
    return from_http_response(answer)


def _answer(body: dict[str, Any]) -> Response:
    answer = Response()
    answer.status_code, answer._content = 429, json.dumps(body).encode()
    answer.headers.update(HEADER)
    return answer


@pytest.mark.parametrize(
    ("provider", "error"), [(Aws, _aws_error), (Azure, _azure_error), (Gcp, _gcp_error)]
)
def test_wait_is_read_from_errors_of_the_sdk(provider: Any, error: Any) -> None:
    found = provider().explain(error())
    assert (found.cause, found.retry_after) == ("throttled", 7.0)


@pytest.mark.parametrize(
    ("text", "seconds"), [("", 0), ("12", 12), (" 3 ", 3), ("soon", 0), ("-5", 0), ("1e99", 0)]
)
def test_wait_in_seconds(text: str, seconds: float) -> None:
    assert parse_retry_after(text) == seconds


def test_wait_until_a_date() -> None:
    assert 50 < parse_retry_after(formatdate(time() + 60, usegmt=True)) <= 60
    assert parse_retry_after(formatdate(time() - 60, usegmt=True)) == 0


def test_throttled_launch_is_sent_again_when_allowed(
    toy_site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(toy_site))
    from sky_toy import Toy  # pyright: ignore[reportMissingImports]

    cloud = ToyCloud(cast(Fleet, None))  # all launches are refused: no machine is made
    try:
        for name, value in cloud.env().items():
            monkeypatch.setenv(name, value)
        cloud.retry_after = 2
        cloud.refusals += [(429, "slow_down"), (400, "no_capacity")]
        toy, offer = Toy(), Offer("toy", "toy-1", "toy-2", 2, 4, price=0.12)
        request = LaunchRequest("t-1", "t", offer, Resources(), 60.0, "ada", "")
        config = MachineConfig("ada", "key", "", 10.0, 0.0, {})
        with pytest.raises(SkyNoCapacity):
            RetryingCaller(toy)(lambda: toy.launch(request, config, Event()))
        assert cloud.refusals == [] and cloud.early == 0
    finally:
        cloud.close()
