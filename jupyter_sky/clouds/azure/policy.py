"""Least rights of a user that launches machines: the actions that the driver asks."""

from __future__ import annotations

from typing import Any

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


def role_definition(subscription: str = "") -> dict[str, Any]:
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
