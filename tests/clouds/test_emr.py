"""EMR on machines as a provider: boto3 against clusters and sessions on loopback, over HTTPS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyNoCapacity, SkyPermission, SkyUsageError
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.aws.emr import Emr as Provider
from jupyter_sky.clouds.provider.classification import ProviderError
from jupyter_sky.clouds.provider.parallel_requests import StopRequested
from tests.clouds.aws_cases import machine_config, order, use
from tests.clouds.session_cases import as_new, send
from tests.conftest import wait_until
from tests.emulators.emr import Cluster, Emr

REGION = "us-east-1"
OFFER = {"instance_type": "m5.xlarge", "service": "emr", "packages": ("emr==8.0.0", "spark==4.0.2")}


@pytest.fixture(scope="module")
def account() -> Iterator[Emr]:
    made = Emr(start=0.05)
    yield made
    made.close()


@pytest.fixture
def emr(account: Emr, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Emr]:
    yield from as_new(account, monkeypatch, tmp_path, use)


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Provider()


def start(provider: Provider, token: str = "train-0a1b2c3d", nodes: int = 3, **offer: Any) -> Any:
    request = order(token, nodes, **OFFER | offer)
    return send(provider, request, machine_config(request))


def only(emr: Emr) -> Cluster:
    (cluster,) = emr.clusters.values()
    return cluster


def test_cluster_is_started_with_its_session_and_ended(emr: Emr, provider: Provider) -> None:
    (machine,) = start(provider)
    body = only(emr).body
    counts = {
        each["InstanceRole"]: each["InstanceCount"] for each in body["Instances"]["InstanceGroups"]
    }
    assert counts == {"MASTER": 1, "CORE": 2}
    assert (
        body["ReleaseLabel"] == "emr-spark-8.0.0" and not body["Instances"]["TerminationProtected"]
    )
    assert body["AutoTerminationPolicy"]["IdleTimeout"] == 720, "ten minutes, and then two"
    assert provider.machines(owner="me", regions=[REGION])[0].token == machine.token
    assert not provider.machines(owner="another", regions=[REGION])

    wait_until(lambda: provider.endpoint(machine.id) is not None, "no endpoint")
    session = only(emr).session
    assert session and session["SessionIdleTimeoutInMinutes"] == 10
    endpoint = provider.endpoint(machine.id)
    assert endpoint is not None and endpoint.headers["x-aws-proxy-auth"].startswith("token-")
    assert only(emr).session is session, "asked again, it is the same session"
    assert provider.describe([machine.id])[0].state == "running"

    provider.terminate([machine.id])
    assert emr.live() == []
    (told,) = provider.describe([machine.id])
    assert told.state == "ended" and told.ended and "USER_REQUEST" in told.reason
    provider.terminate([machine.id, f"{REGION}/j-0"])  # again, and unknown, is no error


def test_one_node_has_no_others(emr: Emr, provider: Provider) -> None:
    start(provider, nodes=1, spot=True)
    (group,) = only(emr).body["Instances"]["InstanceGroups"]
    assert (group["InstanceRole"], group["Market"]) == ("MASTER", "SPOT")


def test_schedule_ends_the_cluster_at_the_end_of_its_lease(
    emr: Emr, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = "arn:aws:iam::123456789012:role/ends"
    monkeypatch.setattr(Sky.load(), "providers", {"aws": {"scheduler_role": role}})
    (machine,) = start(provider)
    (schedule,) = emr.schedules.values()
    assert schedule["Target"]["Arn"].endswith("aws-sdk:emr:terminateJobFlows")
    assert json.loads(schedule["Target"]["Input"]) == {"JobFlowIds": [only(emr).id]}
    provider.terminate([machine.id])
    assert not emr.schedules


@pytest.mark.parametrize("kind", ["cut", "break", "throttle"])
def test_lost_answer_makes_one_cluster(emr: Emr, provider: Provider, kind: str) -> None:
    start(provider, "first-0a1b2c3d")
    start(provider, "second-0a1b2c3d")
    emr.trouble("RunJobFlow", kind)
    (machine,) = start(provider, "lost-0a1b2c3d")
    assert len(emr.live()) == 3, "it is found among others"
    assert machine.id.endswith(emr.live()[2].id)


@pytest.mark.parametrize(
    ("code", "message", "kind", "words"),
    [
        (
            "ValidationException",
            "EMR_DefaultRole is not authorized",
            SkyPermission,
            "default-roles",
        ),
        ("AccessDeniedException", "not authorized to RunJobFlow", SkyPermission, "RunJobFlow"),
        ("ValidationException", "The vCPU limit is exceeded", SkyNoCapacity, "service-quotas"),
        ("ValidationException", "Instance type m5 is not supported", SkyNoCapacity, ""),
        ("ValidationException", "The subnet is of another VPC", SkyUsageError, "emr_subnet"),
    ],
)
def test_refusals_are_told_apart_and_leave_nothing(
    emr: Emr, provider: Provider, code: str, message: str, kind: type[Exception], words: str
) -> None:
    emr.refuse("RunJobFlow", code, message)
    with pytest.raises(kind) as caught:
        start(provider)
    assert words in (getattr(caught.value, "hint", "") or "")
    assert emr.live() == []


def test_missing_role_names_the_command_that_makes_it(emr: Emr, provider: Provider) -> None:
    emr.roles.clear()
    with pytest.raises(SkyPermission) as caught:
        start(provider)
    assert "aws emr create-default-roles" in (caught.value.hint or "")


def test_release_without_sessions_is_refused(emr: Emr, provider: Provider) -> None:
    with pytest.raises(SkyUsageError, match=r"6\.5\.0 has no sessions"):
        start(provider, packages=("emr==6.5.0", "spark==3.1.2"))
    assert not emr.clusters


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("INSTANCE_FAILURE: Insufficient capacity for the instance type", "capacity"),
        ("INSTANCE_FLEET_TIMEOUT: The fleet was not provisioned", "capacity"),
        ("VALIDATION_ERROR: The vCPU limit of the account is exceeded", "quota"),
        ("VALIDATION_ERROR: The role cannot be assumed", "permission"),
        ("BOOTSTRAP_FAILURE: On the primary instance, bootstrap action 1 failed", "transient"),
    ],
)
def test_failed_cluster_says_why(emr: Emr, provider: Provider, reason: str, cause: str) -> None:
    emr.failing.append(reason)
    (machine,) = start(provider, "fails-0a1b2c3d")
    with pytest.raises(ProviderError) as caught:
        wait_until(lambda: provider.endpoint(machine.id) is not None, "neither")
    assert caught.value.message == reason
    assert provider.explain_refusal(caught.value).cause == cause


def test_session_that_ended_idle_is_known_as_such(emr: Emr, provider: Provider) -> None:
    (machine,) = start(provider)
    wait_until(lambda: provider.endpoint(machine.id) is not None, "no endpoint")
    emr.end_idle(only(emr))
    (told,) = provider.describe([machine.id])
    assert (told.state, told.reason) == ("ended", "idle"), "its cluster is up, and is ended for it"
    (listed,) = provider.machines(owner="me", regions=[REGION])
    assert (listed.id, listed.state) == (machine.id, "running"), "it still costs"


def test_unwanted_launch_leaves_nothing(emr: Emr, provider: Provider) -> None:
    stop, request = Event(), order(**OFFER)
    stop.set()
    with pytest.raises(StopRequested):
        provider.launch(request, machine_config(request), stop)
    assert not emr.clusters
