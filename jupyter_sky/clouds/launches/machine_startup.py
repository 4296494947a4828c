"""Waiting for machines of a launch until they run and answer by SSH."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from jupyter_sky.base.concurrency import run_parallel
from jupyter_sky.base.errors import SkyCancelled, SkyClusterLost, SkyUnreachable
from jupyter_sky.base.remote.ssh_address import Address
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches import cloud_init, ssh_slot
from jupyter_sky.clouds.launches.base import Machine, StatusCallback, no_tick
from jupyter_sky.clouds.launches.machine_records import (
    VISIBILITY_SECONDS,
    has_order_ended,
    launch_records,
    update_record,
)
from jupyter_sky.clouds.launches.retries import RetryingCaller
from jupyter_sky.clouds.launches.ssh_slot import Slot

STARTUP_SECONDS = 600.0
"""A machine that does not answer by then is given up."""
HOST_KEY_SECONDS = 60.0
"""A machine that shows another host key after so long is given up: it is not ours."""
CONSOLE_LINES = 8


class MachineStartup:
    """Waiting for the machines of one cloud.

    Parameters
    ----------
    call
        Sends requests to the cloud.
    """

    def __init__(self, call: RetryingCaller) -> None:
        self.call, self.driver = call, call.driver

    def await_slots(self, machines: Sequence[Machine], say: StatusCallback = no_tick) -> list[Slot]:
        """Wait until machines answer; take the one slot of each.

        Raises
        ------
        SkyClusterLost
            A machine has ended, or does not answer; with the last of its console.
        """
        machines, ended = self._await_running(machines, say), threading.Event()
        token = machines[0].token
        folder = launch_records().folder(token)
        note = {"cluster": machines[0].cluster, "owner": machines[0].owner}
        note |= {"started": machines[0].started}
        host_key = cloud_init.read_next_host_key(folder)
        say("first contact")
        jobs = [
            partial(self._connect_slot, machine, _new_slot(folder, machine), note, host_key, ended)
            for machine in machines
        ]
        nodes = run_parallel(jobs, lambda: say("first contact"), ended)
        update_record(token, nodes=[asdict(node) for node in nodes], launching=None)
        if host_key:
            addresses = [_address(folder, machine) for machine in machines]
            threading.Thread(
                target=cloud_init.await_host_key_rotation,
                args=(folder, addresses, partial(has_order_ended, token)),
                name="jupyter-sky-host-keys",
                daemon=True,
            ).start()
        return nodes

    def _await_running(self, machines: Sequence[Machine], say: StatusCallback) -> list[Machine]:
        ids, begun = [machine.id for machine in machines], time.monotonic()
        listed = dict.fromkeys(ids, begun)
        wait = 0.1
        while True:
            found = {machine.id: machine for machine in self._describe(ids)}
            for machine in machines:
                if machine.id in found:
                    listed[machine.id] = time.monotonic()
                self._refuse_ended(machine, found.values(), listed[machine.id])
            if len(found) == len(ids) and all(
                machine.state == "running" and machine.address for machine in found.values()
            ):
                up = [replace(found[old.id], token=old.token, rank=old.rank) for old in machines]
                update_record(up[0].token, machines=[asdict(machine) for machine in up])
                return up
            if time.monotonic() - begun > STARTUP_SECONDS:
                late = next((m for m in machines if m.id not in found), machines[0])
                raise self._startup_error(late, f"it is not running after {STARTUP_SECONDS:g} s")
            until = time.monotonic() + wait
            while time.monotonic() < until:
                say("machine starting")
                time.sleep(min(0.1, wait))
            wait = min(wait * 1.3, 3.0)

    def _connect_slot(
        self,
        machine: Machine,
        node: Slot,
        note: dict[str, Any],
        host_key: str,
        ended: threading.Event,
    ) -> Slot:
        """Take a slot as soon as there is an answer by SSH, a while after the machine runs."""
        begun = listed = time.monotonic()
        while not ended.is_set():
            try:
                return ssh_slot.acquire_slot(node, note, host_key)
            except SkyUnreachable as error:
                passed = time.monotonic() - begun
                if passed > STARTUP_SECONDS or (
                    "another host key" in error.message and passed > HOST_KEY_SECONDS
                ):
                    raise self._startup_error(machine, error.message) from None
            found = self._describe([machine.id])
            listed = time.monotonic() if found else listed
            self._refuse_ended(machine, found, listed)
            ended.wait(0.2)
        raise SkyCancelled(_("{id} is no longer waited for").format(id=machine.id))

    def _describe(self, ids: Sequence[str]) -> list[Machine]:
        return self.call(lambda: self.driver.describe(ids))

    def _refuse_ended(self, machine: Machine, found: Iterable[Machine], listed: float) -> None:
        """Raise the error of a machine that has ended, is off and there all the same, or is gone.

        Parameters
        ----------
        found
            Machines that the cloud lists now.
        listed
            Time on the monotonic clock at which it was listed last.
        """
        for seen in found:
            if seen.id == machine.id and seen.state == "ended":
                raise self._startup_error(seen, seen.reason or "it ended as it started")
            if seen.id == machine.id and seen.stopped:
                raise self._startup_error(seen, "it was powered off as it started")
        if time.monotonic() - listed > VISIBILITY_SECONDS:
            raise self._startup_error(machine, "the cloud no longer knows it")

    def _startup_error(self, machine: Machine, why: str) -> SkyClusterLost:
        last = ""
        with suppress(Exception):  # it is only to explain
            lines = self.driver.console(machine.id).strip().splitlines()[-CONSOLE_LINES:]
            last = "".join(f"\n    {line}" for line in lines)
        return SkyClusterLost(
            _("{id} on {cloud} did not come up: {why}{last}").format(
                id=machine.id, cloud=machine.cloud, why=why, last=last
            )
        )


def _new_slot(folder: Path, machine: Machine) -> Slot:
    return Slot(
        machine.rank,
        token=f"{machine.token}.{machine.rank}",
        host=machine.id,
        address=_address(folder, machine),
        private=machine.private,
    )


def _address(folder: Path, machine: Machine) -> Address:
    """Return the SSH address of a machine, with the pinned key of its launch."""
    return cloud_init.pinned_address(
        folder, machine.address, machine.user, machine.port, machine.through
    )
