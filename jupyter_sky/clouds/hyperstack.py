"""Hyperstack: virtual machines with cloud-init, by its public API.

Each launch has an environment of its own: the machines of one share a private network, and it
holds the key that the API insists on. It is deleted when its machines are gone, which takes a
while. A machine that powers itself off is billed in full until a request deletes it.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import ClassVar

from jupyter_sky.base.json_types import JsonMapping, JsonObject
from jupyter_sky.base.requests.geography import jurisdiction_of
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import N_
from jupyter_sky.clouds.launches.rest_provider import RANK, ListedMachine, RestProvider
from jupyter_sky.clouds.provider.classification import ProviderError, Refinement, group_codes
from jupyter_sky.clouds.provider.naming import NOTEBOOK, fit_name
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine, MachineConfig, MachineState

_COUNTRIES = {"NORWAY": "NO", "CANADA": "CA", "US": "US"}
_STATES: dict[str, MachineState] = {
    "ACTIVE": "running",
    "SHUTOFF": "running",
    "HIBERNATED": "running",
    "DELETING": "ended",
    "DELETED": "ended",
    "ERROR": "ended",
}
"""States by their names; a machine that is off is billed as one that runs."""
_KEY_FIX = "create a key at https://console.hyperstack.cloud/api-keys and set HYPERSTACK_API_KEY"
_PAGE, _LONGEST_NAME = 100, 50
_PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
_YOUNG_SECONDS = 900.0
"""An environment without machines may be that of a launch under way elsewhere."""
_DELETION_SECONDS, _POLL_SECONDS = 30.0, 1.0


class Hyperstack(RestProvider):
    """Hyperstack as a cloud that rents machines; an ID is that of its API.

    Examples
    --------
    >>> poor = ProviderError("Insufficient balance to create the resource", code="bad_request")
    >>> Hyperstack.explain_refusal(poor).cause
    'quota'
    """

    name, title, billing = "hyperstack", "Hyperstack", (60.0, 60.0)
    console_page = "https://console.hyperstack.cloud/virtual-machines"
    account = N_("an account with credit: https://console.hyperstack.cloud")
    permissions = N_("an API key, which may do all")
    launchable, has_live_offers, power_off_cost, colour = True, True, "full", "#2b8a3e"
    settings: ClassVar = {
        "endpoint": "Address of the API, where it is not that of Hyperstack.",
        "image": "Image of the machines; the newest Ubuntu, with CUDA where there are GPUs.",
        "launch_seconds": "Seconds from one launch to the next.",
    }

    api = "https://infrahub-api.nexgencloud.com/v1"
    error_code = "error_reason"
    login, variables = _KEY_FIX, ("HYPERSTACK_API_KEY",)
    errors: ClassVar = {
        **group_codes(
            ("capacity", "region", "", "no_stock"),
            ("permission", "region", _KEY_FIX, "unauthorized forbidden"),
            ("invalid", "region", "", "bad_request not_found conflict method_not_allowed"),
            ("throttled", "region", "", "too_many_requests"),
        ),
        400: ("invalid", "region", ""),  # some refusals have no code
    }
    refinements = (
        Refinement(
            "bad_request conflict 400 500",
            r"(?i)stock|capacity|no valid host|not enough|flavor.*(unavailable|not available)",
            cause="capacity",
        ),
        Refinement(
            "bad_request forbidden 400",
            r"(?i)balance|credit|quota|limit (is |was |has been )?(reached|exceeded)",
            cause="quota",
            fix="add credit: https://console.hyperstack.cloud/billing",
        ),
    )

    def __init__(self) -> None:
        super().__init__()
        self._used = set[str]()
        """Names of environments that have been seen with a machine."""

    def headers(self) -> dict[str, str]:
        """Return the header with the key."""
        return {"api_key": super().headers()["Authorization"].removeprefix("Bearer ")}

    # -- what is on sale ------------------------------------------------------------------------

    def offers(self) -> Iterator[Offer]:
        """Yield the flavors that regions have in stock now, at both markets' prices."""
        from jupyter_sky.clouds.prices.hyperstack import SPOT, price_of

        book = {entry["name"]: float(entry["value"]) for entry in self.call("GET", "/pricebook")}
        for flavor in self._flavors():
            if flavor["stock_available"] and not flavor["name"].lower().endswith("k8s"):
                prices = [price_of(flavor, book, spot) for spot in (False, True)]
                spot = flavor["name"].endswith(SPOT)
                if prices[spot]:
                    yield self._offer(flavor, spot, prices[spot], prices[not spot])

    def _flavors(self, **query: str) -> Iterator[JsonObject]:
        for group in self.call("GET", "/core/flavors", query=query)["data"]:
            yield from group["flavors"]

    def _offer(
        self, flavor: JsonMapping, spot: bool, price: float | None, other: float | None
    ) -> Offer:
        from jupyter_sky.clouds.prices.entries import nominal_memory
        from jupyter_sky.clouds.prices.hyperstack import SPOT, read_gpu

        gpu, memory = read_gpu(flavor["gpu"] or "")
        country = _COUNTRIES.get(flavor["region_name"].partition("-")[0], "")
        return Offer(
            self.name,
            flavor["region_name"],
            flavor["name"].removesuffix(SPOT),
            float(flavor["cpu"]),
            float(flavor["ram"]),
            gpu=gpu,
            gpu_count=flavor["gpu_count"] if gpu else 0,
            gpu_memory=nominal_memory(gpu, memory) if gpu else None,
            spot=spot,
            price=price,
            other_price=other,
            source=self.live_source,
            disk=float(flavor["disk"] + (flavor["ephemeral"] or 0)),
            arch="x86_64",
            country=country,
            jurisdiction=jurisdiction_of(country),
        )

    # -- machines -------------------------------------------------------------------------------

    def prepare_launch(self, request: LaunchRequest, config: MachineConfig) -> tuple[str, str]:
        """Return the environment of this request, with our public key in it, and the image."""
        region = request.offer.region
        name = _environment(request.owner, request.token, region)
        found = self._pages("environments", search=name)
        if name not in {each["name"] for each in found}:
            self.call("POST", "/core/environments", {"name": name, "region": region})
        keys = self._pages("keypairs", search=name)
        if name not in {key["name"] for key in keys if key["environment"]["name"] == name}:
            body = {"name": name, "environment_name": name, "public_key": config.public_key}
            self.call("POST", "/core/keypairs", body)
        return name, self.setting("image", "") or self._newest_image(request.offer)

    def _newest_image(self, offer: Offer) -> str:
        """Return the newest Ubuntu of a region, with CUDA for machines with GPUs."""
        groups = self.call("GET", "/core/images", query={"region": offer.region})["images"]
        names = [image["name"] for group in groups for image in group["images"]]
        fitting = [
            name
            for name in names
            if re.match(r"Ubuntu Server \d", name)
            and ("CUDA" in name) is bool(offer.gpu)
            and "Docker" not in name
        ]
        if not fitting:
            text = f"{offer.region} has no image of Ubuntu Server: set providers.{self.name}.image"
            raise ProviderError(text, code="not_found")
        return max(fitting, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])

    def create_machine(
        self,
        request: LaunchRequest,
        config: MachineConfig,
        tags: Mapping[str, str],
        prepared: tuple[str, str],
    ) -> Machine:
        """Launch one machine, once the API says that one is in stock."""
        from jupyter_sky.clouds.prices.hyperstack import SPOT

        offer, (environment, image) = request.offer, prepared
        flavor = offer.instance_type + (SPOT if offer.spot else "")
        flavors = self._flavors(region=offer.region)
        if not any(each["name"] == flavor and each["stock_available"] for each in flavors):
            raise ProviderError(f"{flavor} is out of stock in {offer.region}", code="no_stock")
        body = {
            "name": fit_name(f"{request.token}-{tags[RANK]}", _LONGEST_NAME),
            "count": 1,
            "environment_name": environment,
            "flavor_name": flavor,
            "image_name": image,
            "key_name": environment,
            "user_data": config.user_data,
            "labels": [f"{k}={v}" for k, v in tags.items() if v and k != NOTEBOOK],
            "assign_floating_ip": True,
            "enable_port_randomization": False,  # else SSH is at a port that is told later
            "security_rules": _ingress(config.ssh_from, request.resources.nodes),
        }
        (entry,) = self.call("POST", "/core/virtual-machines", body)["instances"]
        self._used.add(environment)
        return self.tagged(tags, id=str(entry["id"]), state="starting")

    def list_machines(self) -> Iterator[ListedMachine]:
        """Yield the machines of the account, page by page."""
        for entry in self._pages("virtual-machines", "instances"):
            environment = entry.get("environment") or {}
            status, address = entry["status"], entry.get("floating_ip") or ""
            self._used.add(environment.get("name") or "")
            machine = self.tagged(
                dict(label.partition("=")[::2] for label in entry.get("labels") or ()),
                id=str(entry["id"]),
                state=_STATES.get(status, "starting"),
                reason="Hyperstack could not start the machine" if status == "ERROR" else "",
                address=address,  # it comes later than the state
                private=entry.get("fixed_ip") or address,
                stopped=status in ("SHUTOFF", "HIBERNATED"),
            )
            yield ListedMachine(machine, environment.get("region") or "", status == "ERROR")

    def delete_machine(self, id: str) -> None:
        """Delete one machine, with its disk and its public address."""
        self.call("DELETE", f"/core/virtual-machines/{id}")

    def sweep(
        self, owner: str, alive: Collection[str], regions: Collection[str] | None = None
    ) -> list[str]:
        """Delete environments without machines, with the keys in them, and failed machines."""
        super().sweep(owner, alive, regions)
        removed, prefix = list[str](), _owner_prefix(owner)
        for each in list(self._pages("environments", search=prefix)):
            name, region = each["name"], each["region"]
            keeps = {_environment(owner, token, region) for token in alive}
            is_ours = name.startswith(prefix) and (regions is None or region in regions)
            is_unused = name not in keeps and (name in self._used or _is_old(each))
            if is_ours and is_unused and self._delete_environment(each["id"]):
                removed.append(f"environment {name}, with its SSH key")
        return removed

    def _delete_environment(self, id: int) -> bool:
        """Delete an environment; while machines in it are being deleted, that is refused."""
        until = time.monotonic() + _DELETION_SECONDS
        while time.monotonic() < until:
            try:
                self.call("DELETE", f"/core/environments/{id}")
            except ProviderError as error:
                if error.status == 404:
                    break
                if error.status not in (400, 409):
                    raise
                time.sleep(_POLL_SECONDS)
            else:
                return True
        return False

    def _pages(self, path: str, field: str = "", **query: str) -> Iterator[JsonObject]:
        """Yield the entries of a list, page by page."""
        page = 1
        while True:
            asked = query | {"page": str(page), "pageSize": str(_PAGE)}
            answer = self.call("GET", f"/core/{path}", query=asked)
            yield from answer[field or path]
            if page * _PAGE >= answer["count"]:
                return
            page += 1


def _owner_prefix(owner: str) -> str:
    """Return the beginning of the names of an owner's environments."""
    return f"sky-{hashlib.sha256(owner.encode()).hexdigest()[:10]}-"


def _environment(owner: str, token: str, region: str) -> str:
    """Return the name of the environment of a launch request."""
    prefix = _owner_prefix(owner)
    return prefix + fit_name(f"{token}-{region}", _LONGEST_NAME - len(prefix))


def _is_old(environment: JsonMapping) -> bool:
    """Whether an environment was created a while ago."""
    made = datetime.fromisoformat(environment["created_at"].rstrip("Z")).replace(tzinfo=UTC)
    return time.time() - made.timestamp() > _YOUNG_SECONDS


def _ingress(ssh_from: Collection[str], nodes: int) -> list[JsonObject]:
    """Return the rules of ingress, as there is none otherwise: SSH, and all between nodes."""
    rules = [(net, {"port_range_min": 22, "port_range_max": 22}) for net in ssh_from]
    rules += [
        (net, {"port_range_min": 1, "port_range_max": 65535})
        for net in (_PRIVATE if nodes > 1 else ())
    ]
    return [
        {
            "direction": "ingress",
            "ethertype": "IPv6" if ":" in net else "IPv4",
            "protocol": "tcp",
            "remote_ip_prefix": net,
            **ports,
        }
        for net, ports in rules
    ]
