"""Lambda: GPU machines by its public API.

Each machine is one request, and the API has no idempotency: machines are told apart by tags, and
looked for before a request is sent again. It takes one launch in some seconds. A machine that
powers itself off is billed in full until it is terminated by a request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import N_
from jupyter_sky.clouds.launches.rest_provider import (
    RANK,
    ListedMachine,
    RestProvider,
    owner_prefix,
    register_key,
)
from jupyter_sky.clouds.provider.classification import group_codes
from jupyter_sky.clouds.provider.naming import fit_name
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine, MachineConfig, MachineState

_LONGEST_TAG = 128
_STATES: dict[str, MachineState] = {"booting": "starting", "active": "running"}
_ENDED = ("preempted", "terminating", "terminated")
_KEY_FIX = "create a key at https://cloud.lambda.ai/api-keys and set LAMBDA_API_KEY"


class Lambda(RestProvider):
    """Lambda as a cloud that rents machines; an ID is that of its API.

    Examples
    --------
    >>> Lambda.find_meaning("global/quota-exceeded", 400)[0]
    'quota'
    """

    name, title, billing = "lambda", "Lambda", (60.0, 60.0)
    console_page = "https://cloud.lambda.ai/instances"
    account = N_("an account with a payment method: https://lambda.ai")
    permissions = N_("an API key, which may do all")
    launchable, has_live_offers, power_off_cost, colour = True, True, "full", "#5f3dc4"
    price_source = "lambdalabs:LambdaPrices"
    form_factors: ClassVar = {"^gpu_8x_a100": "SXM", "^gpu_[124]x_a100$": "PCIe"}
    settings: ClassVar = {
        "endpoint": "Address of the API, where it is not that of Lambda.",
        "launch_seconds": "Seconds from one launch to the next; the API takes one in 12.",
    }

    api, launch_seconds = "https://cloud.lambda.ai/api/v1", 12.0
    error_code, error_message = "error.code", "error.message"
    login, variables = _KEY_FIX, ("LAMBDA_API_KEY",)
    errors: ClassVar = group_codes(
        ("capacity", "region", "", "instance-operations/launch/insufficient-capacity"),
        (
            "quota",
            "region",
            "ask Lambda's support for a higher limit",
            "global/quota-exceeded instance-operations/launch/quota-exceeded",
        ),
        (
            "permission",
            "region",
            _KEY_FIX,
            "global/invalid-api-key global/account-inactive global/forbidden",
        ),
        (
            "invalid",
            "region",
            "",
            "global/invalid-parameters instance-operations/launch/file-system-in-wrong-region "
            "global/object-does-not-exist",
        ),
        ("throttled", "region", "", "global/too-many-requests"),
        ("transient", "region", "", "provider/internal-unavailable global/internal-error"),
    )

    # -- what is on sale ------------------------------------------------------------------------

    def offers(self) -> Iterator[Offer]:
        """Yield the types of machines in the regions that have some free now."""
        from jupyter_sky.clouds.prices.lambdalabs import read_type

        for entry in self.call("GET", "/instance-types")["data"].values():
            kind = read_type(entry)
            for region in kind["regions"]:
                yield Offer(
                    self.name,
                    region,
                    kind["type"],
                    int(kind["vcpus"]),
                    kind["memory"],
                    gpu=kind["gpu"] or None,
                    gpu_count=kind["gpus"] if kind["gpu"] else 0,
                    price=kind["usd"],
                    source=self.live_source,
                )

    def identify(self) -> str:
        """Prove the key by one request."""
        self.call("GET", "/ssh-keys")
        return "the key is accepted"

    # -- machines -------------------------------------------------------------------------------

    def prepare_launch(self, request: LaunchRequest, config: MachineConfig) -> str:
        """Return the name of our public key: the API insists on one that it knows."""
        listed = self.call("GET", "/ssh-keys")["data"]
        found, name = register_key(listed, "public_key", request.owner, config.public_key)
        if found is None:
            body = {"name": name, "public_key": config.public_key}
            found = self.call("POST", "/ssh-keys", body)["data"]
        return found["name"]

    def create_machine(
        self, request: LaunchRequest, config: MachineConfig, tags: Mapping[str, str], prepared: str
    ) -> Machine:
        """Launch one machine; the API has no quantity."""
        body = {
            "region_name": request.offer.region,
            "instance_type_name": request.offer.instance_type,
            "ssh_key_names": [prepared],
            "name": fit_name(f"{request.token}-{tags[RANK]}", 64),
            "user_data": config.user_data,
            "tags": [{"key": k, "value": v[-_LONGEST_TAG:]} for k, v in tags.items() if v],
        }
        answer = self.call("POST", "/instance-operations/launch", body)
        (name,) = answer["data"]["instance_ids"]
        return self.tagged(tags, id=name, state="starting")

    def list_machines(self) -> Iterator[ListedMachine]:
        """Yield the instances of the account."""
        for entry in self.call("GET", "/instances")["data"]:
            yield ListedMachine(_parse_machine(entry), entry["region"]["name"])

    def terminate(self, ids: Sequence[str]) -> None:
        """Terminate machines; one unknown ID refuses a whole request, so that none is sent."""
        known = {machine.id for machine in self.describe(ids) if machine.state != "ended"}
        if known:
            body = {"instance_ids": sorted(known)}
            self.call("POST", "/instance-operations/terminate", body)

    def delete_machine(self, id: str) -> None:
        """Terminate one machine."""
        self.terminate([id])

    def sweep(
        self, owner: str, alive: Collection[str], regions: Collection[str] | None = None
    ) -> list[str]:
        """Delete the public key of an owner without machines; nothing else is left."""
        if alive:
            return []
        removed = []
        for key in self.call("GET", "/ssh-keys")["data"]:
            if key["name"].startswith(owner_prefix(owner)):
                self.call("DELETE", f"/ssh-keys/{key['id']}")
                removed.append(f"SSH key {key['name']}")
        return removed


def _parse_machine(entry: JsonObject) -> Machine:
    tags = {tag["key"]: tag["value"] for tag in entry.get("tags") or ()}
    status = entry["status"]
    return Lambda.tagged(
        tags,
        id=entry["id"],
        state="ended" if status in _ENDED else _STATES.get(status, "running"),
        preempted=status == "preempted",
        reason="Lambda took the machine back" if status == "preempted" else "",
        address=entry.get("ip") or "",
        private=entry.get("private_ip") or entry.get("ip") or "",
    )
