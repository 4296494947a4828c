"""Accounts of emulated clouds with a REST API under the conformance suite.

Their machines boot when a check asks for what an entry of the account cannot do.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import psutil

from jupyter_sky.clouds.provider.values import ErrorCause
from jupyter_sky.clouds.testing import Operation, World
from tests.emulators.fleet import Fleet
from tests.emulators.loopback import machine_env, warm_cache
from tests.emulators.rest_account import RestAccount
from tests.emulators.server import write_authority


class RestWorld(World):
    """Emulated account.

    Attributes
    ----------
    cloud : str
        Its name.
    account : type
        The emulator.
    key : dict
        Variables with the credentials.
    path : str
        Of the API on the emulator.
    requests : dict
        Description of the request of each operation.
    codes : dict
        The cloud's code for each cause of a refusal.

    Parameters
    ----------
    minute
        Seconds that a minute takes on machines.
    """

    unsupported: ClassVar = {"boots_in": "its machines take the time that they take"}
    boot_seconds = 30.0
    cloud: ClassVar[str]
    account: ClassVar[type[RestAccount]]
    key: ClassVar[dict[str, str]]
    path: ClassVar[str] = ""
    requests: ClassVar[dict[Operation, str]]
    codes: ClassVar[dict[ErrorCause, str]]

    def __init__(self, minute: float = 1.0) -> None:
        self.fleet = Fleet(minute=minute)
        self.api: Any = self.account(self.fleet)
        self._folder = tempfile.TemporaryDirectory()

    def settings(self) -> dict[str, str]:
        """Return the settings of the cloud."""
        return {"endpoint": f"{self.api.url}{self.path}", "launch_seconds": "0.1"}

    def environment(self) -> dict[str, str]:
        """Return the key, and the address of the API."""
        authority = Path(self._folder.name) / "authority.pem"
        write_authority(authority)
        return {
            **self.key,
            "SKY_PROVIDERS": repr({self.cloud: self.settings()}),
            "REQUESTS_CA_BUNDLE": str(authority),
            "NO_PROXY": "localhost,127.0.0.1",
            "no_proxy": "localhost,127.0.0.1",
        } | machine_env(self.fleet)

    def require(self, capability: str) -> None:
        """Boot machines where a check needs more than their entries."""
        super().require(capability)
        if capability in ("ssh", "leases", "cells"):
            warm_cache()
            self.api.boot()

    def bill(self) -> set[str]:
        """Return what the account is billed for."""
        return self.api.billed()

    def reset(self) -> None:
        """End all machines."""
        self.api.reset()

    def close(self) -> None:
        """End the machines, their cloud, and the process that watches them."""
        end_lease_watchers(self.api.url)
        self.api.close()
        self.fleet.close()
        self._folder.cleanup()

    def refuse(self, cause: ErrorCause, times: int = 1, after: int = 0) -> None:
        """Refuse launches; each machine is one."""
        self.api.refusals += [""] * after + [self.codes[cause]] * times

    def lose_answer(self, operation: Operation) -> None:
        """Lose an answer."""
        self.api.trouble(self.requests[operation], "cut")

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
        self.api.preempt(id)

    def fill(self, count: int, owner: str) -> set[str]:
        """Add entries."""
        names = ("owner", "cluster", "token", "lease-end")
        values = (owner, "many", "many-00000000", "2000000000")
        tags = {f"jupyter-sky-{name}": value for name, value in zip(names, values, strict=True)}
        return self.api.fill(count, tags)


def end_lease_watchers(url: str) -> None:
    """Kill the processes that watch machines of an emulated cloud at an address."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            watches = "jupyter_sky.clouds.lease_watcher" in process.cmdline()
            if watches and any(url in value for value in process.environ().values()):
                process.kill()
