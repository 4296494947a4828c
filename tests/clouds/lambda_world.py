"""Account of the emulated Lambda under the conformance suite."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import psutil

from jupyter_sky.provider.values import ErrorCause
from jupyter_sky.testing import Operation, World
from tests.emulators.fleet import Fleet
from tests.emulators.lambda_machines import LambdaMachines
from tests.emulators.lambdalabs import KEY
from tests.emulators.loopback import machine_env, warm_cache
from tests.emulators.server import write_authority

REQUESTS: dict[Operation, str] = {
    "launch": "POST /api/v1/instance-operations/launch",
    "machines": "GET /api/v1/instances",
    "terminate": "POST /api/v1/instance-operations/terminate",
}
CODES: dict[ErrorCause, str] = {
    "capacity": "instance-operations/launch/insufficient-capacity",
    "quota": "global/quota-exceeded",
    "permission": "global/invalid-api-key",
    "invalid": "global/invalid-parameters",
    "throttled": "global/too-many-requests",
}


class LambdaWorld(World):
    """The emulated account, with real machines."""

    unsupported: ClassVar = {"boots_in": "its machines take the time that they take"}
    boot_seconds = 30.0

    def __init__(self) -> None:
        warm_cache()
        self.fleet = Fleet(minute=1.0)
        self.api = LambdaMachines(self.fleet)
        self._folder = tempfile.TemporaryDirectory()

    def environment(self) -> dict[str, str]:
        """Return the key, and the address of the API."""
        authority = Path(self._folder.name) / "authority.pem"
        write_authority(authority)
        settings = {"endpoint": f"{self.api.url}/api/v1", "launch_seconds": "0.1"}
        return {
            "LAMBDA_API_KEY": KEY,
            "SKY_PROVIDERS": repr({"lambda": settings}),
            "REQUESTS_CA_BUNDLE": str(authority),
            "NO_PROXY": "localhost,127.0.0.1",
            "no_proxy": "localhost,127.0.0.1",
        } | machine_env(self.fleet)

    def bill(self) -> set[str]:
        """Return what was launched and not terminated."""
        return self.api.billed()

    def reset(self) -> None:
        """Terminate all instances."""
        self.api.reset()

    def close(self) -> None:
        """End the machines, their cloud, and the process that watches them."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                watches = "jupyter_sky.clouds.lease_watcher" in process.cmdline()
                if watches and self.api.url in process.environ().get("SKY_PROVIDERS", ""):
                    process.kill()
        self.api.close()
        self.fleet.close()
        self._folder.cleanup()

    def refuse(self, cause: ErrorCause, times: int = 1, after: int = 0) -> None:
        """Refuse launches; each machine is one."""
        self.api.refusals += [""] * after + [CODES[cause]] * times

    def lose_answer(self, operation: Operation) -> None:
        """Lose an answer."""
        self.api.trouble(REQUESTS[operation], "cut")

    def delay(self, operation: Operation, seconds: float) -> None:
        """Carry launches out late."""
        assert operation == "launch"
        self.api.delay = seconds

    def hide_new(self, seconds: float) -> None:
        """Hide new machines."""
        self.api.hidden = seconds

    def stop(self, id: str) -> None:
        """Power a machine off."""
        self.api.power_off(id)

    def take_back(self, id: str) -> None:
        """Take a machine back."""
        self.api.end(id, "preempted")

    def fill(self, count: int, owner: str) -> set[str]:
        """Add entries."""
        names = ("owner", "cluster", "token", "lease-end")
        values = (owner, "many", "many-00000000", "2000000000")
        tags = {f"jupyter-sky-{name}": value for name, value in zip(names, values, strict=True)}
        return self.api.fill(count, tags)
