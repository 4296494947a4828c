"""Google Cloud: machines of Compute Engine."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Any, ClassVar

from jupyter_sky.base.clouds.facts import GcpFacts
from jupyter_sky.clouds.gcp import (
    instance_launch,
    network,
    power,
    quotas,
    service_account,
    tpu,
    tpu_client,
)
from jupyter_sky.clouds.gcp import instances as machine
from jupyter_sky.clouds.gcp.account import GcpAccount
from jupyter_sky.clouds.gcp.clients import GcpClients, connect, match_any
from jupyter_sky.clouds.gcp.errors import ignore_codes
from jupyter_sky.clouds.launches.catalog_provider import CatalogProvider
from jupyter_sky.clouds.provider.classification import ErrorTable, ProviderError
from jupyter_sky.clouds.provider.naming import OWNER, TOKEN, group_ids, split_id
from jupyter_sky.clouds.provider.parallel_requests import send_parallel
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine, MachineConfig
from jupyter_sky.knowledge.tracker.quotas import AccountQuota

PREEMPTED_OPERATION = "compute.instances.preempted"
"""Operations of this type tell of machines that were taken back and are gone."""
CONSOLE_CHARS = 16384


class Gcp(GcpFacts, GcpAccount, CatalogProvider):
    """Machines of Compute Engine, with google-cloud-compute; an ID is ``zone/name``.

    Credentials are the application default ones: ``GOOGLE_APPLICATION_CREDENTIALS`` or those of
    ``gcloud auth application-default login``; the project is ``GOOGLE_CLOUD_PROJECT`` or that of
    the credentials.

    Examples
    --------
    >>> Gcp().name
    'gcp'
    """

    errors: ClassVar[ErrorTable] = {**GcpAccount.errors, **tpu_client.CODES}
    refinements = (*GcpAccount.refinements, *tpu_client.REFINEMENTS)

    def __init__(self) -> None:
        self._seen: dict[str, Machine] = {}

    # -- who we are --------------------------------------------------------------------------

    def identify(self) -> str:
        """Prove the credentials by one request; return account and project."""
        access = connect()
        found = access.call("Projects", "get")
        return f"{access.identity} in project {found.name}"

    def quotas(self) -> list[AccountQuota]:
        """Return how many vCPUs and GPUs the project may have in its regions."""
        return quotas.read_quotas(connect())

    # -- creation ----------------------------------------------------------------------------

    def self_delete_script(self, request: LaunchRequest) -> str:
        """Return shell commands by which a machine deletes itself, if it is given an account."""
        if not service_account.configured_account():
            return ""
        if tpu.is_slice(request.offer):
            return tpu_client.self_delete_script()
        return service_account.self_delete_script(connect().host)

    def launch(self, request: LaunchRequest, config: MachineConfig, stop: Event) -> list[Machine]:
        """Create all machines in one zone, or none; also network and firewall."""
        access = connect()
        if tpu.is_slice(request.offer):
            return self._launch_slices(access, request, config, stop)
        zone = request.offer.zone or instance_launch.choose_zone(access, request)
        network.ensure_network(access, request, config, stop)
        ranks = range(request.resources.nodes)
        names = [machine.machine_name(request.token, rank) for rank in ranks]
        try:
            instance_launch.InstanceLaunch(self, access, request, config, zone, stop).create()
            found = self._read(access, zone, names)
            if missing := set(names) - {each.name for each, _ in found}:
                words = f"{', '.join(sorted(missing))} in {zone} ended while being made"
                raise ProviderError(words, code="UNSUPPORTED_OPERATION")
        except Exception as error:
            # after a lost answer the order is sent again and finds its machines
            if not self.is_transient(error):
                with suppress(Exception):  # whoever sent the order looks for what is left of it
                    created = [each for _, each in self._read(access, zone, names)]
                    self.on_created(request.token, created)
                with suppress(Exception):
                    self.terminate([f"{zone}/{name}" for name in names])
            raise
        return sorted((each for _, each in found), key=lambda each: each.rank)

    def _launch_slices(
        self, access: GcpClients, request: LaunchRequest, config: MachineConfig, stop: Event
    ) -> list[Machine]:
        try:
            network.ensure_network(access, request, config, stop)
            return tpu.launch(access, request, config, stop)
        except Exception as error:
            if not self.is_transient(error):  # else the same request comes again and finds them
                tpu.discard(access, request)
            raise

    # -- life --------------------------------------------------------------------------------

    def machines(
        self, *, owner: str = "", token: str = "", regions: Collection[str] | None = None
    ) -> list[Machine]:
        """List machines that have not ended; what was powered off but is kept is among them."""
        wanted = {OWNER: owner, TOKEN: token}
        exact = {key: value for key, value in wanted.items() if value}
        parts = [
            f'(labels.{key} = "{machine.format_label(value)}")' for key, value in exact.items()
        ]
        filter = " ".join(parts) or f"labels.{OWNER}:*"
        access = connect()
        found = [
            (each, self._remember_machine(each, zone))
            for zone, each in access.list_all_zones("Instances", "instances", filter)
            if all(machine.read_tags(each).get(key) == value for key, value in exact.items())
            and (regions is None or machine.region_of_zone(zone) in regions)
        ]
        return [
            replace(seen, state="running", ended=None) if machine.is_stopped(each) else seen
            for each, seen in found
        ] + [
            replace(vm, state="running") if vm.state == "ended" else vm  # it holds quota
            for zone, vm in tpu.list_machines(access)
            if owner in ("", vm.owner)
            and token in ("", vm.token)
            and (regions is None or machine.region_of_zone(zone) in regions)
        ]

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Say how machines are; those that the cloud no longer knows are left out.

        Of those that it took back, or that were seen here and whose lease has ended, it is known
        why they are gone.
        """
        access = connect()
        answers = tpu.describe(access, [id for id in ids if tpu.is_slice_id(id)])
        for zone, names in group_ids(id for id in ids if not tpu.is_slice_id(id)).items():
            found = {each.name: seen for each, seen in self._read(access, zone, names)}
            answers += found.values()
            if gone := set(names) - set(found):
                answers += self._explain_ends(access, zone, gone)
        return answers

    def terminate(self, ids: Sequence[str]) -> None:
        """Ask for the end of machines and all that is theirs; returns without waiting."""
        access = connect()

        def end(zone: str, name: str, _: Event) -> None:
            with ignore_codes("gone"):
                access.call("Instances", "delete_unary", zone=zone, instance=name)

        machines = [each for each in ids if not tpu.is_slice_id(each)]
        slices = tpu.terminate(access, [each for each in ids if tpu.is_slice_id(each)])
        requests = [partial(end, *split_id(each)) for each in machines]
        send_parallel([*requests, *slices], self.is_transient)
        for name in (split_id(each)[1].partition("/")[0] for each in ids):
            if name.endswith("-0"):  # the head: its cluster has ended
                with suppress(Exception):  # a rule costs nothing, and `sweep` finds it
                    network.remove_rule(access, name.removesuffix("-0"))

    def stop(self, ids: Sequence[str]) -> None:
        """Power machines off; their disks are kept."""
        power.change_power(connect(), "stop_unary", ids, self.is_transient)

    def start(self, ids: Sequence[str]) -> None:
        """Start machines that were stopped; each gets another address."""
        power.change_power(connect(), "start_unary", ids, self.is_transient)

    def sweep(
        self, owner: str, alive: Collection[str], regions: Collection[str] | None = None
    ) -> list[str]:
        """Delete disks and firewall rules that no machine uses; say what."""
        access, deleted = connect(), list[str]()
        for zone, name in list(_unused_disks(access, owner)):
            if regions is None or machine.region_of_zone(zone) in regions:
                with ignore_codes("gone", "resourceInUseByAnotherResource"):
                    access.call("Disks", "delete_unary", zone=zone, disk=name)
                    deleted.append(f"disk {zone}/{name}")
        # rules are of all regions
        up = {each.token for each in self.machines(owner=owner)}.union(alive)
        for name in network.list_unused_rules(access, owner, up):
            if network.remove_rule(access, name):
                deleted.append(f"firewall rule {name}")
        return deleted

    def console(self, id: str) -> str:
        """Return the end of what a machine has written to its serial port; a slice has none."""
        if tpu.is_slice_id(id):
            return ""
        zone, name = split_id(id)
        asked = {"zone": zone, "instance": name, "port": 1}
        with ignore_codes("gone", "resourceNotReady"):
            found = connect().call("Instances", "get_serial_port_output", **asked)
            return found.contents[-CONSOLE_CHARS:]
        return ""

    # -- reading -----------------------------------------------------------------------------

    def _read(
        self, access: GcpClients, zone: str, names: Sequence[str]
    ) -> list[tuple[Any, Machine]]:
        found = []
        for begin in range(0, len(names), 20):  # an address has room for so many names
            asked = match_any("name", names[begin : begin + 20])
            listed = access.call("Instances", "list", zone=zone, filter=asked)
            found += [(each, self._remember_machine(each, zone)) for each in listed]
        return found

    def _remember_machine(self, instance: Any, zone: str) -> Machine:
        seen = machine.parse_machine(instance, zone)
        self._seen[seen.id] = seen
        return seen

    def _explain_ends(
        self, access: GcpClients, zone: str, names: Collection[str]
    ) -> Iterator[Machine]:
        """Yield machines among those that are gone of which it is known why."""
        asked = {
            "zone": zone,
            "filter": f'operationType = "{PREEMPTED_OPERATION}"',
            "order_by": "creationTimestamp desc",
        }
        taken: dict[str, str] = {}
        for operation in access.call("ZoneOperations", "list", **asked):
            taken.setdefault(operation.target_link.rpartition("/")[2], operation.insert_time)
        for name in sorted(names):
            rank = int(name.rpartition("-")[2])
            blank = Machine(f"{zone}/{name}", "gcp", "", rank, "ended", 0.0)
            known = replace(self._seen.get(blank.id, blank), state="ended")
            if name in taken:
                words = "the cloud took the spot machine back"
                ended = machine.parse_timestamp(taken[name])
                yield replace(known, ended=ended, reason=words, preempted=True)
            elif known.lease_end and time.time() > known.lease_end:
                yield replace(known, ended=known.lease_end, reason="its lease has ended")


def _unused_disks(access: GcpClients, owner: str) -> Iterator[tuple[str, str]]:
    old = time.time() - network.LAUNCH_GRACE_SECONDS
    filter = f'labels.{OWNER} = "{machine.format_label(owner)}"'
    for zone, disk in access.list_all_zones("Disks", "disks", filter):
        if not disk.users and machine.parse_timestamp(disk.creation_timestamp) < old:
            yield zone, disk.name
