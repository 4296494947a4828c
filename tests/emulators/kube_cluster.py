"""A cluster of Kubernetes: the part of its API that the official client asks for pods.

It validates pods by the fields that the official client knows, schedules them on nodes, and runs
their command in machines of the fleet, where the first process of the container is that of a
process namespace of its own.
"""

from __future__ import annotations

import datetime
import json
import re
import shlex
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from kubernetes import client

from . import websocket_exec
from .fleet import Fleet
from .host import BARE
from .kube_nodes import GPU, make_node, schedule
from .rest_account import Rented, RestAccount, container_start
from .server import Request, Response, write_authority

TOKEN = "kube-token-4711"
CONTEXT, NAMESPACE = "lab", "team"
V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_PULL = 'failed to pull and unpack image "{image}": not found'
_QUOTA = "exceeded quota: team, requested: limits.cpu=1, used: limits.cpu=8, limited: limits.cpu=8"
_SECURITY = (
    'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container '
    '"machine" must set securityContext.allowPrivilegeEscalation=false)'
)
_USER = 'User "system:serviceaccount:team:notebook" cannot create resource "pods" in API group ""'
_SHUTDOWN = "Pod was terminated in response to imminent node shutdown."


class KubeCluster(RestAccount):
    """The API server of a cluster with three nodes.

    Attributes
    ----------
    protocols : list of str
        Versions of the exec channel that it speaks.
    scales_up : str
        Event by which an autoscaler promises a node for pods that have none; empty for none.
    failed_pulls : int
        Pulls of an image that fail before it comes.
    lists_all : bool
        Whether the user may list the pods of all namespaces.
    """

    refusal_texts: ClassVar = {
        "quota": (403, "Forbidden", f'pods "p" is forbidden: {_QUOTA}'),
        "permission": (403, "Forbidden", f"pods is forbidden: {_USER}"),
        "pod security": (403, "Forbidden", f'pods "p" is forbidden: {_SECURITY}'),
        "throttled": (429, "TooManyRequests", "Too many requests, please try again later."),
        "conflict": (409, "Conflict", 'Operation cannot be fulfilled on resourcequotas "team"'),
        "gone": (404, "NotFound", f'namespaces "{NAMESPACE}" not found'),
    }
    status_field = "phase"
    off, ended, taken_back = "Succeeded", "deleted", "Failed"
    free = ("Succeeded", "Failed", "deleted")

    def __init__(self, fleet: Fleet) -> None:
        self.protocols, self.scales_up, self.lists_all = [V5, V4], "", True
        self.failed_pulls = 0
        spot = {"karpenter.sh/capacity-type": "spot"}
        l4 = {"nvidia.com/gpu.product": "NVIDIA-L4", "nvidia.com/gpu.memory": "23034"}
        self.nodes = [
            make_node("plain", "8", "32Gi"),
            make_node("spot", "3900m", "15Gi", spot),
            make_node("gpu", "8", "64Gi", l4, [{"key": GPU, "effect": "NoSchedule"}], gpus=2),
        ]
        super().__init__(fleet)

    def kubeconfig(self, folder: Path, token: str = TOKEN) -> Path:
        """Write a kubeconfig with one context; return its path."""
        authority, path = folder / "authority.pem", folder / "kubeconfig"
        write_authority(authority)
        cluster = {"server": self.url, "certificate-authority": str(authority)}
        context = {"cluster": "c", "user": "u", "namespace": NAMESPACE}
        known = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": CONTEXT, "context": context}],
            "current-context": CONTEXT,
        }
        path.write_text(json.dumps(known))
        return path

    def show_address(self, entry: dict[str, Any], address: str, private: str, port: int) -> None:
        """Write the address of the pod."""
        entry["ip"] = private

    # -- requests -------------------------------------------------------------------------------

    def answer(self, request: Request) -> Response:
        """Answer a request that is no upgrade."""
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return _status(401, "Unauthorized", "Unauthorized")
        self._end_overdue()
        path, query = request.path, request.query
        if path == "/api/v1/nodes":
            return _page(self.nodes, query)
        if path == "/api/v1/pods" and not self.lists_all:
            return _status(403, "Forbidden", "pods is forbidden: cannot list at the cluster scope")
        if path in ("/api/v1/pods", _PODS) and request.method == "GET":
            return _page(self._select(query), query)
        if path == _PODS:
            return self._create(json.loads(request.body))
        if path == f"/api/v1/namespaces/{NAMESPACE}/events":
            __, __, pod = query.get("fieldSelector", "").partition("involvedObject.name=")
            events = self._events()
            of_pod = [each for each in events if each["involvedObject"]["name"] == pod]
            return _page(of_pod if pod else events, query)
        name, __, part = path.removeprefix(f"{_PODS}/").partition("/")
        return self._answer_for(request.method, name, part)

    def _answer_for(self, method: str, name: str, part: str) -> Response:
        one = self._find(name)
        if one is None:
            return _status(404, "NotFound", f'pods "{name}" not found')
        if part == "log":
            return Response((one.host.console() if one.host else "").encode())
        if method == "DELETE":
            self.end(_id(name))
        return Response.json(self._render(one.entry))

    def _find(self, name: str) -> Rented | None:
        one = self.rented.get(_id(name))
        return one if one and one.entry["phase"] != "deleted" else None

    def _select(self, query: dict[str, str]) -> list[dict[str, Any]]:
        label, __, value = query.get("labelSelector", "").partition("=")
        alone = "status.phase!=Succeeded" in query.get("fieldSelector", "")
        found = []
        for entry in self.listed():
            labels = entry["pod"]["metadata"].get("labels") or {}
            is_meant = not label or (label in labels and value in ("", labels[label]))
            gone = ("Succeeded", "Failed", "deleted") if alone else ("deleted",)
            if is_meant and entry["phase"] not in gone:
                found.append(self._render(entry))
                if entry["waiting"]:
                    self._pull_again(entry)
        return found

    def _events(self) -> list[dict[str, Any]]:
        found = []
        for entry in self.listed():
            name = entry["pod"]["metadata"]["name"]
            told = {"involvedObject": {"kind": "Pod", "name": name}, "count": 1}
            if entry["unscheduled"]:
                reason, message = self.scales_up or "FailedScheduling", entry["unscheduled"]
                found.append({"metadata": {"name": f"{name}.1"}, "reason": reason} | told)
                found[-1]["message"] = message
            if entry["pulls"]:
                message = f"Failed to pull image {_image(entry['pod'])!r}: {_pull_error(entry)}"
                found.append({"metadata": {"name": f"{name}.2"}, "reason": "Failed"} | told)
                found[-1] |= {"message": message, "count": entry["pulls"]}
        return found

    def _pull_again(self, entry: dict[str, Any]) -> None:
        """Take the next step of pulls that fail: the failure, a pause, the next one."""
        if entry["waiting"]["reason"] == "ErrImagePull":
            words = f'Back-off pulling image "{_image(entry["pod"])}"'
            entry["waiting"] = {"reason": "ImagePullBackOff", "message": words}
        elif entry["heals"] and entry["pulls"] >= self.failed_pulls:
            entry |= {"waiting": None, "phase": "Running"}
        else:
            entry["waiting"] = {"reason": "ErrImagePull", "message": _pull_error(entry)}
            entry["pulls"] += 1

    def _create(self, pod: dict[str, Any]) -> Response:
        time.sleep(self.delay)
        with self._lock:
            code = self.next_refusal()
            if code in self.refusal_texts:
                extra = {"Retry-After": "1"} if code == "throttled" else {}
                return _status(*self.refusal_texts[code], **extra)
            if wrong := find_mistake(pod):
                return _status(422, "Invalid", f"Pod is invalid: {wrong}")
            name = pod["metadata"]["name"]
            if self._find(name):
                return _status(409, "AlreadyExists", f'pods "{name}" already exists')
            entry = self._enter(pod)
            every = list(self.rented.values())
            running = [one.entry["pod"] for one in every if _runs(one.entry)]
            node, entry["unscheduled"] = schedule(pod, self.nodes, running)
            if code == "capacity":
                node, entry["unscheduled"] = "", "0/3 nodes are available: 3 Insufficient cpu."
            pod["spec"]["nodeName"] = node
            is_missing = code == "invalid" or "no-such" in _image(pod)
            if is_missing or self.failed_pulls:
                entry |= {"pulls": 1, "heals": not is_missing}
                entry["waiting"] = {"reason": "ErrImagePull", "message": _pull_error(entry)}
            elif node:
                entry["phase"] = "Running"
                self.rented[_id(name)].start = self.machine(_id(name), _start(pod), entry)
                if self.boots:
                    self.boot()
            return Response.json(self._render(entry), 201)

    def _enter(self, pod: dict[str, Any], phase: str = "Pending") -> dict[str, Any]:
        entry = {"pod": pod, "phase": phase, "unscheduled": "", "waiting": None, "reason": ""}
        entry |= {"pulls": 0, "heals": False}
        self.add(_id(pod["metadata"]["name"]), entry | {"created": time.time()})
        return self.rented[_id(pod["metadata"]["name"])].entry

    def fill(self, count: int, tags: dict[str, str]) -> set[str]:
        """Add pods that are nothing but entries."""
        ids = set[str]()
        for number in range(count):
            labels = {"jupyter-sky-token": tags["jupyter-sky-token"]}
            meta = {"name": f"many-{number:04}-0", "labels": labels, "annotations": tags}
            spec = {"containers": [{"name": "machine", "image": "x"}]}
            self._enter({"metadata": meta, "spec": spec}, "Running")
            ids.add(_id(meta["name"]))
        return ids

    # -- the life of pods -----------------------------------------------------------------------

    def billed(self) -> set[str]:
        """Return the IDs of the pods that run or wait, with those ended whose time is over."""
        self._end_overdue()
        return super().billed()

    def _end_overdue(self) -> None:
        """End the pods that have run for their ``activeDeadlineSeconds``."""
        for one in list(self.rented.values()):
            seconds = one.entry["pod"]["spec"].get("activeDeadlineSeconds")
            if seconds and _runs(one.entry) and time.time() - one.entry["created"] > seconds:
                one.entry |= {"phase": "Failed", "reason": "DeadlineExceeded"}
                if one.host:
                    one.host.kill()

    def _render(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Return a pod with its status."""
        phase, pod = entry["phase"], entry["pod"]
        created = datetime.datetime.fromtimestamp(entry["created"], datetime.UTC)
        meta = {"namespace": NAMESPACE, "creationTimestamp": created.isoformat()}
        scheduled = {"type": "PodScheduled", "status": str(not entry["unscheduled"])}
        if entry["unscheduled"]:
            scheduled |= {"reason": "Unschedulable", "message": entry["unscheduled"]}
        status: dict[str, Any] = {"phase": phase, "conditions": [scheduled]}
        status["startTime"] = created.strftime("%Y-%m-%dT%H:%M:%SZ")
        if phase == "Failed" and not entry["reason"]:
            status |= {"reason": "Terminated", "message": _SHUTDOWN}
            gone = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
            status["conditions"].append(gone)
        status |= {"reason": entry["reason"]} if entry["reason"] else {}
        status |= {"podIP": entry["ip"]} if phase == "Running" else {}
        if not entry["unscheduled"]:
            container = pod["spec"]["containers"][0]
            named = {"name": container["name"], "image": container["image"], "imageID": ""}
            named |= {"ready": phase == "Running", "restartCount": 0}
            named["state"] = _container_state(entry)
            status["containerStatuses"] = [named]
        return pod | {"kind": "Pod", "metadata": pod["metadata"] | meta, "status": status}

    # -- exec -----------------------------------------------------------------------------------

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        if handler.headers.get("Upgrade", "").lower() != "websocket":
            super()._serve(handler)
            return
        address = urlsplit(handler.path)
        name = address.path.removeprefix(f"{_PODS}/").removesuffix("/exec")
        one = self._find(name)
        offered = handler.headers.get("Sec-WebSocket-Protocol", "")
        protocol = websocket_exec.choose_protocol(offered, self.protocols)
        with self._lock:
            self.requests.append(f"EXEC {name} {protocol}")
        if handler.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._write(handler, _status(401, "Unauthorized", "Unauthorized"))
        elif one is None or one.host is None or not _runs(one.entry):
            text = f'cannot exec into a container of pod "{name}" that does not run'
            self._write(handler, _status(404 if one is None else 400, "BadRequest", text))
        elif not protocol:
            self._write(handler, _status(400, "BadRequest", f"unable to upgrade: {offered}"))
        else:
            websocket_exec.accept(handler, protocol)
            command = parse_qs(address.query)["command"]
            session = websocket_exec.ExecSession(handler.connection, protocol == V5)
            session.run([*one.host.enter(), *command], BARE)


def find_mistake(pod: dict[str, Any]) -> str:
    """Return what the API refuses in a pod; empty for a valid one."""
    meta, spec = pod["metadata"], pod["spec"]
    fields = [(meta, client.V1ObjectMeta), (spec, client.V1PodSpec)]
    fields += [(each, client.V1Container) for each in spec["containers"]]
    for given, kind in fields:
        if unknown := set(given) - set(kind.attribute_map.values()):
            return f"unknown fields {sorted(unknown)}"
    if not _NAME.fullmatch(meta["name"]):
        return f"metadata.name: {meta['name']}: a lowercase RFC 1123 subdomain is needed"
    for value in (meta.get("labels") or {}).values():
        if not _LABEL.fullmatch(value):
            return f"metadata.labels: {value}: a valid label must be at most 63 characters"
    for container in spec["containers"]:
        wanted = container["resources"]
        if wanted["requests"].get(GPU) != wanted["limits"].get(GPU):
            return f"limits: must equal requests of {GPU}"
    deadline = spec.get("activeDeadlineSeconds", 1)
    if not isinstance(deadline, int) or deadline < 1:
        return "spec.activeDeadlineSeconds: must be greater than 0"
    return ""


def _image(pod: dict[str, Any]) -> str:
    return pod["spec"]["containers"][0]["image"]


def _pull_error(entry: dict[str, Any]) -> str:
    return _PULL.format(image=_image(entry["pod"]))


def _container_state(entry: dict[str, Any]) -> dict[str, Any]:
    if entry["waiting"]:
        return {"waiting": entry["waiting"]}
    if entry["phase"] == "Running":
        return {"running": {}}
    if entry["phase"] == "Pending":
        return {"waiting": {"reason": "ContainerCreating"}}
    killed = entry["reason"] == "OOMKilled"
    code = 137 if killed else 0 if entry["phase"] == "Succeeded" else 1
    return {"terminated": {"exitCode": code, "reason": "OOMKilled" if killed else "Completed"}}


def _start(pod: dict[str, Any]) -> str:
    """Return user data by which a machine runs a pod's command and ends with it."""
    container = pod["spec"]["containers"][0]
    env = {each["name"]: each["value"] for each in container["env"]}
    command = shlex.join(["unshare", "--pid", "--fork", "--mount-proc", *container["command"]])
    return container_start(f"{command}; shutdown -P now", env, {})


def _runs(entry: dict[str, Any]) -> bool:
    return entry["phase"] == "Running"


def _id(name: str) -> str:
    return f"{CONTEXT}/{NAMESPACE}/{name}"


def _page(items: list[dict[str, Any]], query: dict[str, str]) -> Response:
    """Return a list, or a page of it."""
    first, limit = int(query.get("continue") or 0), int(query.get("limit") or 0)
    last = first + limit if limit else len(items)
    meta = {"resourceVersion": "1"} | ({"continue": str(last)} if last < len(items) else {})
    return Response.json({"kind": "List", "metadata": meta, "items": items[first:last]})


def _status(status: int, reason: str, message: str, **headers: str) -> Response:
    told = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    body = told | {"reason": reason, "message": message, "code": status}
    return Response.json(body, status, **headers)
