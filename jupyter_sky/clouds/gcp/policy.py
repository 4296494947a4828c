"""Least rights of an account that launches machines: the permissions that the driver needs."""

from __future__ import annotations

from typing import Any

PERMISSIONS = (
    "compute.acceleratorTypes.list",
    "compute.disks.create",
    "compute.disks.delete",
    "compute.disks.list",
    "compute.disks.setLabels",
    "compute.firewalls.create",
    "compute.firewalls.delete",
    "compute.firewalls.list",
    "compute.globalOperations.get",
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.get",
    "compute.instances.getSerialPortOutput",
    "compute.instances.list",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setTags",
    "compute.instances.start",
    "compute.instances.stop",
    "compute.machineTypes.list",
    "compute.networks.create",
    "compute.networks.updatePolicy",
    "compute.projects.get",
    "compute.regions.list",
    "compute.subnetworks.use",
    "compute.subnetworks.useExternalIp",
    "compute.zoneOperations.get",
    "compute.zoneOperations.list",
    "tpu.nodes.create",
    "tpu.nodes.delete",
    "tpu.nodes.get",
    "tpu.nodes.list",
    "tpu.operations.get",
)
"""Compute Engine lists beside each of its methods those that it needs. Queued resources of TPUs
have no permissions of their own: a role with such a name is refused."""
ACT_AS = "iam.serviceAccounts.actAs"
"""To give machines the service account of the settings."""


def role_definition(service_account: str = "") -> dict[str, Any]:
    """Return the role, as ``gcloud iam roles create --file`` takes it.

    Parameters
    ----------
    service_account
        Account that machines get; empty where they get none.

    Examples
    --------
    >>> role_definition()["includedPermissions"][0]
    'compute.acceleratorTypes.list'
    """
    return {
        "title": "jupyter_sky",
        "description": "Launches and ends machines of jupyter_sky.",
        "stage": "GA",
        "includedPermissions": [*PERMISSIONS, *([ACT_AS] if service_account else [])],
    }
