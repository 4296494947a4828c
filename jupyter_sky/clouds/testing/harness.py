"""Account under test: launches and their expected ends, for the checks of `provider`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Any

from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.clouds.launches import cloud_init
from jupyter_sky.clouds.launches.launch_records import installation_id
from jupyter_sky.clouds.launches.launcher import Launcher
from jupyter_sky.clouds.launches.ssh_slot import Slot
from jupyter_sky.clouds.provider import LaunchRequest, Machine, MachineConfig, Provider
from jupyter_sky.clouds.testing.world import World


def load(path: str) -> Any:
    """Return the object that ``module:name`` names.

    Examples
    --------
    >>> load("math:pi") > 3
    True
    """
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def wait_until(holds: Callable[[], bool], seconds: float = World.settle_seconds) -> None:
    """Wait for a condition; fail when it does not come about in time."""
    last = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < last, f"not within {seconds:g} s"
        time.sleep(0.05)


@dataclass
class Account:
    """Provider and world under test, with a data directory of one check.

    Attributes
    ----------
    managed : Launcher
        The provider as jupyter_sky drives it: with records, retries and confirmed ends. Machines of
        one's own have a manager of their own kind.
    """

    provider: Provider
    world: World
    folder: Path
    managed: Launcher = field(init=False)
    _configs: dict[str, MachineConfig] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self._is_wrapped:
            self.managed = clouds.get_launcher(self.provider.name)
        else:
            self.managed = Launcher(self.provider)

    @property
    def _is_wrapped(self) -> bool:
        """Whether the provider under test stands for a cloud that has none."""
        return self.provider.name in clouds.ON_PREMISES

    @property
    def owner(self) -> str:
        """Owner that the data directory's launches carry."""
        return installation_id(self.folder)

    def request(
        self, nodes: int = 1, owner: str = "", lease: float = 3600.0, spot: bool = False
    ) -> LaunchRequest:
        """Return a new launch request."""
        return LaunchRequest(
            token=f"check-{secrets.token_hex(4)}",
            cluster="check",
            offer=self.world.offer(self.provider, spot),
            resources=Resources(nodes=nodes),
            idle=600.0,
            owner=owner or self.owner,
            notebook="check.ipynb",
            lease=lease,
        )

    def config(self, request: LaunchRequest) -> MachineConfig:
        """Return the initial configuration of a request's machines, the same again for the same."""
        if request.token in self._configs:
            return self._configs[request.token]
        folder = self.folder / "configs" / request.token
        folder.mkdir(parents=True, exist_ok=True)
        ending = self.provider.self_delete_script(request)
        config = self._configs[request.token] = cloud_init.create_machine_config(
            request, folder, ending, time.time(), self.provider.power_off
        )
        return config

    def launch(self, request: LaunchRequest) -> list[Machine]:
        """Launch by one call of the provider, without retries and records."""
        return self.provider.launch(request, self.config(request), Event())

    def sweep(self, alive: Collection[str] = ()) -> None:
        """Delete what belongs to no machine, by the provider and as jupyter_sky asks for it."""
        self.provider.sweep(self.owner, alive)
        if not self._is_wrapped:
            self.managed.delete_unused_resources()

    def close(self) -> None:
        """Let what waits for machines that have ended give up."""
        if not self._is_wrapped:
            with suppress(SkyError):
                self.managed.close_ended_records()

    def connect(self, machines: list[Machine]) -> list[Slot]:
        """Wait until machines of a managed launch answer by SSH."""
        self.world.require("ssh")
        return self.managed.await_slots(machines)

    def costs_exactly(self, machines: list[Machine]) -> None:
        """Wait until nothing costs but some machines."""
        ids = {machine.id for machine in machines}
        wait_until(lambda: self.world.bill() == ids, self.world.settle_seconds)

    def costs_nothing(self) -> None:
        """Wait until nothing costs any more."""
        self.costs_exactly([])
