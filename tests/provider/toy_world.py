"""Account of the toy cloud under the conformance suite."""

from __future__ import annotations

from typing import Any, ClassVar

from jupyter_sky.clouds.provider.values import ErrorCause
from jupyter_sky.clouds.testing import Operation, World
from tests.emulators.fleet import Fleet
from tests.emulators.loopback import machine_env, warm_cache
from tests.emulators.toy import ToyCloud

METHODS: dict[Operation, str] = {"launch": "POST", "machines": "GET", "terminate": "DELETE"}
REFUSALS: dict[ErrorCause, tuple[int, str]] = {
    "capacity": (400, "no_capacity"),
    "quota": (400, "over_quota"),
    "permission": (403, "forbidden"),
    "invalid": (400, "bad_request"),
    "throttled": (429, "slow_down"),
}


class ToyWorld(World):
    """The emulated cloud, with real machines."""

    unsupported: ClassVar = {"boots_in": "its machines take the time that they take"}
    boot_seconds = 30.0

    def __init__(self) -> None:
        warm_cache()
        self.fleet = Fleet(minute=1.0)
        self.cloud = ToyCloud(self.fleet)

    def environment(self) -> dict[str, str]:
        """Return the cloud's address and key."""
        login = {k: v for k, v in machine_env(self.fleet).items() if k == "SKY_LOGIN"}
        return self.cloud.env() | login

    def bill(self) -> set[str]:
        """Return what was launched and not deleted."""
        return {entry["id"] for entry in self.cloud.machines()}

    def reset(self) -> None:
        """Delete all machines."""
        self.cloud.reset()

    def close(self) -> None:
        """End the machines and their cloud."""
        self.cloud.close()
        self.fleet.close()

    def refuse(self, cause: ErrorCause, times: int = 1, after: int = 0) -> None:
        """Refuse launches; all machines of a launch are one request."""
        self.cloud.refusals += [REFUSALS[cause]] * times

    def lose_answer(self, operation: Operation) -> None:
        """Lose an answer."""
        self.cloud.lost.append(METHODS[operation])

    def delay(self, operation: Operation, seconds: float) -> None:
        """Answer late."""
        self.cloud.delays[METHODS[operation]] = seconds

    def hide_new(self, seconds: float) -> None:
        """Hide new machines."""
        self.cloud.hidden = seconds

    def stop(self, id: str) -> None:
        """Power a machine off."""
        self.cloud.power_off(id)

    def take_back(self, id: str) -> None:
        """Delete a machine."""
        self.cloud.preempt(id)

    def fill(self, count: int, owner: str) -> set[str]:
        """Add entries."""
        names = ("owner", "cluster", "token", "notebook", "lease-end")
        values: tuple[Any, ...] = (owner, "many", "many-00000000", "", "2000000000")
        tags = {f"jupyter-sky-{name}": value for name, value in zip(names, values, strict=True)}
        return self.cloud.fill(count, tags)


class PromptToyWorld(ToyWorld):
    """The emulated cloud for providers with faults: what does not come about is known soon."""

    settle_seconds = 10.0
