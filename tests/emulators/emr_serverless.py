"""EMR Serverless: applications and sessions, and a real Connect server behind them.

Sessions take their time and may fail; their endpoint is a proxy by TLS that lets nobody pass
without a token which AWS gave out and which has not expired.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .ec2_errors import scope
from .emr_account import LIVE, EmrAccount
from .server import Request, Response

_PATH = re.compile(r"/applications(?:/(\w+))?(?:/(sessions|start|stop)(?:/(\w+)(/endpoint)?)?)?")
_STATUS = {
    "ServiceQuotaExceededException": 402,
    "AccessDeniedException": 403,
    "ResourceNotFoundException": 404,
    "ConflictException": 409,
    "ThrottlingException": 429,
    "InternalServerException": 500,
}
_IDENTITY = (
    '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
    "<GetCallerIdentityResult><Arn>arn:aws:iam::123456789012:user/me</Arn><UserId>AIDA</UserId>"
    "<Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>"
)


@dataclass
class Session:
    """One session, and when it came up and ended."""

    id: str
    application: str
    body: dict[str, Any]
    begun: float
    ready: float
    ended: float = 0.0
    why: str = ""
    fails: str = ""
    tokens: dict[str, float] = field(default_factory=dict)

    def state(self, now: float) -> str:
        """State, in the words of AWS."""
        if self.ended:
            return "TERMINATED"
        if now < self.ready:
            return "STARTING"
        return "FAILED" if self.fails else "IDLE"


class EmrServerless(EmrAccount):
    """An account of AWS, as far as EMR Serverless needs it; see `EmrAccount`.

    Attributes
    ----------
    roles : set
        Names of the roles that there are.
    """

    def __init__(self, upstream: int = 0, *, start: float = 0.3) -> None:
        super().__init__(upstream, start=start)

    def reset(self) -> None:
        """Begin anew, with an account that has nothing."""
        super().reset()
        self.roles = {"jupyter-sky-emr-serverless"}
        self.applications: dict[str, dict[str, Any]] = {}
        self.sessions: dict[str, Session] = {}
        self._made: dict[str, str] = {}

    def live_sessions(self) -> list[Session]:
        """Sessions that cost."""
        return [one for one in self.sessions.values() if one.state(time.time()) in LIVE]

    def left(self) -> list[str]:
        """Applications and sessions that are still there."""
        apps = [id for id, one in self.applications.items() if one["state"] != "TERMINATED"]
        return [*apps, *(one.id for one in self.live_sessions())]

    def end_idle(self, id: str) -> None:
        """End a session as one that nobody has used for its idle time."""
        session = self.sessions[id]
        session.ended, session.why = time.time(), "idle"

    def expire_tokens(self, id: str, but: int) -> None:
        """Let the tokens of a session expire, but for the newest ones."""
        tokens = self.sessions[id].tokens
        for token in list(tokens)[:-but]:
            tokens[token] = 0.0

    # -- requests ----------------------------------------------------------------------------

    def describe(self, request: Request) -> str:
        """Action and region of a request."""
        service, region, action = scope(request)
        return f"{_action(request) if service == 'emr-serverless' else action} {region}"

    def answer(self, request: Request) -> Response:
        """Answer as AWS does."""
        service, region, action = scope(request)
        if refused := self.stranger(request):
            return refused
        if action == "GetCallerIdentity":
            return Response(_IDENTITY.encode(), 200, {"Content-Type": "text/xml"})
        if service != "emr-serverless":
            return _error("AccessDeniedException", f"no {service} here")
        with self._lock:
            action = _action(request)
            if told := self.refused(action, region):
                return _error(*told)
            return getattr(self, f"_{action}")(request, region)

    def fail(self, kind: str, request: Request) -> Response:
        """An answer of AWS to what comes too often, or of its failure."""
        code = "ThrottlingException" if kind == "throttle" else "InternalServerException"
        return _error(code, "Rate exceeded")

    def _CreateApplication(self, request: Request, region: str) -> Response:
        body = _body(request)
        label = body["releaseLabel"]
        if not re.fullmatch(r"emr-(7\.1[3-9]\.\d+|spark-8\.\d+\.\d+)", label):
            return _error("ValidationException", f"Release label {label} has no sessions")
        if not re.fullmatch(r"[A-Za-z0-9._/#-]{1,64}", body["name"]):
            return _error("ValidationException", "Invalid name")
        if body["clientToken"] not in self._made:
            id = f"00f{next(self._ids):05d}"
            self._made[body["clientToken"]] = id
            self.applications[id] = body | {
                "applicationId": id,
                "arn": f"arn:aws:emr-serverless:{region}:1:/applications/{id}",
                "state": "CREATED",
                "createdAt": time.time(),
                "updatedAt": time.time(),
                "region": region,
            }
        id = self._made[body["clientToken"]]
        return Response.json(
            {"applicationId": id, "name": body["name"], "arn": self.applications[id]["arn"]}
        )

    def _application(self, request: Request, region: str) -> dict[str, Any] | None:
        match = _PATH.fullmatch(request.path)
        found = self.applications.get(match[1] if match else "")
        return found if found and found["region"] == region else None

    def _GetApplication(self, request: Request, region: str) -> Response:
        found = self._application(request, region)
        return Response.json({"application": found}) if found else _missing()

    def _ListApplications(self, request: Request, region: str) -> Response:
        mine = [one for one in self.applications.values() if one["region"] == region]
        return Response.json({"applications": [one | {"id": one["applicationId"]} for one in mine]})

    def _StopApplication(self, request: Request, region: str) -> Response:
        found = self._application(request, region)
        if found is None:
            return _missing()
        if any(one.application == found["applicationId"] for one in self.live_sessions()):
            return _error("ConflictException", "The application has active sessions")
        found["state"] = "STOPPED"
        return Response.json({})

    def _DeleteApplication(self, request: Request, region: str) -> Response:
        found = self._application(request, region)
        if found is None:
            return _missing()
        if found["state"] not in ("CREATED", "STOPPED"):
            return _error("ValidationException", f"Application is {found['state']}")
        found["state"] = "TERMINATED"
        return Response.json({})

    def _StartSession(self, request: Request, region: str) -> Response:
        found, body = self._application(request, region), _body(request)
        if found is None:
            return _missing()
        role = body["executionRoleArn"].rpartition("/")[2]
        if role not in self.roles:
            told = f"User is not authorized to pass role {role}: it does not exist"
            return _error("AccessDeniedException", told)
        if not found.get("interactiveConfiguration", {}).get("sessionEnabled"):
            return _error("ValidationException", "Sessions are not enabled")
        token = f"session {body['clientToken']}"
        if token not in self._made:
            id, now = f"s{next(self._ids):05d}", time.time()
            self._made[token] = id
            fails = self.failing.pop(0) if self.failing else ""
            application = found["applicationId"]
            self.sessions[id] = Session(id, application, body, now, now + self.start, fails=fails)
            found["state"] = "STARTED"
        return Response.json(
            {"applicationId": found["applicationId"], "sessionId": self._made[token], "arn": "arn"}
        )

    def _session(self, request: Request, region: str) -> Session | None:
        match = _PATH.fullmatch(request.path)
        found = self.sessions.get(match[3] or "" if match else "")
        return found if found and self._application(request, region) else None

    def _describe(self, session: Session) -> dict[str, Any]:
        state = session.state(time.time())
        app = self.applications[session.application]
        minutes = session.body["idleTimeoutMinutes"]
        told = {
            "applicationId": session.application,
            "sessionId": session.id,
            "arn": "arn",
            "state": state,
            "stateDetails": session.fails if state == "FAILED" else session.why,
            "releaseLabel": app["releaseLabel"],
            "executionRoleArn": session.body["executionRoleArn"],
            "createdBy": "arn",
            "createdAt": session.begun,
            "updatedAt": session.begun,
            "idleTimeoutMinutes": minutes,
            "tags": session.body.get("tags", {}),
        }
        if session.ended:
            told["endedAt"] = session.ended
        if session.why == "idle":
            told["idleSince"] = session.ended - minutes * 60 - 1
        return told

    def _GetSession(self, request: Request, region: str) -> Response:
        found = self._session(request, region)
        return Response.json({"session": self._describe(found)}) if found else _missing()

    def _ListSessions(self, request: Request, region: str) -> Response:
        app = self._application(request, region)
        if app is None:
            return _missing()
        every = [one for one in self.sessions.values() if one.application == app["applicationId"]]
        return Response.json({"sessions": [self._describe(one) for one in every]})

    def _GetSessionEndpoint(self, request: Request, region: str) -> Response:
        found = self._session(request, region)
        if found is None:
            return _missing()
        if found.state(time.time()) not in ("STARTED", "IDLE", "BUSY"):
            return _error("ValidationException", "The session is not ready")
        token = f"token-{next(self._ids)}"
        found.tokens[token] = time.time() + self.token_seconds
        return Response.json(
            {
                "applicationId": found.application,
                "sessionId": found.id,
                "endpoint": self.endpoint,
                "authToken": token,
                "authTokenExpiresAt": found.tokens[token],
            }
        )

    def _TerminateSession(self, request: Request, region: str) -> Response:
        found = self._session(request, region)
        if found is None:
            return _missing()
        found.ended = found.ended or time.time()
        return Response.json({"applicationId": found.application, "sessionId": found.id})

    def live_tokens(self) -> Iterable[Mapping[str, float]]:
        """Tokens of each session that is up."""
        return [session.tokens for session in self.live_sessions()]


def _action(request: Request) -> str:
    match = _PATH.fullmatch(request.path)
    assert match, request.path
    application, kind, session, endpoint = match.groups()
    if application is None:
        return {"POST": "CreateApplication", "GET": "ListApplications"}[request.method]
    if kind is None:
        return {"GET": "GetApplication", "DELETE": "DeleteApplication"}[request.method]
    if kind != "sessions":
        return {"start": "StartApplication", "stop": "StopApplication"}[kind]
    if endpoint:
        return "GetSessionEndpoint"
    if session is None:
        return {"POST": "StartSession", "GET": "ListSessions"}[request.method]
    return {"GET": "GetSession", "DELETE": "TerminateSession"}[request.method]


def _body(request: Request) -> dict[str, Any]:
    return json.loads(request.body)


def _error(code: str, message: str) -> Response:
    status = _STATUS.get(code, 400)
    return Response.json({"message": message}, status, **{"x-amzn-ErrorType": code})


def _missing() -> Response:
    return _error("ResourceNotFoundException", "It does not exist")
