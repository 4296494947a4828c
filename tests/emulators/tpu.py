"""Google's TPU API v2: nodes, queued resources and operations of one project.

Bodies are checked against Google's discovery document. Operations take their time; a node that was
taken back stays as PREEMPTED until it is deleted, and so does a queued resource whose node is gone.
With a `Fleet` each network endpoint is a real host that runs the node's startup script.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

from jupyter_sky import accelerators

from .fleet import Fleet, Host
from .gce_validation import Refused, check
from .server import Request, Response

_PATH = re.compile(
    r"/v2/projects/([^/]+)/locations/([^/]+)/(nodes|queuedResources|operations)(?:/(.+))?"
)
_NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")
RUNTIMES = frozenset(
    "tpu-ubuntu2204-base v2-alpha-tpuv5-lite v2-alpha-tpuv5 v2-alpha-tpuv6e".split()
)
STATUSES = {
    400: "INVALID_ARGUMENT",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
NO_CAPACITY = (
    'There is no more capacity in the zone "us-central1-a"; you can try in another zone where '
    "Cloud TPU Nodes are offered (see https://cloud.google.com/tpu/docs/regions)"
)
NO_QUOTA = (
    "Quota limit 'TPUV2sPerProjectPerZone' has been exceeded. Limit: 0 in zone us-central1-a."
)
OPEN = [("0.0.0.0/0", 22)]


@dataclass
class Tpus:
    """TPUs of a project.

    Attributes
    ----------
    refusals : list of (int, str)
        Status and message of the next refused requests to create something.
    failures : list of (int, str)
        gRPC code and message of the next operations, or queued resources, that fail; None for one
        that does not.
    delay : float
        Seconds before a request to create something is carried out.
    lost : list of str
        Methods of the next requests that are carried out and not answered.
    unreachable : list of str
        Zones that do not answer.
    page : int
        Most entries of a page of a list, whatever is asked.
    """

    project: str
    fleet: Fleet | None = None
    boot: float = 0.05
    refusals: list[tuple[int, str]] = field(default_factory=list)
    failures: list[tuple[int, str] | None] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    unreachable: list[str] = field(default_factory=list)
    delay: float = 0.0
    page: int = 500
    requests: list[str] = field(default_factory=list)
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    queued: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._operations: dict[str, dict[str, Any]] = {}
        self._asked: dict[str, str] = {}
        self._hosts: dict[str, list[Host]] = {}
        self._ids, self._addresses = count(1), count(10)
        self._lock = threading.RLock()
        self._timers: list[threading.Timer] = []

    def close(self) -> None:
        """End everything."""
        for timer in self._timers:
            timer.cancel()
        for hosts in self._hosts.values():
            for host in hosts:
                host.kill()

    # -- for tests ------------------------------------------------------------------------------

    def billed(self) -> list[str]:
        """Return the names of the nodes that are there."""
        return [name.rpartition("/")[2] for name in self.nodes]

    def power_off(self, name: str, rank: int) -> None:
        """Power a VM off from within; the slice is billed as before."""
        key = next(key for key in self._hosts if key.endswith(f"/{name}"))
        self._hosts[key][rank].shutdown()

    def preempt(self, name: str) -> None:
        """Take a node back; it stays."""
        with self._lock:
            node = next(node for key, node in self.nodes.items() if key.endswith(f"/{name}"))
            node["state"] = "PREEMPTED"
            if queue := self.queued.get(node.get("queuedResource", "")):
                queue["state"] = {"state": "SUSPENDED"}
            self._end_hosts(node["name"])

    # -- the API --------------------------------------------------------------------------------

    def answer(self, request: Request) -> Response | None:
        """Answer a request; None where the answer is lost."""
        self.requests.append(f"{request.method} {request.path}")
        if request.method == "POST":
            time.sleep(self.delay)
        try:
            with self._lock:
                response = Response.json(self._route(request))
        except Refused as refused:
            status = STATUSES.get(refused.status, "INVALID_ARGUMENT")
            error = {"code": refused.status, "message": refused.message, "status": status}
            response = Response.json({"error": error}, refused.status)
        if request.method in self.lost:
            self.lost.remove(request.method)
            return None
        return response

    def _route(self, request: Request) -> Any:
        found = _PATH.fullmatch(request.path)
        if found is None or found[1] != self.project:
            raise Refused(404, "notFound", f"{request.path} was not found")
        _project, zone, kind, name = found.groups()
        held = {"nodes": self.nodes, "queuedResources": self.queued}.get(kind, self._operations)
        match request.method, name:
            case "GET", None:
                return self._listed(zone, kind, held, request.query)
            case "GET", _:
                return self._held(held, found)
            case "POST", None if kind in ("nodes", "queuedResources"):
                if self.refusals:
                    status, message = self.refusals.pop(0)
                    raise Refused(status, "", message)
                body = json.loads(request.body)
                create = self._create_node if kind == "nodes" else self._create_queued
                return create(zone, body, request.query)
            case "DELETE", _ if kind != "operations":
                return self._delete(kind, self._held(held, found), request.query)
        raise Refused(404, "notFound", f"{request.method} {request.path} was not found")

    def _listed(
        self, zone: str, kind: str, held: dict[str, Any], query: dict[str, str]
    ) -> dict[str, Any]:
        if unknown := set(query) - {"pageSize", "pageToken"}:
            raise Refused(400, "", f'Unknown name "{min(unknown)}": Cannot bind query parameter.')
        entries = [each for name, each in held.items() if zone in ("-", name.split("/")[3])]
        start = int(query.get("pageToken") or 0)
        answer: dict[str, Any] = {kind: entries[start : start + self.page]}
        if self.unreachable:
            answer["unreachable"] = self.unreachable
        if start + self.page < len(entries):
            answer["nextPageToken"] = str(start + self.page)
        return answer

    def _held(self, held: dict[str, Any], found: re.Match[str]) -> Any:
        name = found[0].removeprefix("/v2/")
        if name not in held:
            raise Refused(404, "notFound", f"Resource '{name}' was not found")
        return held[name]

    def _create_node(
        self, zone: str, body: dict[str, Any], query: dict[str, str], queue: str = ""
    ) -> Any:
        if "requestId" in query:
            raise Refused(400, "", 'Unknown name "requestId": Cannot bind query parameter.')
        short = query.get("nodeId", "")
        name = f"projects/{self.project}/locations/{zone}/nodes/{short}"
        _check_node(short, body)
        if name in self.nodes:
            raise Refused(409, "", f"Resource '{name}' already exists")
        hosts = accelerators.tpu_hosts(f"tpu-{body['acceleratorType']}")
        assert hosts is not None
        self.nodes[name] = body | {
            "name": name,
            "id": str(next(self._ids)),
            "state": "CREATING",
            "createTime": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            **({"queuedResource": queue} if queue else {}),
        }
        failure = self.failures.pop(0) if self.failures and not queue else None
        return self._operation(zone, lambda: self._built(name, hosts.count, failure))

    def _built(
        self, name: str, hosts: int, failure: tuple[int, str] | None
    ) -> dict[str, Any] | None:
        node = self.nodes.get(name)
        if failure is not None:
            self.nodes.pop(name, None)
            return {"code": failure[0], "message": failure[1]}
        if node is None or node["state"] != "CREATING":
            return {"code": 10, "message": f"{name} was deleted"}
        ends = [self._endpoint(node, number) for number in range(hosts)]
        node.update(state="READY", health="HEALTHY", networkEndpoints=ends)
        return None

    def _endpoint(self, node: dict[str, Any], number: int) -> dict[str, Any]:
        last = next(self._addresses)
        address, private = f"192.0.2.{last % 250 + 1}", f"10.128.1.{last % 250 + 1}"
        if self.fleet is not None:
            metadata = node.get("metadata", {})
            user, _, key = metadata.get("ssh-keys", "").partition(":")
            host = self.fleet.launch(
                f"{node['name'].rpartition('/')[2]}-{number}",
                metadata.get("startup-script", ""),
                ingress=OPEN,
                public_key=key,
                user=user,
            )
            self._hosts.setdefault(node["name"], []).append(host)
            address, private = host.address, host.private
        access = {"externalIp": address} if node["networkConfig"].get("enableExternalIps") else {}
        return {"ipAddress": private, "port": 8470, "accessConfig": access}

    def _create_queued(self, zone: str, body: dict[str, Any], query: dict[str, str]) -> Any:
        if (asked := query.get("requestId")) and asked in self._asked:
            return self._operations[self._asked[asked]]
        check("QueuedResource", body, api="tpu.v2")
        short = query.get("queuedResourceId", "")
        name = f"projects/{self.project}/locations/{zone}/queuedResources/{short}"
        if name in self.queued:
            raise Refused(409, "", f"Resource '{name}' already exists")
        (spec,) = body["tpu"]["nodeSpec"]
        if "schedulingConfig" in spec["node"]:
            raise Refused(400, "", "scheduling_config must not be set in a queued resource's node.")
        _check_node(spec["nodeId"], spec["node"])
        self.queued[name] = body | {"name": name, "state": {"state": "WAITING_FOR_RESOURCES"}}
        failure = self.failures.pop(0) if self.failures else None
        self._after(lambda: self._serve(zone, name, spec, failure))
        operation = self._operation(zone, lambda: None)
        if asked:
            self._asked[asked] = operation["name"]
        return operation

    def _serve(
        self, zone: str, name: str, spec: dict[str, Any], failure: tuple[int, str] | None
    ) -> None:
        queue = self.queued.get(name)
        if queue is None:
            return
        if failure is not None:
            error = {"code": failure[0], "message": failure[1]}
            queue["state"] = {"state": "FAILED", "failedData": {"error": error}}
            return
        self._create_node(zone, spec["node"], {"nodeId": spec["nodeId"]}, name)
        queue["state"] = {"state": "ACTIVE"}

    def _delete(self, kind: str, entry: dict[str, Any], query: dict[str, str]) -> Any:
        name, zone = entry["name"], entry["name"].split("/")[3]
        if kind == "nodes":
            if entry.get("queuedResource") in self.queued:
                words = "The node is managed by a queued resource: delete that."
                raise Refused(400, "", words)
            entry["state"] = "DELETING"
            return self._operation(zone, lambda: self._gone(name))
        node = name.replace("/queuedResources/", "/nodes/")
        if entry["state"]["state"] == "ACTIVE" and query.get("force") != "true":
            raise Refused(400, "", "The queued resource is ACTIVE: delete it with force.")
        entry["state"] = {"state": "DELETING"}
        if node in self.nodes:
            self.nodes[node]["state"] = "DELETING"

        def gone() -> None:
            self.queued.pop(name, None)
            self._gone(node)

        return self._operation(zone, gone)

    def _gone(self, name: str) -> None:
        self.nodes.pop(name, None)
        self._end_hosts(name)

    def _end_hosts(self, name: str) -> None:
        for host in self._hosts.pop(name, ()):
            host.kill()

    def _operation(self, zone: str, finish: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
        name = f"projects/{self.project}/locations/{zone}/operations/operation-{next(self._ids)}"
        operation = self._operations[name] = {"name": name, "done": False}

        def done() -> None:
            error = finish()
            operation.update(done=True, **({"error": error} if error else {"response": {}}))

        self._after(done)
        return dict(operation)

    def _after(self, action: Callable[[], object]) -> None:
        def run() -> None:
            with self._lock:
                action()

        timer = threading.Timer(self.boot, run)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()


def _check_node(short: str, body: dict[str, Any]) -> None:
    """Refuse a node that the API refuses."""
    check("Node", body, api="tpu.v2")
    if not _NAME.fullmatch(short):
        raise Refused(400, "", f"Invalid node ID {short!r}")
    if accelerators.tpu_hosts(f"tpu-{body.get('acceleratorType')}") is None:
        raise Refused(400, "", f"Accelerator type {body.get('acceleratorType')!r} is not found.")
    if body.get("runtimeVersion") not in RUNTIMES:
        raise Refused(400, "", f"Runtime version {body.get('runtimeVersion')!r} is not found.")
    if not all(_LABEL.fullmatch(value) for value in body.get("labels", {}).values()):
        raise Refused(400, "", "Invalid label value.")
    if len(json.dumps(body.get("metadata", {}))) > 256 * 1024:
        raise Refused(400, "", "Metadata is too large.")
