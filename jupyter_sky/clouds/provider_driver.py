"""Driver of a cloud that another package adds through `jupyter_sky.provider.Provider`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial

from ..concurrency import run_abandonable
from ..offers import Offer
from ..provider.protocol import Provider
from ..provider.values import LaunchRequest, Machine, MachineConfig
from .base import OnCreated, Tick, ignore


class ProviderDriver:
    """Adapter of a `Provider` to the operations of `base.Driver`.

    Parameters
    ----------
    provider
        Of the other package.
    """

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.name, self.login = provider.name, provider.login
        self.configured, self.identify = provider.configured, provider.identify
        self.machines, self.describe = provider.machines, provider.describe
        self.power_off = provider.power_off
        self.explain, self.console = provider.explain, provider.console
        self.self_delete_script, self.remove = provider.self_delete_script, provider.terminate

    def offers(self) -> list[Offer]:
        """Return what the provider sells."""
        return list(self.provider.offers())

    def create(
        self,
        order: LaunchRequest,
        machine_config: MachineConfig,
        tick: Tick,
        on_created: OnCreated = ignore,
    ) -> list[Machine]:
        """Launch in a thread, so that `tick` can give up; late machines are then terminated."""
        launch = partial(self.provider.launch, order, machine_config)
        made = run_abandonable(launch, tick, self._discard_late_machines)
        return sorted(made, key=lambda machine: machine.rank)

    def _discard_late_machines(self, machines: Sequence[Machine]) -> None:
        with suppress(Exception):  # the reaper asks again
            self.remove([machine.id for machine in machines])

    def list_ended(self, token: str, region: str, sent: float) -> list[Machine] | None:
        """Return None: the protocol does not list ended machines."""
        return None

    def delete_unused_resources(
        self, owner: str, regions: Collection[str] | None = None
    ) -> list[str]:
        """Delete what belongs to no machine of an owner."""
        alive = {machine.token for machine in self.machines(owner=owner)}
        return self.provider.sweep(owner, alive, regions)
