"""Lambda: instances and SSH keys of an account, the machines those of a `Fleet`."""

from __future__ import annotations

import re
import time
from typing import Any

from .fleet import Fleet
from .lambdalabs import KEY, LambdaEmulator, kind
from .rest_account import RestAccount
from .server import Request, Response

_TAG = re.compile(r"[a-z][a-z0-9:-]*")
_MESSAGES = {
    "global/invalid-api-key": (403, "API key was invalid, expired, or deleted."),
    "instance-operations/launch/insufficient-capacity": (
        400,
        "Not enough capacity to fulfill launch request.",
    ),
    "global/quota-exceeded": (400, "Quota exceeded."),
    "global/invalid-parameters": (400, "Invalid request data."),
    "global/object-does-not-exist": (404, "Specified instance does not exist."),
    "global/too-many-requests": (429, "Too many requests."),
}


class LambdaMachines(RestAccount, LambdaEmulator):
    """The API of an account.

    Attributes
    ----------
    launch_seconds : float
        A launch that comes sooner after another one is refused.
    """

    refusal_texts = _MESSAGES
    off, ended, taken_back = "unhealthy", "terminated", "preempted"
    free = ("terminated", "preempted")

    def __init__(self, fleet: Fleet, launch_seconds: float = 0.0) -> None:
        self.launch_seconds, self._last_launch = launch_seconds, 0.0
        self.keys: dict[str, dict[str, str]] = {}
        super().__init__(fleet)
        self.kinds = [
            kind("gpu_1x_a10", 75, "A10 (24 GB PCIe)", 1, ("us-west-1",)),
            kind("cpu_4x_general", 20, "N/A", 0, ("us-west-1", "us-east-1")),
            kind("gpu_8x_v100", 440, "Tesla V100 (16 GB)", 8),
        ]

    def show_address(self, entry: dict[str, Any], address: str, private: str, port: int) -> None:
        """Write the addresses."""
        entry |= {"ip": address, "private_ip": private}

    def reset(self) -> None:
        """Terminate all instances, and forget faults and keys."""
        super().reset()
        self.keys.clear()

    def refuse(self, code: str) -> Response:
        """Return a refusal in the cloud's words."""
        status, message = _MESSAGES[code]
        return Response.json({"error": {"code": code, "message": message}}, status)

    def answer(self, request: Request) -> Response:
        """Answer a request of the API."""
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return self.refuse("global/invalid-api-key")
        path = request.path.removeprefix("/api/v1")
        body = self.body(request)
        if path == "/instance-types":
            return LambdaEmulator.answer(self, request)
        if path.startswith("/ssh-keys"):
            return self._answer_keys(request.method, path, body)
        if (request.method, path) == ("GET", "/instances"):
            listed = [entry for entry in self.listed() if entry["status"] != "terminated"]
            return Response.json({"data": listed})
        if path == "/instance-operations/launch":
            time.sleep(self.delay)
            return self._launch(body)
        if path == "/instance-operations/terminate":
            ids = body["instance_ids"]
            if not set(ids) <= self.billed():  # one unknown ID refuses them all
                return self.refuse("global/object-does-not-exist")
            for id in ids:
                self.end(id)
            ended = [self.rented[id].entry for id in ids]
            return Response.json({"data": {"terminated_instances": ended}})
        return self.refuse("global/object-does-not-exist")

    def _answer_keys(self, method: str, path: str, body: dict[str, str]) -> Response:
        id = path.removeprefix("/ssh-keys").strip("/")
        if method == "POST":
            if any(key["name"] == body["name"] for key in self.keys.values()):
                return self.refuse("global/invalid-parameters")
            key = {"id": f"key{len(self.keys)}", **body}
            self.keys[key["id"]] = key
            return Response.json({"data": key})
        if method == "DELETE":
            found = self.keys.pop(id, None)
            return Response.json({}) if found else self.refuse("global/object-does-not-exist")
        return Response.json({"data": list(self.keys.values())})

    def _launch(self, body: dict[str, Any]) -> Response:
        with self._lock:
            early = time.monotonic() - self._last_launch < self.launch_seconds
            self._last_launch = time.monotonic()
            code = self.next_refusal()
            if early or code:
                return self.refuse(code or "global/too-many-requests")
            names = {key["name"] for key in self.keys.values()}
            tags = body.get("tags", [])
            well_formed = (
                len(body["ssh_key_names"]) == 1
                and set(body["ssh_key_names"]) <= names
                and len(body.get("name", "")) <= 64
                and all(_TAG.fullmatch(tag["key"]) and len(tag["value"]) <= 128 for tag in tags)
                and not set(body) & {"quantity"}
            )
            types = {one["instance_type"]["name"]: one for one in self.kinds}
            if not well_formed or body["instance_type_name"] not in types:
                return self.refuse("global/invalid-parameters")
            free = types[body["instance_type_name"]]["regions_with_capacity_available"]
            if body["region_name"] not in [region["name"] for region in free]:
                return self.refuse("instance-operations/launch/insufficient-capacity")
            id = self._enter(body)
        return Response.json({"data": {"instance_ids": [id]}})

    def _enter(self, body: dict[str, Any]) -> str:
        self.number += 1
        id = f"{self.number:032x}"
        entry = self.entry(id, body["region_name"], body["name"], body["tags"])
        self.add(id, entry, self.machine(id, body["user_data"], entry))
        return id

    def fill(self, count: int, tags: dict[str, str]) -> set[str]:
        """Add instances that are nothing but entries."""
        listed = [{"key": key, "value": value} for key, value in tags.items()]
        ids = set()
        for _ in range(count):
            self.number += 1
            id = f"{self.number:032x}"
            self.add(id, self.entry(id, "us-west-1", "many", listed))
            ids.add(id)
        return ids

    @staticmethod
    def entry(id: str, region: str, name: str, tags: list[dict[str, str]]) -> dict[str, Any]:
        """Return an instance as the API lists it."""
        return {
            "id": id,
            "name": name,
            "status": "active",
            "region": {"name": region, "description": "somewhere"},
            "ssh_key_names": [],
            "file_system_names": [],
            "tags": tags,
        }
