"""Accounts of the three emulated clouds under the conformance suite."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, ClassVar

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.clouds.provider import Provider
from jupyter_sky.clouds.provider.values import ErrorCause
from jupyter_sky.clouds.testing import Operation, World
from jupyter_sky.clouds.testing.provider import wait_until
from tests.clouds.rest_world import end_lease_watchers
from tests.emulators import service_descriptions, tpu
from tests.emulators.arm import Arm
from tests.emulators.ec2 import Ec2
from tests.emulators.fleet import Fleet
from tests.emulators.gce import Compute
from tests.emulators.loopback import machine_env, warm_cache

ACTIONS: dict[Operation, str] = {"launch": "create", "machines": "list", "terminate": "remove"}


class EmulatedWorld(World):
    """Account of an emulator, with real machines.

    Attributes
    ----------
    place : dict
        Fields of the offer that is launched.
    codes : dict
        The cloud's own code for each cause of a refusal.
    actions : dict
        The emulator's name for the request of each operation.
    """

    unsupported: ClassVar = {
        "boots_in": "its machines take the time that they take",
        "fill": "long lists are read in the tests of each provider",
        "hide_new": "its lists have what is there",
    }
    boot_seconds = 30.0
    place: ClassVar[dict[str, Any]]
    codes: ClassVar[dict[ErrorCause, str]]
    actions: ClassVar[dict[Operation, str]] = ACTIONS

    def __init__(self) -> None:
        warm_cache()
        self.fleet = Fleet(minute=1.0)
        self.api: Any = self.make()

    def make(self) -> Any:
        """Return the emulator."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """Return the emulator's address and credentials."""
        return self.api.env() | machine_env(self.fleet)

    def secrets(self) -> list[str]:
        """Return the credentials alone: their variables have names of all kinds."""
        return [self.environment()[name] for name in self.environment() if "SECRET" in name]

    def offer(self, provider: Provider, spot: bool = False) -> Offer:
        """Return an offer as the catalog has it."""
        return Offer(
            provider.name, **{"vcpus": 2, "memory": 8, "arch": "x86_64"} | self.place, spot=spot
        )

    def bill(self) -> set[str]:
        """Return what the emulator bills."""
        return {machine["id"] for machine in self.api.machines()}

    def reset(self) -> None:
        """Begin with an empty account."""
        self.api.reset()

    def close(self) -> None:
        """End the machines and their cloud."""
        self.api.close()
        self.fleet.close()

    def refuse(self, cause: ErrorCause, times: int = 1, after: int = 0) -> None:
        """Refuse requests for machines; of those sent at once, one."""
        self.api.refuse(self.codes[cause], times=times)

    def lose_answer(self, operation: Operation) -> None:
        """Lose an answer."""
        self.api.lose(self.actions[operation])

    def delay(self, operation: Operation, seconds: float) -> None:
        """Answer late."""
        self.api.slow(self.actions[operation], seconds, times=math.inf)

    def stop(self, id: str) -> None:
        """Power a machine off."""
        up = len(self.fleet.hosts())
        self.api.power_off(id)
        wait_until(lambda: len(self.fleet.hosts()) < up)

    def take_back(self, id: str) -> None:
        """Take a spot machine back."""
        self.api.preempt(id)


class Aws(EmulatedWorld):
    """Account of AWS."""

    place: ClassVar = {"region": "us-east-1", "instance_type": "m5.large"}
    actions: ClassVar = ACTIONS | {"machines": "describe"}
    codes: ClassVar = {
        "capacity": "InsufficientInstanceCapacity",
        "quota": "VcpuLimitExceeded",
        "permission": "UnauthorizedOperation",
        "invalid": "InvalidParameterValue",
        "throttled": "RequestLimitExceeded",
    }

    def make(self) -> Ec2:
        """Return the emulator."""
        service_descriptions.read_once()
        return Ec2(self.fleet, minute=1.0)


class Gcp(EmulatedWorld):
    """Project of Google Cloud."""

    place: ClassVar = {
        "region": "us-central1",
        "zone": "us-central1-a",
        "instance_type": "n2-standard-2",
    }
    codes: ClassVar = {
        "capacity": "ZONE_RESOURCE_POOL_EXHAUSTED",
        "quota": "QUOTA_EXCEEDED:N2_CPUS",
        "permission": "forbidden",
        "invalid": "invalid",
        "throttled": "RATE_LIMIT_EXCEEDED",
    }

    def secrets(self) -> list[str]:
        """Return the private key of the service account."""
        path = Path(self.environment()["GOOGLE_APPLICATION_CREDENTIALS"])
        return json.loads(path.read_text())["private_key"].splitlines()[1:3]

    def make(self) -> Compute:
        """Return the emulator."""
        return Compute(self.fleet, minute=1.0)


class GcpTpu(Gcp):
    """Project of Google Cloud whose machines are TPU VMs, by the TPU API."""

    unsupported: ClassVar = EmulatedWorld.unsupported | {"cells": "they run in test_gcp_tpu_cells"}
    place: ClassVar = Gcp.place | {
        "instance_type": "tpu-v2-8",
        "gpu": "tpu-v2-8",
        "gpu_count": 1,
    }
    actions: ClassVar = {"launch": "POST", "machines": "GET", "terminate": "DELETE"}
    refusals: ClassVar = {
        "quota": (429, tpu.NO_QUOTA),
        "permission": (403, "Permission 'tpu.nodes.create' denied"),
        "invalid": (400, "Invalid value"),
        "throttled": (429, "Quota exceeded for limit 'Requests per minute'"),
    }

    def bill(self) -> set[str]:
        """Return the VMs of all nodes; each of these has one."""
        return {f"{self.place['zone']}/{name}/0" for name in self.api.tpus.billed()}

    def refuse(self, cause: ErrorCause, times: int = 1, after: int = 0) -> None:
        """Refuse requests, or let their operations fail."""
        if cause == "capacity":
            self.api.tpus.failures += [None] * after + [(8, tpu.NO_CAPACITY)] * times
        else:
            self.api.tpus.refusals += [self.refusals[cause]] * times

    def lose_answer(self, operation: Operation) -> None:
        """Lose an answer."""
        self.api.tpus.lost.append(self.actions[operation])

    def delay(self, operation: Operation, seconds: float) -> None:
        """Create nodes late."""
        assert operation == "launch"
        self.api.tpus.delay = seconds

    def stop(self, id: str) -> None:
        """Power a VM off."""
        _zone, name, rank = id.split("/")
        up = len(self.fleet.hosts())
        self.api.tpus.power_off(name, int(rank))
        wait_until(lambda: len(self.fleet.hosts()) < up)

    def take_back(self, id: str) -> None:
        """Take a slice back."""
        self.api.tpus.preempt(id.split("/")[1])

    def close(self) -> None:
        """End the machines, their cloud, and the process that watches them."""
        end_lease_watchers(self.api.url)
        super().close()


class Azure(EmulatedWorld):
    """Subscription of Azure."""

    place: ClassVar = {"region": "eastus", "instance_type": "Standard_D2s_v5"}
    codes: ClassVar = {
        "capacity": "AllocationFailed",
        "quota": "QuotaExceeded",
        "permission": "AuthorizationFailed",
        "invalid": "InvalidParameter",
        "throttled": "TooManyRequests",
    }

    def make(self) -> Arm:
        """Return the emulator."""
        return Arm(self.fleet)
