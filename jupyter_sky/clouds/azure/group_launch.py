"""Machines of one order, created in its resource group with network and firewall."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Event
from typing import Any

from jupyter_sky.clouds.azure import queries, requests
from jupyter_sky.clouds.azure.clients import AzureClients
from jupyter_sky.clouds.azure.machine_roles import MachineRoles
from jupyter_sky.clouds.azure.polling import polling_method
from jupyter_sky.clouds.provider.classification import ProviderError
from jupyter_sky.clouds.provider.parallel_requests import pause
from jupyter_sky.clouds.provider.values import LaunchRequest, MachineConfig


class ProvisioningFailed(Exception):
    """Failure of a machine whose creation was accepted; what is there of it is of no use."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class GroupLaunch:
    """Requests of one order; each waits for its operation unless `halt` is set.

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
    order: LaunchRequest
    config: MachineConfig
    poll: float

    @property
    def home(self) -> str:
        """ID of the group."""
        return f"/subscriptions/{self.account.subscription}/resourceGroups/{self.group}"

    def make_network(self, halt: Event) -> None:
        """Make the private network."""
        body = requests.virtual_network(self.order, self.config)
        make = self.account.network.virtual_networks.begin_create_or_update
        make(self.group, requests.NETWORK, body, polling=polling_method(halt, self.poll)).result()

    def make_firewall(self, halt: Event) -> None:
        """Make the firewall."""
        body = requests.firewall(self.order, self.config)
        make = self.account.network.network_security_groups.begin_create_or_update
        make(self.group, requests.FIREWALL, body, polling=polling_method(halt, self.poll)).result()

    def ensure_role(self, halt: Event) -> None:
        """Make the role by which machines may delete themselves."""
        self.roles.ensure(self.account)

    def make_machine(self, rank: int, halt: Event) -> Any:
        """Create one machine and wait until Azure has found a place for it, or none."""
        from azure.core import MatchConditions
        from azure.core.exceptions import HttpResponseError

        name = requests.machine_name(self.order.token, rank)
        body = requests.virtual_machine(self.order, self.config, rank, self.home)
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
        failed = queries.provisioning_error(seen)
        code, message = failed or ("ProvisioningFailed", "the machine was not made")
        raise ProvisioningFailed(ProviderError(message, code=code))
