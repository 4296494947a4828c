"""Dataproc serverless as a provider: Google's SDK against sessions on loopback, over HTTPS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyNoCapacity, SkyPermission, SkyUsageError
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.gcp.dataproc import DataprocServerless as Provider
from jupyter_sky.clouds.provider.classification import ProviderError
from jupyter_sky.clouds.provider.parallel_requests import StopRequested
from tests.clouds.gcp_requests import OWNER, machine_config, order, use
from tests.clouds.session_cases import as_new, send
from tests.conftest import wait_until
from tests.emulators.dataproc import Dataproc, Session

REGION = "us-central1"
OFFER = {
    "instance_type": "dataproc-serverless",
    "service": "dataproc-serverless",
    "packages": ("dataproc-serverless==3.0", "spark==4.0.1"),
    "zone": "",
    "vcpus": 8,
    "memory": 32,
}


@pytest.fixture(scope="module")
def account() -> Iterator[Dataproc]:
    made = Dataproc(start=0.05)
    yield made
    made.close()


@pytest.fixture
def dataproc(
    account: Dataproc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Dataproc]:
    yield from as_new(account, monkeypatch, tmp_path, use)


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Provider()


def start(provider: Provider, token: str = "train-3f2a91c0", **given: Any) -> Any:
    request = order(token, **{"nodes": 3} | OFFER | given)
    return send(provider, request, machine_config(token))


def only(dataproc: Dataproc) -> Session:
    (session,) = dataproc.sessions.values()
    return session


def test_session_is_started_within_its_size_and_ended(
    dataproc: Dataproc, provider: Provider
) -> None:
    (machine,) = start(provider, lease=7200.0)
    runtime = only(dataproc).body["runtimeConfig"]
    properties = runtime["properties"]
    assert runtime["version"] == "3.0"
    assert properties["spark.dynamicAllocation.maxExecutors"] == "5", "24 vCPUs, 4 for the driver"
    sizes = [
        int(properties[f"spark.executor.{key}"].rstrip("m")) for key in ("memory", "memoryOverhead")
    ]
    assert sum(sizes) == 16 * 1024
    execution = only(dataproc).body["environmentConfig"]["executionConfig"]
    assert execution["ttl"] == "7200s" and execution["idleTtl"] == "600s", "it ends by itself"

    wait_until(lambda: provider.endpoint(machine.id) is not None, "no endpoint")
    endpoint = provider.endpoint(machine.id)
    assert endpoint is not None and endpoint.headers["Authorization"].startswith("Bearer ya29")
    assert endpoint.host == "localhost:443" and endpoint.bridge
    assert "ya29" not in repr(endpoint)
    listed = provider.machines(owner=OWNER, regions=[REGION])
    assert [one.id for one in listed] == [machine.id] and listed[0].token == machine.token
    assert not provider.machines(owner="another", regions=[REGION])

    provider.terminate([machine.id])
    assert dataproc.live() == []
    assert {one.state for one in provider.describe([machine.id])} <= {"ended"}
    provider.terminate([machine.id, f"{REGION}/never-there"])  # again, and unknown, is no error


def test_tags_that_are_no_labels_are_read_back(dataproc: Dataproc, provider: Provider) -> None:
    (machine,) = start(provider, "Größe_7-3f2a91c0")
    assert (machine.token, machine.cluster) == ("Größe_7-3f2a91c0", "Größe_7")
    (listed,) = provider.machines(token="Größe_7-3f2a91c0", regions=[REGION])
    assert listed == machine or listed.token == machine.token
    provider.terminate([machine.id])


def test_settings_name_subnetwork_and_account(
    dataproc: Dataproc, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    Sky.load().providers = {
        "gcp": {"dataproc_subnetwork": "inner", "dataproc_service_account": "me@x.iam"}
    }
    start(provider)
    execution = only(dataproc).body["environmentConfig"]["executionConfig"]
    assert (execution["subnetworkUri"], execution["serviceAccount"]) == ("inner", "me@x.iam")


@pytest.mark.parametrize("kind", ["cut", "break", "throttle"])
def test_lost_answer_makes_one_session(dataproc: Dataproc, provider: Provider, kind: str) -> None:
    dataproc.trouble("create", kind)
    (machine,) = start(provider, "lost-3f2a91c0")
    assert len(dataproc.live()) == 1
    provider.terminate([machine.id])


def test_launch_again_finds_the_session(dataproc: Dataproc, provider: Provider) -> None:
    assert start(provider)[0].id == start(provider)[0].id
    assert len(dataproc.sessions) == 1


@pytest.mark.parametrize(
    ("status", "reason", "message", "kind", "words"),
    [
        ("PERMISSION_DENIED", "SERVICE_DISABLED", "not used", SkyPermission, "enable dataproc"),
        (
            "PERMISSION_DENIED",
            "IAM_PERMISSION_DENIED",
            "Permission 'dataproc.sessions.create' denied",
            SkyPermission,
            "roles/dataproc.editor",
        ),
        (
            "INVALID_ARGUMENT",
            "",
            "Insufficient 'CPUS' quota. Requested 24.0, available 8.0.",
            SkyNoCapacity,
            "quotas",
        ),
        (
            "INVALID_ARGUMENT",
            "",
            "Subnetwork 'default' does not support Private Google Access",
            SkyPermission,
            "--enable-private-ip-google-access",
        ),
        ("INVALID_ARGUMENT", "", "Invalid runtime", SkyUsageError, ""),
    ],
)
def test_refusals_are_told_apart_and_leave_nothing(
    dataproc: Dataproc,
    provider: Provider,
    status: str,
    reason: str,
    message: str,
    kind: type[Exception],
    words: str,
) -> None:
    dataproc.refuse("create", status, message, reason=reason)
    with pytest.raises(kind) as caught:
        start(provider)
    assert words in (getattr(caught.value, "hint", "") or "")
    assert dataproc.live() == []


def test_size_without_room_for_executors_is_refused(dataproc: Dataproc, provider: Provider) -> None:
    with pytest.raises(SkyUsageError, match="12 vCPUs and 12 GiB"):
        start(provider, nodes=1, vcpus=8)
    assert not dataproc.sessions


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("The zone does not have enough resources available (stockout)", "capacity"),
        ("Quota 'CPUS' exceeded", "quota"),
        ("Private Google Access is not enabled on the subnetwork", "permission"),
        ("Something else", "transient"),
    ],
)
def test_failed_session_says_why(
    dataproc: Dataproc, provider: Provider, reason: str, cause: str
) -> None:
    dataproc.failing.append(reason)
    (machine,) = start(provider, "fails-3f2a91c0")
    with pytest.raises(ProviderError) as caught:
        wait_until(lambda: provider.endpoint(machine.id) is not None, "neither")
    assert caught.value.message == reason
    assert provider.explain_refusal(caught.value).cause == cause
    provider.terminate([machine.id])


def test_session_that_ended_idle_is_known_as_such(dataproc: Dataproc, provider: Provider) -> None:
    (machine,) = start(provider, "idle-3f2a91c0")
    dataproc.end_idle(only(dataproc))
    (told,) = provider.describe([machine.id])
    assert (told.state, told.reason) == ("ended", "idle") and told.ended


def test_unwanted_launch_leaves_nothing(dataproc: Dataproc, provider: Provider) -> None:
    stop = Event()
    stop.set()
    with pytest.raises(StopRequested):
        provider.launch(order(**OFFER), machine_config(), stop)
    assert not dataproc.sessions


def test_sweep_deletes_only_old_sessions_of_the_owner(
    dataproc: Dataproc, provider: Provider
) -> None:
    (machine,) = start(provider, "kept-3f2a91c0")
    assert provider.sweep(OWNER, (), [REGION]) == [], "it is up"
    provider.terminate([machine.id])
    assert provider.sweep(OWNER, (), [REGION]) == [], "it has just ended"
    only(dataproc).ended -= 3600
    assert provider.sweep("another", (), [REGION]) == []
    assert provider.sweep(OWNER, (machine.token,), [REGION]) == []
    assert provider.sweep(OWNER, (), [REGION]) == ["session jupyter-sky-kept-3f2a91c0"]
    assert not dataproc.sessions


def test_long_list_is_read_whole(dataproc: Dataproc, provider: Provider) -> None:
    made = {start(provider, f"many{number}-3f2a91c0")[0].id for number in range(5)}
    assert {one.id for one in provider.machines(owner=OWNER, regions=[REGION])} == made
    provider.terminate(sorted(made))
