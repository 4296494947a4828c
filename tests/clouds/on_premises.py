"""Clouds of one's own machines as providers, for the conformance suite."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from threading import Event

from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyCancelled, SkyNoCapacity, SkyUnreachable
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.clouds.launches.base import OnPremisesCloud
from jupyter_sky.clouds.local import LocalFacts
from jupyter_sky.clouds.provider import CloudError, LaunchRequest, Machine, MachineConfig, Provider
from jupyter_sky.clouds.ssh import SshFacts


class OnPremises(Provider):
    """The six operations, by the methods of a cloud of one's own machines."""

    @property
    def cloud(self) -> OnPremisesCloud:
        """The cloud itself."""
        return clouds.on_premises_cloud(self.name)

    def configured(self) -> str:
        """Return that it needs no credentials."""
        return "machines of one's own"

    def offers(self) -> Iterable[Offer]:
        """Return what any request is offered."""
        return self.cloud.offers(Resources())

    def launch(self, request: LaunchRequest, config: MachineConfig, stop: Event) -> list[Machine]:
        """Take slots."""

        def tick() -> None:
            if stop.is_set():
                raise SkyCancelled("the machines are no longer wanted")

        return self.cloud.launch(request, tick)

    def machines(
        self, *, owner: str = "", token: str = "", regions: Collection[str] | None = None
    ) -> list[Machine]:
        """List what this data directory holds, which is of one owner."""
        return [each for each in self.cloud.list_mine() if token in ("", each.token)]

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Say how machines are."""
        return self.cloud.describe(ids)

    def terminate(self, ids: Sequence[str]) -> None:
        """Give slots back."""
        self.cloud.terminate(ids)

    def sweep(
        self, owner: str, alive: Collection[str], regions: Collection[str] | None = None
    ) -> list[str]:
        """Delete nothing: a slot that is given back leaves nothing."""
        return []

    def explain(self, error: Exception) -> CloudError | None:
        """Classify by the kind of error."""
        if isinstance(error, SkyNoCapacity):
            return CloudError("capacity", type(error).__name__, error.message)
        if isinstance(error, SkyUnreachable):
            return CloudError("transient", type(error).__name__, error.message)
        return None


class Ssh(SshFacts, OnPremises):
    """Machines reached by SSH."""


class Local(LocalFacts, OnPremises):
    """This machine; each cluster runs something that waits."""

    _lock = threading.Lock()

    def launch(self, request: LaunchRequest, config: MachineConfig, stop: Event) -> list[Machine]:
        """Start a cluster's supervisor, once."""
        with self._lock:
            machines = super().launch(request, config, stop)
            ids = [machine.id for machine in machines]
            if self.cloud.describe(ids)[0].state != "running":
                clouds.get("local").host(machines).start("tests.clouds.waiting_process", {})  # type: ignore[attr-defined]
            return machines
