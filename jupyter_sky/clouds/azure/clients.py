"""Azure credentials, subscription and SDK clients."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyPermission
from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from azure.core import PipelineClient
    from azure.identity import DefaultAzureCredential
    from azure.mgmt.resource.resources import ResourceManagementClient

PUBLIC_CLOUD = "https://management.azure.com"
VARIABLES = (
    "AZURE_AUTHORITY_HOST",
    "AZURE_CLIENT_CERTIFICATE_PATH",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_CONFIG_DIR",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_RESOURCE_MANAGER_URL",
    "AZURE_SUBSCRIPTION_ID",
    "AZURE_TENANT_ID",
    "AZURE_TOKEN_CREDENTIALS",
    "IDENTITY_ENDPOINT",
    "MSI_ENDPOINT",
)
"""Environment variables that choose credentials and endpoints."""
_READ_TIMEOUTS = "?api-version=2022-12-01"
_HTTP_OPTIONS: dict[str, Any] = {"retry_total": 0, "connection_timeout": 10, "read_timeout": 60}
"""Options of all requests: each is sent once, `RetryingCaller` sends it again."""


def configured() -> str:
    """Return in words which credentials would be used, empty without any; asks nobody."""
    have = os.environ.get
    if chosen := have("AZURE_TOKEN_CREDENTIALS"):
        return f"AZURE_TOKEN_CREDENTIALS={chosen}"
    if have("AZURE_CLIENT_ID") and have("AZURE_TENANT_ID"):
        for name in (
            "AZURE_CLIENT_SECRET",
            "AZURE_CLIENT_CERTIFICATE_PATH",
            "AZURE_FEDERATED_TOKEN_FILE",
        ):
            if have(name):
                return f"service principal {have('AZURE_CLIENT_ID')} ({name})"
    if have("IDENTITY_ENDPOINT") or have("MSI_ENDPOINT"):
        return "managed identity"
    for seen in _cli_subscriptions():
        if isinstance(user := seen.get("user"), dict):
            return f"az login as {user.get('name', 'somebody')}"
    return ""


@dataclass(frozen=True, slots=True, eq=False)
class AzureClients:
    """Clients of one subscription, and the environment that they were made from."""

    key: tuple[str | None, ...]
    manager: str
    subscription: str
    http: PipelineClient
    """A pipeline with our credentials, for what the clients have no method for."""
    compute: Any
    network: Any
    resource: ResourceManagementClient

    def identify(self) -> str:
        """Ask for the subscription; return which it is."""
        found = _get(self.http, f"{self.manager}/subscriptions/{self.subscription}{_READ_TIMEOUTS}")
        state = found.get("state", "Enabled")
        said = f"subscription {found.get('displayName', '')} ({self.subscription})"
        if state not in ("Enabled", "Warned"):
            hint = "see Cost Management + Billing in the portal"
            raise SkyPermission(
                _("azure: {said} is {state}").format(said=said, state=state), hint=hint
            )
        return said

    def download(self, url: str) -> str:
        """Read what a signed address leads to; our credentials stay here."""
        import requests

        return requests.get(url, timeout=20).text


def connect(key: tuple[str | None, ...]) -> AzureClients:
    """Return clients for what the environment says, which is `key`."""
    from azure.core import PipelineClient
    from azure.core.pipeline.policies import BearerTokenCredentialPolicy
    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.network import NetworkManagementClient
    from azure.mgmt.resource.resources import ResourceManagementClient

    manager = os.environ.get("AZURE_RESOURCE_MANAGER_URL", PUBLIC_CLOUD).rstrip("/")
    credential, scope = make_credential(), f"{manager}/.default"
    plain: PipelineClient = PipelineClient(
        manager, policies=[BearerTokenCredentialPolicy(credential, scope)]
    )
    subscription = _select_subscription(plain, manager)
    options: dict[str, Any] = {"base_url": manager, "credential_scopes": [scope], **_HTTP_OPTIONS}
    return AzureClients(
        key,
        manager,
        subscription,
        plain,
        ComputeManagementClient(credential, subscription, **options),
        NetworkManagementClient(credential, subscription, **options),
        ResourceManagementClient(credential, subscription, **options),
    )


def make_credential() -> DefaultAzureCredential:
    """Return what azure-identity finds: a service principal, an identity or a login."""
    from azure.identity import DefaultAzureCredential

    have = os.environ.get
    noisy = logging.getLogger("azure.identity")
    if noisy.level == logging.NOTSET:  # it tells at length what is raised as well
        noisy.setLevel(logging.ERROR)
    options: dict[str, Any] = {"process_timeout": 30, "retry_total": 1, "connection_timeout": 10}
    if have("AZURE_AUTHORITY_HOST"):  # else the public cloud is asked whether that one exists
        options["disable_instance_discovery"] = True
    if not have("AZURE_TOKEN_CREDENTIALS"):
        # A machine without an identity of its own takes seconds to say so.
        identity = have("IDENTITY_ENDPOINT") or have("MSI_ENDPOINT")
        options["exclude_managed_identity_credential"] = not identity
        options["exclude_shared_token_cache_credential"] = True
        options["exclude_visual_studio_code_credential"] = True
        options["exclude_broker_credential"] = True
    return DefaultAzureCredential(**options)


def _select_subscription(plain: PipelineClient, manager: str) -> str:
    """Return the subscription that is set, that ``az`` uses, or the only one that we see."""
    if given := os.environ.get("AZURE_SUBSCRIPTION_ID"):
        return given
    if chosen := next((seen["id"] for seen in _cli_subscriptions() if seen.get("isDefault")), None):
        return chosen
    listed = _get(plain, f"{manager}/subscriptions{_READ_TIMEOUTS}").get("value", [])
    seen = {one["subscriptionId"]: one.get("displayName", "") for one in listed}
    if len(seen) == 1:
        return next(iter(seen))
    names = ", ".join(f"{id} ({name})" for id, name in sorted(seen.items()))
    raise SkyPermission(
        _("azure: {seen_count} subscriptions are seen").format(seen_count=len(seen))
        if seen
        else _("azure: no subscription is seen"),
        hint=_("set AZURE_SUBSCRIPTION_ID to one of {names}").format(names=names)
        if seen
        else _("az login"),
    )


def _cli_subscriptions() -> list[JsonObject]:
    """Return the subscriptions that ``az login`` has noted."""
    folder = Path(os.environ.get("AZURE_CONFIG_DIR") or Path.home() / ".azure")
    try:
        profile = json.loads((folder / "azureProfile.json").read_text(encoding="utf-8-sig"))
        return [seen for seen in profile["subscriptions"] if isinstance(seen, dict)]
    except (OSError, ValueError, LookupError, TypeError):
        return []


def _get(plain: PipelineClient, url: str) -> JsonObject:
    from azure.core.exceptions import ClientAuthenticationError, DecodeError, HttpResponseError
    from azure.core.rest import HttpRequest

    response = plain.send_request(HttpRequest("GET", url))
    if response.status_code == 401:
        raise ClientAuthenticationError(response=response)
    if response.status_code >= 400:
        raise HttpResponseError(response=response)
    try:
        return response.json()
    except ValueError as error:
        raise DecodeError(message=str(error), response=response) from None
