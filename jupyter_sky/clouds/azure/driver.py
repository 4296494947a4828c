"""Azure: each cluster is a resource group of its own, and deleting the group is its end."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from ..base import CloudError, LaunchRequest, Machine, MachineConfig, OnCreated, Tick, ignore
from ..provider import CloudProvider
from . import clients, machine_roles, queries, requests
from .clients import AzureClients
from .errors import explain, is_transient
from .machine_roles import MachineRoles
from .polling import StopSignal, run_parallel_requests, sleep_with_tick

LAUNCH_GRACE_SECONDS = 900.0
"""A group without machines that is younger may be one that is being made."""
POLL_SECONDS = 2.0
"""Most seconds between two looks at an operation; Azure itself asks for ten and more."""
_DELETION_WAIT_SECONDS = 300.0  # a group of the same name that is being deleted is waited for

_DELETION_CODES = {"ResourceGroupNotFound", "ResourceGroupBeingDeleted", "ResourceNotFound"}

log = logging.getLogger(__name__)


class AzureDriver:
    """The calls of azure-mgmt-compute, -network and -resource.

    Parameters
    ----------
    poll
        Most seconds between two looks at an operation that takes time.

    Examples
    --------
    >>> AzureDriver().name
    'azure'
    """

    name = "azure"
    login = "az login, and set AZURE_SUBSCRIPTION_ID"

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

    def explain(self, error: Exception) -> CloudError | None:
        """Say what an error means; None for one that is not of Azure's SDK."""
        return explain(error)

    def self_delete_script(self, order: LaunchRequest) -> str:
        """Return shell commands by which the head deletes its group, and another node itself."""
        account = self._current_account()
        return requests.self_delete_script(account.manager, account.subscription, order.token)

    # -- making ------------------------------------------------------------------------------

    def create(
        self,
        order: LaunchRequest,
        machine_config: MachineConfig,
        tick: Tick,
        on_created: OnCreated = ignore,
    ) -> list[Machine]:
        """Create all machines of an order in one zone, or none, in a group of their own.

        What an answer that was lost has made is kept, since the same order comes again and finds
        it; all else that stands in the way takes the group with it.
        """
        account, group = self._current_account(), requests.group_name(order.token)
        self._make_group(account, order, machine_config, tick)
        try:
            run_parallel_requests(
                [
                    partial(_make_network, account, group, order, machine_config),
                    partial(_make_firewall, account, group, order, machine_config),
                    lambda stop: self._roles.ensure(account),
                ],
                self.poll,
                tick,
            )
            found = run_parallel_requests(
                [
                    partial(_make_machine, account, self._roles, group, order, machine_config, rank)
                    for rank in range(order.resources.nodes)
                ],
                self.poll,
                tick,
            )
        except _ProvisioningFailed as failed:
            self._abandon_group(account, group, order.token, on_created)
            raise failed.error from None
        except BaseException as error:
            if not is_transient(error):
                self._abandon_group(account, group, order.token, on_created)
            raise
        ids = [seen.id for seen in found]
        machine_roles.schedule_deallocation(
            account, order.offer.region, ids, machine_config.lease_end
        )
        return [queries.parse_machine(group, seen, "", "") for seen in found]

    def _make_group(
        self, account: AzureClients, order: LaunchRequest, machine_config: MachineConfig, tick: Tick
    ) -> None:
        from azure.core.exceptions import HttpResponseError
        from azure.mgmt.resource.resources.models import ResourceGroup

        written = requests.group_tags(order, machine_config, time.time())
        body = ResourceGroup(location=order.offer.region, tags=written)
        name = requests.group_name(order.token)
        put = partial(account.resource.resource_groups.create_or_update, name, body)
        until = time.monotonic() + _DELETION_WAIT_SECONDS
        while True:
            try:
                run_parallel_requests([lambda stop: put()], self.poll, tick)
                return
            except HttpResponseError as error:
                trouble = explain(error)
                going = trouble is not None and trouble.code == "ResourceGroupBeingDeleted"
                if not going or time.monotonic() > until:
                    raise
            sleep_with_tick(min(self.poll, 1.0), tick)

    def _abandon_group(
        self, account: AzureClients, group: str, token: str, made: OnCreated
    ) -> None:
        """Ask for the end of a group, whatever is in the way: its order looks for it later."""
        with suppress(Exception):
            made(self.machines(token=token))
        try:
            _delete_group(account, group)
        except Exception as error:
            log.warning("azure: %s was not deleted yet: %s", group, error)

    # -- looking -----------------------------------------------------------------------------

    def machines(
        self, *, owner: str = "", token: str = "", regions: Collection[str] | None = None
    ) -> list[Machine]:
        """List machines that have not ended, of an owner or an order, in all regions or some."""
        account = self._current_account()
        groups = [
            group.name
            for group in queries.list_groups(account, owner, token)
            if regions is None or group.location in regions
        ]
        found = run_parallel_requests(
            [partial(queries.list_members, account, name) for name in groups], self.poll
        )
        return [machine for members in found for machine in members if machine.state != "ended"]

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Say how machines are; those that Azure no longer knows are left out.

        A spot machine that was taken back is deleted, with nothing to ask about; it is known by
        its group, which is still there.
        """
        account = self._current_account()
        groups: dict[str, set[str]] = {}
        for id in ids:
            groups.setdefault(id.partition("/")[0], set()).add(id)
        calls = [partial(queries.describe_members, account, *each) for each in groups.items()]
        return [one for found in run_parallel_requests(calls, self.poll) for one in found]

    def console(self, id: str) -> str:
        """Return the end of what a machine has written to its serial console."""
        from azure.core.exceptions import ResourceNotFoundError

        account = self._current_account()
        group, _, name = id.partition("/")
        try:
            where = account.compute.virtual_machines.retrieve_boot_diagnostics_data(group, name)
        except ResourceNotFoundError:
            return ""
        blob = where.serial_console_log_blob_uri
        return account.download(blob)[-65536:] if blob else ""

    # -- ending ------------------------------------------------------------------------------

    def list_ended(self, token: str, region: str, sent: float) -> list[Machine] | None:
        """Return None: Azure lists only what is there."""
        return None

    def remove(self, ids: Sequence[str]) -> None:
        """Ask for the end of machines; the last of a group takes the group with it."""
        account = self._current_account()
        groups: dict[str, set[str]] = {}
        for id in ids:
            group, _, name = id.partition("/")
            groups.setdefault(group, set()).add(name.lower())
        run_parallel_requests(
            [partial(_remove, account, *each) for each in groups.items()], self.poll
        )

    def delete_unused_resources(
        self, owner: str, regions: Collection[str] | None = None
    ) -> list[str]:
        """Delete the groups without a machine, with the disks and addresses in them."""
        account, gone = self._current_account(), []
        for group in queries.list_groups(account, owner):
            made = group.tags.get(requests.CREATED_TAG, "")
            if regions is not None and group.location not in regions:
                continue
            if not made.isdigit() or time.time() - int(made) < LAUNCH_GRACE_SECONDS:
                continue
            if all(one.state == "ended" for one in queries.list_members(account, group.name)):
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


# -- making, each in a thread of its own -------------------------------------------------------


class _ProvisioningFailed(Exception):
    """A machine was not made after all, and what is there of it is of no use."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _make_network(
    account: AzureClients,
    group: str,
    order: LaunchRequest,
    machine_config: MachineConfig,
    stop: StopSignal,
) -> None:
    body = requests.virtual_network(order, machine_config)
    networks = account.network.virtual_networks
    networks.begin_create_or_update(
        group, requests.NETWORK, body, polling=stop.polling_method()
    ).result()


def _make_firewall(
    account: AzureClients,
    group: str,
    order: LaunchRequest,
    machine_config: MachineConfig,
    stop: StopSignal,
) -> None:
    body = requests.firewall(order, machine_config)
    firewalls = account.network.network_security_groups
    firewalls.begin_create_or_update(
        group, requests.FIREWALL, body, polling=stop.polling_method()
    ).result()


def _make_machine(
    account: AzureClients,
    roles: MachineRoles,
    group: str,
    order: LaunchRequest,
    machine_config: MachineConfig,
    rank: int,
    stop: StopSignal,
) -> Any:
    """Create one machine and wait until Azure has found a place for it, or none."""
    from azure.core import MatchConditions
    from azure.core.exceptions import HttpResponseError

    name = requests.machine_name(order.token, rank)
    home = f"/subscriptions/{account.subscription}/resourceGroups/{group}"
    body = requests.virtual_machine(order, machine_config, rank, home)
    machines, polling = account.compute.virtual_machines, stop.polling_method()
    try:
        poller = machines.begin_create_or_update(
            group, name, body, match_condition=MatchConditions.IfMissing, polling=polling
        )
    except HttpResponseError as error:
        if error.status_code != 412:
            raise
        return _await_existing_machine(
            account, roles, group, name, stop
        )  # it was made by an answer that got lost
    early = roles.assign(account, home, polling.first)
    try:
        made = poller.result()
    except HttpResponseError as error:
        raise _ProvisioningFailed(error) from None
    if not early:
        roles.assign(account, home, made)
    return made


def _await_existing_machine(
    account: AzureClients, roles: MachineRoles, group: str, name: str, stop: StopSignal
) -> Any:
    """Wait for a machine that somebody else's request makes."""
    from azure.core.exceptions import HttpResponseError, ODataV4Format

    home = f"/subscriptions/{account.subscription}/resourceGroups/{group}"
    seen = account.compute.virtual_machines.get(group, name, expand="instanceView")
    roles.assign(account, home, seen)
    while seen.properties.provisioning_state in ("Creating", "Updating"):
        stop.sleep(stop.poll)
        seen = account.compute.virtual_machines.get(group, name, expand="instanceView")
    if seen.properties.provisioning_state != "Failed":
        return seen
    code, message = queries.provisioning_error(seen) or (
        "ProvisioningFailed",
        "the machine was not made",
    )
    error = HttpResponseError(message)
    error.error = ODataV4Format({"code": code, "message": message})
    raise _ProvisioningFailed(error)


# -- ending ------------------------------------------------------------------------------------


def _remove(account: AzureClients, group: str, names: set[str], stop: StopSignal) -> None:
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
        trouble = explain(error)
        if trouble is None or trouble.code not in _DELETION_CODES:
            raise


cloud = CloudProvider(AzureDriver())
