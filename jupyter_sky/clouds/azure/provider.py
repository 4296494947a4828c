"""Azure: each cluster is a resource group of its own, and deleting the group is its end."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any, ClassVar

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.translation import N_
from jupyter_sky.clouds.azure import clients, errors, machine_roles, requests
from jupyter_sky.clouds.azure.clients import AzureClients
from jupyter_sky.clouds.azure.errors import error_code
from jupyter_sky.clouds.azure.facts import AzureFacts
from jupyter_sky.clouds.azure.machine_roles import MachineRoles
from jupyter_sky.clouds.launches.catalog_provider import CatalogProvider
from jupyter_sky.clouds.provider.classification import ErrorTable, ProviderError
from jupyter_sky.clouds.provider.naming import (
    OWNER,
    TOKEN,
    group_ids,
    parse_rank,
    split_id,
    tagged_machine,
)
from jupyter_sky.clouds.provider.parallel_requests import pause, send_parallel
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine, MachineConfig, MachineState
from jupyter_sky.knowledge.tracker.quotas import AccountQuota

LAUNCH_GRACE_SECONDS = 900.0
"""A group without machines that is younger may be one that is being made."""
POLL_SECONDS = 2.0
"""Most seconds between two looks at an operation; Azure itself asks for ten and more."""
_DELETION_WAIT_SECONDS = 300.0  # a group of the same name that is being deleted is waited for

_DELETION_CODES = {"ResourceGroupNotFound", "ResourceGroupBeingDeleted", "ResourceNotFound"}

log = logging.getLogger(__name__)


class Azure(AzureFacts, CatalogProvider):
    """The calls of azure-mgmt-compute, -network and -resource; an ID is ``group/name``.

    Parameters
    ----------
    poll
        Most seconds between two looks at an operation that takes time.

    Examples
    --------
    >>> Azure().name
    'azure'
    """

    login = "az login, and set AZURE_SUBSCRIPTION_ID"
    policy_use = N_(
        "as role.json: az role definition create --role-definition @role.json; "
        "az role assignment create --role jupyter_sky --assignee USER --scope /subscriptions/ID"
    )
    refinements = errors.REFINEMENTS
    errors: ClassVar[ErrorTable] = {**errors.TABLE, **errors.OTHERS}

    def __init__(self, poll: float = POLL_SECONDS) -> None:
        self.poll = poll
        self._account: AzureClients | None = None
        self._lock = threading.Lock()
        self._roles = MachineRoles()

    # -- who we are --------------------------------------------------------------------------

    def configured(self) -> str:
        """Return in words which credentials would be used, empty without any; asks nobody."""
        return clients.configured()

    def identify(self) -> str:
        """Prove the credentials by one request; return the subscription."""
        return self._current_account().identify()

    def policy(self) -> str:
        """Return the role of a user that launches machines, as JSON."""
        subscription = os.environ.get("AZURE_SUBSCRIPTION_ID", "")
        return json.dumps(role_definition(subscription), indent=2)

    def quotas(self) -> list[AccountQuota]:
        """Return how many vCPUs of each family the subscription may have in its regions."""
        return read_quotas(self._current_account())

    def read_error(self, error: Exception) -> ProviderError | None:
        """Read code, HTTP status and message out of an error of Azure's SDK."""
        return errors.read_error(error)

    def self_delete_script(self, request: LaunchRequest) -> str:
        """Return shell commands by which the head deletes its group, and another node itself."""
        account = self._current_account()
        return requests.self_delete_script(account.manager, account.subscription, request.token)

    # -- making ------------------------------------------------------------------------------

    def launch(self, request: LaunchRequest, config: MachineConfig, stop: Event) -> list[Machine]:
        """Create all machines in one zone, or none, in a group of their own.

        What an answer that was lost has made is kept, since the same request comes again and finds
        it; all else that stands in the way takes the group with it.
        """
        account, group = self._current_account(), requests.group_name(request.token)
        self._make_group(account, request, config, stop)
        launch = GroupLaunch(account, self._roles, group, request, config, self.poll)
        around = [launch.make_network, launch.make_firewall, launch.ensure_role]
        machines = [partial(launch.make_machine, rank) for rank in range(request.resources.nodes)]
        try:
            send_parallel(around, self.is_transient, stop)
            found = send_parallel(machines, self.is_transient, stop)
        except ProvisioningFailed as failed:
            self._abandon_group(account, group, request.token)
            raise failed.error from None
        except Exception as error:
            if not self.is_transient(error):
                self._abandon_group(account, group, request.token)
            raise
        ids = [seen.id for seen in found]
        machine_roles.schedule_deallocation(account, request.offer.region, ids, config.lease_end)
        return [parse_machine(group, seen, "", "") for seen in found]

    def _make_group(
        self, account: AzureClients, request: LaunchRequest, config: MachineConfig, stop: Event
    ) -> None:
        """Make the group; one of its name that is being deleted is waited for."""
        from azure.core.exceptions import HttpResponseError
        from azure.mgmt.resource.resources.models import ResourceGroup

        written = requests.group_tags(request, config, time.time())
        body = ResourceGroup(location=request.offer.region, tags=written)
        name, until = requests.group_name(request.token), time.monotonic() + _DELETION_WAIT_SECONDS
        while True:
            try:
                account.resource.resource_groups.create_or_update(name, body)
                return
            except HttpResponseError as error:
                going = error_code(error) == "ResourceGroupBeingDeleted"
                if not going or time.monotonic() > until:
                    raise
            pause(stop, min(self.poll, 1.0))

    def _abandon_group(self, account: AzureClients, group: str, token: str) -> None:
        """Ask for the end of a group, whatever is in the way: its request looks for it later."""
        with suppress(Exception):
            self.on_created(token, self.machines(token=token))
        try:
            _delete_group(account, group)
        except Exception as error:
            log.warning("azure: %s was not deleted yet: %s", group, error)

    # -- looking -----------------------------------------------------------------------------

    def machines(
        self, *, owner: str = "", token: str = "", regions: Collection[str] | None = None
    ) -> list[Machine]:
        """List machines that have not ended, of an owner or a request, in all regions or some."""
        account = self._current_account()
        groups = [
            group.name
            for group in list_groups(account, owner, token)
            if regions is None or group.location in regions
        ]
        calls = [partial(list_members, account, name) for name in groups]
        found = send_parallel(calls, self.is_transient)
        return [machine for members in found for machine in members if machine.state != "ended"]

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Say how machines are; those that Azure no longer knows are left out.

        A spot machine that was taken back is deleted, with nothing to ask about; it is known by
        its group, which is still there.
        """
        account = self._current_account()
        calls = [
            partial(describe_members, account, group, [f"{group}/{name}" for name in names])
            for group, names in group_ids(ids).items()
        ]
        return [one for found in send_parallel(calls, self.is_transient) for one in found]

    def console(self, id: str) -> str:
        """Return the end of what a machine has written to its serial console."""
        from azure.core.exceptions import ResourceNotFoundError

        account = self._current_account()
        group, name = split_id(id)
        try:
            where = account.compute.virtual_machines.retrieve_boot_diagnostics_data(group, name)
        except ResourceNotFoundError:
            return ""
        blob = where.serial_console_log_blob_uri
        return account.download(blob)[-65536:] if blob else ""

    # -- ending ------------------------------------------------------------------------------

    def terminate(self, ids: Sequence[str]) -> None:
        """Ask for the end of machines; the last of a group takes the group with it."""
        account = self._current_account()
        calls = [
            partial(_remove, account, group, {name.lower() for name in names})
            for group, names in group_ids(ids).items()
        ]
        send_parallel(calls, self.is_transient)

    def stop(self, ids: Sequence[str]) -> None:
        """Ask machines to be deallocated; their disks and addresses are kept."""
        deallocate(self._current_account(), ids, self.is_transient)

    def start(self, ids: Sequence[str]) -> None:
        """Start machines that were deallocated."""
        start(self._current_account(), ids, self.is_transient, self.poll)

    def sweep(
        self, owner: str, alive: Collection[str], regions: Collection[str] | None = None
    ) -> list[str]:
        """Delete the groups without a machine, with the disks and addresses in them."""
        account, gone = self._current_account(), []
        for group in list_groups(account, owner):
            made = group.tags.get(requests.CREATED_TAG, "")
            elsewhere = regions is not None and group.location not in regions
            if elsewhere or group.tags.get(TOKEN) in alive:
                continue
            if not made.isdigit() or time.time() - int(made) < LAUNCH_GRACE_SECONDS:
                continue
            if all(one.state == "ended" for one in list_members(account, group.name)):
                _delete_group(account, group.name)
                gone.append(f"resource group {group.name} in {group.location}")
        return gone

    # -- the account -------------------------------------------------------------------------

    def _current_account(self) -> AzureClients:
        """Return the clients for what the environment says now."""
        key = tuple(os.environ.get(name) for name in clients.VARIABLES)
        with self._lock:
            if self._account is None or self._account.key != key:
                self._account = clients.connect(key)
            return self._account


def _remove(account: AzureClients, group: str, names: set[str], _: Event) -> None:
    from azure.core.exceptions import ResourceNotFoundError

    machines = account.compute.virtual_machines
    try:
        there = {one.name for one in machines.list(group)}
        going = {name for name in there if name.lower() in names}
        if going == there:
            _delete_group(account, group)
            return
        for name in going:
            machines.begin_delete(group, name, force_deletion=True, polling=False)
    except ResourceNotFoundError:
        pass  # it is gone


def _delete_group(account: AzureClients, group: str) -> None:
    """Ask for the end of a group and all in it, without the wait for systems to shut down."""
    from azure.core.exceptions import HttpResponseError

    try:
        account.resource.resource_groups.begin_delete(
            group, force_deletion_types="Microsoft.Compute/virtualMachines", polling=False
        )
    except HttpResponseError as error:
        if error_code(error) not in _DELETION_CODES:
            raise


# -- Machines of one request, created in its resource group with network and ----------------------


class ProvisioningFailed(Exception):
    """Failure of a machine whose creation was accepted; what is there of it is of no use."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class GroupLaunch:
    """Requests of one request; each waits for its operation unless `halt` is set.

    Attributes
    ----------
    group : str
        Name of the resource group, which exists.
    poll : float
        Most seconds between two looks at an operation.
    """

    account: AzureClients
    roles: MachineRoles
    group: str
    request: LaunchRequest
    config: MachineConfig
    poll: float

    @property
    def home(self) -> str:
        """ID of the group."""
        return f"/subscriptions/{self.account.subscription}/resourceGroups/{self.group}"

    def make_network(self, halt: Event) -> None:
        """Make the private network."""
        body = requests.virtual_network(self.request, self.config)
        make = self.account.network.virtual_networks.begin_create_or_update
        make(self.group, requests.NETWORK, body, polling=polling_method(halt, self.poll)).result()

    def make_firewall(self, halt: Event) -> None:
        """Make the firewall."""
        body = requests.firewall(self.request, self.config)
        make = self.account.network.network_security_groups.begin_create_or_update
        make(self.group, requests.FIREWALL, body, polling=polling_method(halt, self.poll)).result()

    def ensure_role(self, halt: Event) -> None:
        """Make the role by which machines may delete themselves."""
        self.roles.ensure(self.account)

    def make_machine(self, rank: int, halt: Event) -> Any:
        """Create one machine and wait until Azure has found a place for it, or none."""
        from azure.core import MatchConditions
        from azure.core.exceptions import HttpResponseError

        name = requests.machine_name(self.request.token, rank)
        body = requests.virtual_machine(self.request, self.config, rank, self.home)
        polling = polling_method(halt, self.poll)
        try:
            poller = self.account.compute.virtual_machines.begin_create_or_update(
                self.group, name, body, match_condition=MatchConditions.IfMissing, polling=polling
            )
        except HttpResponseError as error:
            if error.status_code != 412:
                raise
            return self._await_existing_machine(name, halt)  # the answer to its request got lost
        early = self.roles.assign(self.account, self.home, polling.first)
        try:
            made = poller.result()
        except HttpResponseError as error:
            raise ProvisioningFailed(error) from None
        if not early:
            self.roles.assign(self.account, self.home, made)
        return made

    def _await_existing_machine(self, name: str, halt: Event) -> Any:
        """Wait for a machine that somebody else's request makes."""
        read = self.account.compute.virtual_machines.get
        seen = read(self.group, name, expand="instanceView")
        self.roles.assign(self.account, self.home, seen)
        while seen.properties.provisioning_state in ("Creating", "Updating"):
            pause(halt, self.poll)
            seen = read(self.group, name, expand="instanceView")
        if seen.properties.provisioning_state != "Failed":
            return seen
        failed = provisioning_error(seen)
        code, message = failed or ("ProvisioningFailed", "the machine was not made")
        raise ProvisioningFailed(ProviderError(message, code=code))


# -- Least rights of a user that launches machines: the actions that the provider asks -------------

ACTIONS = (
    "Microsoft.Authorization/roleAssignments/write",
    "Microsoft.Authorization/roleDefinitions/write",
    "Microsoft.Compute/disks/write",
    "Microsoft.Compute/locations/operations/read",
    "Microsoft.Compute/locations/usages/read",
    "Microsoft.Compute/virtualMachines/deallocate/action",
    "Microsoft.Compute/virtualMachines/delete",
    "Microsoft.Compute/virtualMachines/instanceView/read",
    "Microsoft.Compute/virtualMachines/read",
    "Microsoft.Compute/virtualMachines/retrieveBootDiagnosticsData/action",
    "Microsoft.Compute/virtualMachines/start/action",
    "Microsoft.Compute/virtualMachines/write",
    "Microsoft.ComputeSchedule/locations/virtualMachinesSubmitDeallocate/action",
    "Microsoft.Network/locations/operations/read",
    "Microsoft.Network/networkInterfaces/join/action",
    "Microsoft.Network/networkInterfaces/read",
    "Microsoft.Network/networkInterfaces/write",
    "Microsoft.Network/networkSecurityGroups/join/action",
    "Microsoft.Network/networkSecurityGroups/read",
    "Microsoft.Network/networkSecurityGroups/write",
    "Microsoft.Network/publicIPAddresses/join/action",
    "Microsoft.Network/publicIPAddresses/read",
    "Microsoft.Network/publicIPAddresses/write",
    "Microsoft.Network/virtualNetworks/read",
    "Microsoft.Network/virtualNetworks/subnets/join/action",
    "Microsoft.Network/virtualNetworks/write",
    "Microsoft.Resources/subscriptions/read",
    "Microsoft.Resources/subscriptions/resourceGroups/delete",
    "Microsoft.Resources/subscriptions/resourceGroups/read",
    "Microsoft.Resources/subscriptions/resourceGroups/write",
)
"""Actions of a role; without those of Authorization, Azure's timer and `reap` end machines."""


def role_definition(subscription: str = "") -> JsonObject:
    """Return the role, as ``az role definition create`` takes it.

    Parameters
    ----------
    subscription
        ID of the subscription; a word to be replaced where it is not known.

    Examples
    --------
    >>> role_definition("1234")["AssignableScopes"]
    ['/subscriptions/1234']
    """
    return {
        "Name": "jupyter_sky",
        "IsCustom": True,
        "Description": "Launches and ends machines of jupyter_sky.",
        "Actions": list(ACTIONS),
        "NotActions": [],
        "AssignableScopes": [f"/subscriptions/{subscription or 'SUBSCRIPTION'}"],
    }


# -- Machines of Azure that are deallocated by a request and started again ------------------------


def deallocate(
    account: AzureClients, ids: Sequence[str], is_transient: Callable[[Exception], bool]
) -> None:
    """Ask machines to leave their hosts; a machine that is only off is billed as one that runs."""

    def ask(group: str, name: str, _: Event) -> None:
        account.compute.virtual_machines.begin_deallocate(group, name, polling=False)

    send_parallel([partial(ask, *split_id(each)) for each in ids], is_transient)


def start(
    account: AzureClients,
    ids: Sequence[str],
    is_transient: Callable[[Exception], bool],
    poll: float,
) -> None:
    """Start machines, and wait for the operations: a place may be refused late.

    Parameters
    ----------
    poll
        Most seconds between two looks at an operation.
    """

    def ask(group: str, name: str, halt: Event) -> None:
        begin = account.compute.virtual_machines.begin_start
        begin(group, name, polling=polling_method(halt, poll)).result()

    send_parallel([partial(ask, *split_id(each)) for each in ids], is_transient)


# -- Quotas of an Azure subscription: vCPUs of each family of sizes, and of each region in --------
#
# Spot machines count against one quota of the region, of all families together.

MAX_PARALLEL_REGIONS = 8
_ABSENT_CODES = ("NoRegisteredProviderFound", "LocationNotAvailableForResourceType")
_MARKETS = {"cores": False, "lowPriorityCores": True}
"""Quotas of all sizes of a region, and whether they are of spot machines."""


def read_quotas(account: AzureClients) -> list[AccountQuota]:
    """Return the quotas of all regions of the catalog that the subscription has."""
    from jupyter_sky.knowledge.catalog import load

    regions = sorted(name for cloud, name in load().regions if cloud == "azure")
    with ThreadPoolExecutor(MAX_PARALLEL_REGIONS) as workers:
        found = workers.map(lambda region: list(_read_region(account, region)), regions)
        return [quota for quotas in found for quota in quotas]


def _read_region(account: AzureClients, region: str) -> Iterator[AccountQuota]:
    from azure.core.exceptions import HttpResponseError

    try:
        usages: list[Any] = list(account.compute.usage.list(region))
    except HttpResponseError as error:
        if error.error is not None and error.error.code in _ABSENT_CODES:
            return
        raise
    for usage in usages:
        name, title = usage.name.value or "", usage.name.localized_value or ""
        if name in _MARKETS:
            families, spot = (), _MARKETS[name]
        elif name.lower().endswith("family"):
            families, spot = (name[: -len("family")],), False
        else:
            continue
        yield AccountQuota(
            "azure", title or name, float(usage.limit), "vcpus", region, families, spot,
            AzureFacts.quota_page,
        )  # fmt: skip


# -- Polling of Azure's long-running operations, with cancellation --------------------------------


def polling_method(halt: Event, longest: float) -> Any:
    """Return a polling method of the SDK.

    Parameters
    ----------
    halt
        Set when nobody waits any more.
    longest
        Most seconds between two looks at the operation.
    """
    from azure.mgmt.core.polling.arm_polling import ARMPolling

    class Polling(ARMPolling):
        first: Any = None

        def initialize(
            self, client: Any, initial_response: Any, deserialization_callback: Any
        ) -> None:
            super().initialize(client, initial_response, deserialization_callback)
            self.first = deserialization_callback(initial_response)

        def _delay(self) -> None:
            asked = self._pipeline_response.http_response.headers.get("Retry-After", "")
            wanted = float(asked) if asked.isdigit() else longest
            pause(halt, min(max(wanted, 0.05), longest))

    return Polling(longest, retry_total=3, retry_backoff_factor=0.1)


# -- Queries for the resource groups and machines of a subscription -------------------------------


def list_groups(account: AzureClients, owner: str = "", token: str = "") -> Iterator[Any]:
    """Yield the groups of an owner or a request; Azure takes one tag at a time.

    A group of somebody's own that has come to carry our tags is none of ours: groups are deleted.
    """
    name, value = (TOKEN, token) if token else (OWNER, owner)
    wanted = f"tagName eq '{name}'"
    if value:
        wanted += " and tagValue eq '{}'".format(value[:256].replace("'", "''"))
    for group in account.resource.resource_groups.list(filter=wanted):
        written = group.tags or {}
        ours = group.name == requests.group_name(written.get(TOKEN, ""))
        if ours and (not owner or written.get(OWNER) == owner[:256]):
            yield group


def list_members(account: AzureClients, group: str, halt: Event | None = None) -> list[Machine]:
    """Return the machines of a group as they are."""
    from azure.core.exceptions import ResourceNotFoundError

    try:
        seen = list(account.compute.virtual_machines.list(group, expand="instanceView"))
        if not seen:
            return []
        inside = list(account.network.network_interfaces.list(group))
        outside = list(account.network.public_ip_addresses.list(group))
    except ResourceNotFoundError:
        return []
    public = {one.id.lower(): one.properties.ip_address or "" for one in outside}
    addresses: dict[str, tuple[str, str]] = {}
    for interface in inside:
        owner, ways = interface.properties.virtual_machine, interface.properties.ip_configurations
        if owner and ways:
            way = ways[0].properties
            ip = way.public_ip_address.id.lower() if way.public_ip_address else ""
            addresses[owner.id.lower()] = public.get(ip, ""), way.private_ip_address or ""
    return [parse_machine(group, one, *addresses.get(one.id.lower(), ("", ""))) for one in seen]


def describe_members(
    account: AzureClients, group: str, ids: Collection[str], halt: Event | None = None
) -> list[Machine]:
    """Return some machines of a group as they are, and those that were taken back."""
    from azure.core.exceptions import ResourceNotFoundError

    known = {one.id.lower(): one for one in list_members(account, group)}
    found = [known[id.lower()] for id in ids if id.lower() in known]
    missing = [id for id in ids if id.lower() not in known]
    if not missing:
        return found
    try:
        around = account.resource.resource_groups.get(group)
    except ResourceNotFoundError:
        return found
    written, about = around.tags or {}, around.properties
    if requests.SPOT_TAG in written and about.provisioning_state != "Deleting":
        found += [_preempted_machine(id, written) for id in missing]
    return found


def _preempted_machine(id: str, written: Mapping[str, str]) -> Machine:
    return tagged_machine(
        written,
        id=id,
        cloud="azure",
        rank=parse_rank(id),
        state="ended",
        started=float(written.get(requests.CREATED_TAG) or 0),
        reason="Azure took the spot machine back",
        preempted=True,
    )


def parse_machine(group: str, seen: Any, address: str, private: str) -> Machine:
    """Return a machine as Azure describes it, with its public and its private address."""
    about, written = seen.properties, seen.tags or {}
    codes = [status.code or "" for status in _status_codes(seen)]
    power = next((code.partition("/")[2] for code in codes if code.startswith("PowerState/")), "")
    reason, ended = "", False
    if about.provisioning_state == "Failed" and power != "running":
        ended, (_, reason) = True, provisioning_error(seen) or ("", "Azure could not make it")
    elif about.provisioning_state == "Deleting":
        reason = "it is being deleted"
    elif power in ("stopping", "stopped", "deallocating", "deallocated"):
        reason = f"it is {power}, and still costs"
    started = about.time_created.timestamp() if about.time_created else time.time()
    state: MachineState = "starting" if power in ("", "starting") else "running"
    return tagged_machine(
        written,
        id=f"{group}/{seen.name}",
        cloud="azure",
        rank=parse_rank(seen.name),
        state="ended" if ended else state,
        started=started,
        reason=reason,
        address=address,
        private=private,
        stopped=power == "deallocated",
    )


def provisioning_error(seen: Any) -> tuple[str, str] | None:
    """Return code and message of what kept a machine from being made."""
    for status in _status_codes(seen):
        where, _, code = (status.code or "").partition("/failed/")
        if where == "ProvisioningState" and code:
            return code, status.message or code
    return None


def _status_codes(seen: Any) -> list[Any]:
    view = seen.properties.instance_view
    return (view.statuses or []) if view else []
