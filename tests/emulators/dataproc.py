"""Dataproc's serverless sessions: REST as Google's discovery document has it, and their bridge.

Sessions take their time and may fail; a real Connect server stands behind the bridge, which lets
nobody pass without a token that the token server gave out and that has not expired.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from .connect_server import WebSocketBridge
from .gce import PROJECT
from .gce_validation import Refused, check
from .google_tokens import Tokens
from .server import Emulator, Request, Response, write_authority

_SESSIONS = re.compile(
    r"/v1/projects/([^/]+)/locations/([a-z0-9-]+)/sessions(?:/([^/:]+)(:terminate)?)?"
)
_SESSION_ID = re.compile(r"[a-z][a-z0-9-]{2,61}[a-z0-9]")
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")
_CPUS = ("4", "8", "16")
_STATUS = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
}


@dataclass
class Session:
    """One session, and when it came up and ended."""

    name: str
    body: dict[str, Any]
    begun: float
    ready: float
    ended: float = 0.0
    why: str = ""
    fails: str = ""
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))

    def state(self, now: float) -> str:
        """State, in the words of Google."""
        if self.ended:
            return "TERMINATED"
        if now < self.ready:
            return "CREATING"
        return "FAILED" if self.fails else "ACTIVE"


class Dataproc(Emulator):
    """A project, as far as Dataproc's sessions need it.

    Parameters
    ----------
    upstream
        Port of the Connect server behind all sessions; 0 without one.
    start
        Seconds until a session is up.

    Attributes
    ----------
    failing : list of str
        Reasons for which the next sessions fail as they start.
    """

    def __init__(self, upstream: int = 0, *, start: float = 0.3) -> None:
        self.start = start
        self._kept = tempfile.TemporaryDirectory(prefix="dataproc-")
        self._folder = Path(self._kept.name)
        write_authority(self._folder / "authority.pem")
        self.bridge = WebSocketBridge(upstream, self._admits) if upstream else None
        self.reset()
        super().__init__()
        self.tokens = Tokens(f"{self.url}/token")
        self._key = self.tokens.write_key(self._folder / "right.json", PROJECT)

    def reset(self) -> None:
        """Begin anew, with a project that has nothing."""
        self.refusals: list[tuple[str, str, str, str, str]] = []
        self.failing: list[str] = []
        self.sessions: dict[str, Session] = {}
        self._operations: dict[str, dict[str, Any]] = {}
        self._ids = count(1)

    def close(self) -> None:
        """Leave nothing of it."""
        super().close()
        if self.bridge is not None:
            self.bridge.close()
        self._kept.cleanup()

    def env(self) -> dict[str, str]:
        """Environment that points a process at it, with credentials of the project."""
        authority = str(self._folder / "authority.pem")
        return {
            "GOOGLE_APPLICATION_CREDENTIALS": str(self._key),
            "GOOGLE_CLOUD_PROJECT": PROJECT,
            "CLOUDSDK_CONFIG": str(self._folder / "gcloud"),
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_DATAPROC": self.url,
            "REQUESTS_CA_BUNDLE": authority,
            "SSL_CERT_FILE": authority,
            "NO_GCE_CHECK": "true",
            "NO_PROXY": "localhost,127.0.0.1",
            "no_proxy": "localhost,127.0.0.1",
        }

    def refuse(
        self, action: str, status: str, message: str = "", region: str = "", reason: str = ""
    ) -> None:
        """Refuse the next request of an action, in one region or any."""
        self.refusals.append((action, region, status, message or status, reason))

    def live(self) -> list[Session]:
        """Sessions that cost."""
        now = time.time()
        return [one for one in self.sessions.values() if one.state(now) in ("CREATING", "ACTIVE")]

    def end_idle(self, session: Session) -> None:
        """End a session as one that nobody has used for its idle time."""
        session.ended, session.why = time.time(), "Session terminated: idle TTL exceeded."

    # -- requests ----------------------------------------------------------------------------

    def describe(self, request: Request) -> str:
        """Action and region of a request."""
        match = _SESSIONS.fullmatch(request.path)
        return f"{_action(request)} {match[2] if match else ''}"

    def answer(self, request: Request) -> Response:
        """Answer as Google does."""
        if request.path == "/token":
            return self.tokens.answer(request)
        holder = self.tokens.holder(request.headers.get("authorization", ""))
        if isinstance(holder, str):
            return _error("UNAUTHENTICATED", "Request had invalid credentials.", holder)
        match = _SESSIONS.fullmatch(request.path)
        if match is None:
            return _error("NOT_FOUND", f"Method not found: {request.path}")
        project, region, name, __ = match.groups()
        if project != PROJECT:
            return _error("PERMISSION_DENIED", f"Permission denied on project {project}")
        action = _action(request)
        with self._lock:
            for refusal in self.refusals:
                if refusal[0] == action and refusal[1] in ("", region):
                    self.refusals.remove(refusal)
                    return _error(*refusal[2:])
            if action in ("create", "list"):
                return getattr(self, f"_{action}")(request, region)
            session = self.sessions.get(f"{region}/{name}")
            if session is None:
                return _error("NOT_FOUND", f"Not found: Session {name}")
            return getattr(self, f"_{action}")(session)

    def fail(self, kind: str, request: Request) -> Response:
        """An answer of Google to what comes too often, or of its failure."""
        if kind == "throttle":
            return _error("RESOURCE_EXHAUSTED", "Quota exceeded", "RATE_LIMIT_EXCEEDED")
        return _error("UNAVAILABLE", "The service is currently unavailable.")

    def _create(self, request: Request, region: str) -> Response:
        body, name = json.loads(request.body), request.query.get("sessionId", "")
        if request.query.get("requestId", "") in self._operations:
            return Response.json(self._operations[request.query["requestId"]])
        try:
            check("Session", body, api="dataproc.v1")
        except Refused as refused:
            return _error("INVALID_ARGUMENT", refused.message)
        if wrong := _wrong(name, body):
            return _error("INVALID_ARGUMENT", wrong)
        if f"{region}/{name}" in self.sessions:
            return _error("ALREADY_EXISTS", f"Already exists: Failed to create session: {name}")
        now, fails = time.time(), self.failing.pop(0) if self.failing else ""
        path = f"projects/{PROJECT}/locations/{region}/sessions/{name}"
        self.sessions[f"{region}/{name}"] = Session(path, body, now, now + self.start, fails=fails)
        operation = {
            "name": f"projects/{PROJECT}/regions/{region}/operations/{uuid.uuid4()}",
            "metadata": {
                "@type": "type.googleapis.com/google.cloud.dataproc.v1.SessionOperationMetadata",
                "session": path,
                "operationType": "CREATE",
            },
            "done": False,
        }
        if "requestId" in request.query:
            self._operations[request.query["requestId"]] = operation
        return Response.json(operation)

    def _list(self, request: Request, region: str) -> Response:
        wanted = dict(
            re.findall(r'labels\.([a-z0-9_-]+) = "([^"]*)"', request.query.get("filter", ""))
        )
        mine = [one for key, one in self.sessions.items() if key.startswith(f"{region}/")]
        found = [one for one in mine if wanted.items() <= one.body.get("labels", {}).items()]
        start = int(request.query.get("pageToken", "0"))
        answer: dict[str, Any] = {"sessions": [self._told(one) for one in found[start : start + 2]]}
        if start + 2 < len(found):
            answer["nextPageToken"] = str(start + 2)
        return Response.json(answer)

    def _get(self, session: Session) -> Response:
        return Response.json(self._told(session))

    def _terminate(self, session: Session) -> Response:
        if session.state(time.time()) in ("TERMINATED", "FAILED"):
            return _error("FAILED_PRECONDITION", "Session is in a terminal state")
        session.ended = time.time()
        return Response.json({"name": f"operations/{next(self._ids)}", "done": False})

    def _delete(self, session: Session) -> Response:
        self.sessions = {key: one for key, one in self.sessions.items() if one is not session}
        return Response.json({"name": f"operations/{next(self._ids)}", "done": False})

    def _told(self, session: Session) -> dict[str, Any]:
        state = session.state(time.time())
        since = session.ended or (session.begun if state == "CREATING" else session.ready)
        runtime = session.body.get("runtimeConfig", {})
        properties = {f"spark:{key}": text for key, text in runtime.get("properties", {}).items()}
        told = session.body | {
            "name": session.name,
            "uuid": session.uuid,
            "createTime": _time(session.begun),
            "state": state,
            "stateMessage": session.fails if state == "FAILED" else session.why,
            "stateTime": _time(since),
            "runtimeConfig": runtime | {"properties": properties},
            "runtimeInfo": {},
        }
        if state == "ACTIVE":
            port = self.bridge.port if self.bridge else 443
            told["runtimeInfo"] = {"endpoints": {"Spark Connect Server": f"sc://localhost:{port}"}}
        return told

    def _admits(self, authorization: str) -> str:
        """Why an Authorization header opens no session; empty where it does."""
        holder = self.tokens.holder(authorization)
        if isinstance(holder, str):
            return holder
        return "" if self.live() else "no session"


def _wrong(name: str, body: dict[str, Any]) -> str:
    """Say what the service itself would not take; empty for nothing."""
    if not _SESSION_ID.fullmatch(name):
        return f"Invalid session ID {name!r}"
    if "sparkConnectSession" not in body and "jupyterSession" not in body:
        return "session_config must be set"
    for key, value in body.get("labels", {}).items():
        if not re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", key) or not _LABEL.fullmatch(value):
            return f"Invalid label {key}: {value!r}"
    if not re.fullmatch(r"3\.\d+", body.get("runtimeConfig", {}).get("version", "3.0")):
        return "Spark Connect sessions need runtime version 3.0 or later"
    execution = body.get("environmentConfig", {}).get("executionConfig", {})
    for key in ("ttl", "idleTtl"):
        seconds = float(execution.get(key, "3600s").rstrip("s"))
        if not 600 <= seconds <= 14 * 86400:
            return f"{key} must be between 10 minutes and 14 days"
    properties = body.get("runtimeConfig", {}).get("properties", {})
    for role in ("driver", "executor"):
        cores = properties.get(f"spark.{role}.cores", "4")
        if cores not in _CPUS:
            return f"Invalid value {cores} for spark.{role}.cores: one of 4, 8, 16"
        sizes = ("memory", "memoryOverhead")
        mib = [properties.get(f"spark.{role}.{key}", "0m") for key in sizes]
        total = sum(int(each.rstrip("m")) for each in mib)
        if total and not 1024 <= total / int(cores) <= 7424:
            return f"Memory for each core of the {role} must be between 1024m and 7424m"
    if int(properties.get("spark.executor.instances", "2")) < 2:
        return "spark.executor.instances must be at least 2"
    return ""


def _action(request: Request) -> str:
    match = _SESSIONS.fullmatch(request.path)
    if match is None:
        return request.path
    if match[4]:
        return "terminate"
    if match[3]:
        return {"GET": "get", "DELETE": "delete"}[request.method]
    return {"POST": "create", "GET": "list"}[request.method]


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _error(status: str, message: str, reason: str = "") -> Response:
    code = _STATUS[status]
    error: dict[str, Any] = {"code": code, "message": message, "status": status}
    if reason:
        kind = "type.googleapis.com/google.rpc.ErrorInfo"
        error["details"] = [{"@type": kind, "reason": reason, "domain": "googleapis.com"}]
    return Response.json({"error": error}, code)
