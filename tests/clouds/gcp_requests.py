"""Orders for Google Cloud, and what the tests of it ask again and again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.clouds.gcp.provider import Gcp
from jupyter_sky.clouds.launches.launcher import launch_machines
from jupyter_sky.clouds.provider.values import (
    TAGS,
    CloudError,
    LaunchRequest,
    Machine,
    MachineConfig,
)
from tests.emulators.gce import Compute

OWNER, ZONE = "ann-1234abcd", "us-central1-a"
DAY = 86400.0


def use(monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "GCLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)


def order(token: str = "train-3f2a91c0", **given: Any) -> LaunchRequest:
    offer = {"region": "us-central1", "zone": ZONE, "instance_type": "n2-standard-2"}
    offer |= {"vcpus": 2, "memory": 8, "arch": "x86_64"}
    launch = {"idle": 600.0, "owner": OWNER, "notebook": "Notes on Birds.ipynb"}
    launch |= {"resources": Resources(nodes=given.pop("nodes", 1))}
    for name in ("lease", "owner", "notebook"):
        if name in given:
            launch[name] = given.pop(name)
    cluster = token.rpartition("-")[0]
    return LaunchRequest(token, cluster, Offer("gcp", **offer | given), **launch)


def machine_config(
    token: str = "train-3f2a91c0", disk: float = 50.0, **given: Any
) -> MachineConfig:
    ends = 1_800_000_000.0
    values = (given.pop("owner", OWNER), token.rpartition("-")[0], token, "Notes on Birds.ipynb")
    tags = dict(zip(TAGS, (*values, str(int(ends))), strict=True))
    return MachineConfig(
        "sky", "ssh-ed25519 AAAA sky", "#cloud-config\n{}", disk, ends, tags, **given
    )


def create(provider: Gcp, token: str = "train-3f2a91c0", **given: Any) -> list[Machine]:
    return launch_machines(provider, order(token, **given), machine_config(token))


def trouble_of(ask: Callable[[], object]) -> CloudError:
    """Return the provider's classification of a request that must fail."""
    with pytest.raises(Exception) as caught:
        ask()
    trouble = Gcp().explain(caught.value)
    assert trouble is not None, f"not explained: {caught.value!r}"
    return trouble


def until(true: Callable[[], object], seconds: float = 5.0) -> None:
    begun = time.monotonic()
    while not true():
        assert time.monotonic() - begun < seconds
        time.sleep(0.01)


def instance(compute: Compute, id: str) -> dict[str, Any]:
    zone, _, name = id.partition("/")
    return compute.world.instances[zone, name]
