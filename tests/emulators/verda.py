"""Verda: instances, volumes, scripts and keys of an account."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from jupyter_sky.clouds.launches.rest_provider import write_mark

from .fleet import Fleet
from .rest_account import RestAccount
from .server import Request, Response

ID, SECRET = "verda-id-1", "verda-4711"
_FIELDS = (
    "contract description existing_volumes hostname image instance_type is_spot location_code "
    "os_volume pricing ssh_key_ids startup_script_id volumes"
).split()


def kind(name: str, model: str, gpus: int, usd: str, spot: str) -> dict[str, Any]:
    """Return an instance type; its prices are texts."""
    return {
        "instance_type": name,
        "model": model,
        "cpu": {"number_of_cores": 4},
        "memory": {"size_in_gigabytes": 16},
        "gpu": {"number_of_gpus": gpus},
        "gpu_memory": {"size_in_gigabytes": 80 * gpus},
        "price_per_hour": usd,
        "spot_price": spot,
    }


class VerdaAccount(RestAccount):
    """The API.

    Attributes
    ----------
    volumes : dict
        Disks by ID; each is billed for as long as it is there.
    scripts, keys : dict
        Start-up scripts and SSH keys by ID.
    tokens : list of str
        Those that were given out; the last one is valid.
    """

    refusal_texts: ClassVar = {
        "no_capacity": (503, "The instance type is not available right now."),
        "insufficient_funds": (402, "Insufficient funds."),
        "forbidden_action": (403, "Forbidden."),
        "unauthorized_request": (401, "Access token is missing or invalid."),
        "invalid_client": (401, "Invalid client id or client secret."),
        "invalid_request": (400, "Invalid request."),
        "too_many_requests": (429, "Too many requests."),
        "not_found": (404, "Not found."),
    }
    off, ended, taken_back = "offline", "deleting", "discontinued"
    free = ("deleting", "discontinued")

    def __init__(self, fleet: Fleet) -> None:
        self.volumes: dict[str, dict[str, Any]] = {}
        self.tokens = list[str]()
        super().__init__(fleet)
        self.reset()

    def reset(self) -> None:
        """Begin with an empty account."""
        super().reset()
        self.volumes.clear()
        self.scripts: dict[str, dict[str, str]] = {}
        self.keys: dict[str, dict[str, str]] = {}
        self.kinds = [
            kind("CPU.4V.16G", "", 0, "0.0279", "0.0098"),
            kind("1H100.80S.30V", "H100", 1, "2.29", "0.80"),
        ]
        self.stock = {"FIN-01": ["CPU.4V.16G"], "FIN-03": ["CPU.4V.16G", "1H100.80S.30V"]}

    def show_address(self, entry: dict[str, Any], address: str, private: str, port: int) -> None:
        """Write the address."""
        entry |= {"ip": address}

    def refuse(self, code: str) -> Response:
        """Return a refusal; that of capacity has a general code."""
        status, message = self.refusal_texts[code]
        told = "service_unavailable" if code == "no_capacity" else code
        return Response.json({"code": told, "message": message}, status)

    def answer(self, request: Request) -> Response:
        """Answer a request of the API."""
        path, body = request.path.removeprefix("/v1"), self.body(request)
        if path == "/oauth2/token":
            if (body["client_id"], body["client_secret"]) != (ID, SECRET):
                return self.refuse("invalid_client")
            self.tokens.append(f"token-{len(self.tokens)}")
            token = {"access_token": self.tokens[-1], "token_type": "Bearer", "expires_in": 3600}
            return Response.json(token)
        if request.headers.get("authorization") not in {f"Bearer {t}" for t in self.tokens}:
            return self.refuse("unauthorized_request")
        if path == "/instance-types":
            return Response.json(self.kinds)
        if path.startswith("/instance-availability"):
            return self._tell_stock(path, request.query)
        for name, items in (("/scripts", self.scripts), ("/sshkeys", self.keys)):
            if path.startswith(name):
                return self._answer_items(request.method, path.removeprefix(name), items, body)
        if path == "/instances":
            return self._answer_instances(request.method, body)
        return self.refuse("not_found")

    def _tell_stock(self, path: str, query: dict[str, str]) -> Response:
        name = path.removeprefix("/instance-availability").strip("/")
        if name:
            return Response.json(name in self.stock.get(query["locationCode"], ()))
        places = [{"location_code": k, "availabilities": v} for k, v in self.stock.items()]
        return Response.json(places)

    def _answer_items(
        self, method: str, id: str, items: dict[str, dict[str, str]], body: dict[str, str]
    ) -> Response:
        if method == "POST":
            self.number += 1
            made = f"item-{self.number}"
            items[made] = {"id": made, **body}
            return Response(made.encode(), 201, {"Content-Type": "text/plain"})
        if method == "DELETE":
            found = items.pop(id.strip("/"), None)
            return Response(b"", 200) if found else self.refuse("not_found")
        return Response.json(list(items.values()))

    def _answer_instances(self, method: str, body: dict[str, Any]) -> Response:
        if method == "GET":
            return Response.json([e for e in self.listed() if e["status"] != "deleting"])
        if method == "PUT":
            if body["id"] not in self.billed():
                return self.refuse("not_found")
            for volume in body.get("volume_ids") or ():  # others stay, and are billed
                self.volumes.pop(volume)
            self.end(body["id"])
            return Response.json({"message": "accepted"}, 202)
        time.sleep(self.delay)
        with self._lock:
            if code := self.next_refusal():
                return self.refuse(code)
            disk = body["os_volume"]
            well_formed = (
                set(body) <= set(_FIELDS)
                and set(body["ssh_key_ids"]) <= set(self.keys)
                and body["ssh_key_ids"]
                and body["startup_script_id"] in self.scripts
                and body["description"]
                and (body["is_spot"] or "on_spot_discontinue" not in disk)
            )
            if not well_formed:
                return self.refuse("invalid_request")
            if body["instance_type"] not in self.stock.get(body["location_code"], ()):
                return self.refuse("no_capacity")
            return Response(self._enter(body).encode(), 202, {"Content-Type": "text/plain"})

    def _enter(self, body: dict[str, Any]) -> str:
        self.number += 1
        id, volume = f"{self.number:08x}-0000", f"volume-{self.number}"
        self.volumes[volume] = body["os_volume"]
        entry = {
            "id": id,
            "status": "running",
            "description": body["description"],
            "location": body["location_code"],
            "is_spot": body["is_spot"],
            "os_volume_id": volume,
            "asked": body,
        }
        script = self.scripts.get(body["startup_script_id"])
        start = self.machine(id, script["script"], entry) if script else None
        self.add(id, entry, start)
        return id

    def preempt(self, id: str) -> None:
        """Take a machine back; its disk stays unless it was to be deleted."""
        super().preempt(id)
        entry = self.rented[id].entry
        if entry["asked"]["os_volume"].get("on_spot_discontinue") == "delete_permanently":
            self.volumes.pop(entry["os_volume_id"])

    def fill(self, count: int, tags: dict[str, str]) -> set[str]:
        """Add instances that are nothing but entries."""
        body = {
            "description": write_mark(tags),
            "location_code": "FIN-01",
            "is_spot": False,
            "os_volume": {},
            "startup_script_id": "",
        }
        return {self._enter(body) for _ in range(count)}
