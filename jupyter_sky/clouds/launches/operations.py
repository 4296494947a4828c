"""Launch and sweep by any `Provider`, with the parts that are the same for every cloud."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial

from jupyter_sky.base.concurrency import run_abandonable
from jupyter_sky.clouds.launches.base import Tick, no_tick
from jupyter_sky.clouds.provider.protocol import Provider
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine, MachineConfig


def launch_machines(
    provider: Provider, request: LaunchRequest, config: MachineConfig, tick: Tick = no_tick
) -> list[Machine]:
    """Launch the machines of a request in a thread, so that `tick` can give up meanwhile.

    Machines that come after that are terminated.

    Parameters
    ----------
    tick
        Called about ten times a second; it may raise to give up.

    Returns
    -------
    list of Machine
        By rank.
    """
    launch = partial(provider.launch, request, config)
    made = run_abandonable(launch, tick, partial(_discard_late_machines, provider))
    return sorted(made, key=lambda machine: machine.rank)


def _discard_late_machines(provider: Provider, machines: Sequence[Machine]) -> None:
    with suppress(Exception):  # the reaper asks again
        provider.terminate([machine.id for machine in machines])


def delete_unused_resources(
    provider: Provider, owner: str, regions: Collection[str] | None = None
) -> list[str]:
    """Delete what no machine of an owner uses, in some regions or all; return what it was."""
    alive = {machine.token for machine in provider.machines(owner=owner, regions=regions)}
    return provider.sweep(owner, alive, regions)
