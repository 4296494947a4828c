"""Credentials and errors of all that is launched in a project of Google Cloud."""

from __future__ import annotations

import json
from typing import ClassVar

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.translation import N_
from jupyter_sky.clouds.gcp import clients, errors, service_account
from jupyter_sky.clouds.provider.classification import ErrorTable, ProviderError
from jupyter_sky.clouds.provider.protocol import Provider


class GcpAccount(Provider):
    """Part of a provider that uses Google's SDK."""

    login = "gcloud auth application-default login, and set GOOGLE_CLOUD_PROJECT"
    policy_use = N_(
        "as role.json: gcloud iam roles create jupyterSky --project PROJECT --file role.json; "
        "gcloud projects add-iam-policy-binding PROJECT --member user:EMAIL "
        "--role projects/PROJECT/roles/jupyterSky; TPU VMs run as the default service account of "
        "Compute Engine unless the settings name one: gcloud iam service-accounts "
        "add-iam-policy-binding ACCOUNT --member user:EMAIL --role roles/iam.serviceAccountUser"
    )
    refinements = errors.REFINEMENTS
    errors: ClassVar[ErrorTable] = {**errors.TABLE, **errors.STATUSES}

    def configured(self) -> str:
        """Return in words which credentials would be used, empty without any; asks nobody."""
        return clients.configured()

    def policy(self) -> str:
        """Return the role of an account that launches machines, as JSON."""
        return json.dumps(role_definition(service_account.configured_account()), indent=2)

    def read_error(self, error: Exception) -> ProviderError | None:
        """Read code, HTTP status and message out of an error of Google's SDK."""
        return errors.read_error(error)


# -- Least rights of an account that launches machines: the permissions that the provider needs ----

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


def role_definition(service_account: str = "") -> JsonObject:
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
