"""Hyperstack: environments, keys and virtual machines of an account."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from .fleet import Fleet, Rule
from .rest_account import RestAccount
from .server import Request, Response

KEY = "hyperstack-4711"
LONGEST_NAME, LARGEST_PAGE = 50, 100
_FIELDS = (
    "assign_floating_ip callback_url count create_bootable_volume enable_port_randomization "
    "environment_name flavor_name image_name key_name labels name profile security_rules "
    "user_data volume_name"
).split()
_RULE = "direction ethertype port_range_max port_range_min protocol remote_ip_prefix".split()


def flavor(name: str, region: str, cpu: int, ram: int, gpu: str, gpus: int) -> dict[str, Any]:
    """Return a flavor that is in stock."""
    return {
        "name": name,
        "region_name": region,
        "cpu": cpu,
        "ram": ram,
        "disk": 100,
        "ephemeral": 750,
        "gpu": gpu,
        "gpu_count": gpus,
        "stock_available": True,
    }


class HyperstackAccount(RestAccount):
    """The API.

    Attributes
    ----------
    environments, keypairs : dict
        By ID and by the pair of their environment and name.
    flavors : list of dict
        What regions sell.
    deletion_seconds : float
        Time in which a machine is being deleted; it is not billed meanwhile.
    """

    refusal_texts: ClassVar = {
        "no_stock": (400, "Not enough stock for the requested flavor"),
        "balance": (400, "Insufficient balance to create the resource"),
        "bad_request": (400, "The request is not valid"),
        "unauthorized": (401, "API key is not valid"),
        "forbidden": (403, "The key lacks the permission"),
        "not_found": (404, "Resource does not exist"),
        "conflict": (409, "A resource of this name exists"),
        "in_use": (409, "Environment has virtual machines"),
        "throttled": (429, "Too many requests"),
    }
    off, ended, taken_back = "SHUTOFF", "DELETING", "DELETED"
    free = ("DELETING", "DELETED", "ERROR")

    def __init__(self, fleet: Fleet) -> None:
        self.environments: dict[int, dict[str, Any]] = {}
        self.keypairs: dict[tuple[str, str], dict[str, Any]] = {}
        self._gone: dict[str, float] = {}
        super().__init__(fleet)
        self.number = 100000
        self.reset()

    def reset(self) -> None:
        """Begin with an empty account."""
        super().reset()
        self.rented.clear()
        self.environments.clear()
        self.keypairs.clear()
        self.deletion_seconds = 0.3
        self.flavors = [
            flavor("n1-cpu-small", "CANADA-1", 4, 4, "", 0),
            flavor("n3-L40x1", "CANADA-1", 28, 58, "L40", 1),
            flavor("n3-L40x1-spot", "CANADA-1", 28, 58, "L40-spot", 1),
            flavor("n3-L40x1-k8s", "CANADA-1", 28, 58, "L40", 1),
            flavor("n3-H100x8", "NORWAY-1", 252, 1440, "H100-80G-PCIe-NVLink", 8),
        ]
        self.prices = {
            "L40": 1.0,
            "L40-spot": 0.8,
            "H100-80G-PCIe-NVLink": 1.95,
            "vCPU (cpu-only-flavors)": 0.03,
            "RAM (cpu-only-flavors)": 0.005,
            "PublicIP": 0.00672,
        }
        self.images = [
            "Ubuntu Server 22.04 LTS (Jammy Jellyfish)",
            "Ubuntu Server 22.04 LTS R535 CUDA 12.2",
            "Ubuntu Server 22.04 LTS R570 CUDA 12.8",
            "Ubuntu Server 22.04 LTS R570 CUDA 12.8 with Docker",
            "Debian 12",
        ]

    def show_address(self, entry: dict[str, Any], address: str, private: str, port: int) -> None:
        """Write the addresses."""
        entry |= {"floating_ip": address, "fixed_ip": private}

    def refuse(self, code: str) -> Response:
        """Return a refusal; many reasons have the same general code."""
        status, message = self.refusal_texts[code]
        told: dict[str, Any] = {"status": False, "message": message}
        if code != "throttled":
            general = {400: "bad_request", 409: "conflict"}
            told["error_reason"] = general.get(status, code)
        return Response.json(told, status)

    def answer(self, request: Request) -> Response:
        """Answer a request of the API."""
        if request.headers.get("api_key") != KEY:
            return self.refuse("unauthorized")
        path, method = request.path.removeprefix("/v1"), request.method
        body, query = self.body(request), request.query
        if path == "/pricebook":
            return Response.json([{"name": k, "value": v} for k, v in self.prices.items()])
        if path == "/core/flavors":
            return Response.json({"status": True, "data": list(self._grouped(query))})
        if path == "/core/images":
            listed = [{"name": name, "region_name": query["region"]} for name in self.images]
            group = {"region_name": query["region"], "type": "Ubuntu", "images": listed}
            return Response.json({"status": True, "images": [group]})
        if path.startswith("/core/environments"):
            return self._answer_environments(method, path, body, query)
        if path == "/core/keypairs":
            return self._answer_keys(method, body, query)
        if path.startswith("/core/virtual-machines"):
            return self._answer_machines(method, path, body, query)
        return self.refuse("not_found")

    def _grouped(self, query: dict[str, str]) -> Any:
        for each in self.flavors:
            if query.get("region") in (None, each["region_name"]):
                told = {"gpu": each["gpu"], "region_name": each["region_name"]}
                yield told | {"flavors": [each]}

    def _page(self, field: str, entries: list[dict[str, Any]], query: dict[str, str]) -> Response:
        found = [each for each in entries if query.get("search", "") in each["name"]]
        page, size = int(query.get("page", 1)), min(int(query.get("pageSize", 10)), LARGEST_PAGE)
        shown = found[(page - 1) * size : page * size]
        told = {"status": True, "count": len(found), "page": page, "page_size": size}
        return Response.json(told | {field: shown})

    def _answer_environments(
        self, method: str, path: str, body: dict[str, Any], query: dict[str, str]
    ) -> Response:
        if method == "GET":
            return self._page("environments", list(self.environments.values()), query)
        if method == "DELETE":
            found = self.environments.get(int(path.rpartition("/")[2]))
            if found is None:
                return self.refuse("not_found")
            if any(e["environment"]["name"] == found["name"] for e in self._present()):
                return self.refuse("in_use")
            del self.environments[found["id"]]
            for key in [key for key in self.keypairs if key[0] == found["name"]]:
                del self.keypairs[key]
            return Response.json({"status": True, "message": "deleted"})
        if len(body["name"]) > LONGEST_NAME:
            return self.refuse("bad_request")
        if body["name"] in {each["name"] for each in self.environments.values()}:
            return self.refuse("conflict")
        self.number += 1
        made = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        entry = {"id": self.number, "created_at": made, **body}
        self.environments[self.number] = entry
        return Response.json({"status": True, "environment": entry})

    def _answer_keys(self, method: str, body: dict[str, Any], query: dict[str, str]) -> Response:
        if method == "GET":
            return self._page("keypairs", list(self.keypairs.values()), query)
        key = (body["environment_name"], body["name"])
        if key in self.keypairs:
            return self.refuse("conflict")
        if key[0] not in {each["name"] for each in self.environments.values()}:
            return self.refuse("not_found")
        kept = {"name": body["name"], "public_key": body["public_key"]}
        self.keypairs[key] = kept | {"environment": {"name": key[0]}}
        return Response.json({"status": True, "keypair": self.keypairs[key]})

    def _answer_machines(
        self, method: str, path: str, body: dict[str, Any], query: dict[str, str]
    ) -> Response:
        if method == "GET":
            return self._page("instances", self._present(), query)
        if method == "DELETE":
            id = path.rpartition("/")[2]
            if id not in self.rented or not self._is_there(self.rented[id].entry):
                return self.refuse("not_found")
            self.end(id)
            return Response.json({"status": True, "message": "is being deleted"})
        time.sleep(self.delay)
        with self._lock:
            if code := self.next_refusal():
                return self.refuse(code)
            if code := self._find_fault(body):
                return self.refuse(code)
            return Response.json({"status": True, "instances": [self._enter(body)]})

    def _find_fault(self, body: dict[str, Any]) -> str:
        """Return the code by which a launch is refused; empty where it is not."""
        place = body["environment_name"]
        regions = {each["name"]: each["region"] for each in self.environments.values()}
        if place not in regions or (place, body["key_name"]) not in self.keypairs:
            return "not_found"
        well_formed = (
            set(body) <= set(_FIELDS)
            and body["count"] == 1
            and len(body["name"]) <= LONGEST_NAME
            and body["image_name"] in self.images
            and all(set(rule) <= set(_RULE) for rule in body.get("security_rules", ()))
        )
        if not well_formed:
            return "bad_request"
        there = [each for each in self.flavors if each["region_name"] == regions[place]]
        sold = {each["name"]: each["stock_available"] for each in there}
        return "" if sold.get(body["flavor_name"]) else "no_stock"

    def _present(self) -> list[dict[str, Any]]:
        """Return the machines that are listed, those being deleted, too."""
        return [entry for entry in self.listed() if self._is_there(entry)]

    def _is_there(self, entry: dict[str, Any]) -> bool:
        now = time.monotonic()
        left = now - self._gone.get(str(entry["id"]), now)
        return entry["status"] != "DELETED" and left <= self.deletion_seconds

    def _enter(self, body: dict[str, Any]) -> dict[str, Any]:
        self.number += 1
        id, place = str(self.number), body["environment_name"]
        regions = {each["name"]: each["region"] for each in self.environments.values()}
        entry = {
            "id": self.number,
            "name": body["name"],
            "status": "ACTIVE",
            "environment": {"name": place, "region": regions.get(place, "")},
            "labels": body["labels"],
            "asked": body,
        }
        rules: list[Rule] = []
        if not body.get("enable_port_randomization", True):  # else SSH is at another port
            rules = [
                (rule["remote_ip_prefix"], 0 if rule["port_range_max"] == 65535 else 22)
                for rule in body.get("security_rules", ())
                if rule["direction"] == "ingress" and rule["port_range_min"] <= 22
            ]
        start = self.machine(id, body["user_data"], entry, rules) if body["user_data"] else None
        self.add(id, entry, start)
        return entry

    def _stop(self, id: str, status: str) -> None:
        super()._stop(id, status)
        self._gone[id] = time.monotonic()

    def fill(self, count: int, tags: dict[str, str]) -> set[str]:
        """Add machines that are nothing but entries."""
        labels = [f"{name}={value}" for name, value in tags.items()]
        body = {"name": "many", "environment_name": "many", "labels": labels, "user_data": ""}
        return {str(self._enter(body)["id"]) for _ in range(count)}
