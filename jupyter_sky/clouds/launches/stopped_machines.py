"""Machines that are stopped by a request and started again, their disks kept.

The end of a lease stays: a stopped machine cannot end itself, so a process of this user does, see
`lease_watcher`; once it is started, its own lease goes on with what is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from typing import Any

from jupyter_sky.base.errors import SkyError, SkyUnreachable
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches import cloud_init, lease_watch, ssh_slot
from jupyter_sky.clouds.launches.base import StatusCallback, no_tick
from jupyter_sky.clouds.launches.machine_records import launch_records, update_record
from jupyter_sky.clouds.launches.retries import RetryingCaller
from jupyter_sky.clouds.launches.ssh_slot import Slot
from jupyter_sky.clouds.launches.termination import collect_journals
from jupyter_sky.clouds.provider.values import Machine

STOP_SECONDS = 300.0
"""A machine that is not off so long after its stop was asked for is told as such."""
START_SECONDS = 600.0
"""A machine that has no address so long after its start is given up."""


class StopPhase(StrEnum):
    """Progress of the stop of a request's machines, as its launch record has it."""

    ASKED = "asked"
    """The request may have been lost, or its answer: only the cloud knows whether they are off."""
    ACCEPTED = "accepted"
    """The cloud has said that it stops them."""
    OFF = "off"
    """They were seen off."""


def stop_phase(token: str) -> StopPhase:
    """Return the progress of the stop of a request."""
    return StopPhase(launch_records().read(token).get("stop_phase", StopPhase.OFF))


def stop_machines(call: RetryingCaller, token: str, say: StatusCallback = no_tick) -> None:
    """Power the machines of a request off and keep them, after their journals were copied.

    Parameters
    ----------
    token
        Of the request.
    say
        Called with what is being waited for, again and again.

    Raises
    ------
    SkyUnreachable
        They could not be told, or are not off after `STOP_SECONDS`; or the cloud has not answered:
        then its record says so, and `settle_stop` finds out.
    SkyError
        The cloud refuses.
    """
    record = launch_records().read(token)
    nodes = [Slot.load(node) for node in record.get("nodes", ())]
    try:
        ssh_slot.announce_stop(nodes)
        collect_journals({token: record}, ())
        # before the request: nobody takes it for lost
        update_record(token, stopped=time.time(), stop_phase=StopPhase.ASKED)
    except BaseException:  # those that were told would outlive the end of their cluster
        _withdraw_stop(nodes)
        raise
    lease_watch.start_watch_process()
    _request_stop(call, token)
    _await_stopped(call, token, say)


def _request_stop(call: RetryingCaller, token: str) -> None:
    """Ask for the stop of the machines of a request, and note the answer.

    Raises
    ------
    SkyUnreachable
        There is no answer: they are off, or not.
    SkyError
        The cloud refuses: the record says that they run.
    """
    record = launch_records().read(token)
    ids = [machine["id"] for machine in record["machines"]]
    try:
        call(partial(call.provider.stop, ids))
    except SkyUnreachable as error:
        unknown = _("it may be stopped or not: jupyter sky status asks the cloud again")
        error.hint = f"{error.hint}\n{unknown}" if error.hint else unknown
        raise
    except SkyError:
        update_record(token, stopped=0.0, stop_phase=StopPhase.OFF)
        _withdraw_stop([Slot.load(node) for node in record.get("nodes", ())])
        raise
    update_record(token, stop_phase=StopPhase.ACCEPTED)


def settle_stop(call: RetryingCaller, token: str) -> bool:
    """Find out whether the machines of a request are off that was stopped; return it.

    Machines that run are asked to stop once more, unless the cloud has said that it does so.

    Raises
    ------
    SkyUnreachable
        The cloud does not answer now either.
    SkyError
        The cloud refuses: the record says that they run.
    """
    ids = [machine["id"] for machine in launch_records().read(token)["machines"]]
    found, phase = call(partial(call.provider.describe, ids)), stop_phase(token)
    if len(found) == len(ids) and all(machine.stopped for machine in found):
        if phase != StopPhase.OFF:
            update_record(token, stop_phase=StopPhase.OFF)
        return True
    if phase == StopPhase.ASKED:
        _request_stop(call, token)
    return False


def _withdraw_stop(nodes: Sequence[Slot]) -> None:
    """Tell machines that they are not stopped after all, as far as they answer."""
    with suppress(SkyError):
        ssh_slot.withdraw_stop(nodes)


def stop_machines_again(call: RetryingCaller, token: str) -> None:
    """Power the machines of a request off on which no cluster could be started again.

    Those that answer put the files of their cluster aside, as at the first time.
    """
    nodes = [Slot.load(node) for node in launch_records().read(token).get("nodes", ())]
    update_record(token, stop_phase=StopPhase.ASKED)
    with suppress(SkyError):
        ssh_slot.announce_stop(nodes)
    _request_stop(call, token)
    _await_stopped(call, token)


def _await_stopped(call: RetryingCaller, token: str, say: StatusCallback = no_tick) -> None:
    """Wait until the machines of a request are off."""
    ids = [machine["id"] for machine in launch_records().read(token)["machines"]]
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
    update_record(token, stop_phase=StopPhase.OFF)


def start_machines(
    call: RetryingCaller, token: str, say: StatusCallback = no_tick
) -> list[Machine]:
    """Start the machines of a request that were stopped; return them with their new addresses.

    Their SSH keys are those that were pinned before. Until `note_started` the machines count as
    stopped: what ends lost ones leaves them alone.

    Raises
    ------
    SkyNoCapacity
        The place has none of them now; they stay stopped.
    SkyUnreachable
        They have no address after `START_SECONDS`.
    """
    if stop_phase(token) != StopPhase.OFF and not settle_stop(call, token):
        _await_stopped(call, token, say)  # a cloud refuses the start of what it still stops
    record = launch_records().read(token)
    old = {machine["id"]: Machine(**machine) for machine in record["machines"]}
    call(partial(call.provider.start, list(old)))

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
    """Note that a cluster runs again on the machines of a request; they end with it from now on."""
    update_record(token, stopped=0.0)
    nodes = [Slot.load(node) for node in launch_records().read(token).get("nodes", ())]
    with suppress(SkyError):  # then they end a while later: nobody renews their lease
        ssh_slot.confirm_start(nodes)


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
        found = call(partial(call.provider.describe, ids))
        if (len(found) == len(ids) and is_done(found)) or time.monotonic() > deadline:
            return found
        until = time.monotonic() + wait
        while time.monotonic() < until:
            say("")
            time.sleep(min(0.1, wait))
        wait = min(wait * 1.5, 3.0)
