"""Ends of machines that go on being billed when they have powered themselves off.

On some clouds only a request ends a machine: `CloudFacts.power_off_cost` is ``full``, or
`deletes_itself` is false. A process of this user sends it, when a machine no longer answers or its
lease is over; it goes on when the notebook ends, and ends with the last of these machines. Where
this machine is switched off meanwhile, the next notebook that is opened reaps. Of machines that
were stopped by a request, on any cloud, it keeps the end of the lease.

Run it as ``python -m jupyter_sky.clouds.lease_watcher``.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.json_types import JsonMapping
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.process_lock import only_process
from jupyter_sky.clouds import get_launcher
from jupyter_sky.clouds.launches.launch_records import is_launching
from jupyter_sky.clouds.launches.launcher import Launcher
from jupyter_sky.clouds.launches.lease_watch import is_watched
from jupyter_sky.clouds.launches.machine_records import launch_records
from jupyter_sky.clouds.provider.values import Machine

CHECK_SECONDS = 30.0
SILENT_SECONDS = 150.0
"""A machine whose SSH server has answered once, and has not for so long, counts as off."""
GIVE_UP_SECONDS = 86400.0
"""A cloud that has not answered for so long after the end of a lease is not asked any more."""
_CONNECT_SECONDS = 5.0
_LOCK = "lease-watch.lock"


class LeaseWatch:
    """Watch of all machines of this user that a request alone ends."""

    def __init__(self) -> None:
        self._answered: dict[str, float] = {}

    def check(self, now: float) -> float | None:
        """Terminate what is over; return the seconds until the next check, None with none left."""
        wait = None
        unfinished: dict[str, dict[str, JsonMapping]] = {}
        for token, record in _watched_records():
            wait = min(wait or CHECK_SECONDS, max(record["lease_end"] - now, 0.5))
            unfinished.setdefault(record["cloud"], {})[token] = record
        for cloud, records in unfinished.items():
            with suppress(SkyError):  # it is asked again
                self._check_cloud(get_launcher(cloud), records, now)
        return wait

    def _check_cloud(
        self, launcher: Launcher, records: Mapping[str, JsonMapping], now: float
    ) -> None:
        """Terminate the machines of a cloud that are over; `records` are its launches by token."""
        listed = launcher.call(lambda: launcher.provider.machines())
        machines = [machine for machine in listed if machine.token in records]
        over = [
            machine.id
            for machine in machines
            if self.is_over(machine, now, bool(records[machine.token].get("stopped")))
        ]
        if over:
            launcher.terminate(over)
        gone = records.keys() - {machine.token for machine in machines}
        if any(not is_launching(records[token]) for token in gone):
            launcher.close_ended_records()

    def is_over(self, machine: Machine, now: float, is_stopped: bool = False) -> bool:
        """Whether the lease of a machine is over, or it no longer answers and should."""
        if machine.lease_end is not None and machine.lease_end <= now:
            return True
        if is_stopped:
            self._answered.pop(machine.id, None)
            return False
        if _answers(machine):
            self._answered[machine.id] = now
        return now - self._answered.get(machine.id, now) > SILENT_SECONDS


def _watched_records() -> Iterator[tuple[str, JsonMapping]]:
    oldest = time.time() - GIVE_UP_SECONDS
    for token, record in launch_records().list_unfinished():
        if is_watched(record) and record["lease_end"] > oldest:
            yield token, record


def _answers(machine: Machine) -> bool:
    address = (machine.address, machine.port or Sky.load().ssh_port)
    with suppress(OSError), socket.create_connection(address, _CONNECT_SECONDS):
        return True
    return False


def main() -> None:
    """Watch until no machine is left."""
    watch = LeaseWatch()
    while any(_watched_records()):
        with only_process(launch_records().root / _LOCK) as is_only:
            if not is_only:
                return
            while (wait := watch.check(time.time())) is not None:
                time.sleep(wait)
        # what another process launched just now has found the lock taken: look again


if __name__ == "__main__":
    main()
