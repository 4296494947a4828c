"""Helpers of the tests of Azure: an emulator of their own, launch requests, and its contents."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.clouds.azure import clients
from jupyter_sky.clouds.azure.provider import Azure
from jupyter_sky.clouds.launches.launcher import launch_machines
from jupyter_sky.clouds.provider.values import (
    TAGS,
    CloudError,
    LaunchRequest,
    Machine,
    MachineConfig,
)
from tests.emulators.arm import Arm

OWNER, TOKEN = "ada@home 'one'", "train-3f2a91c0"
GROUP = f"jupyter-sky-{TOKEN}"
SIZE = "Standard_D2s_v5"
KINDS = (
    "resourcegroups virtualmachines disks networkinterfaces publicipaddresses virtualnetworks "
    "networksecuritygroups roleassignments"
).split()


def use(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in clients.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)


def an_azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Arm]:
    """Run an Azure that this process uses meanwhile."""
    arm = Arm()
    try:
        use(arm.env(), monkeypatch)
        yield arm
    finally:
        arm.close()


def an_order(token: str = TOKEN, nodes: int = 1, owner: str = OWNER, **offer: Any) -> LaunchRequest:
    about = {"zone": None, "spot": False, "arch": "x86_64", "instance_type": SIZE, **offer}
    sold = Offer("azure", vcpus=2, memory=8, **{"region": "eastus", **about})
    return LaunchRequest(token, "train", sold, Resources(nodes=nodes), 600, owner, "a.ipynb")


def a_machine_config(order: LaunchRequest, **fields: Any) -> MachineConfig:
    ends = 2_000_000_000.0
    values = (order.owner, order.cluster, order.token, order.notebook, f"{ends:.0f}")
    given = {
        "user": "sky",
        "public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 us",
        "user_data": "#cloud-config\n{}",
        "disk": 50.0,
        "lease_end": ends,
        "tags": dict(zip(TAGS, values, strict=True)),
    }
    return MachineConfig(**{**given, **fields})


def launch(provider: Azure, order: LaunchRequest, **machine_config: Any) -> list[Machine]:
    return launch_machines(provider, order, a_machine_config(order, **machine_config))


def refused(provider: Azure, order: LaunchRequest, **machine_config: Any) -> CloudError:
    """Return the refusal of a launch, as the provider explains it."""
    with pytest.raises(Exception) as caught:
        launch(provider, order, **machine_config)
    trouble = provider.explain(caught.value)
    assert trouble is not None, repr(caught.value)
    return trouble


def failure(provider: Azure) -> CloudError:
    """Return the reason why the credentials cannot be proved."""
    with pytest.raises(Exception) as caught:
        provider.identify()
    trouble = provider.explain(caught.value)
    assert trouble is not None, repr(caught.value)
    return trouble


def until(true: Any) -> None:
    for _ in range(3000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come true")


def left(arm: Arm) -> dict[str, list[str]]:
    return {kind: names for kind in KINDS if (names := arm.state.names(kind))}


def sent(arm: Arm, rank: int = 0) -> dict[str, Any]:
    return arm.state.machine_of(f"{GROUP}/{TOKEN}-{rank}")
