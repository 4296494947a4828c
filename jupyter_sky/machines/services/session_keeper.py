"""Process beside a session of a managed service: renews its token, and ends it with its engine.

It goes on when the notebook ends, and ends with the session. Where it is killed, the session ends
by its own idle time.

Run it as ``python -m jupyter_sky.machines.services.session_keeper TOKEN``.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import cast

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.requests.resources import format_duration
from jupyter_sky.base.translation import _
from jupyter_sky.clouds import get_launcher
from jupyter_sky.clouds.launches.launch_records import is_launching
from jupyter_sky.clouds.launches.machine_records import launch_records, update_record
from jupyter_sky.machines.services.service_cloud import ServiceCloud

CHECK_SECONDS = 1.0
ASK_SECONDS = 10.0
"""Period at which the service is asked whether the session goes on."""
RENEW_SECONDS = 90.0
"""A token is renewed so long before it expires."""


class SessionKeeper:
    """Watch of one session.

    Parameters
    ----------
    token
        Of its launch.
    """

    def __init__(self, token: str) -> None:
        record = launch_records().read(token)
        self.token, self.idle = token, float(record.get("idle", 0.0))
        self.lease_end = float(record["lease_end"])
        self.cloud = cast(ServiceCloud, get_launcher(record["cloud"]))
        self.machines = self.cloud.recorded_machines(token)
        self._asked = self._expires = 0.0

    def check(self, now: float) -> bool:
        """Do what is due; return whether the session goes on."""
        record = launch_records().read(self.token)
        if "ended" in record:
            return False
        host = self.cloud.host(self.machines)
        is_over = not host.is_running() if host.has_started else not is_launching(record)
        if is_over or now > self.lease_end:
            self._end()
            return False
        is_due = now - self._asked > ASK_SECONDS or now > self._expires - RENEW_SECONDS
        return self._ask(now) if is_due else True

    def _ask(self, now: float) -> bool:
        """Ask how the session is, and renew its token where it is due."""
        self._asked = now
        ids = [machine.id for machine in self.machines]
        found = self.cloud.call(lambda: self.cloud.provider.describe(ids))
        if not found or found[0].state == "ended":
            update_record(
                self.token, session_end=self._describe_end(found[0].reason if found else "")
            )
            self._end()
            return False
        if now > self._expires - RENEW_SECONDS:
            endpoint = self.cloud.call(lambda: self.cloud.provider.endpoint(ids[0]))
            if endpoint is not None:
                self.cloud.write_endpoint(self.token, endpoint)
                self._expires = endpoint.expires
        return True

    def _describe_end(self, reason: str) -> str:
        if reason != "idle":
            return reason or _("the service has ended its session")
        return _("its session was not used for {time}; Sky.idle or --idle allows more").format(
            time=format_duration(self.idle)
        )

    def _end(self) -> None:
        self.cloud.terminate([machine.id for machine in self.machines])


def main(token: str) -> None:
    """Watch a session until it has ended."""
    keeper = SessionKeeper(token)
    while True:
        with suppress(SkyError):  # it is asked again
            if not keeper.check(time.time()):
                return
        time.sleep(CHECK_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1])
