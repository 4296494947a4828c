"""EMR Serverless as a provider: boto3 against applications and sessions on loopback, over HTTPS."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyNoCapacity, SkyPermission, SkyUsageError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.clouds.aws.emr_serverless import EmrServerless as Provider
from jupyter_sky.clouds.provider.classification import ProviderError
from jupyter_sky.clouds.provider.parallel_requests import StopRequested
from tests.clouds.aws_cases import machine_config, order, use
from tests.clouds.session_cases import as_new, send
from tests.conftest import wait_until
from tests.emulators.emr_serverless import EmrServerless

REGION = "us-east-1"
OFFER = {
    "instance_type": "emr-serverless",
    "service": "emr-serverless",
    "packages": ("emr-serverless==7.13.0", "spark==3.5.6"),
}


@pytest.fixture(scope="module")
def account() -> Iterator[EmrServerless]:
    made = EmrServerless(start=0.05)
    yield made
    made.close()


@pytest.fixture
def emr(
    account: EmrServerless, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[EmrServerless]:
    yield from as_new(account, monkeypatch, tmp_path, use)


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Provider()


def asked(token: str = "train-0a1b2c3d", nodes: int = 3, **offer: Any) -> Any:
    return order(token, nodes, **OFFER | offer)


def start(provider: Provider, request: Any) -> Any:
    return send(provider, request, machine_config(request))


def test_session_is_started_within_its_size_and_removed(
    emr: EmrServerless, provider: Provider
) -> None:
    (machine,) = start(provider, asked(nodes=3))
    (application,) = emr.applications.values()
    assert application["maximumCapacity"] == {"cpu": "6 vCPU", "memory": "24 GB"}
    assert application["releaseLabel"] == "emr-7.13.0"
    (session,) = emr.sessions.values()
    assert session.body["idleTimeoutMinutes"] == 10, "it ends itself when nobody uses it"
    assert session.body["executionRoleArn"].endswith(
        ":123456789012:role/jupyter-sky-emr-serverless"
    )
    assert application["autoStopConfiguration"]["enabled"]

    wait_until(lambda: provider.endpoint(machine.id) is not None, "no endpoint")
    endpoint = provider.endpoint(machine.id)
    assert endpoint is not None and endpoint.headers["x-aws-proxy-auth"].startswith("token-")
    assert "token-" not in repr(endpoint)
    listed = provider.machines(owner="me", regions=[REGION])
    assert [one.id for one in listed] == [machine.id] and listed[0].token == machine.token
    assert not provider.machines(owner="another", regions=[REGION])

    provider.terminate([machine.id])
    assert emr.left() == []
    assert {one.state for one in provider.describe([machine.id])} <= {"ended"}
    provider.terminate([machine.id])  # again is no error


@pytest.mark.parametrize("action", ["CreateApplication", "StartSession"])
def test_lost_answer_makes_one_session(emr: EmrServerless, provider: Provider, action: str) -> None:
    emr.trouble(action, "cut")
    (machine,) = start(provider, asked("lost-0a1b2c3d"))
    assert len(emr.live_sessions()) == 1
    provider.terminate([machine.id])
    assert emr.left() == []


@pytest.mark.parametrize(
    ("action", "code", "message", "kind", "words"),
    [
        ("CreateApplication", "ServiceQuotaExceededException", "", SkyNoCapacity, "quota"),
        ("StartSession", "ServiceQuotaExceededException", "", SkyNoCapacity, "quota"),
        ("CreateApplication", "AccessDeniedException", "not authorized", SkyPermission, "PassRole"),
        ("CreateApplication", "ValidationException", "bad label", SkyUsageError, ""),
    ],
)
def test_refusals_are_told_apart_and_leave_nothing(
    emr: EmrServerless,
    provider: Provider,
    action: str,
    code: str,
    message: str,
    kind: type[Exception],
    words: str,
) -> None:
    emr.refuse(action, code, message)
    with pytest.raises(kind) as caught:
        start(provider, asked())
    assert words in (getattr(caught.value, "hint", "") or "")
    assert emr.left() == []


def test_missing_role_names_the_command_that_makes_it(
    emr: EmrServerless, provider: Provider
) -> None:
    emr.roles.clear()
    with pytest.raises(SkyPermission, match="role") as caught:
        start(provider, asked())
    assert "aws iam create-role --role-name jupyter-sky-emr-serverless" in (caught.value.hint or "")
    assert emr.left() == []


def test_size_without_room_for_a_driver_is_refused_before_anything_is_made(
    emr: EmrServerless, provider: Provider
) -> None:
    small = replace(asked(nodes=1).offer, vcpus=1, memory=2)
    with pytest.raises(SkyUsageError, match="2 vCPUs and 4 GiB"):
        start(provider, replace(asked(nodes=1), offer=small))
    assert not emr.applications


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("Insufficient capacity in the region", "capacity"),
        ("ApplicationMaxCapacityExceededException: limit", "quota"),
        ("The execution role cannot be assumed", "permission"),
        ("Something else", "transient"),
    ],
)
def test_failed_session_says_why(
    emr: EmrServerless, provider: Provider, reason: str, cause: str
) -> None:
    emr.failing.append(reason)
    (machine,) = start(provider, asked("fails-0a1b2c3d"))
    with pytest.raises(ProviderError, match=reason.split(":")[0]) as caught:
        wait_until(lambda: provider.endpoint(machine.id) is not None, "neither")
    assert provider.explain_refusal(caught.value).cause == cause
    provider.terminate([machine.id])


def test_session_that_ended_idle_is_known_as_such(emr: EmrServerless, provider: Provider) -> None:
    (machine,) = start(provider, asked("idle-0a1b2c3d"))
    emr.end_idle(machine.id.rpartition("/")[2])
    (told,) = provider.describe([machine.id])
    assert (told.state, told.reason) == ("ended", "idle")
    provider.terminate([machine.id])


def test_unwanted_launch_leaves_nothing(emr: EmrServerless, provider: Provider) -> None:
    stop = Event()
    stop.set()
    with pytest.raises(StopRequested):
        provider.launch(asked(), machine_config(asked()), stop)
    assert emr.left() == []


def test_sweep_removes_only_old_applications_of_the_owner(
    emr: EmrServerless, provider: Provider
) -> None:
    (machine,) = start(provider, asked("kept-0a1b2c3d"))
    (session,) = emr.sessions.values()
    session.ended = time.time()
    assert provider.sweep("me", (), [REGION]) == [], "its launch may be going on"
    emr.applications[session.application]["createdAt"] -= 3600
    assert provider.sweep("another", (), [REGION]) == []
    assert provider.sweep("me", (machine.token,), [REGION]) == []
    assert provider.sweep("me", (), [REGION]) == ["application jupyter-sky-kept-0a1b2c3d"]
    assert emr.left() == []


def test_offer_of_each_release_has_its_label(emr: EmrServerless, provider: Provider) -> None:
    packages = ("emr-serverless==8.0.0", "spark==4.0.2")
    (machine,) = start(provider, asked("newer-0a1b2c3d", packages=packages))
    assert [one["releaseLabel"] for one in emr.applications.values()] == ["emr-spark-8.0.0"]
    provider.terminate([machine.id])


def test_offer_is_a_place_of_its_own() -> None:
    offer = Offer("aws", REGION, vcpus=4, memory=16, **OFFER)
    assert offer.place == "aws us-east-1 emr-serverless"
