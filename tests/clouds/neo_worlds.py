"""Accounts of emulated GPU clouds under the conformance suite."""

from __future__ import annotations

from typing import ClassVar

from jupyter_sky.clouds.provider.values import ErrorCause
from tests.clouds.rest_world import RestWorld
from tests.emulators import hyperstack, nebius, runpod, vast, verda

SAME: dict[ErrorCause, str] = {
    "capacity": "capacity",
    "quota": "quota",
    "permission": "permission",
    "invalid": "invalid",
    "throttled": "throttled",
}


class HyperstackWorld(RestWorld):
    """Account of Hyperstack."""

    cloud, account, path = "hyperstack", hyperstack.HyperstackAccount, "/v1"
    key: ClassVar = {"HYPERSTACK_API_KEY": hyperstack.KEY}
    requests: ClassVar = {
        "launch": "POST /v1/core/virtual-machines",
        "machines": "GET /v1/core/virtual-machines",
        "terminate": "DELETE /v1/core/virtual-machines",
    }
    codes: ClassVar = {
        "capacity": "no_stock",
        "quota": "balance",
        "permission": "forbidden",
        "invalid": "bad_request",
        "throttled": "throttled",
    }


class NebiusWorld(RestWorld):
    """Account of Nebius."""

    cloud, account = "nebius", nebius.NebiusAccount
    key: ClassVar = {"NEBIUS_IAM_TOKEN": nebius.TOKEN}
    requests: ClassVar = {
        "launch": "InstanceService.Create",
        "machines": "InstanceService.List",
        "terminate": "InstanceService.Delete",
    }
    codes: ClassVar = {
        "capacity": "not_enough_resources",
        "quota": "quota_failure",
        "permission": "permission_denied",
        "invalid": "bad_request",
        "throttled": "too_many_requests",
    }


class RunPodWorld(RestWorld):
    """Account of RunPod."""

    cloud, account, path = "runpod", runpod.RunPodAccount, "/v1"
    key: ClassVar = {"RUNPOD_API_KEY": runpod.KEY}
    requests: ClassVar = {
        "launch": "POST /graphql for a pod",
        "machines": "GET /v1/pods",
        "terminate": "DELETE /v1/pods",
    }
    codes: ClassVar = SAME

    def settings(self) -> dict[str, str]:
        """Return the addresses of both APIs."""
        return super().settings() | {"graphql": f"{self.api.url}/graphql"}


class VastWorld(RestWorld):
    """Account of Vast.ai."""

    cloud, account = "vast", vast.VastAccount
    key: ClassVar = {"VAST_API_KEY": vast.KEY}
    requests: ClassVar = {
        "launch": "PUT /api/v0/asks/",
        "machines": "GET /api/v1/instances/",
        "terminate": "DELETE /api/v0/instances/",
    }
    codes: ClassVar = {
        "capacity": "no_such_ask",
        "quota": "insufficient_credit",
        "permission": "not_authorized",
        "invalid": "invalid_args",
        "throttled": "rate_limited",
    }


class VerdaWorld(RestWorld):
    """Account of Verda."""

    cloud, account, path = "verda", verda.VerdaAccount, "/v1"
    key: ClassVar = {"VERDA_CLIENT_ID": verda.ID, "VERDA_CLIENT_SECRET": verda.SECRET}
    requests: ClassVar = {
        "launch": "POST /v1/instances",
        "machines": "GET /v1/instances",
        "terminate": "PUT /v1/instances",
    }
    codes: ClassVar = {
        "capacity": "no_capacity",
        "quota": "insufficient_funds",
        "permission": "forbidden_action",
        "invalid": "invalid_request",
        "throttled": "too_many_requests",
    }
