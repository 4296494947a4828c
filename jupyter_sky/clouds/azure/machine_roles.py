"""Ends of Azure machines without us: roles by which they delete themselves, and a timer.

A machine that powers itself off is billed as one that runs, so each may delete its own group and
what is in it, and no more. Roles may only be made and given by owners. Where they are not, Azure
itself deallocates the machines some minutes after the end of their lease: once, by Scheduled
Actions, which Contributor suffices for. (The older auto-shutdown of DevTest Labs knows times of day
alone, and would take a machine of a longer lease down on its first day.)
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.clouds.azure.clients import AzureClients
from jupyter_sky.clouds.azure.errors import error_code, read_error

CONTRIBUTOR_ROLE = "b24988ac-6180-42a0-ab88-20f7382dd24c"
ROLE_ACTIONS = (
    "Microsoft.Resources/subscriptions/resourceGroups/delete",
    "Microsoft.Compute/virtualMachines/delete",
    "Microsoft.Compute/disks/delete",
    "Microsoft.Network/networkInterfaces/delete",
    "Microsoft.Network/publicIPAddresses/delete",
)
"""Actions of a machine in its own group: deleting a group takes what is in it along."""
MARGIN_SECONDS = 300.0
"""Time for a machine to delete itself after its lease, before it is deallocated."""
_AUTHORIZATION = "providers/Microsoft.Authorization"
_ROLES_VERSION, _SCHEDULES_VERSION = "2022-04-01", "2025-05-01"
log = logging.getLogger(__name__)


class MachineRoles:
    """Role of machines in subscriptions, made once in each."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def ensure(self, account: AzureClients) -> str:
        """Return the id of the role that machines get, which is made if we may make it."""
        if account.subscription not in self._ids:
            self._ids[account.subscription] = _make_role(account)
        return self._ids[account.subscription]

    def assign(self, account: AzureClients, group_id: str, machine: Any) -> bool:
        """Give a machine the right to delete its own group, as far as we may give it.

        Returns whether the machine had an identity to give it to, which may come a little later.
        """
        principal = machine.identity.principal_id if machine.identity else None
        if not principal:
            return False
        wanted = self.ensure(account)
        code = _assign_role(account, group_id, machine, principal, wanted)
        contributor = _role_id(account, CONTRIBUTOR_ROLE)
        if code == "RoleDefinitionDoesNotExist" and wanted != contributor:
            # a role that was just made is not known everywhere for some minutes
            code = _assign_role(account, group_id, machine, principal, contributor)
        if code:
            log.warning(
                "azure: %s may not delete itself (%s): when this machine is lost, it is billed "
                "until Azure deallocates it at the end of its lease, or until %%sky reap; an owner "
                "of the subscription can let us assign roles",
                machine.name,
                code,
            )
        return True


def _make_role(account: AzureClients) -> str:
    from azure.core.exceptions import HttpResponseError

    scope = f"/subscriptions/{account.subscription}"
    name = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{scope}/jupyter-sky/delete-itself"))
    role = {
        "roleName": f"jupyter_sky machines of {account.subscription}",
        "description": "Lets a machine of jupyter_sky delete itself.",
        "type": "CustomRole",
        "permissions": [{"actions": list(ROLE_ACTIONS), "notActions": []}],
        "assignableScopes": [scope],
    }
    try:
        _put(account, f"{scope}/{_AUTHORIZATION}/roleDefinitions/{name}", role)
    except HttpResponseError as error:
        log.warning(
            "azure: the role that only lets machines delete themselves cannot be made (%s): they "
            "get Contributor, each of its own resource group",
            error_code(error),
        )
        name = CONTRIBUTOR_ROLE
    return _role_id(account, name)


def _role_id(account: AzureClients, name: str) -> str:
    return f"/subscriptions/{account.subscription}/{_AUTHORIZATION}/roleDefinitions/{name}"


def _assign_role(
    account: AzureClients, group_id: str, machine: Any, principal: str, role: str
) -> str:
    """Give a role in a group; return the code of a refusal, empty if there is none."""
    from azure.core.exceptions import HttpResponseError

    name = uuid.uuid5(uuid.NAMESPACE_URL, f"{machine.id.lower()} {principal} {role.lower()}")
    given = {"roleDefinitionId": role, "principalId": principal}
    given["principalType"] = "ServicePrincipal"
    try:
        _put(account, f"{group_id}/{_AUTHORIZATION}/roleAssignments/{name}", given)
    except HttpResponseError as error:
        code = error_code(error)
        if code == "RoleAssignmentExists":
            return ""
        if code == "RoleDefinitionDoesNotExist" or error.status_code in (401, 403):
            return code
        raise
    return ""


def _put(account: AzureClients, id: str, properties: JsonObject) -> None:
    account.resource.resources.begin_create_or_update_by_id(
        id, {"properties": properties}, api_version=_ROLES_VERSION, polling=False
    )


def schedule_deallocation(
    account: AzureClients, region: str, ids: Sequence[str], lease_end: float
) -> None:
    """Let Azure deallocate machines after the end of their lease, in unix seconds.

    They end by themselves too, so that a refusal is told and no reason to launch nothing.
    """
    from azure.core.exceptions import AzureError

    when = datetime.fromtimestamp(lease_end + MARGIN_SECONDS, UTC)
    try:
        why = _submit_deallocation(account, region, ids, when)
    except (AzureError, ValueError) as error:
        refusal = read_error(error)
        why = f"{refusal.code}: {refusal.message}" if refusal else str(error)
    if why:
        log.warning(
            "azure: Azure will not deallocate the machines at the end of their lease (%s); "
            "az provider register -n Microsoft.ComputeSchedule lets it",
            why,
        )


def _submit_deallocation(
    account: AzureClients, region: str, ids: Sequence[str], when: datetime
) -> str:
    """Schedule the deallocation of machines; return the codes of those that are refused."""
    from azure.core.exceptions import HttpResponseError
    from azure.core.rest import HttpRequest

    deadline = {"deadline": f"{when:%Y-%m-%dT%H:%M:%SZ}", "timezone": "UTC"}
    body = {
        "schedule": {**deadline, "deadlineType": "InitiateAt"},
        "executionParameters": {"retryPolicy": {"retryCount": 5, "retryWindowInMinutes": 60}},
        "resources": {"ids": list(ids)},
        "correlationid": str(uuid.uuid4()),
    }
    url = (
        f"{account.manager}/subscriptions/{account.subscription}/providers/"
        f"Microsoft.ComputeSchedule/locations/{region}/virtualMachinesSubmitDeallocate"
        f"?api-version={_SCHEDULES_VERSION}"
    )
    answer = account.http.send_request(HttpRequest("POST", url, json=body))
    if answer.status_code >= 400:
        raise HttpResponseError(response=answer)
    results = answer.json().get("results") or []
    return ", ".join(str(one["errorCode"]) for one in results if one.get("errorCode"))
