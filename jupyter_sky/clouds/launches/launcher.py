"""Shared part of all clouds that rent machines: launch records, retries, confirmed ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from jupyter_sky.base.concurrency import run_abandonable, run_parallel
from jupyter_sky.base.errors import (
    SkyCancelled,
    SkyClusterLost,
    SkyError,
    SkyPermission,
    SkyStoreError,
    SkyUnreachable,
)
from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.remote.ssh_address import Address
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches import (
    cloud_init,
    lease_watch,
    machine_lease,
    ssh_slot,
    stopped_machines,
)
from jupyter_sky.clouds.launches.base import Credentials, StatusCallback, Tick, no_tick
from jupyter_sky.clouds.launches.launch_records import (
    installation_id,
    is_launching,
    translate_write_errors,
)
from jupyter_sky.clouds.launches.launch_support import launcher_name
from jupyter_sky.clouds.launches.machine_records import (
    VISIBILITY_SECONDS,
    MachineNotes,
    assume_running,
    has_request_ended,
    launch_records,
    merge_with_records,
    record_contains,
    update_record,
)
from jupyter_sky.clouds.launches.retries import RetryingCaller
from jupyter_sky.clouds.launches.ssh_slot import Slot
from jupyter_sky.clouds.launches.termination import (
    collect_journals,
    terminate_confirmed,
    terminate_or_request_shutdown,
)
from jupyter_sky.clouds.provider.protocol import Provider
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine, MachineConfig
from jupyter_sky.knowledge.tracker.quotas import AccountQuota


class Launcher:
    """A cloud whose machines are rented by the second, through its provider.

    Parameters
    ----------
    provider
        Calls the cloud's API and says what its errors mean.
    """

    def __init__(self, provider: Provider) -> None:
        self.provider, self.name = provider, provider.name
        self.call = RetryingCaller(provider)
        self._notes, self._startup = MachineNotes(), MachineStartup(self.call)
        provider.on_created = self._notes.write

    # -- before anything is launched ---------------------------------------------------------

    def has_credentials(self) -> bool:
        """Whether there are credentials to try; asks nobody."""
        return bool(self.call.call_once(self.provider.configured))

    def check(self) -> Credentials:
        """Prove the credentials by one request."""
        try:
            found = self.call.call_once(self.provider.configured)
            if not found:
                raise SkyPermission(_(self.provider.unconfigured), hint=self.provider.login)
            who = self.call(self.provider.identify)
        except SkyError as error:
            return Credentials(self.name, False, error.message, error.hint or "")
        return Credentials(self.name, True, f"{found}: {who}")

    def list_offers(self) -> list[Offer]:
        """Return what the cloud sells."""
        return self.call(lambda: list(self.provider.offers()))

    def has_quotas(self) -> bool:
        """Whether the quotas of an account can be read."""
        return type(self.provider).quotas is not Provider.quotas

    def list_quotas(self) -> list[AccountQuota]:
        """Return the quotas of the account."""
        return self.call(self.provider.quotas)

    # -- launching ---------------------------------------------------------------------------

    def launch(self, request: LaunchRequest, tick: Tick = no_tick) -> list[Machine]:
        """Launch all machines of a request, or none; what is noted before says where to look."""
        records = launch_records()
        record = records.create(request.token, _new_record(request))
        try:
            folder = records.folder(request.token)
            ending = self.call(lambda: self.provider.self_delete_script(request), request.offer)
            with translate_write_errors(folder):
                config = cloud_init.create_machine_config(
                    request, folder, ending, time.time(), self.provider.power_off
                )
            records.write(request.token, record | {"sent": time.time()})
            lease_watch.start_watch(request)
            machines = self.call(
                lambda: launch_machines(self.provider, request, config, tick), request.offer, tick
            )
            self._notes.write(request.token, machines)
            return machines
        except BaseException as error:
            try:
                self._roll_back(request.token, request.offer.region)
            except SkyError as trouble:  # the note stays, for the reaper
                with suppress(SkyStoreError):
                    update_record(request.token, launching=None)
                if isinstance(error, SkyError) and not self._was_refused(
                    request.token, error, trouble
                ):
                    left = f"machines may be up there ({trouble.message}): %sky reap"
                    error.hint = f"{error.hint}\n{left}" if error.hint else left
            raise

    def _was_refused(self, token: str, error: BaseException, trouble: SkyError) -> bool:
        """Whether a launch has made nothing, as far as is known: its credentials were refused."""
        are_refused = isinstance(error, SkyPermission) and isinstance(trouble, SkyPermission)
        return are_refused and not self.recorded_machines(token)

    def _roll_back(self, token: str, region: str) -> None:
        """End all that a request has made, whatever was heard of it, and see that it is gone."""
        machines = self.call(lambda: self.provider.machines(token=token, regions=[region]))
        every = {machine.id: machine for machine in (*self.recorded_machines(token), *machines)}
        with suppress(SkyStoreError):  # what cannot be noted is ended all the same
            self._notes.write(token, list(every.values()))
        terminate_confirmed(self.call, [machine.id for machine in machines])
        launch_records().mark_ended(token, {"time": time.time(), "reason": "it was not used"})

    def recorded_machines(self, token: str) -> list[Machine]:
        """Return the machines that a request is known to have made, up or not."""
        return self._notes.read(token)

    def find_launched(self, token: str) -> list[Machine]:
        """Return the machines that a request has made, by our note or else by the cloud."""
        return self.recorded_machines(token) or self._list_ended(token) or []

    def unobserved_interval(self, token: str, now: float) -> tuple[float, float] | None:
        """Return within which times a request may have had machines of which nothing is known.

        A machine on which no cluster has begun ends by itself after `machine_lease.BOOT_SECONDS`.

        Returns
        -------
        tuple of float or None
            Unix seconds; None for a request that was not sent, or that made no machines.
        """
        record = launch_records().read(token)
        if self._list_ended(token) is not None:
            return None
        sent = record["sent"]
        return sent, min(now, record["lease_end"], sent + machine_lease.BOOT_SECONDS)

    def _list_ended(self, token: str) -> list[Machine] | None:
        """Return the machines of a request that have ended; None where the cloud cannot tell."""
        record = launch_records().read(token)
        sent = record.get("sent")
        if sent is None or "ended" in record:
            return []
        return self.call(lambda: self.provider.list_ended(token, record["region"], sent))

    def read_recorded_end(self, token: str) -> JsonObject:
        """Return ``time`` and ``reason`` of the recorded end of a request; empty without one.

        Its reason is ``stopped`` where it was ended from here, and the cloud has confirmed it.
        """
        ended = launch_records().read(token).get("ended")
        return ended if isinstance(ended, dict) else {}

    # -- from machines to nodes --------------------------------------------------------------

    def await_slots(self, machines: Sequence[Machine], say: StatusCallback = no_tick) -> list[Slot]:
        """Wait until machines answer; take the one slot of each.

        Raises
        ------
        SkyClusterLost
            A machine has ended, or does not answer; with the last of its console.
        """
        return self._startup.await_slots(machines, say)

    def recorded_slots(self, machines: Sequence[Machine]) -> list[Slot]:
        """Return the slots as they were noted when their machines answered; asks nobody."""
        record = launch_records().read(machines[0].token)
        return [Slot.load(node) for node in record.get("nodes", [])]

    def limits(self, machines: Sequence[Machine]) -> dict[str, object]:
        """Return what engines are held to: nothing, the machine is all theirs."""
        return {}

    def cluster_folder(self, machines: Sequence[Machine]) -> Path:
        """Return where on this machine a cluster is noted."""
        return launch_records().folder(machines[0].token)

    # -- afterwards --------------------------------------------------------------------------

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Say how machines are; of those that cannot be asked about, that they run."""
        try:
            found = self.call(lambda: self.provider.describe(ids))
        except SkyError as error:
            return assume_running(self.name, ids, error.message)
        return merge_with_records(self.name, ids, found)

    def terminate(self, ids: Sequence[str]) -> None:
        """End machines, after their journals were copied; see them gone."""
        records = launch_records()
        mine = {
            token: record
            for token, record in records.list_unfinished()
            if record_contains(record, ids)
        }
        missing: dict[str, str] = {}
        try:
            # those of stopped machines were copied before their stop
            asked = {token: each for token, each in mine.items() if not each.get("stopped")}
            missing = collect_journals(asked, self._list_ended_ids(ids))
        finally:  # whatever is in the way of a log, an interrupt too, the machine is ended
            terminate_or_request_shutdown(self.call, ids, mine)
        for token, record in mine.items():
            if all(machine["id"] in ids for machine in record["machines"]):
                end = {"time": time.time(), "reason": "stopped", "missing": missing.get(token, "")}
                records.mark_ended(token, end)
        with suppress(SkyError):  # what cannot be deleted yet, the reaper does
            self.delete_unused_resources({record["region"] for record in mine.values()})

    def stop(self, token: str, say: StatusCallback = no_tick) -> None:
        """Power the machines of a request off and keep them; see `stopped_machines`."""
        stopped_machines.stop_machines(self.call, token, say)

    def settle_stop(self, token: str) -> bool:
        """Find out whether machines that were stopped are off; see `stopped_machines`."""
        return stopped_machines.settle_stop(self.call, token)

    def start(self, token: str, say: StatusCallback = no_tick) -> list[Machine]:
        """Start the machines of a request again; see `stopped_machines`."""
        return stopped_machines.start_machines(self.call, token, say)

    def stop_again(self, token: str) -> None:
        """Power the machines of a request off on which no cluster could be started again."""
        stopped_machines.stop_machines_again(self.call, token)

    def _list_ended_ids(self, ids: Sequence[str]) -> set[str]:
        """Return the IDs of machines that have ended already; empty if the cloud cannot say."""
        try:
            found = merge_with_records(self.name, ids, self.provider.describe(ids))
        except Exception:  # of any SDK: the request that ends them says why
            return set()
        return {machine.id for machine in found if machine.state == "ended"}

    def list_mine(self, everywhere: bool = False) -> list[Machine]:
        """List machines of this user of this installation that have not ended.

        Parameters
        ----------
        everywhere
            Ask in all regions, not only where something was launched lately.
        """
        noted = {
            record["region"]
            for __, record in launch_records().list_unfinished()
            if record["cloud"] == self.name
        }
        if not noted and not (everywhere and self._is_asked_unnamed() and self.has_credentials()):
            return []
        if not self.has_credentials():
            raise SkyPermission(
                _(
                    "{name}: machines may be up in {noted}, and there are no credentials "
                    "to ask with"
                ).format(name=self.name, noted=", ".join(sorted(noted))),
                hint=self.provider.login,
            )
        owner = installation_id(Path(Sky.load().data_dir))
        regions: Collection[str] | None = None if everywhere else noted
        return self.call(lambda: self.provider.machines(owner=owner, regions=regions))

    def _is_asked_unnamed(self) -> bool:
        """Whether the cloud is asked also where no launch of it is known.

        A cluster of Kubernetes that was never used from here need not even be reachable.
        """
        records = launch_records().list_all()
        return not self.provider.only_by_name or any(
            r.get("cloud") == self.name for __, r in records
        )

    def delete_unused_resources(self, regions: Collection[str] | None = None) -> list[str]:
        """Delete what no machine uses any more, in some regions or all; say what."""
        if not (self._is_asked_unnamed() and self.has_credentials()):
            return []
        if regions is not None and not regions:
            return []
        owner = installation_id(Path(Sky.load().data_dir))
        return self.call(lambda: delete_unused_resources(self.provider, owner, regions))

    def close_ended_records(self) -> None:
        """Close the notes of requests that have no machine any more, once the cloud has said so."""
        noted = [  # before the listing, which does not have what comes up meanwhile
            (token, record)
            for token, record in launch_records().list_unfinished()
            if record["cloud"] == self.name and not is_launching(record)
        ]
        alive, regions = {machine.token for machine in self.list_mine()}, set[str]()
        for token, record in noted:
            if token not in alive:
                launch_records().mark_ended(token, {"time": time.time(), "reason": "it has ended"})
                regions.add(record["region"])
        self.delete_unused_resources(regions)


def _new_record(request: LaunchRequest) -> JsonObject:
    """Return what is noted of a request before it is sent."""
    now = time.time()
    return {
        "cloud": launcher_name(request.offer),
        "region": request.offer.region,
        "cluster": request.cluster,
        "offer": asdict(request.offer),
        "owner": request.owner,
        "notebook": request.notebook,
        "started": now,
        "idle": request.idle,
        "lease_end": now + request.lease,
        "machines": [],
    }


# -- Waiting for machines of a launch until they run and answer by SSH ----------------------------

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
        self.call, self.provider = call, call.provider

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
                args=(folder, addresses, partial(has_request_ended, token)),
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
        note: JsonObject,
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
        return self.call(lambda: self.provider.describe(ids))

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
            lines = self.provider.console(machine.id).strip().splitlines()[-CONSOLE_LINES:]
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


# -- Launch and sweep by any `Provider`, with the parts that are the same for every cloud ---------


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
