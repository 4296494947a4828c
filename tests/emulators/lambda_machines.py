"""Lambda: instances and SSH keys of an account, the machines those of a `Fleet`."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from typing import Any

from .fleet import Fleet, Host
from .lambdalabs import KEY, LambdaEmulator, kind
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


@dataclass
class Instance:
    """An instance as the account has it; `host` is None for one that need not answer."""

    entry: dict[str, Any]
    host: Host | None
    launched: float = field(default_factory=time.monotonic)


class LambdaMachines(LambdaEmulator):
    """The API of an account.

    Attributes
    ----------
    refusals : list of str
        Codes of the next launches that are refused, empty ones that go well.
    delay : float
        Seconds after which a launch is carried out.
    hidden : float
        Seconds in which a new machine is not listed.
    launch_seconds : float
        A launch that comes sooner after another one is refused.
    """

    def __init__(self, fleet: Fleet, launch_seconds: float = 0.0) -> None:
        self.fleet, self.launch_seconds = fleet, launch_seconds
        self.instances: dict[str, Instance] = {}
        self.keys: dict[str, dict[str, str]] = {}
        self._last_launch, self._number = 0.0, 0
        self.forget_faults()
        super().__init__()
        self.kinds = [
            kind("gpu_1x_a10", 75, "A10 (24 GB PCIe)", 1, ("us-west-1",)),
            kind("cpu_4x_general", 20, "N/A", 0, ("us-west-1", "us-east-1")),
            kind("gpu_8x_v100", 440, "Tesla V100 (16 GB)", 8),
        ]

    def forget_faults(self) -> None:
        """Behave as described."""
        self.refusals, self.delay, self.hidden = list[str](), 0.0, 0.0
        self.troubles = []

    def billed(self) -> set[str]:
        """Return the IDs of the instances that were not terminated, off or not."""
        gone = ("terminated", "preempted")
        return {id for id, one in self.instances.items() if one.entry["status"] not in gone}

    def power_off(self, id: str) -> None:
        """Press the power button: the instance does not answer, and goes on being billed."""
        host = self.instances[id].host
        assert host
        host.shutdown()
        while host.running:
            time.sleep(0.02)

    def reset(self) -> None:
        """Terminate all instances, and forget faults and keys."""
        self.forget_faults()
        for id in self.billed():
            self.end(id)
        self.keys.clear()

    def end(self, id: str, status: str = "terminated") -> None:
        """End an instance, terminated or preempted."""
        instance = self.instances[id]
        instance.entry["status"] = status
        if instance.host:
            instance.host.kill()

    def answer(self, request: Request) -> Response:
        """Answer a request of the API."""
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return _refusal("global/invalid-api-key")
        path = request.path.removeprefix("/api/v1")
        body = json.loads(request.body or b"{}")
        if path == "/instance-types":
            return super().answer(request)
        if path.startswith("/ssh-keys"):
            return self._answer_keys(request.method, path, body)
        if (request.method, path) == ("GET", "/instances"):
            listed = [
                one.entry
                for one in self.instances.values()
                if one.entry["status"] != "terminated"
                and time.monotonic() - one.launched >= self.hidden
            ]
            return Response.json({"data": listed})
        if path == "/instance-operations/launch":
            time.sleep(self.delay)
            return self._launch(body)
        if path == "/instance-operations/terminate":
            ids = body["instance_ids"]
            if not set(ids) <= self.billed():  # one unknown ID refuses them all
                return _refusal("global/object-does-not-exist")
            for id in ids:
                self.end(id)
            ended = [self.instances[id].entry for id in ids]
            return Response.json({"data": {"terminated_instances": ended}})
        return _refusal("global/object-does-not-exist")

    def _answer_keys(self, method: str, path: str, body: dict[str, str]) -> Response:
        id = path.removeprefix("/ssh-keys").strip("/")
        if method == "POST":
            if any(key["name"] == body["name"] for key in self.keys.values()):
                return _refusal("global/invalid-parameters")
            key = {"id": f"key{len(self.keys)}", **body}
            self.keys[key["id"]] = key
            return Response.json({"data": key})
        if method == "DELETE":
            found = self.keys.pop(id, None)
            return Response.json({}) if found else _refusal("global/object-does-not-exist")
        return Response.json({"data": list(self.keys.values())})

    def _launch(self, body: dict[str, Any]) -> Response:
        with self._lock:
            early = time.monotonic() - self._last_launch < self.launch_seconds
            self._last_launch = time.monotonic()
            code = self.refusals.pop(0) if self.refusals else ""
            if early or code:
                return _refusal(code or "global/too-many-requests")
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
                return _refusal("global/invalid-parameters")
            free = types[body["instance_type_name"]]["regions_with_capacity_available"]
            if body["region_name"] not in [region["name"] for region in free]:
                return _refusal("instance-operations/launch/insufficient-capacity")
            id = self._enter(body)
        return Response.json({"data": {"instance_ids": [id]}})

    def _enter(self, body: dict[str, Any]) -> str:
        self._number += 1
        id = f"{self._number:032x}"

        def turn_off(_: str) -> None:
            if entry["status"] == "active":
                entry["status"] = "unhealthy"

        host = self.fleet.launch(
            id[-8:], body["user_data"], ingress=[("0.0.0.0/0", 22)], on_end=turn_off
        )
        entry = self.entry(id, body["region_name"], body["name"], body["tags"])
        entry |= {"ip": host.address, "private_ip": host.private}
        self.instances[id] = Instance(entry, host)
        return id

    def fill(self, count: int, tags: dict[str, str]) -> set[str]:
        """Add instances that are nothing but entries."""
        listed = [{"key": key, "value": value} for key, value in tags.items()]
        ids = set()
        for _ in range(count):
            self._number += 1
            id = f"{self._number:032x}"
            self.instances[id] = Instance(self.entry(id, "us-west-1", "many", listed), None)
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


def _refusal(code: str) -> Response:
    status, message = _MESSAGES[code]
    return Response.json({"error": {"code": code, "message": message}}, status)
