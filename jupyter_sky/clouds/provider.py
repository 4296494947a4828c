"""Shared part of all cloud providers: launch records, retries, waiting, confirmed ends.

A cloud itself is a `Driver`: the calls of its SDK and what their errors mean.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..concurrency import run_parallel
from ..config.settings import Sky
from ..errors import (
    SkyCancelled,
    SkyClusterLost,
    SkyError,
    SkyPermission,
    SkyStoreError,
    SkyUnreachable,
)
from ..offers import Offer
from ..remote.ssh_address import Address
from . import cloud_init, journals, machine_lease, ssh_slot
from .base import Credentials, Driver, LaunchRequest, Machine, StatusCallback, Tick, no_tick
from .launch_records import LaunchRecords, installation_id, is_launching, translate_write_errors
from .retries import RetryingCaller
from .ssh_slot import Slot

STARTUP_SECONDS = 600.0
"""A machine that does not answer by then is given up."""
TERMINATION_SECONDS = 300.0
VISIBILITY_SECONDS = 60.0
"""A machine that was just launched may not be in the cloud's listings yet."""


class CloudProvider:
    """A cloud whose machines are rented by the second, through its driver.

    Parameters
    ----------
    driver
        What differs between clouds.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver, self.name = driver, driver.name
        self.call = RetryingCaller(driver)
        self._unrecorded = dict[str, list[Machine]]()  # of launches, while the disk is full

    # -- before anything is launched ---------------------------------------------------------

    def has_credentials(self) -> bool:
        """Whether there are credentials to try; asks nobody."""
        return bool(self.call.call_once(self.driver.configured))

    def check(self) -> Credentials:
        """Prove the credentials by one request."""
        try:
            found = self.call.call_once(self.driver.configured)
            if not found:
                raise SkyPermission("no credentials", hint=self.driver.login)
            who = self.call(self.driver.identify)
        except SkyError as error:
            return Credentials(self.name, False, error.message, error.hint or "")
        return Credentials(self.name, True, f"{found}: {who}")

    def list_offers(self) -> list[Offer]:
        """Return what a cloud of another package sells; the catalog has that of the others."""
        from .provider_driver import ProviderDriver

        driver = self.driver
        return self.call(driver.offers) if isinstance(driver, ProviderDriver) else []

    # -- launching ---------------------------------------------------------------------------

    def launch(self, order: LaunchRequest, tick: Tick = no_tick) -> list[Machine]:
        """Launch all machines of an order, or none; what is noted before says where to look."""
        records = launch_records()
        note = {
            "cloud": self.name,
            "region": order.offer.region,
            "cluster": order.cluster,
            "offer": asdict(order.offer),
            "owner": order.owner,
            "notebook": order.notebook,
            "started": time.time(),
            "lease_end": time.time() + order.lease,
            "machines": [],
        }
        record = records.create(order.token, note)

        on_created = partial(self._record_machines, order.token)

        try:
            folder = records.folder(order.token)
            ending = self.call(lambda: self.driver.self_delete_script(order), order.offer)
            with translate_write_errors(folder):
                power_off = getattr(self.driver, "power_off", machine_lease.POWER_OFF)
                machine_config = cloud_init.create_machine_config(
                    order, folder, ending, time.time(), power_off
                )
            records.write(order.token, record | {"sent": time.time()})
            machines = self.call(
                lambda: self.driver.create(order, machine_config, tick, on_created),
                order.offer,
                tick,
            )
            self._record_machines(order.token, machines)
            return machines
        except BaseException as error:
            try:
                self._roll_back(order.token, order.offer.region)
            except SkyError as trouble:  # the note stays, for the reaper
                with suppress(SkyStoreError):
                    self._read_record(order.token, launching=None)
                if isinstance(error, SkyError):
                    left = f"machines may be up there ({trouble.message}): %sky reap"
                    error.hint = f"{error.hint}\n{left}" if error.hint else left
            raise

    def _roll_back(self, token: str, region: str) -> None:
        """End all that an order has made, whatever was heard of it, and see that it is gone."""
        machines = self.call(lambda: self.driver.machines(token=token, regions=[region]))
        every = {machine.id: machine for machine in (*self.recorded_machines(token), *machines)}
        with suppress(SkyStoreError):  # what cannot be noted is ended all the same
            self._record_machines(token, list(every.values()))
        self._terminate_confirmed([machine.id for machine in machines])
        launch_records().mark_ended(token, {"time": time.time(), "reason": "it was not used"})

    def recorded_machines(self, token: str) -> list[Machine]:
        """Return the machines that an order is known to have made, up or not."""
        if token in self._unrecorded:
            return self._unrecorded[token]
        return [Machine(**machine) for machine in launch_records().read(token).get("machines", ())]

    def _record_machines(self, token: str, machines: Sequence[Machine]) -> None:
        """Record the machines of a launch; keep them in memory while the disk refuses."""
        self._unrecorded[token] = list(machines)
        self._read_record(token, machines=[asdict(machine) for machine in machines])
        del self._unrecorded[token]

    def find_launched(self, token: str) -> list[Machine]:
        """Return the machines that an order has made, by our note or else by the cloud."""
        return self.recorded_machines(token) or self._list_ended(token) or []

    def unobserved_interval(self, token: str, now: float) -> tuple[float, float] | None:
        """Return within which times an order may have had machines of which nothing is known.

        A machine on which no cluster has begun ends by itself after `machine_lease.BOOT_SECONDS`.

        Returns
        -------
        tuple of float or None
            Unix seconds; None where the order was not sent, or its cloud says that there were none.
        """
        record = launch_records().read(token)
        if self._list_ended(token) is not None:
            return None
        sent = record["sent"]
        return sent, min(now, record["lease_end"], sent + machine_lease.BOOT_SECONDS)

    def _list_ended(self, token: str) -> list[Machine] | None:
        """Return the machines of an order that have ended; None where the cloud cannot tell."""
        record = launch_records().read(token)
        sent = record.get("sent")
        if sent is None or "ended" in record:
            return []
        return self.call(lambda: self.driver.list_ended(token, record["region"], sent))

    def read_recorded_end(self, token: str) -> dict[str, Any]:
        """Return ``time`` and ``reason`` of the end of an order, as noted here; empty if it is not.

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
        machines, ended = self._await_running(machines, say), threading.Event()
        folder = self.cluster_folder(machines)
        note = {"cluster": machines[0].cluster, "owner": machines[0].owner}
        note |= {"started": machines[0].started}
        host_key = cloud_init.read_next_host_key(folder)

        def one(machine: Machine) -> Slot:
            where = _address(folder, machine)
            node = Slot(
                machine.rank,
                token=f"{machine.token}.{machine.rank}",
                host=machine.id,
                address=where,
                private=machine.private,
            )
            return self._connect_slot(machine, node, note, host_key, ended)

        addresses = [_address(folder, machine) for machine in machines]
        say("first contact")
        nodes = run_parallel(
            [partial(one, machine) for machine in machines], lambda: say("first contact"), ended
        )
        self._read_record(machines[0].token, nodes=[asdict(node) for node in nodes], launching=None)
        if host_key:
            over = partial(_has_order_ended, machines[0].token)
            threading.Thread(
                target=cloud_init.await_host_key_rotation,
                args=(folder, addresses, over),
                name="jupyter-sky-host-keys",
                daemon=True,
            ).start()
        return nodes

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

    def _await_running(self, machines: Sequence[Machine], say: StatusCallback) -> list[Machine]:
        ids, begun = [machine.id for machine in machines], time.monotonic()
        wait = 0.1
        while True:
            found = {machine.id: machine for machine in self._describe_or_raise(ids)}
            for machine in found.values():
                if machine.state == "ended":
                    raise self._startup_error(machine, machine.reason or "it ended as it started")
            if len(found) == len(ids) and all(
                machine.state == "running" and machine.address for machine in found.values()
            ):
                up = [replace(found[old.id], token=old.token, rank=old.rank) for old in machines]
                self._read_record(up[0].token, machines=[asdict(machine) for machine in up])
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
        begun = time.monotonic()
        while not ended.is_set():
            try:
                return ssh_slot.acquire_slot(node, note, host_key)
            except SkyUnreachable as error:
                passed = time.monotonic() - begun
                if passed > STARTUP_SECONDS or (
                    "another host key" in error.message and passed > 60
                ):
                    raise self._startup_error(machine, error.message) from None
            for seen in self._describe_or_raise([machine.id]):
                if seen.state == "ended":
                    raise self._startup_error(seen, seen.reason or "it ended as it started")
            ended.wait(0.2)
        raise SkyCancelled(f"{machine.id} is no longer waited for")

    def _describe_or_raise(self, ids: Sequence[str]) -> list[Machine]:
        return self.call(lambda: self.driver.describe(ids))

    def _startup_error(self, machine: Machine, why: str) -> SkyClusterLost:
        last = ""
        with suppress(Exception):  # it is only to explain
            lines = self.driver.console(machine.id).strip().splitlines()[-8:]
            last = "".join(f"\n    {line}" for line in lines)
        error = SkyClusterLost(f"{machine.id} on {self.name} did not come up: {why}{last}")
        return error

    def _read_record(self, token: str, **values: Any) -> None:
        records = launch_records()
        records.write(token, records.read(token) | values)

    # -- afterwards --------------------------------------------------------------------------

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Say how machines are; of those that cannot be asked about, that they run."""
        try:
            found = self._describe_or_raise(ids)
        except SkyError as error:
            noted = _recorded_machines(self.name, ids)
            return [
                replace(noted[name][0], state="running", reason=error.message)
                for name in ids
                if name in noted
            ]
        return self._merge_with_records(ids, found)

    def _merge_with_records(self, ids: Sequence[str], found: Sequence[Machine]) -> list[Machine]:
        """Complete what the cloud says of machines from their launch records."""
        noted = _recorded_machines(self.name, ids)
        reported = {machine.id: machine for machine in found}
        now, answers = time.time(), list[Machine]()
        for name in ids:
            old, was_there = noted.get(name, (None, False))
            if seen := reported.get(name):
                answers.append(_merge_with_record(seen, old))
            elif old is not None:
                ended = was_there or old.state == "ended"
                new = not ended and now - old.started < VISIBILITY_SECONDS
                why = "" if new else "the cloud no longer knows it"
                answers.append(replace(old, state="starting" if new else "ended", reason=why))
        return answers

    def terminate(self, ids: Sequence[str]) -> None:
        """End machines, after their journals were copied; see them gone."""
        records = launch_records()
        mine = {
            token: record
            for token, record in records.list_unfinished()
            if _record_contains(record, ids)
        }
        missing: dict[str, str] = {}
        try:
            missing = _collect_journals(mine, self._list_ended_ids(ids))
        finally:  # whatever is in the way of a log, an interrupt too, the machine is ended
            self._terminate_or_request_shutdown(ids, mine)
        for token, record in mine.items():
            if all(machine["id"] in ids for machine in record["machines"]):
                end = {"time": time.time(), "reason": "stopped", "missing": missing.get(token, "")}
                records.mark_ended(token, end)
        with suppress(SkyError):  # what cannot be deleted yet, the reaper does
            self.delete_unused_resources({record["region"] for record in mine.values()})

    def _list_ended_ids(self, ids: Sequence[str]) -> set[str]:
        """Return the IDs of machines that have ended already; empty if the cloud cannot say."""
        try:
            found = self._merge_with_records(ids, self.driver.describe(ids))
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
            for _, record in launch_records().list_unfinished()
            if record["cloud"] == self.name
        }
        if not noted and not (everywhere and self.has_credentials()):
            return []
        if not self.has_credentials():
            raise SkyPermission(
                f"{self.name}: machines may be up in {', '.join(sorted(noted))}, and there are no "
                "credentials to ask with",
                hint=self.driver.login,
            )
        owner = installation_id(Path(Sky.load().data_dir))
        regions: Collection[str] | None = None if everywhere else noted
        return self.call(lambda: self.driver.machines(owner=owner, regions=regions))

    def delete_unused_resources(self, regions: Collection[str] | None = None) -> list[str]:
        """Delete what no machine uses any more, in some regions or all; say what."""
        if not self.has_credentials() or (regions is not None and not regions):
            return []
        owner = installation_id(Path(Sky.load().data_dir))
        return self.call(lambda: self.driver.delete_unused_resources(owner, regions))

    def close_ended_records(self) -> None:
        """Close the notes of orders that have no machine any more, once the cloud has said so."""
        alive, regions = {machine.token for machine in self.list_mine()}, set[str]()
        for token, record in list(launch_records().list_unfinished()):
            if record["cloud"] == self.name and token not in alive and not is_launching(record):
                launch_records().mark_ended(token, {"time": time.time(), "reason": "it has ended"})
                regions.add(record["region"])
        self.delete_unused_resources(regions)

    def _terminate_or_request_shutdown(
        self, ids: Sequence[str], orders: dict[str, dict[str, Any]]
    ) -> None:
        """End machines; where the cloud does not let us any more, let them end themselves.

        Raises
        ------
        SkyError
            Their end is not confirmed; says what becomes of them.
        """
        try:
            self._terminate_confirmed(ids)
        except SkyError as error:
            nodes = [Slot.load(node) for each in orders.values() for node in each.get("nodes", ())]
            told = ssh_slot.request_machine_shutdown([node for node in nodes if node.host in ids])
            ends = max((each.get("lease_end", 0.0) for each in orders.values()), default=0.0)
            said = f"{error.message.rstrip('.')}. {_shutdown_notice(ids, told, ends)}"
            error.message, error.args = said, (said,)
            again = "once the cloud can be asked again, %sky reap confirms it"
            error.hint = f"{error.hint}\n{again}" if error.hint else again
            raise

    def _terminate_confirmed(self, ids: Sequence[str]) -> None:
        """Ask for the end of machines until the cloud says that they have ended."""
        begun, wait, left = time.monotonic(), 0.1, list(ids)
        if left:
            self.call(lambda: self.driver.remove(left))
        while left:
            alive = {m.id for m in self._describe_or_raise(left) if m.state != "ended"}
            left = [name for name in left if name in alive]
            if left and time.monotonic() - begun > TERMINATION_SECONDS:
                raise SkyUnreachable(
                    f"{', '.join(left)} on {self.name} did not end "
                    f"within {TERMINATION_SECONDS:g} s",
                    hint="look again with %sky reap, or end it in the cloud's own console",
                )
            if left:
                time.sleep(wait)
                wait = min(wait * 1.5, 3.0)


def _address(folder: Path, machine: Machine) -> Address:
    """Return the SSH address of a machine, with the pinned key of its launch."""
    return cloud_init.pinned_address(
        folder, machine.address, machine.user, machine.port, machine.through
    )


def launch_records() -> LaunchRecords:
    """Return the notes of what was launched on clouds that rent machines."""
    return LaunchRecords(Path(Sky.load().data_dir) / "machines")


def _shutdown_notice(ids: Sequence[str], told: Sequence[str], ends: float) -> str:
    """Say in a sentence what becomes of machines whose cloud cannot be asked to end them."""
    left = [name for name in ids if name not in told]
    if not left:
        return f"{', '.join(told)} was told by SSH to end itself, and does so within a minute"
    lease = time.strftime("%Y-%m-%d %H:%M", time.localtime(ends)) if ends else "an unknown time"
    some = f"{', '.join(told)} was told by SSH to end itself; " if told else ""
    return (
        f"{some}{', '.join(left)} may still be up and billed: it ends by itself when nobody renews "
        f"it, and at {lease} at the latest, which is the end of its lease"
    )


def _has_order_ended(token: str) -> bool:
    """Whether the machines of an order have ended."""
    record = launch_records().read(token)
    return not record or "ended" in record


def _collect_journals(orders: dict[str, dict[str, Any]], ended: Collection[str]) -> dict[str, str]:
    """Copy the journals of launches in parallel; return in words what of each is missing.

    Machines whose ID is in `ended` are not asked: they would time out.
    """
    records = launch_records()

    def one(token: str, record: dict[str, Any]) -> str:
        try:
            nodes = [Slot.load(node) for node in record.get("nodes", ())[:1]]
        except (AttributeError, KeyError, TypeError, ValueError):
            return "its log: the note of its machine is damaged"
        into = records.folder(token) / "journal"
        return journals.collect_journals(nodes, into, any(node.host in ended for node in nodes))

    said = run_parallel([partial(one, *order) for order in orders.items()])
    return dict(zip(orders, said, strict=True))


def _recorded_machines(cloud: str, ids: Collection[str]) -> dict[str, tuple[Machine, bool]]:
    """Return each machine that is noted, with whether it has answered once, or its end is known."""
    return {
        machine["id"]: (Machine(**machine), bool(record.get("nodes") or "ended" in record))
        for record in launch_records().records_naming(ids)
        if record.get("cloud") == cloud
        for machine in record["machines"]
    }


def _merge_with_record(seen: Machine, old: Machine | None) -> Machine:
    """What the cloud says of a machine; what it no longer knows is taken from our note."""
    if old is None:
        return seen
    known = (
        *("cluster", "token", "owner", "started", "lease_end"),
        *("address", "private", "user", "port", "through"),
    )
    return replace(
        seen, rank=old.rank, **{name: getattr(seen, name) or getattr(old, name) for name in known}
    )


def _record_contains(record: dict[str, Any], ids: Collection[str]) -> bool:
    return any(machine["id"] in ids for machine in record["machines"])
