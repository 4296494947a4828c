"""RunPod: pods of an account by its REST API, GPUs and launches by its GraphQL API."""

from __future__ import annotations

import re
import time
from typing import Any, ClassVar

from .fleet import Fleet
from .rest_account import RestAccount, container_start
from .server import Request, Response

KEY = "rpa_4711"
_SOLD_OUT = (
    "There are no longer any instances available with the requested specifications. "
    "Please refresh and try again."
)
_INPUT = (
    "bidPerGpu cloudType containerDiskInGb dataCenterId dockerArgs env globalNetwork gpuCount "
    "gpuTypeId imageName minMemoryInGb minVcpuCount name ports startSsh stopAfter "
    "supportPublicIp terminateAfter volumeInGb volumeMountPath"
).split()
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


class RunPodAccount(RestAccount):
    """The APIs of an account.

    Attributes
    ----------
    late_ports : bool
        Whether new pods run before their ports are known.
    """

    refusal_texts: ClassVar = {
        "capacity": (200, _SOLD_OUT),
        "quota": (200, "Your balance is too low to deploy this pod."),
        "permission": (401, "Unauthorized"),
        "invalid": (200, 'Variable "$input" got invalid value "x".'),
        "throttled": (429, "Too many requests"),
    }
    status_field = "desiredStatus"
    off, ended, taken_back = "EXITED", "TERMINATED", "EXITED"
    free = ("TERMINATED",)
    ends_itself = True

    def __init__(self, fleet: Fleet) -> None:
        self.late_ports = False
        self.stock = {"EU-RO-1": ["NVIDIA L4"], "US-KS-2": ["NVIDIA L4", "NVIDIA H100 80GB HBM3"]}
        super().__init__(fleet)

    def show_address(self, entry: dict[str, Any], address: str, private: str, port: int) -> None:
        """Write the public address and the port that leads to port 22."""
        entry |= {"publicIp": address, "portMappings": {} if self.late_ports else {"22": port}}

    def describe(self, request: Request) -> str:
        """A request in a few words; those for a pod are told from questions."""
        asks = request.path == "/graphql" and b'"input"' not in request.body
        what = " for stock" if asks else " for a pod" if request.path == "/graphql" else ""
        return super().describe(request) + what

    def answer(self, request: Request) -> Response:
        """Answer a request of either API."""
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return Response.json({"error": "Unauthorized", "status": 401}, 401)
        body = self.body(request)
        if request.path == "/graphql":
            return self._answer_graphql(body)
        if (request.method, request.path) == ("GET", "/v1/pods"):
            return Response.json([e for e in self.listed() if e["desiredStatus"] != "TERMINATED"])
        id = request.path.rpartition("/")[2]
        if request.method == "DELETE" and id in self.billed():
            self.end(id)
            return Response(b"", 204)
        return Response.json({"error": "pod not found", "status": 404}, 404)

    def _answer_graphql(self, body: dict[str, Any]) -> Response:
        if "input" not in body["variables"]:
            return Response.json({"data": self._describe_stock()})
        time.sleep(self.delay)
        with self._lock:
            if code := self.next_refusal():
                return self.refuse(code)
            wanted = body["variables"]["input"]
            spot = "podRentInterruptable" in body["query"]
            env = {each["key"]: each["value"] for each in wanted["env"]}
            well_formed = (
                set(wanted) <= set(_INPUT)
                and _TIME.fullmatch(wanted["terminateAfter"])
                and spot == ("bidPerGpu" in wanted)
                and isinstance(wanted["containerDiskInGb"], int)
                and len(wanted["name"]) <= 191
            )
            if not well_formed:
                return self.refuse("invalid")
            if wanted["gpuTypeId"] not in self.stock.get(wanted["dataCenterId"], ()):
                return self.refuse("capacity")
            return Response.json({"data": {"pod": {"id": self._rent(wanted, env, spot)}}})

    def refuse(self, code: str) -> Response:
        """Return a refusal: those of GraphQL come with status 200."""
        status, message = self.refusal_texts[code]
        if status == 200:
            error = {"message": message, "path": ["pod"], "extensions": {"code": "RUNPOD"}}
            return Response.json({"errors": [error], "data": {"pod": None}})
        return Response.json({"error": message, "status": status}, status)

    def _rent(self, wanted: dict[str, Any], env: dict[str, str], spot: bool) -> str:
        id = self._enter(env, spot, wanted["dataCenterId"])
        entry = self.rented[id].entry
        entry["asked"] = wanted
        # RunPod sets a key of its own over what was sent
        inside = env | {"PUBLIC_KEY": "ssh-ed25519 THEIRS", "RUNPOD_POD_ID": id}
        shims = {"runpodctl": f'[ "$*" = "remove pod {id}" ] && shutdown -P now'}
        user_data = container_start(wanted["dockerArgs"], inside, shims)
        self.rented[id].start = self.machine(id, user_data, entry)
        if self.boots:
            self.boot()
        return id

    def _enter(self, env: dict[str, str], spot: bool, region: str) -> str:
        self.number += 1
        id = f"pod{self.number:011x}"
        entry = {
            "id": id,
            "desiredStatus": "RUNNING",
            "env": env,
            "interruptible": spot,
            "machine": {"dataCenterId": region},
        }
        self.add(id, entry)
        return id

    def fill(self, count: int, tags: dict[str, str]) -> set[str]:
        """Add pods that are nothing but entries."""
        from jupyter_sky.clouds.launches.rest_provider import write_mark

        env = {"JUPYTER_SKY_MARK": write_mark(tags)}
        return {self._enter(env, False, "EU-RO-1") for _ in range(count)}

    def pass_time(self, now: str) -> None:
        """End the pods whose ``terminateAfter`` is over, as RunPod does."""
        for id in self.billed():
            if self.rented[id].entry["asked"]["terminateAfter"] <= now:
                self.end(id)

    def _describe_stock(self) -> dict[str, Any]:
        def kind(id: str, name: str, gib: int, usd: float, spot: float) -> dict[str, Any]:
            price = {"securePrice": usd, "secureSpotPrice": spot, "maxGpuCountSecureCloud": 2}
            least = {"lowestPrice": {"minVcpu": 8, "minMemory": 48}}
            return {"id": id, "displayName": name, "memoryInGb": gib} | price | least

        kinds = [
            kind("NVIDIA L4", "L4", 24, 0.43, 0.22),
            kind("NVIDIA H100 80GB HBM3", "H100 SXM", 80, 2.69, 1.75),
        ]
        centres = [
            {
                "id": id,
                "listed": True,
                "gpuAvailability": [
                    {
                        "gpuTypeId": each["id"],
                        "available": each["id"] in free,
                        "stockStatus": "Low" if each["id"] in free else None,
                    }
                    for each in kinds
                ],
            }
            for id, free in self.stock.items()
        ]
        return {"myself": {"id": "user_1"}, "gpuTypes": kinds, "dataCenters": centres}
