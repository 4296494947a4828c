"""Sessions of a managed service as a cloud: its cells run on this machine, its queries there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace

from jupyter_sky.base.errors import SkyNoCapacity
from jupyter_sky.base.remote.supervisor import write_private
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.settings.background_process import start_background_process
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.base import StatusCallback, Tick, no_tick
from jupyter_sky.clouds.launches.launcher import Launcher
from jupyter_sky.clouds.launches.machine_records import launch_records, update_record
from jupyter_sky.clouds.launches.session_provider import SessionEndpoint, SessionProvider
from jupyter_sky.clouds.local import LocalHost, end_supervisors
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine
from jupyter_sky.machines.engines.node.service_orders import ENDPOINT, FOLDER

READY_SECONDS = 900.0
"""Longest start of a session."""
POLL_SECONDS = 1.0


class ServiceCloud(Launcher):
    """A managed service that launches sessions; each has an engine on this machine."""

    provider: SessionProvider

    def launch(self, request: LaunchRequest, tick: Tick = no_tick) -> list[Machine]:
        """Start the session of a request; what is noted before says where to look."""
        machines = super().launch(request, tick)
        (launch_records().folder(request.token) / "work").mkdir(mode=0o700, exist_ok=True)
        return machines

    def await_ready(
        self, request: LaunchRequest, machines: Sequence[Machine], say: StatusCallback
    ) -> None:
        """Wait until the session of a request can be used, and note where it is reached.

        Raises
        ------
        SkyNoCapacity
            It has failed for want of capacity, or did not start in time.
        """
        deadline = time.monotonic() + READY_SECONDS
        asked = 0.0
        while True:
            say("")
            if time.monotonic() - asked > POLL_SECONDS:
                asked = time.monotonic()
                endpoint = self.call(lambda: self.provider.endpoint(machines[0].id), request.offer)
                if endpoint is not None:
                    return self.write_endpoint(request.token, endpoint)
            if time.monotonic() > deadline:
                raise SkyNoCapacity(
                    _("{place}: the session has not started within {seconds:g} s").format(
                        place=request.offer.place, seconds=READY_SECONDS
                    )
                )
            time.sleep(0.05)

    def write_endpoint(self, token: str, endpoint: SessionEndpoint) -> None:
        """Write where the session of a request is reached, for the engine on this machine."""
        folder = launch_records().folder(token)
        (folder / FOLDER).mkdir(mode=0o700, exist_ok=True)
        offer = Offer(**launch_records().read(token)["offer"])
        version = dict(each.split("==", 1) for each in offer.packages).get("spark", "")
        said = {"session": token, "version": version, "service": offer.service, "nodes": 1}
        write_private(folder / FOLDER / ENDPOINT, asdict(endpoint) | said)

    def host(self, machines: Sequence[Machine]) -> LocalHost:
        """Return this machine, whose engine is the client of the session."""
        return LocalHost(launch_records().folder(machines[0].token), {})

    def start_keeper(self, machines: Sequence[Machine]) -> None:
        """Start the process that renews tokens, and ends the session with its engine."""
        module = ["-P", "-m", "jupyter_sky.machines.services.session_keeper", machines[0].token]
        start_background_process(module, Sky.load())

    def note_started(self, machines: Sequence[Machine]) -> None:
        """Note that the engine of a session has started: from now on it is watched."""
        update_record(machines[0].token, launching=None)

    # -- afterwards --------------------------------------------------------------------------

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Say how sessions are; one whose engine on this machine has ended is over."""
        return [self._with_engine(machine) for machine in super().describe(ids)]

    def _with_engine(self, machine: Machine) -> Machine:
        record = launch_records().read(machine.token)
        if machine.state == "ended":
            reason = record.get("session_end", "") or machine.reason
            return replace(machine, reason=reason)
        host = self.host([machine])
        if host.is_running() or not host.has_started:
            return machine
        ended = host.read_end()
        reason = record.get("session_end", "") or ended.get("reason", "")
        return replace(machine, state="ended", ended=ended.get("time"), reason=reason)

    def terminate(self, ids: Sequence[str]) -> None:
        """End engines and sessions; see them gone."""
        tokens = [
            token
            for token, record in launch_records().list_unfinished()
            if any(machine["id"] in ids for machine in record["machines"])
        ]
        end_supervisors([launch_records().folder(token) for token in tokens])
        super().terminate(ids)
