"""Vast.ai: a market of single machines, rented as containers with SSH.

An offer is no reservation: a launch walks down the list of those that fit until one takes it.
What others have outbid stays, stopped, and its disk is billed. A machine ends itself with the key
that Vast.ai gives to it alone; the account's key is never put on one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from jupyter_sky.base.json_types import JsonMapping, JsonObject
from jupyter_sky.base.requests.geography import jurisdiction_of
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import N_
from jupyter_sky.clouds.launches.machine_script import SETUP_COMMAND, SETUP_VARIABLE, pack_script
from jupyter_sky.clouds.launches.rest_provider import (
    ListedMachine,
    RestProvider,
    read_mark,
    write_mark,
)
from jupyter_sky.clouds.provider.classification import ProviderError, group_codes
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine, MachineConfig

IMAGE = "vastai/base-image:cuda-12.4.1-auto"
TRIED_OFFERS = 10
"""Offers that a launch tries for each machine."""
_GONE = ("no_such_ask", "ask_not_available")
_KEY_FIX = "create a key at https://cloud.vast.ai/manage-keys and set VAST_API_KEY"
_MIB = 1024.0


class Vast(RestProvider):
    """Vast.ai as a cloud that rents machines; an ID is that of a contract.

    Examples
    --------
    >>> Vast.find_meaning("no_such_ask", 410)[0]
    'capacity'
    """

    name, title, billing = "vast", "Vast.ai", (1.0, 0.0)
    console_page = "https://cloud.vast.ai/instances/"
    account = N_("an account with credit: https://cloud.vast.ai")
    permissions = N_("an API key that may search offers, and read and write instances")
    launchable, has_live_offers, power_off_cost, colour = True, True, "disk", "#1098ad"
    runs_images = True
    has_private_network = False
    settings: ClassVar = {
        "endpoint": "Address of the API, where it is not that of Vast.ai.",
        "image": "Image of the containers, with a shell and either sshd or apt.",
        "launch_seconds": "Seconds from one launch to the next.",
    }

    api = "https://console.vast.ai"
    error_code, error_message = "error", "msg"
    login, variables = _KEY_FIX, ("VAST_API_KEY",)
    power_off = "kill 1"
    errors: ClassVar = group_codes(
        ("capacity", "region", "", " ".join(_GONE)),
        (
            "quota",
            "region",
            "add credit: https://cloud.vast.ai/billing",
            "insufficient_credit",
        ),
        ("quota", "region", "searches are free again at midnight UTC", "search_quota_exceeded"),
        ("permission", "region", _KEY_FIX, "auth_error not_authorized"),
        ("invalid", "region", "", "invalid_args bad_request"),
        ("throttled", "region", "", "rate_limited too_many_requests"),
    )

    # -- what is on sale ------------------------------------------------------------------------

    def offers(self) -> Iterator[Offer]:
        """Yield the cheapest machine of each kind in each country, in both markets."""
        for spot in (False, True):
            seen = set()
            for ask in self._search(spot):
                key = (_country(ask), _type_of(ask))
                if all(key) and key not in seen:
                    seen.add(key)
                    yield self._offer(ask, spot)

    def _offer(self, ask: JsonMapping, spot: bool) -> Offer:
        from jupyter_sky.clouds.prices.entries import canonical_accelerator, nominal_memory

        memory = ask["gpu_ram"] / _MIB
        gpu = canonical_accelerator(ask["gpu_name"], memory)
        country = _country(ask)
        return Offer(
            self.name,
            country,
            _type_of(ask),
            float(ask["cpu_cores_effective"]),
            round(ask["cpu_ram"] / _MIB, 1),
            gpu=gpu,
            gpu_count=ask["num_gpus"],
            gpu_memory=nominal_memory(gpu, memory),
            spot=spot,
            price=_price(ask, spot),
            source=self.live_source,
            disk=ask["disk_space"],
            arch="arm64" if ask.get("cpu_arch") == "arm64" else "x86_64",
            country=country,
            jurisdiction=jurisdiction_of(country),
        )

    def _search(self, spot: bool, **limits: Any) -> list[JsonObject]:
        """Return rentable machines of one market, the cheapest first."""
        query = {
            "rentable": {"eq": True},
            "verified": {"eq": True},
            "type": "bid" if spot else "on-demand",
            "order": [["min_bid" if spot else "dph_total", "asc"]],
            "limit": 500,
        }
        return self.call("POST", "/api/v0/bundles/", query | limits)["offers"]

    def identify(self) -> str:
        """Prove the key by one request."""
        return str(self.call("GET", "/api/v0/users/current/")["email"])

    # -- machines -------------------------------------------------------------------------------

    def self_delete_script(self, request: LaunchRequest) -> str:
        """Return shell commands that end the contract by the key that is this machine's alone."""
        address = f"{self.api}/api/v0/instances/$CONTAINER_ID/"
        ask = f'curl -sf -X DELETE -H "Authorization: Bearer $CONTAINER_API_KEY" "{address}"'
        return f"until {ask}; do sleep 20; done"

    def create_machine(
        self, request: LaunchRequest, config: MachineConfig, tags: Mapping[str, str], prepared: None
    ) -> Machine:
        """Take the cheapest of the asks that fit; each may be gone when it is asked for."""
        offer, refusal = request.offer, ProviderError("nothing fits", code=_GONE[0], status=410)
        body = {
            "client_id": "me",
            "image": request.resources.image or self.setting("image", IMAGE),
            "disk": math.ceil(config.disk),
            "runtype": "ssh_direc ssh_proxy",
            "label": write_mark(tags),
            "env": {SETUP_VARIABLE: pack_script(config.script)},
            "onstart": f"({SETUP_COMMAND}) >/dev/null 2>&1 &",
            "cancel_unavail": True,  # else it waits for the machine, and is billed for its disk
        }
        fitting = [
            ask
            for ask in self._search(offer.spot, disk_space={"gte": body["disk"]})
            if (_country(ask), _type_of(ask)) == (offer.region, offer.instance_type)
            and (offer.price is None or _price(ask, offer.spot) <= offer.price * 1.1)
        ]
        for ask in fitting[:TRIED_OFFERS]:
            bid = {"price": _price(ask, True)} if offer.spot else {}
            try:
                taken = self.call("PUT", f"/api/v0/asks/{ask['id']}/", body | bid)
            except ProviderError as error:
                if error.code not in _GONE and error.status not in (404, 410):
                    raise
                refusal = error
            else:
                return self.tagged(tags, id=str(taken["new_contract"]), state="starting")
        raise refusal

    def list_machines(self) -> Iterator[ListedMachine]:
        """Yield the contracts of the account, page by page."""
        query: dict[str, str] = {}
        while True:
            page = self.call("GET", "/api/v1/instances/", query=query)
            for entry in page["instances"]:
                if tags := read_mark(entry.get("label")):
                    yield self._parse_machine(entry, tags)
            if not page.get("next_token"):
                return
            query = {"after_token": page["next_token"]}

    def _parse_machine(self, entry: JsonMapping, tags: Mapping[str, str]) -> ListedMachine:
        status, spot = entry["actual_status"], bool(entry.get("is_bid"))
        address, port = _ssh_address(entry)
        is_off = status in ("exited", "stopped")
        is_outbid = spot and is_off
        starting = status in (None, "created", "loading") or not port
        machine = self.tagged(
            tags,
            id=str(entry["id"]),
            state="ended" if is_outbid else "starting" if starting else "running",
            preempted=is_outbid,
            reason="others bid more for the machine" if is_outbid else "",
            address=address,
            private=address,
            port=port,
            stopped=is_off and not is_outbid,
        )
        return ListedMachine(machine, _country(entry))

    def delete_machine(self, id: str) -> None:
        """End one contract, with its disk."""
        self.call("DELETE", f"/api/v0/instances/{id}/")


def _country(entry: JsonMapping) -> str:
    """Return the two letters at the end of ``Sweden, SE``; empty where it is not told."""
    last = (entry.get("geolocation") or "").rpartition(",")[2].strip()
    return last if len(last) == 2 and last.isupper() else ""


def _type_of(ask: JsonMapping) -> str:
    """Return the name of a kind of machine, such as ``2x-RTX-4090``."""
    return f"{ask['num_gpus']}x-{ask['gpu_name'].replace(' ', '-')}"


def _price(ask: JsonMapping, spot: bool) -> float:
    return float(ask["min_bid"] if spot else ask["dph_total"])


def _ssh_address(entry: JsonMapping) -> tuple[str, int]:
    """Return where SSH is reached: directly, else by the proxy; port 0 if nowhere yet."""
    direct = (entry.get("ports") or {}).get("22/tcp") or ()
    if direct and entry.get("public_ipaddr"):
        return entry["public_ipaddr"].strip(), int(direct[0]["HostPort"])
    return entry.get("ssh_host") or "", int(entry.get("ssh_port") or 0)
