"""Google Cloud: machines of Compute Engine."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, ClassVar

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.requests import accelerators
from jupyter_sky.clouds.gcp import errors, instances, service_account, tpu, tpu_client
from jupyter_sky.clouds.gcp.account import GcpAccount
from jupyter_sky.clouds.gcp.clients import PAGE_SIZE, GcpClients, connect, match_any
from jupyter_sky.clouds.gcp.errors import has_code, ignore_codes
from jupyter_sky.clouds.gcp.facts import GcpFacts
from jupyter_sky.clouds.launches.catalog_provider import CatalogProvider
from jupyter_sky.clouds.provider.classification import ErrorTable, ProviderError
from jupyter_sky.clouds.provider.naming import OWNER, TOKEN, group_ids, split_id
from jupyter_sky.clouds.provider.parallel_requests import send_parallel
from jupyter_sky.clouds.provider.protocol import Provider
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine, MachineConfig
from jupyter_sky.knowledge.tracker.quotas import AccountQuota

if TYPE_CHECKING:
    from google.cloud.compute_v1 import Firewall, Instance, Operation

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
        found = access.call(access.projects.get)
        return f"{access.identity} in project {found.name}"

    def quotas(self) -> list[AccountQuota]:
        """Return how many vCPUs and GPUs the project may have in its regions."""
        return read_quotas(connect())

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
        zone = request.offer.zone or choose_zone(access, request)
        ensure_network(access, request, config, stop)
        ranks = range(request.resources.nodes)
        names = [instances.machine_name(request.token, rank) for rank in ranks]
        try:
            InstanceLaunch(self, access, request, config, zone, stop).create()
            found = self._read(access, zone, names)
            if missing := set(names) - {each.name for each, _ in found}:
                words = f"{', '.join(sorted(missing))} in {zone} ended while being made"
                raise ProviderError(words, code="UNSUPPORTED_OPERATION")
        except Exception as error:
            # after a lost answer the request is sent again and finds its machines
            if not self.is_transient(error):
                with suppress(Exception):  # whoever sent the request looks for what is left of it
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
            ensure_network(access, request, config, stop)
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
            f'(labels.{key} = "{instances.format_label(value)}")' for key, value in exact.items()
        ]
        filter = " ".join(parts) or f"labels.{OWNER}:*"
        access = connect()
        found = [
            (each, self._remember_machine(each, zone))
            for zone, each in access.list_all_zones(
                access.instances.aggregated_list, lambda found: found.instances, filter
            )
            if all(instances.read_tags(each).get(key) == value for key, value in exact.items())
            and (regions is None or instances.region_of_zone(zone) in regions)
        ]
        return [
            replace(seen, state="running", ended=None) if instances.is_stopped(each) else seen
            for each, seen in found
        ] + [
            replace(vm, state="running") if vm.state == "ended" else vm  # it holds quota
            for zone, vm in tpu.list_machines(access)
            if owner in ("", vm.owner)
            and token in ("", vm.token)
            and (regions is None or instances.region_of_zone(zone) in regions)
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
                access.call(access.instances.delete_unary, zone=zone, instance=name)

        machines = [each for each in ids if not tpu.is_slice_id(each)]
        slices = tpu.terminate(access, [each for each in ids if tpu.is_slice_id(each)])
        requests = [partial(end, *split_id(each)) for each in machines]
        send_parallel([*requests, *slices], self.is_transient)
        for name in (split_id(each)[1].partition("/")[0] for each in ids):
            if name.endswith("-0"):  # the head: its cluster has ended
                with suppress(Exception):  # a rule costs nothing, and `sweep` finds it
                    remove_rule(access, name.removesuffix("-0"))

    def stop(self, ids: Sequence[str]) -> None:
        """Power machines off; their disks are kept."""
        access = connect()
        change_power(access, access.instances.stop_unary, ids, self.is_transient)

    def start(self, ids: Sequence[str]) -> None:
        """Start machines that were stopped; each gets another address."""
        access = connect()
        change_power(access, access.instances.start_unary, ids, self.is_transient)

    def sweep(
        self, owner: str, alive: Collection[str], regions: Collection[str] | None = None
    ) -> list[str]:
        """Delete disks and firewall rules that no machine uses; say what."""
        access, deleted = connect(), list[str]()
        for zone, name in list(_unused_disks(access, owner)):
            if regions is None or instances.region_of_zone(zone) in regions:
                with ignore_codes("gone", "resourceInUseByAnotherResource"):
                    access.call(access.disks.delete_unary, zone=zone, disk=name)
                    deleted.append(f"disk {zone}/{name}")
        # rules are of all regions
        up = {each.token for each in self.machines(owner=owner)}.union(alive)
        for name in list_unused_rules(access, owner, up):
            if remove_rule(access, name):
                deleted.append(f"firewall rule {name}")
        return deleted

    def console(self, id: str) -> str:
        """Return the end of what a machine has written to its serial port; a slice has none."""
        if tpu.is_slice_id(id):
            return ""
        zone, name = split_id(id)
        asked, access = {"zone": zone, "instance": name, "port": 1}, connect()
        with ignore_codes("gone", "resourceNotReady"):
            found = access.call(access.instances.get_serial_port_output, **asked)
            return found.contents[-CONSOLE_CHARS:]
        return ""

    # -- reading -----------------------------------------------------------------------------

    def _read(
        self, access: GcpClients, zone: str, names: Sequence[str]
    ) -> list[tuple[Instance, Machine]]:
        found = []
        for begin in range(0, len(names), 20):  # an address has room for so many names
            asked = match_any("name", names[begin : begin + 20])
            listed = access.call(access.instances.list, zone=zone, filter=asked)
            found += [(each, self._remember_machine(each, zone)) for each in listed]
        return found

    def _remember_machine(self, instance: Instance, zone: str) -> Machine:
        seen = instances.parse_machine(instance, zone)
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
        for operation in access.call(access.zone_operations.list, **asked):
            taken.setdefault(operation.target_link.rpartition("/")[2], operation.insert_time)
        for name in sorted(names):
            rank = int(name.rpartition("-")[2])
            blank = Machine(f"{zone}/{name}", "gcp", "", rank, "ended", 0.0)
            known = replace(self._seen.get(blank.id, blank), state="ended")
            if name in taken:
                words = "the cloud took the spot machine back"
                ended = instances.parse_timestamp(taken[name])
                yield replace(known, ended=ended, reason=words, preempted=True)
            elif known.lease_end and time.time() > known.lease_end:
                yield replace(known, ended=known.lease_end, reason="its lease has ended")


def _unused_disks(access: GcpClients, owner: str) -> Iterator[tuple[str, str]]:
    old = time.time() - LAUNCH_GRACE_SECONDS
    filter = f'labels.{OWNER} = "{instances.format_label(owner)}"'
    for zone, disk in access.list_all_zones(
        access.disks.aggregated_list, lambda found: found.disks, filter
    ):
        if not disk.users and instances.parse_timestamp(disk.creation_timestamp) < old:
            yield zone, disk.name


# -- Machines of one request, created in a zone of Compute Engine ----------------------------------

MAX_FAILED_ATTEMPTS = 20
"""Failures of one request at one place; each spends an ID of requests."""
log = logging.getLogger(__name__)
_NAMESPACE = uuid.UUID("8b5f7a52-21a6-4bd1-9f0e-5f6ad2a0c3de")


@dataclass(frozen=True, slots=True)
class InstanceLaunch:
    """Requests of one request in a zone.

    Attributes
    ----------
    provider : Provider
        The provider, which explains its cloud's errors.
    """

    provider: Provider
    access: GcpClients
    request: LaunchRequest
    config: MachineConfig
    zone: str
    stop: Event

    def create(self, role: bool = True) -> None:
        """Make all machines; without a role, where they may not have the one they are to have."""
        account = service_account.configured_account() if role else ""
        asked: list[Operation] = []
        try:
            asked += self._insert(account)
            self.access.await_operations(asked, self.stop, self.zone)
        except Exception as error:
            if not account or not service_account.is_refused(error):
                raise
            trouble = self.provider.explain(error)
            log.warning(
                "gcp: machines do without the service account %r: %s; when one is lost, it is "
                "powered off and its disk billed until %%sky reap. %s",
                account,
                trouble.message if trouble else error,
                trouble.fix if trouble else "",
            )
            for each in asked:  # their names are taken until all have failed
                with service_account.ignore_refusals():
                    self.access.await_operations([each], self.stop, self.zone)
            self.create(role=False)

    def _insert(self, account: str) -> list[Operation]:
        """Ask for all machines at once; return the operations that are under way."""
        bodies = [
            instances.instance_body(self.request, self.config, self.zone, rank, account)
            for rank in range(self.request.resources.nodes)
        ]
        requests = [partial(self._insert_machine, body) for body in bodies]
        # an error that does not pass decides: then no machine is waited for
        asked = send_parallel(requests, self.provider.is_transient)
        return [operation for operation in asked if operation is not None]

    def _insert_machine(self, body: Instance, _: Event) -> Operation | None:
        """Ask for one machine; None when it is there already.

        The id of a request makes it count once, however often it is sent. A request that failed and
        is sent again would only be told of that failure: then it takes the next id.
        """
        for attempt in range(MAX_FAILED_ATTEMPTS):
            place = f"{self.zone}/{self.request.offer.instance_type}/{self.request.offer.spot}"
            place += "".join(f"/{each.email}" for each in body.service_accounts)
            request_id = str(uuid.uuid5(_NAMESPACE, f"{body.name}/{place}/{attempt}"))
            asked = {"zone": self.zone, "instance_resource": body, "request_id": request_id}
            try:
                operation = self.access.call(self.access.instances.insert_unary, **asked)
            except Exception as error:
                if errors.has_code(error, "alreadyExists") and self._is_there(body):
                    return None
                raise
            last = attempt == MAX_FAILED_ATTEMPTS - 1
            if last or operation.status.name != "DONE" or self._is_there(body):
                return operation
        raise AssertionError

    def _is_there(self, body: Instance) -> bool:
        """Whether a machine is there and is the one that is asked for."""
        try:
            found = self.access.call(self.access.instances.get, zone=self.zone, instance=body.name)
        except Exception as error:
            if errors.has_code(error, "gone"):
                return False
            raise
        same = instances.read_tags(found).get(TOKEN) == instances.read_tags(body).get(TOKEN)
        return same and found.status in ("PROVISIONING", "STAGING", "RUNNING")


def choose_zone(access: GcpClients, request: LaunchRequest) -> str:
    """Choose a zone of the region that has what is asked; the same request gets the same."""
    kind, gpu, _ = instances.split_type(request.offer.instance_type)
    if gpu:
        listed = access.list_all_zones(
            access.accelerator_types.aggregated_list,
            lambda found: found.accelerator_types,
            f'name = "{gpu}"',
        )
    else:
        listed = access.list_all_zones(
            access.machine_types.aggregated_list,
            lambda found: found.machine_types,
            f'name = "{kind}"',
        )
    region = request.offer.region
    zones = sorted({zone for zone, _ in listed if instances.region_of_zone(zone) == region})
    if not zones:
        words = f"no zone of {region} has {request.offer.instance_type}"
        raise ProviderError(words, code="notFound")
    return zones[int(hashlib.sha256(request.token.encode()).hexdigest(), 16) % len(zones)]


# -- The network of our machines on Google Cloud, and who may reach them --------------------------
#
# One network for all, made when it is missing. Each set of networks that may reach port 22 has one
# rule, each cluster of several nodes another, by which they reach each other and nobody else does.

LAUNCH_GRACE_SECONDS = 900.0
"""A rule or a disk that is younger may belong to machines that are just being made."""


def ensure_network(
    access: GcpClients, request: LaunchRequest, config: MachineConfig, stop: Event
) -> None:
    """Make the network and the rules of a request, those that are missing."""
    wanted = {rule["name"]: rule for rule in _firewall_rules(request, config)}
    for there in access.call(access.firewalls.list, filter=match_any("name", wanted)):
        wanted.pop(there.name, None)
    if not wanted:  # a network with rules exists
        return
    _ensure_network(access, stop)
    made = []
    for rule in wanted.values():
        with ignore_codes("alreadyExists"):  # another notebook was faster
            asked = {"firewall_resource": rule}
            made.append(
                access.retry_until_ready(
                    lambda asked=asked: access.call(access.firewalls.insert_unary, **asked), stop
                )
            )
    access.await_operations(made, stop)


def remove_rule(access: GcpClients, name: str) -> bool:
    """Delete a rule; say whether it was there."""
    try:
        access.call(access.firewalls.delete_unary, firewall=name)
    except Exception as error:
        if has_code(error, "gone", "resourceNotReady"):
            return False
        raise
    return True


def list_unused_rules(access: GcpClients, owner: str, alive: Collection[str]) -> list[str]:
    """List rules of an owner's clusters of which no machine is left.

    Parameters
    ----------
    alive
        Tokens of the requests whose machines have not ended.
    """
    old = time.time() - LAUNCH_GRACE_SECONDS
    return [
        rule.name
        for rule in access.call(access.firewalls.list)
        if rule.network.endswith(f"/{instances.NETWORK}")
        and (noted := _rule_tags(rule)).get(OWNER) == owner
        and noted.get(TOKEN) not in alive
        and instances.parse_timestamp(rule.creation_timestamp) < old
    ]


def _ensure_network(access: GcpClients, stop: Event) -> None:
    network = {"name": instances.NETWORK, "auto_create_subnetworks": True}
    try:
        made = access.call(access.networks.insert_unary, network_resource=network)
    except Exception as error:
        if not has_code(error, "alreadyExists"):
            raise
        return  # while it is being made, rules are not taken yet: see `retry_until_ready`
    access.await_operations([made], stop)


def _firewall_rules(request: LaunchRequest, config: MachineConfig) -> list[JsonObject]:
    network, ssh = f"global/networks/{instances.NETWORK}", instances.ssh_rule_name(config)
    cluster, rules = instances.resource_prefix(request.token), list[JsonObject]()
    if config.ssh_from:
        rules.append(
            {
                "name": ssh,
                "network": network,
                "description": "SSH to machines of jupyter_sky",
                "source_ranges": list(config.ssh_from),
                "target_tags": [ssh],
                "allowed": [{"I_p_protocol": "tcp", "ports": ["22"]}],
            }
        )
    if request.resources.nodes * request.offer.hosts > 1:
        noted = {key: config.tags[key] for key in (OWNER, TOKEN)}
        rules.append(
            {
                "name": cluster,
                "network": network,
                "description": json.dumps(noted),
                "source_tags": [cluster],
                "target_tags": [cluster],
                "allowed": [{"I_p_protocol": "all"}],
            }
        )
    return rules


def _rule_tags(rule: Firewall) -> dict[str, str]:
    try:
        noted = json.loads(rule.description)
    except ValueError:
        return {}
    return noted if isinstance(noted, dict) else {}


# -- Machines of Compute Engine that are stopped by a request and started again -------------------


def change_power(
    access: GcpClients,
    method: Callable[..., Operation],
    ids: Sequence[str],
    is_transient: Callable[[Exception], bool],
) -> None:
    """Stop or start machines, and wait for the operations: they may be refused late.

    Parameters
    ----------
    method
        ``stop_unary`` or ``start_unary`` of the client of instances.
    ids
        As ``zone/name``.
    """

    def ask(zone: str, name: str, _: Event) -> Operation:
        return access.call(method, zone=zone, instance=name)

    for zone, names in group_ids(ids).items():
        asked = send_parallel([partial(ask, zone, name) for name in names], is_transient)
        access.await_operations(asked, Event(), zone)


# -- Quotas of a project of Google Cloud: those of each region, and those of all regions ----------
#
# Spot machines count against quotas of their own where a project has them, else against the same as
# others: https://cloud.google.com/compute/resource-usage#preemptible-quotas.

_SPOT = "PREEMPTIBLE_"
_GPUS = re.compile(r"NVIDIA_(\w+)_GPUS")
_CPUS = re.compile(r"([A-Z]\d[A-Z0-9]*)_CPUS")
_SHARED_CPUS = ("n1", "e2", "f1", "g1")
"""Series that count against CPUS, as they have no metric of their own."""


def read_quotas(access: GcpClients) -> list[AccountQuota]:
    """Return the quotas of all regions and of the project."""
    found: list[AccountQuota] = []
    for region in access.call(access.regions.list, max_results=PAGE_SIZE):
        found += parse_metrics(((q.metric, q.limit) for q in region.quotas), region.name)
    project = access.call(access.projects.get)
    found += parse_metrics((q.metric, q.limit) for q in project.quotas)
    return found


def parse_metrics(metrics: Iterable[tuple[str, float]], region: str = "") -> Iterator[AccountQuota]:
    """Yield the quotas that machines count against.

    Parameters
    ----------
    metrics
        Names and limits, as the API has them.
    region
        Where they hold; empty for all regions together.

    Examples
    --------
    >>> found = parse_metrics([("NVIDIA_A100_80GB_GPUS", 8), ("PREEMPTIBLE_CPUS", 0)], "us-east4")
    >>> [(quota.families, quota.limit, quota.spot) for quota in found]
    [(('A100-80GB',), 8, None)]
    """
    limits = dict(metrics)
    for name, limit in limits.items():
        plain = name.removeprefix(_SPOT)
        is_spot = plain != name
        if is_spot and not limit:
            continue  # none of its own: spot machines count against the other
        gpus = _GPUS.fullmatch(plain)
        if plain == "GPUS_ALL_REGIONS" or plain == "CPUS_ALL_REGIONS":
            unit, families = ("gpus" if plain.startswith("GPUS") else "vcpus"), ()
            spot: bool | None = False
        elif gpus:
            unit, families = "gpus", _accelerator_names(gpus[1])
            spot = is_spot or (False if limits.get(_SPOT + plain) else None)
        elif plain == "CPUS" or _CPUS.fullmatch(plain):
            series = plain.partition("_")[0].lower()
            unit, families = "vcpus", (series,) if plain != "CPUS" else _SHARED_CPUS
            families = () if is_spot else families
            spot = is_spot or (False if limits.get(f"{_SPOT}CPUS") else None)
        else:
            continue
        if families or plain.endswith("ALL_REGIONS") or is_spot:
            yield AccountQuota(
                "gcp", name, limit, unit, region, families, spot, GcpFacts.quota_page
            )


def _accelerator_names(metric: str) -> tuple[str, ...]:
    """Return the canonical name of the accelerator in a metric; none where it is not known."""
    try:
        return (accelerators.canonical(metric.replace("_", "-")),)
    except SkyUsageError:
        return ()
