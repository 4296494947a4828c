"""The metadata service of a machine: what it can learn about itself, as each cloud tells it.

AWS asks for a token first (IMDSv2 alone), Google and Azure for a header. It runs on the machine,
under a bare Python: the standard library alone, and none of our packages.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, body and headers of an answer."""

    status: int
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class Metadata:
    """Metadata of one machine, and the time of their last change.

    Parameters
    ----------
    facts
        As `Fleet.launch` takes them, and ``name``, ``address``, ``private``, ``spot``. With
        ``notice`` (unix seconds) the cloud takes the machine back then, on AWS by ``action``;
        ``rebalance`` (unix seconds) is the time at which AWS saw a risk; ``others`` are machines
        that Azure's event concerns besides. A fact that is None again is withdrawn.
    on_approval
        Called when an event of Azure is approved, which begins then.
    """

    def __init__(
        self, facts: dict[str, Any], on_approval: Callable[[], None] = lambda: None
    ) -> None:
        self._facts, self._changed = facts, threading.Condition()
        self._on_approval = on_approval
        self._tokens: dict[str, float] = {}
        self._approved: set[str] = set()

    def change(self, facts: dict[str, Any]) -> None:
        """Tell something else from now on."""
        with self._changed:
            self._facts = self._facts | facts
            self._changed.notify_all()

    def get(self, name: str, default: Any = "") -> Any:
        """Return one fact."""
        return self._facts.get(name, default)

    def answer(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Answer:
        """Answer a request as the machine's cloud does."""
        url = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        lower = {name.lower(): headers[name] for name in headers}
        if self.get("cloud") == "azure":
            return self._azure(method, url.path, query, lower, body)
        cloud = {"aws": self._aws, "gcp": self._gcp}.get(self.get("cloud"))
        return Answer(404) if cloud is None else cloud(method, url.path, query, lower)

    # -- AWS --------------------------------------------------------------------------------

    def _aws(self, method: str, path: str, query: object, headers: Mapping[str, str]) -> Answer:
        if path == "/latest/api/token":
            return self._aws_token(method, headers)
        token = headers.get("x-aws-ec2-metadata-token", "")
        if self._tokens.get(token, 0.0) < time.time():
            return Answer(401)
        if method != "GET":
            return Answer(405)
        return _leaf_or_list(self._aws_tree(), path)

    def _aws_token(self, method: str, headers: Mapping[str, str]) -> Answer:
        if method != "PUT":
            return Answer(405)
        if "x-forwarded-for" in headers:
            return Answer(403)
        seconds = headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
        if not seconds.isdigit() or not 1 <= int(seconds) <= 21600:
            return Answer(400)
        token = secrets.token_urlsafe(40)
        self._tokens[token] = time.time() + int(seconds)
        return Answer(200, token, {"X-aws-ec2-metadata-token-ttl-seconds": seconds})

    def _aws_tree(self) -> dict[str, str]:
        meta = {
            "ami-id": self.get("image"),
            "hostname": self.get("name"),
            "instance-id": self.get("id"),
            "instance-life-cycle": "spot" if self.get("spot") else "on-demand",
            "instance-type": self.get("type"),
            "local-hostname": self.get("name"),
            "local-ipv4": self.get("private"),
            "placement/availability-zone": self.get("zone"),
            "placement/region": self.get("region"),
            "public-ipv4": self.get("address"),
        }
        meta |= {f"tags/instance/{name}": value for name, value in self.get("tags", {}).items()}
        if notice := self.get("notice", None):
            when = _utc(notice)
            action = self.get("action") or "terminate"
            meta["spot/instance-action"] = json.dumps({"action": action, "time": when})
            if action == "terminate":
                meta["spot/termination-time"] = when
        if risk := self.get("rebalance", None):
            meta["events/recommendations/rebalance"] = json.dumps({"noticeTime": _utc(risk)})
        identity = {
            "accountId": self.get("account"),
            "availabilityZone": self.get("zone"),
            "imageId": self.get("image"),
            "instanceId": self.get("id"),
            "instanceType": self.get("type"),
            "privateIp": self.get("private"),
            "region": self.get("region"),
        }
        tree = {f"/latest/meta-data/{name}": value for name, value in meta.items()}
        return tree | {"/latest/dynamic/instance-identity/document": json.dumps(identity, indent=2)}

    # -- Google -----------------------------------------------------------------------------

    def _gcp(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> Answer:
        if headers.get("metadata-flavor") != "Google" or "x-forwarded-for" in headers:
            return Answer(403, "Missing Metadata-Flavor:Google header.")
        root = "/computeMetadata/v1/"
        if method != "GET" or not path.startswith(root):
            return Answer(404)

        def now() -> Answer:
            return _leaf_or_list(self._gcp_tree(query), path.removeprefix(root))

        with self._changed:
            found = now()
            if query.get("wait_for_change", "").lower() == "true":
                last = query.get("last_etag", _etag(found))
                seconds = float(query.get("timeout_sec", 3600))
                self._changed.wait_for(lambda: _etag(now()) != last, seconds)
                found = now()
        return Answer(found.status, found.body, {"Metadata-Flavor": "Google", "ETag": _etag(found)})

    def _gcp_tree(self, query: Mapping[str, str]) -> dict[str, str]:
        project = self.get("account") or "project"
        kind, zone = self.get("type"), self.get("zone")
        instance = {
            "hostname": f"{self.get('name')}.{zone}.c.{project}.internal",
            "id": self.get("id"),
            "image": self.get("image"),
            "machine-type": f"projects/1/machineTypes/{kind}",
            "maintenance-event": "NONE",
            "name": self.get("name"),
            "network-interfaces/0/access-configs/0/external-ip": self.get("address"),
            "network-interfaces/0/ip": self.get("private"),
            "preempted": "TRUE" if self.get("notice", None) else "FALSE",
            "scheduling/preemptible": "TRUE" if self.get("spot") else "FALSE",
            "zone": f"projects/1/zones/{zone}",
        }
        attributes = self.get("attributes", {})
        instance |= {f"attributes/{name}": value for name, value in attributes.items()}
        instance |= self._gcp_identity()
        tree = {f"instance/{name}": value for name, value in instance.items()}
        return tree | {"project/project-id": project}

    def _gcp_identity(self) -> dict[str, str]:
        """Return the metadata of a machine's service account."""
        token, email = self.get("identity_token"), self.get("identity_email")
        if not token:
            return {}
        bearer = {"access_token": token, "expires_in": 3599, "token_type": "Bearer"}
        told = {
            "aliases": "default",
            "email": email,
            "scopes": "\n".join(self.get("identity_scopes", [])),
            "token": json.dumps(bearer),
        }
        names = [name for name in ("default", email) if name]
        return {f"service-accounts/{name}/{key}": told[key] for name in names for key in told}

    # -- Azure ------------------------------------------------------------------------------

    def _azure(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> Answer:
        if headers.get("metadata", "").lower() != "true" or "x-forwarded-for" in headers:
            return _refusal("Required metadata header not specified")
        if "api-version" not in query:
            return _refusal("Bad request. api-version was not specified in the request")
        if path == "/metadata/identity/oauth2/token":
            return self._azure_token(query)
        if path == "/metadata/scheduledevents":
            if method == "POST":
                return self._azure_approve(body)
            return Answer(200, json.dumps(self._azure_events()), JSON)
        if path.rstrip("/") in ("/metadata/instance", "/metadata/instance/compute"):
            compute = self._azure_compute()
            document = compute if path.rstrip("/").endswith("compute") else {"compute": compute}
            return Answer(200, json.dumps(document), JSON)
        name = path.removeprefix("/metadata/instance/compute/")
        value = self._azure_compute().get(name)
        return Answer(200, str(value)) if isinstance(value, str) else Answer(404)

    def _azure_token(self, query: Mapping[str, str]) -> Answer:
        token, now = self.get("identity_token"), int(time.time())
        if "resource" not in query:
            return _refusal("Required query variable 'resource' is missing")
        if not token:
            return _refusal("Identity not found")
        found = {
            "access_token": token,
            "client_id": self.get("id"),
            "expires_in": "86399",
            "expires_on": str(now + 86399),
            "not_before": str(now - 300),
            "resource": query["resource"],
            "token_type": "Bearer",
        }
        return Answer(200, json.dumps(found), JSON)

    def _azure_events(self) -> dict[str, Any]:
        notice = self.get("notice", None)
        name = f"{self.get('name')} {notice}"
        is_started = name in self._approved or (notice or 0) <= time.time()
        event = {
            "EventId": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)).upper(),
            "EventStatus": "Started" if is_started else "Scheduled",
            "EventType": "Preempt",
            "ResourceType": "VirtualMachine",
            "Resources": [self.get("name"), *(self.get("others") or [])],
            "NotBefore": "" if is_started else formatdate(notice or 0, usegmt=True),
            "Description": "",
            "EventSource": "Platform",
            "DurationInSeconds": -1,
        }
        incarnation = 2 + is_started if notice else 1
        return {"DocumentIncarnation": incarnation, "Events": [event] if notice else []}

    def _azure_approve(self, body: bytes) -> Answer:
        """Start an event at once, for all machines that it concerns."""
        try:
            wanted = {request["EventId"] for request in json.loads(body)["StartRequests"]}
        except (ValueError, KeyError, TypeError):
            return _refusal("Bad request. The body is not a list of StartRequests")
        events = self._azure_events()["Events"]
        if not wanted <= {event["EventId"] for event in events}:
            return _refusal("Bad request. EventId not found")
        self._approved.add(f"{self.get('name')} {self.get('notice', None)}")
        self._on_approval()
        return Answer(200)

    def _azure_compute(self) -> dict[str, Any]:
        tags = self.get("tags", {})
        return {
            "azEnvironment": "AzurePublicCloud",
            "evictionPolicy": "Delete" if self.get("spot") else "",
            "location": self.get("region"),
            "name": self.get("name"),
            "priority": "Spot" if self.get("spot") else "",
            "resourceGroupName": self.get("group"),
            "subscriptionId": self.get("account"),
            "tags": ";".join(f"{name}:{value}" for name, value in tags.items()),
            "tagsList": [{"name": name, "value": value} for name, value in tags.items()],
            "vmId": self.get("id"),
            "vmSize": self.get("type"),
            "zone": self.get("zone"),
        }


def serve(metadata: Metadata, address: str, port: int) -> int:
    """Serve from a thread; return the port, which is chosen if 0 is asked for."""
    return start_server(metadata, address, port).server_address[1]


def start_server(metadata: Metadata, address: str, port: int) -> ThreadingHTTPServer:
    """Serve from a thread until the server is shut down."""
    server = ThreadingHTTPServer((address, port), _handler(metadata.answer))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


def _handler(answer: Callable[..., Answer]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            sent = self.rfile.read(length)
            found = answer(self.command, self.path, dict(self.headers), sent)
            body = found.body.encode()
            self.send_response(found.status)
            for name, value in ({"Content-Type": "text/plain"} | dict(found.headers)).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


def _leaf_or_list(tree: Mapping[str, str], path: str) -> Answer:
    """Return the text at a path, or the names below it."""
    if path in tree:
        return Answer(200, str(tree[path]))
    folder = path.rstrip("/") + "/" if path.strip("/") else ""
    below = [name.removeprefix(folder) for name in tree if name.startswith(folder)]
    names = {name.split("/")[0] + ("/" if "/" in name else "") for name in below}
    return Answer(200, "\n".join(sorted(names))) if names else Answer(404)


def _refusal(why: str) -> Answer:
    return Answer(400, json.dumps({"error": "invalid_request", "error_description": why}), JSON)


def _etag(answer: Answer) -> str:
    return f"{zlib.crc32(answer.body.encode()):016x}"


def _utc(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
