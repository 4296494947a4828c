"""Driver of a cloud that another package adds through `jupyter_sky.provider.Provider`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from threading import Event

from ..offers import Offer
from ..provider.protocol import Provider
from ..provider.values import CloudError, LaunchRequest, Machine, MachineConfig
from .base import OnCreated, Tick, ignore

POLL_SECONDS = 0.1


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
        self.describe, self.console = provider.describe, provider.console

    def explain(self, error: Exception) -> CloudError | None:
        """Classify an error of the provider."""
        return self.provider.explain(error)

    def offers(self) -> list[Offer]:
        """Return what the provider sells."""
        return list(self.provider.offers())

    def self_delete_script(self, order: LaunchRequest) -> str:
        """Return shell commands by which a machine deletes itself."""
        return self.provider.self_delete_script(order)

    def create(
        self,
        order: LaunchRequest,
        machine_config: MachineConfig,
        tick: Tick,
        on_created: OnCreated = ignore,
    ) -> list[Machine]:
        """Launch in a thread, so that `tick` can give up; late machines are then terminated."""
        stop = Event()
        worker = ThreadPoolExecutor(1, thread_name_prefix=f"jupyter-sky-{self.name}")
        future = worker.submit(self.provider.launch, order, machine_config, stop)
        try:
            while not wait([future], timeout=POLL_SECONDS).done:
                tick()
        except BaseException:
            stop.set()
            future.add_done_callback(self._discard_late_machines)
            raise
        finally:
            worker.shutdown(wait=False)
        return sorted(future.result(), key=lambda machine: machine.rank)

    def _discard_late_machines(self, future: Future[list[Machine]]) -> None:
        if future.exception() is None:
            with suppress(Exception):  # the reaper asks again
                self.remove([machine.id for machine in future.result()])

    def machines(
        self, *, owner: str = "", token: str = "", regions: Collection[str] | None = None
    ) -> list[Machine]:
        """List machines that have not ended."""
        return self.provider.machines(owner=owner, token=token, regions=regions)

    def list_ended(self, token: str, region: str, sent: float) -> list[Machine] | None:
        """Return None: the protocol does not list ended machines."""
        return None

    def remove(self, ids: Sequence[str]) -> None:
        """Ask for the end of machines."""
        self.provider.terminate(ids)

    def delete_unused_resources(
        self, owner: str, regions: Collection[str] | None = None
    ) -> list[str]:
        """Delete what belongs to no machine of an owner."""
        alive = {machine.token for machine in self.machines(owner=owner)}
        return self.provider.sweep(owner, alive, regions)

    def teardown(self, region: str) -> None:
        """Do nothing: `delete_unused_resources` leaves nothing behind."""
