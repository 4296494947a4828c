"""An account of AWS on loopback, orders, and what a provider made of them."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import botocore.exceptions
import botocore.session
import pytest

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.aws.provider import Aws
from jupyter_sky.clouds.launches.launcher import launch_machines
from jupyter_sky.clouds.provider.values import (
    TAGS,
    CloudError,
    LaunchRequest,
    Machine,
    MachineConfig,
)
from tests.conftest import wait_until
from tests.emulators.ec2 import Ec2

REGION = "us-east-1"
_LOADER = cache(botocore.session.create_loader)
HERE = {"cloud": "aws", "region": REGION, "instance_type": "m5.large", "arch": "x86_64"}


@pytest.fixture(name="account", scope="module")
def account_fixture() -> Iterator[Ec2]:
    made = Ec2()
    yield made
    made.close()


@pytest.fixture(name="ec2")
def ec2_fixture(account: Ec2, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Ec2]:
    """A new account, and an environment that leads to it alone."""
    account.reset()
    use(monkeypatch, account.env())
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    Sky.clear_instance()
    yield account
    Sky.clear_instance()


@pytest.fixture(name="provider", scope="module")
def provider_fixture() -> Iterator[Aws]:
    """One for all tests; sessions share what they have read of AWS's models, which takes long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", _LOADER)
        yield Aws()


def use(monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    for name, value in env.items():
        monkeypatch.setenv(name, value)


def order(token: str = "train-0a1b2c3d", nodes: int = 1, **offer: Any) -> LaunchRequest:
    at = Offer(vcpus=2, memory=8, **HERE | offer)
    need = Resources(gpu=at.gpu, gpu_count=at.gpu_count, nodes=nodes)
    return LaunchRequest(token, "train", at, need, 600, "me", "a.ipynb", 3600)


def machine_config(asked: LaunchRequest, **changes: Any) -> MachineConfig:
    ends = int(time.time()) + asked.lease
    words = (asked.owner, asked.cluster, asked.token, asked.notebook, f"{ends:.0f}")
    tags = dict(zip(TAGS, words, strict=True))
    made = MachineConfig("sky", "ssh-ed25519 AAAA", "#cloud-config\n{}", 50, ends, tags)
    return dataclasses.replace(made, **changes)


def create(provider: Aws, asked: LaunchRequest, **changes: Any) -> list[Machine]:
    return launch_machines(provider, asked, machine_config(asked, **changes))


def trouble(provider: Aws, request: Callable[[], object]) -> CloudError:
    """Read an error that boto3 really raises."""
    with pytest.raises(Exception) as caught:
        request()
    found = provider.explain(caught.value)
    assert found is not None, repr(caught.value)
    return found


def client(service: str = "ec2", region: str = REGION) -> Any:
    import boto3

    return boto3.client(service, region_name=region)


def described(id: str) -> dict[str, Any]:
    """A machine in boto3's own words."""
    region, _, name = id.partition("/")
    answer = client(region=region).describe_instances(InstanceIds=[name])
    return answer["Reservations"][0]["Instances"][0]


def running(provider: Aws, machines: list[Machine]) -> list[Machine]:
    ids = [machine.id for machine in machines]
    wait_until(lambda: {m.state for m in provider.describe(ids)} == {"running"})
    return sorted(provider.describe(ids), key=lambda machine: machine.rank)
