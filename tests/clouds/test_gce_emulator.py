"""The emulator of Compute Engine: does it refuse and answer as Google does?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import requests

from jupyter_sky.clouds.gcp.clients import connect
from jupyter_sky.clouds.gcp.provider import Gcp
from tests.clouds.gcp_requests import ZONE, create, trouble_of, until, use
from tests.emulators import gce_validation, google_tokens
from tests.emulators.gce import Compute
from tests.emulators.gce_validation import Refused

pytest_plugins = ["tests.clouds.gcp_fixtures"]


def _post(compute: Compute, path: str, body: Any) -> requests.Response:
    token = compute.tokens
    google = connect().credentials
    from google.auth.transport.requests import Request

    google.refresh(Request())
    assert not isinstance(token.holder(f"Bearer {google.token}"), str)
    return requests.post(
        f"{compute.url}/compute/v1/projects/sky-test/{path}",
        json=body,
        headers={"Authorization": f"Bearer {google.token}"},
        timeout=10,
    )


def test_the_emulator_refuses_what_google_refuses(compute: Compute) -> None:
    for body, says in (
        ({"name": "a", "colour": "red"}, 'Unknown name "colour"'),
        ({"name": 7}, "Invalid value at 'name'"),
        ({"name": "a", "scheduling": {"onHostMaintenance": "PERHAPS"}}, "PERHAPS"),
        ({"name": "a", "scheduling": {"maxRunDuration": {"seconds": "1h"}}}, "TYPE_INT64"),
    ):
        answer = _post(compute, f"zones/{ZONE}/instances", body)
        assert answer.status_code == 400
        assert says in answer.json()["error"]["message"]
    bad_id = _post(compute, f"zones/{ZONE}/instances?requestId=7", {"name": "a"})
    assert "requestId" in bad_id.json()["error"]["message"]
    naked = requests.get(f"{compute.url}/compute/v1/projects/sky-test", timeout=10)
    assert (naked.status_code, naked.json()["error"]["status"]) == (401, "UNAUTHENTICATED")


def test_the_emulator_answers_what_google_answers(compute: Compute, provider: Gcp) -> None:
    create(provider, nodes=2)
    for held in compute.world.instances.values():
        gce_validation.check("Instance", held)
    for held in compute.world.operations.values():
        gce_validation.check("Operation", held)
    for held in compute.world.firewalls.values():
        gce_validation.check("Firewall", held)
    for held in compute.world.disks.values():
        gce_validation.check("Disk", held)
    for held in compute.world.networks.values():
        gce_validation.check("Network", held)
    assert len(compute.world.operations) > 4


@pytest.mark.parametrize(
    ("filter", "through"),
    [
        ("", "abc"),
        ('name = "a"', "a"),
        ("labels.k:*", "ab"),
        ('(labels.k = "1") (labels.j = "2")', "b"),
        ('(name = "a") OR (name = "c")', "ac"),
        ("labels.k != 1", "c"),
        ("name eq '[ab]'", ""),
        ("name eq [ab]", "ab"),
    ],
)
def test_filters_of_lists(filter: str, through: str) -> None:
    entries = [
        {"name": "a", "labels": {"k": "1"}},
        {"name": "b", "labels": {"k": "1", "j": "2"}},
        {"name": "c"},
    ]
    matches = gce_validation.matcher(filter)
    assert "".join(each["name"] for each in entries if matches(each)) == through
    with pytest.raises(Refused):
        gce_validation.matcher("name ! a")


def test_tokens_are_for_what_they_were_signed_for(compute: Compute) -> None:
    def ask(**form: str) -> dict[str, Any]:
        return requests.post(f"{compute.url}/token", data=form, timeout=10).json()

    assert ask(grant_type="password")["error"] == "unsupported_grant_type"
    grant = {"grant_type": google_tokens.GRANT}
    assert ask(**grant, assertion="a.b.c")["error"] == "invalid_grant"


@pytest.mark.slow
def test_it_runs_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.emulators.gce", "--boot", "0.02"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert process.stdin and process.stdout
    try:
        env = json.loads(process.stdout.readline())
        use(monkeypatch, env)
        url = env["CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"].removesuffix("/compute/v1/")

        def control(method: str, **given: Any) -> Any:
            return requests.post(f"{url}/_sky/{method}", json=given, timeout=10).json()

        control("refuse", code="ZONE_RESOURCE_POOL_EXHAUSTED")
        provider = Gcp()
        assert trouble_of(lambda: create(provider)).cause == "capacity"
        made = create(provider, "a-00000001", spot=True)
        assert [m["id"] for m in control("machines")] == [made[0].id]
        control("preempt", id=made[0].id, notice=0.05)
        until(lambda: control("machines") == [])
        assert "error" in control("close")
    finally:
        process.stdin.close()
        assert process.wait(10) == 0
