"""Machines that are stopped by a request and started again, their disks kept.

The end of a lease stays: a stopped machine cannot end itself, so a process of this user does, see
`lease_watcher`; once it is started, its own lease goes on with what is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

from ..errors import SkyError, SkyUnreachable
from ..translation import _
from . import cloud_init, lease_watch, ssh_slot
from .base import Machine, StatusCallback, no_tick
from .machine_records import launch_records, update_record
from .retries import RetryingCaller
from .ssh_slot import Slot
from .termination import collect_journals

STOP_SECONDS = 300.0
"""A machine that is not off so long after its stop was asked for is told as such."""
START_SECONDS = 600.0
"""A machine that has no address so long after its start is given up."""


def stop_machines(call: RetryingCaller, token: str, say: StatusCallback = no_tick) -> None:
    """Power the machines of an order off and keep them, after their journals were copied.

    Parameters
    ----------
    token
        Of the order.
    say
        Called with what is being waited for, again and again.

    Raises
    ------
    SkyError
        They could not be told, the cloud refuses, or they are not off after `STOP_SECONDS`.
    """
    record = launch_records().read(token)
    nodes = [Slot.load(node) for node in record.get("nodes", ())]
    ids = [machine["id"] for machine in record["machines"]]
    try:
        ssh_slot.announce_stop(nodes)
    except BaseException:  # those that were told would outlive the end of their cluster
        _withdraw_stop(nodes)
        raise
    try:
        collect_journals({token: record}, ())
        update_record(token, stopped=time.time())  # before the request: nobody takes it for lost
        call(partial(call.driver.stop, ids))
    except BaseException:
        update_record(token, stopped=0.0)
        _withdraw_stop(nodes)
        raise
    lease_watch.start_watch_process()
    _await_stopped(call, ids, say)


def _withdraw_stop(nodes: Sequence[Slot]) -> None:
    """Tell machines that they are not stopped after all, as far as they answer."""
    with suppress(SkyError):
        ssh_slot.withdraw_stop(nodes)


def stop_machines_again(call: RetryingCaller, token: str) -> None:
    """Power the machines of an order off on which no cluster could be started again.

    Those that answer put the files of their cluster aside, as at the first time.
    """
    record = launch_records().read(token)
    nodes = [Slot.load(node) for node in record.get("nodes", ())]
    with suppress(SkyError):
        ssh_slot.announce_stop(nodes)
    ids = [machine["id"] for machine in record["machines"]]
    call(partial(call.driver.stop, ids))
    _await_stopped(call, ids)


def _await_stopped(call: RetryingCaller, ids: Sequence[str], say: StatusCallback = no_tick) -> None:
    """Wait until machines are off."""
    found = _await_machines(
        call, ids, lambda machines: all(each.stopped for each in machines), STOP_SECONDS, say
    )
    if late := [machine.id for machine in found if not machine.stopped]:
        raise SkyUnreachable(
            _("{late} on {name} are not off after {seconds:g} s").format(
                late=", ".join(late), name=call.name, seconds=STOP_SECONDS
            ),
            hint=_("look again: jupyter sky status"),
        )


def start_machines(
    call: RetryingCaller, token: str, say: StatusCallback = no_tick
) -> list[Machine]:
    """Start the machines of an order that were stopped; return them with their new addresses.

    Their SSH keys are those that were pinned before. Until `note_started` the machines count as
    stopped: what ends lost ones leaves them alone.

    Raises
    ------
    SkyNoCapacity
        The place has none of them now; they stay stopped.
    SkyUnreachable
        They have no address after `START_SECONDS`.
    """
    record = launch_records().read(token)
    old = {machine["id"]: Machine(**machine) for machine in record["machines"]}
    call(partial(call.driver.start, list(old)))

    def are_up(machines: Sequence[Machine]) -> bool:
        return all(
            each.state == "running" and each.address and not each.stopped for each in machines
        )

    found = _await_machines(call, list(old), are_up, START_SECONDS, say)
    if not are_up(found) or len(found) < len(old):
        raise SkyUnreachable(
            _("machines of {cluster} are not running after {seconds:g} s").format(
                cluster=record["cluster"], seconds=START_SECONDS
            )
        )
    moved = {old[machine.id].address: machine.address for machine in found}
    cloud_init.move_pinned_keys(launch_records().folder(token), moved)
    by_rank = sorted(found, key=lambda machine: old[machine.id].rank)
    update_record(token, machines=[asdict(machine) for machine in by_rank])
    return by_rank


def note_started(token: str) -> None:
    """Note that a cluster runs again on the machines of an order."""
    update_record(token, stopped=0.0)


def _await_machines(
    call: RetryingCaller,
    ids: list[str] | Sequence[str],
    is_done: Callable[[Sequence[Machine]], Any],
    seconds: float,
    say: StatusCallback,
) -> list[Machine]:
    """Look at machines until something holds of all of them, or the time is over."""
    deadline, wait = time.monotonic() + seconds, 0.2
    while True:
        found = call(partial(call.driver.describe, ids))
        if (len(found) == len(ids) and is_done(found)) or time.monotonic() > deadline:
            return found
        until = time.monotonic() + wait
        while time.monotonic() < until:
            say("")
            time.sleep(min(0.1, wait))
        wait = min(wait * 1.5, 3.0)
