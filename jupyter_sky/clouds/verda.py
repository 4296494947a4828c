"""Verda (formerly DataCrunch): machines with a start-up script, by its public API.

A machine that powers itself off is billed in full until a request deletes it. Its disk survives a
deletion that does not name it, and survives the loss of a spot machine unless told otherwise.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from typing import ClassVar

from jupyter_sky.base.json_types import JsonMapping, JsonObject
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import N_
from jupyter_sky.clouds.launches.rest import RestClient
from jupyter_sky.clouds.launches.rest_provider import (
    RANK,
    ListedMachine,
    RestProvider,
    owner_prefix,
    read_mark,
    register_key,
    write_mark,
)
from jupyter_sky.clouds.provider.classification import ProviderError, Refinement, group_codes
from jupyter_sky.clouds.provider.naming import fit_name
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine, MachineConfig, MachineState

IMAGE, CPU_IMAGE = "ubuntu-22.04-cuda-12.4", "ubuntu-22.04"
_STATES: dict[str, MachineState] = {
    "running": "running",
    "offline": "running",
    "error": "running",
    "discontinued": "ended",
    "deleting": "ended",
    "notfound": "ended",
}
"""States by their names; a machine that is off is billed as one that runs."""
_KEY_FIX = (
    "create credentials at https://console.verda.com (Keys > Cloud API), and set "
    "VERDA_CLIENT_ID and VERDA_CLIENT_SECRET"
)
_EARLY_SECONDS = 30.0


class Verda(RestProvider):
    """Verda as a cloud that rents machines; an ID is that of an instance.

    Examples
    --------
    >>> Verda.find_meaning("insufficient_funds", 402)[0]
    'quota'
    """

    name, title, billing = "verda", "Verda", (600.0, 600.0)
    console_page = "https://console.verda.com"
    account = N_("an account with credit: https://console.verda.com")
    permissions = N_("credentials for the Cloud API, which may do all")
    launchable, has_live_offers, power_off_cost, colour = True, True, "full", "#0b7285"
    settings: ClassVar = {
        "endpoint": "Address of the API, where it is not that of Verda.",
        "image": "Image of the machines.",
        "launch_seconds": "Seconds from one launch to the next.",
    }

    api = "https://api.verda.com/v1"
    login, variables = _KEY_FIX, ("VERDA_CLIENT_ID", "VERDA_CLIENT_SECRET")
    errors: ClassVar = group_codes(
        ("capacity", "region", "", "no_capacity"),
        ("quota", "region", "add credit: https://console.verda.com", "insufficient_funds"),
        (
            "permission",
            "region",
            _KEY_FIX,
            "unauthorized_request invalid_client invalid_grant forbidden_action",
        ),
        ("invalid", "region", "", "invalid_request invalid_input not_found"),
        ("throttled", "region", "", "too_many_requests"),
        ("transient", "region", "", "server_error service_unavailable"),
    )
    refinements = (
        Refinement(
            "invalid_request service_unavailable server_error",
            r"(?i)not available|no capacity|out of stock|not enough",
            cause="capacity",
        ),
    )

    def __init__(self) -> None:
        super().__init__()
        self._token, self._token_lock = ("", 0.0), threading.Lock()

    def headers(self) -> dict[str, str]:
        """Return the header with a token, which is renewed before it is over."""
        with self._token_lock:
            if time.time() > self._token[1]:
                client = RestClient(self.setting("endpoint", self.api), {})
                body = {
                    "grant_type": "client_credentials",
                    "client_id": os.environ.get("VERDA_CLIENT_ID", ""),
                    "client_secret": os.environ.get("VERDA_CLIENT_SECRET", ""),
                }
                told = client.call("POST", "/oauth2/token", body)
                ends = time.time() + told["expires_in"] - _EARLY_SECONDS
                self._token = told["access_token"], ends
            return {"Authorization": f"Bearer {self._token[0]}"}

    # -- what is on sale ------------------------------------------------------------------------

    def offers(self) -> Iterator[Offer]:
        """Yield the types that are free now in some location, at both markets' prices."""
        types = self.call("GET", "/instance-types", query={"currency": "usd"})
        kinds = {kind["instance_type"]: kind for kind in types}
        for spot, field in ((False, "price_per_hour"), (True, "spot_price")):
            query = {"isSpot": str(spot).lower()}
            for place in self.call("GET", "/instance-availability", query=query):
                for name in place["availabilities"]:
                    if name in kinds and kinds[name].get(field):
                        yield self._offer(kinds[name], place["location_code"], spot, field)

    def _offer(self, kind: JsonMapping, region: str, spot: bool, field: str) -> Offer:
        from jupyter_sky.clouds.prices.entries import canonical_accelerator, nominal_memory

        other = "price_per_hour" if spot else "spot_price"
        count = (kind.get("gpu") or {}).get("number_of_gpus") or 0
        memory = ((kind.get("gpu_memory") or {}).get("size_in_gigabytes") or 0) / (count or 1)
        gpu = canonical_accelerator(kind.get("model") or "", memory) if count else None
        return Offer(
            self.name,
            region,
            kind["instance_type"],
            float(kind["cpu"]["number_of_cores"]),
            float(kind["memory"]["size_in_gigabytes"]),
            gpu=gpu,
            gpu_count=count,
            gpu_memory=nominal_memory(gpu, memory) if gpu else None,
            spot=spot,
            price=float(kind[field]),  # prices are texts
            other_price=float(kind[other]) if kind.get(other) else None,
            source=self.live_source,
            arch="x86_64",
            country="FI" if region.startswith("FIN") else "",
            jurisdiction="EU" if region.startswith("FIN") else "",
        )

    # -- machines -------------------------------------------------------------------------------

    def prepare_launch(self, request: LaunchRequest, config: MachineConfig) -> tuple[str, str]:
        """Return the IDs of our public key and of the start-up script of this request."""
        listed = self.call("GET", "/sshkeys")
        found, name = register_key(listed, "key", request.owner, config.public_key)
        body = {"name": name, "key": config.public_key}
        key = found["id"] if found else self.call("POST", "/sshkeys", body)
        name = f"{owner_prefix(request.owner)}{request.token}"
        scripts = {each["name"]: each["id"] for each in self.call("GET", "/scripts")}
        if name not in scripts:
            scripts[name] = self.call("POST", "/scripts", {"name": name, "script": config.script})
        return key, scripts[name]

    def create_machine(
        self,
        request: LaunchRequest,
        config: MachineConfig,
        tags: Mapping[str, str],
        prepared: tuple[str, str],
    ) -> Machine:
        """Launch one machine, once the API says that one is free."""
        offer, (key, script) = request.offer, prepared
        query = {"isSpot": str(offer.spot).lower(), "locationCode": offer.region}
        if not self.call("GET", f"/instance-availability/{offer.instance_type}", query=query):
            raise ProviderError(f"no {offer.instance_type} is free", code="no_capacity")
        name = fit_name(f"{request.token}-{tags[RANK]}", 60)
        disk: JsonObject = {"name": f"{name}-os", "size": math.ceil(config.disk)}
        if offer.spot:  # else the disk is kept, and billed, when the machine is taken back
            disk["on_spot_discontinue"] = "delete_permanently"
        body = {
            "instance_type": offer.instance_type,
            "image": self.setting("image", IMAGE if offer.gpu else CPU_IMAGE),
            "ssh_key_ids": [key],
            "startup_script_id": script,
            "hostname": name,
            "description": write_mark(tags),
            "location_code": offer.region,
            "is_spot": offer.spot,
            "os_volume": disk,
        }
        return self.tagged(tags, id=self.call("POST", "/instances", body), state="starting")

    def list_machines(self) -> Iterator[ListedMachine]:
        """Yield the instances of the account."""
        for entry in self.call("GET", "/instances"):
            if tags := read_mark(entry.get("description")):
                yield ListedMachine(self._parse_machine(entry, tags), entry.get("location") or "")

    def _parse_machine(self, entry: JsonMapping, tags: Mapping[str, str]) -> Machine:
        status, address = entry["status"], entry.get("ip") or ""
        is_taken = status == "discontinued" and bool(entry.get("is_spot"))
        return self.tagged(
            tags,
            id=entry["id"],
            state=_STATES.get(status, "starting"),
            preempted=is_taken,
            reason="Verda took the machine back" if is_taken else "",
            address=address,
            private=address,
            stopped=status == "offline",
        )

    def delete_machine(self, id: str) -> None:
        """Delete one machine and its disk, which stays unless it is named."""
        for entry in self.call("GET", "/instances"):
            if entry["id"] == id and _STATES.get(entry["status"]) != "ended":
                body = {"id": id, "action": "delete", "delete_permanently": True}
                volumes = [entry["os_volume_id"]] if entry.get("os_volume_id") else []
                self.call("PUT", "/instances", body | {"volume_ids": volumes})

    def sweep(
        self, owner: str, alive: Collection[str], regions: Collection[str] | None = None
    ) -> list[str]:
        """Delete scripts of launches without machines, and keys of an owner without any."""
        prefix, removed = owner_prefix(owner), list[str]()
        for script in self.call("GET", "/scripts"):
            name = script["name"]
            if name.startswith(prefix) and name.removeprefix(prefix) not in alive:
                self.call("DELETE", f"/scripts/{script['id']}")
                removed.append(f"start-up script {name}")
        for key in () if alive else self.call("GET", "/sshkeys"):
            if key["name"].startswith(prefix):
                self.call("DELETE", f"/sshkeys/{key['id']}")
                removed.append(f"SSH key {key['name']}")
        return removed
