"""Credentials and errors of all that is launched in a project of Google Cloud."""

from __future__ import annotations

import json
from typing import ClassVar

from jupyter_sky.base.translation import N_
from jupyter_sky.clouds.gcp import clients, errors, policy, service_account
from jupyter_sky.clouds.provider.classification import ErrorTable, ProviderError
from jupyter_sky.clouds.provider.protocol import Provider


class GcpAccount(Provider):
    """Part of a driver that uses Google's SDK."""

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
        return json.dumps(policy.role_definition(service_account.configured_account()), indent=2)

    def read_error(self, error: Exception) -> ProviderError | None:
        """Read code, HTTP status and message out of an error of Google's SDK."""
        return errors.read_error(error)
