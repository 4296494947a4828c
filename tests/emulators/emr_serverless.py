"""EMR Serverless: applications and sessions, and a real Connect server behind them.

Sessions take their time and may fail; their endpoint is a proxy by TLS that lets nobody pass
without a token which AWS gave out and which has not expired.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from .ec2 import KEY, SECRET
from .ec2_errors import scope, stranger
from .server import Emulator, Request, Response, _authority, server_certificate

LIVE = ("SUBMITTED", "STARTING", "STARTED", "IDLE", "BUSY")
AUTH = "x-aws-proxy-auth"
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Queries of tests are short: to compile for long ones takes longer than they run."""
_PATH = re.compile(r"/applications(?:/(\w+))?(?:/(sessions|start|stop)(?:/(\w+)(/endpoint)?)?)?")
_STATUS = {
    "ServiceQuotaExceededException": 402,
    "AccessDeniedException": 403,
    "ResourceNotFoundException": 404,
    "ConflictException": 409,
    "ThrottlingException": 429,
    "InternalServerException": 500,
}
_UNARY = "AnalyzePlan Config ArtifactStatus Interrupt ReleaseExecute ReleaseSession CloneSession "
_UNARY += "FetchErrorDetails GetStatus"
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


class EmrServerless(Emulator):
    """An account of AWS, as far as EMR Serverless needs it.

    Parameters
    ----------
    start
        Seconds until a session is up.

    Attributes
    ----------
    roles : set
        Names of the roles that there are.
    failing : list of str
        Reasons for which the next sessions fail as they start.
    token_seconds : float
        Life of a token.
    """

    def __init__(self, *, start: float = 0.3) -> None:
        self.start, self.upstream = start, 0
        self._connect: subprocess.Popen[bytes] | None = None
        self._proxy: Any = None
        self.proxy_port = 0
        self._kept = tempfile.TemporaryDirectory(prefix="emr-")
        self._folder = Path(self._kept.name)
        _authority().cert_pem.write_to_path(self._folder / "authority.pem")
        self.reset()
        super().__init__()

    def reset(self) -> None:
        """Begin anew, with an account that has nothing."""
        self.refusals: list[tuple[str, str, str, str]] = []
        self.roles = {"jupyter-sky-emr-serverless"}
        self.failing: list[str] = []
        self.token_seconds = 3600.0
        self.applications: dict[str, dict[str, Any]] = {}
        self.sessions: dict[str, Session] = {}
        self._made: dict[str, str] = {}
        self._ids = count(1)

    def close(self) -> None:
        """Leave nothing of it."""
        super().close()
        if self._proxy is not None:
            self._proxy.stop(None)
        if self._connect is not None:
            self._connect.kill()
            self._connect.wait()
        self._kept.cleanup()

    def env(self) -> dict[str, str]:
        """Environment that points a process at it, with credentials of the account."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url,
            "AWS_CA_BUNDLE": str(self._folder / "authority.pem"),
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_SHARED_CREDENTIALS_FILE": str(self._folder / "credentials"),
            "AWS_CONFIG_FILE": str(self._folder / "config"),
            "NO_PROXY": "localhost,127.0.0.1",
            "no_proxy": "localhost,127.0.0.1",
        }

    def refuse(self, action: str, code: str, message: str = "", region: str = "") -> None:
        """Refuse the next request of an action, in one region or any."""
        self.refusals.append((action, region, code, message or code))

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
        if refused := stranger(request, {KEY: (SECRET, "")}, set(), time.time()):
            return refused
        if action == "GetCallerIdentity":
            return Response(_IDENTITY.encode(), 200, {"Content-Type": "text/xml"})
        if service != "emr-serverless":
            return _error("AccessDeniedException", f"no {service} here")
        with self._lock:
            action = _action(request)
            for refusal in self.refusals:
                if refusal[0] == action and refusal[1] in ("", region):
                    self.refusals.remove(refusal)
                    return _error(*refusal[2:])
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
                "endpoint": f"https://localhost:{self.proxy_port}",
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

    # -- the Connect server ------------------------------------------------------------------

    def serve_spark(self, home: Path, java: Path) -> None:
        """Start a Connect server and the proxy before it; tokens of live sessions open it."""
        import grpc

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.upstream = probe.getsockname()[1]
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": self.upstream,
            "spark.ui.enabled": "false",
            "spark.sql.connect.serverStacktrace.enabled": "false",
            # so short that clients resume their queries, as they must after two minutes otherwise
            "spark.connect.execute.reattachable.senderMaxStreamDuration": "2s",
            "spark.log.level": "WARN",
        }
        confs = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        server = "org.apache.spark.sql.connect.service.SparkConnectServer"
        with (folder / "log").open("wb") as log:
            self._connect = subprocess.Popen(
                [
                    *(home / "bin" / "spark-submit", "--master", "local[2]"),
                    *("--driver-memory", "700m", "--driver-java-options", JAVA_OPTIONS, *confs),
                    *("--class", server, "spark-internal"),
                ],
                env=os.environ
                | {
                    "JAVA_HOME": str(java),
                    "SPARK_HOME": str(home),
                    "PYSPARK_PYTHON": sys.executable,
                },
                cwd=folder,
                stdout=log,
                stderr=log,
            )
        leaf = server_certificate("localhost")
        pair = (leaf.private_key_pem.bytes(), b"".join(one.bytes() for one in leaf.cert_chain_pems))
        self._proxy = grpc.server(futures.ThreadPoolExecutor(32))
        self._proxy.add_generic_rpc_handlers((_Gate(self),))
        credentials = grpc.ssl_server_credentials([pair])
        self.proxy_port = self._proxy.add_secure_port("127.0.0.1:0", credentials)
        self._proxy.start()

    def await_spark(self) -> None:
        """Wait until the Connect server listens."""
        assert self._connect is not None
        while self._connect.poll() is None:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.upstream)),
            ):
                return
            time.sleep(0.05)
        raise RuntimeError("the Connect server has ended")

    def admits(self, token: str) -> str:
        """Why a token does not open a session; empty where it does."""
        now = time.time()
        for session in self.live_sessions():
            if token in session.tokens:
                return "" if now < session.tokens[token] else "the token has expired"
        return "the token belongs to no session"


def _gate_class() -> Any:
    import grpc

    class Gate(grpc.GenericRpcHandler):
        """Handler that passes requests on, as bytes, if their token is good."""

        def __init__(self, emulator: EmrServerless) -> None:
            self._emulator = emulator
            self._channel = grpc.insecure_channel(f"127.0.0.1:{emulator.upstream}")

        def service(self, details: Any) -> Any:
            method, sent = details.method, dict(details.invocation_metadata)
            kind = method.rpartition("/")[2]
            if kind in _UNARY.split():
                return grpc.unary_unary_rpc_method_handler(self._guard(method, sent, "unary_unary"))
            if kind == "AddArtifacts":
                call = self._guard(method, sent, "stream_unary")
                return grpc.stream_unary_rpc_method_handler(call)
            return grpc.unary_stream_rpc_method_handler(self._stream(method, sent))

        def _check(self, sent: dict[str, str], context: Any) -> None:
            why = self._emulator.admits(sent.get(AUTH, ""))
            if why:
                context.abort(grpc.StatusCode.UNAUTHENTICATED, why)

        def _guard(self, method: str, sent: dict[str, str], shape: str) -> Any:
            call = getattr(self._channel, shape)(method)

            def run(request: Any, context: Any) -> bytes:
                self._check(sent, context)
                with _passed_on(context):
                    return call(request)
                raise AssertionError

            return run

        def _stream(self, method: str, sent: dict[str, str]) -> Any:
            call = self._channel.unary_stream(method)

            def run(request: bytes, context: Any) -> Iterator[bytes]:
                self._check(sent, context)
                with _passed_on(context):
                    yield from call(request)

            return run

    return Gate


@contextlib.contextmanager
def _passed_on(context: Any) -> Iterator[None]:
    """Pass an error of the server on, with its details."""
    import grpc

    try:
        yield
    except grpc.RpcError as error:
        call: Any = error
        context.set_trailing_metadata(call.trailing_metadata() or ())
        context.abort(call.code(), call.details())


def _Gate(emulator: EmrServerless) -> Any:
    return _gate_class()(emulator)


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
    import json

    return json.loads(request.body)


def _error(code: str, message: str) -> Response:
    status = _STATUS.get(code, 400)
    return Response.json({"message": message}, status, **{"x-amzn-ErrorType": code})


def _missing() -> Response:
    return _error("ResourceNotFoundException", "It does not exist")
