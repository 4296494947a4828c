"""EMR on machines: clusters and their sessions, and a real Connect server behind them.

Clusters come up in steps and may fail; sessions are refused until then. RunJobFlow takes no token:
sent twice, it makes two clusters.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from .connect_server import TokenProxy
from .ec2 import KEY, SECRET
from .ec2_errors import scope, stranger
from .server import Emulator, Request, Response, write_authority

LIVE = ("SUBMITTED", "STARTING", "STARTED", "IDLE", "BUSY")
AUTH = "x-aws-proxy-auth"
UP = ("RUNNING", "WAITING")
BILLED = ("STARTING", "BOOTSTRAPPING", *UP)
PAGE = 2


@dataclass
class Cluster:
    """One cluster, its session, and when they came up and ended."""

    id: str
    region: str
    body: dict[str, Any]
    begun: float
    ready: float
    ended: float = 0.0
    code: str = ""
    why: str = ""
    fails: str = ""
    session: dict[str, Any] | None = None
    token: str = ""
    tokens: dict[str, float] = field(default_factory=dict)

    def state(self, now: float) -> str:
        """State, in the words of AWS."""
        if self.ended:
            return "TERMINATED"
        if now < (self.begun + self.ready) / 2:
            return "STARTING"
        if now < self.ready:
            return "BOOTSTRAPPING"
        return "TERMINATED_WITH_ERRORS" if self.fails else "WAITING"


class Emr(Emulator):
    """An account of AWS, as far as EMR on machines needs it.

    Parameters
    ----------
    upstream
        Port of the Connect server behind the endpoints of all sessions; 0 without one.
    start
        Seconds until a cluster is up.

    Attributes
    ----------
    roles : set
        Names of the roles that there are.
    failing : list of str
        Code and message, with a colon between, for which the next clusters fail as they start.
    schedules : dict
        Bodies of the schedules of EventBridge by their names.
    """

    def __init__(self, upstream: int = 0, *, start: float = 0.4) -> None:
        self.start = start
        self._proxy = TokenProxy(upstream, AUTH, self.admits) if upstream else None
        self._kept = tempfile.TemporaryDirectory(prefix="emr-")
        self._folder = Path(self._kept.name)
        write_authority(self._folder / "authority.pem")
        self.reset()
        super().__init__()

    def reset(self) -> None:
        """Begin anew, with an account that has nothing but the default roles."""
        self.refusals: list[tuple[str, str, str, str]] = []
        self.roles = {"EMR_DefaultRole", "EMR_EC2_DefaultRole"}
        self.failing: list[str] = []
        self.schedules: dict[str, dict[str, Any]] = {}
        self.token_seconds = 3600.0
        self.clusters: dict[str, Cluster] = {}
        self._ids = count(1)

    def close(self) -> None:
        """Leave nothing of it."""
        super().close()
        if self._proxy is not None:
            self._proxy.close()
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

    def live(self) -> list[Cluster]:
        """Clusters that cost."""
        now = time.time()
        return [one for one in self.clusters.values() if one.state(now) in BILLED]

    def end_idle(self, cluster: Cluster) -> None:
        """End a session as one that nobody has used for its idle time."""
        assert cluster.session is not None
        now = time.time()
        minutes = cluster.session["SessionIdleTimeoutInMinutes"]
        cluster.session |= {"State": "TERMINATED", "EndedAt": now, "IdleSince": now - minutes * 60}

    def admits(self, token: str) -> str:
        """Why a token does not open a session; empty where it does."""
        now = time.time()
        for cluster in self.live():
            if token in cluster.tokens:
                return "" if now < cluster.tokens[token] else "the token has expired"
        return "the token belongs to no session"

    # -- requests ----------------------------------------------------------------------------

    def describe(self, request: Request) -> str:
        """Action and region of a request."""
        return f"{_action(request)} {scope(request)[1]}"

    def answer(self, request: Request) -> Response:
        """Answer as AWS does."""
        service, region, __ = scope(request)
        if refused := stranger(request, {KEY: (SECRET, "")}, set(), time.time()):
            return refused
        action = _action(request)
        with self._lock:
            for refusal in self.refusals:
                if refusal[0] == action and refusal[1] in ("", region):
                    self.refusals.remove(refusal)
                    return _error(*refusal[2:])
            if service == "scheduler":
                return self._schedule(request)
            if service != "elasticmapreduce":
                return _error("AccessDeniedException", f"no {service} here")
            call: Callable[[dict[str, Any], str], Response] = getattr(self, f"_{action}")
            return call(json.loads(request.body), region)

    def fail(self, kind: str, request: Request) -> Response:
        """An answer of AWS to what comes too often, or of its failure."""
        code = "ThrottlingException" if kind == "throttle" else "InternalServerException"
        return _error(code, "Rate exceeded")

    def _schedule(self, request: Request) -> Response:
        name = request.path.rpartition("/")[2]
        if request.method == "POST":
            if name in self.schedules:
                return _error("ConflictException", f"Schedule {name} already exists")
            self.schedules[name] = json.loads(request.body)
            return Response.json({"ScheduleArn": f"arn:schedule/{name}"})
        if self.schedules.pop(name, None) is None:
            return _error("ResourceNotFoundException", f"Schedule {name} does not exist")
        return Response.json({})

    def _RunJobFlow(self, body: dict[str, Any], region: str) -> Response:
        for key in ("ServiceRole", "JobFlowRole"):
            if body.get(key) not in self.roles:
                return _error("ValidationException", f"Invalid {key} : {body.get(key)}: no role")
        if body.get("SessionEnabled") and not body["ReleaseLabel"].startswith("emr-spark-8."):
            return _error("ValidationException", "Sessions need emr-spark-8.0.0 or later")
        if not 60 <= body["AutoTerminationPolicy"]["IdleTimeout"] <= 604800:
            return _error("ValidationException", "Invalid idle timeout")
        groups = body["Instances"]["InstanceGroups"]
        if [each["InstanceCount"] for each in groups if each["InstanceRole"] == "MASTER"] != [1]:
            return _error("ValidationException", "One or three primary nodes are needed")
        id, now = f"j-{next(self._ids):013d}", time.time()
        fails = self.failing.pop(0) if self.failing else ""
        self.clusters[id] = Cluster(id, region, body, now, now + self.start, fails=fails)
        return Response.json({"JobFlowId": id, "ClusterArn": f"arn:cluster/{id}"})

    def _cluster(self, body: dict[str, Any], region: str) -> Cluster | None:
        found = self.clusters.get(body.get("ClusterId", ""))
        return found if found and found.region == region else None

    def _told(self, cluster: Cluster) -> dict[str, Any]:
        state = cluster.state(time.time())
        timeline: dict[str, Any] = {"CreationDateTime": cluster.begun}
        code, __, why = cluster.fails.partition(": ") if cluster.fails else ("", "", "")
        if state not in BILLED:
            timeline["EndDateTime"] = cluster.ended or cluster.ready
            code, why = cluster.code or code, cluster.why or why
        reason = {"Code": code, "Message": why} if state not in BILLED else {}
        return {
            "Id": cluster.id,
            "Name": cluster.body["Name"],
            "Status": {"State": state, "StateChangeReason": reason, "Timeline": timeline},
            "ReleaseLabel": cluster.body["ReleaseLabel"],
            "Tags": cluster.body.get("Tags", []),
        }

    def _DescribeCluster(self, body: dict[str, Any], region: str) -> Response:
        found = self._cluster(body, region)
        return Response.json({"Cluster": self._told(found)}) if found else _missing(body)

    def _ListClusters(self, body: dict[str, Any], region: str) -> Response:
        mine = [one for one in self.clusters.values() if one.region == region]
        states, since = body.get("ClusterStates", []), body.get("CreatedAfter", 0)
        told = [self._told(one) for one in mine if one.begun >= since]
        told = [each for each in told if not states or each["Status"]["State"] in states]
        start = int(body.get("Marker", "0"))
        answer: dict[str, Any] = {"Clusters": told[start : start + PAGE]}
        if start + PAGE < len(told):
            answer["Marker"] = str(start + PAGE)
        return Response.json(answer)

    def _TerminateJobFlows(self, body: dict[str, Any], region: str) -> Response:
        for id in body["JobFlowIds"]:
            found = self._cluster({"ClusterId": id}, region)
            if found is None:
                return _missing(body)
            if found.state(time.time()) in BILLED:
                found.ended, found.code = time.time(), "USER_REQUEST"
                found.why = "Terminated by user request"
        return Response.json({})

    def _StartSession(self, body: dict[str, Any], region: str) -> Response:
        found = self._cluster(body, region)
        if found is None:
            return _missing(body)
        if found.state(time.time()) not in UP:
            return _error("InvalidRequestException", "The cluster is not RUNNING or WAITING")
        if found.session is None or found.token != body["ClientRequestToken"]:
            found.token = body["ClientRequestToken"]
            found.session = {
                "Id": f"s-{next(self._ids):05d}",
                "State": "IDLE",
                "CreatedAt": time.time(),
                "SessionIdleTimeoutInMinutes": body["SessionIdleTimeoutInMinutes"],
            }
        return Response.json({"Id": found.session["Id"], "ClusterId": found.id, "State": "IDLE"})

    def _GetSession(self, body: dict[str, Any], region: str) -> Response:
        found = self._cluster(body, region)
        if found is None or found.session is None or found.session["Id"] != body["SessionId"]:
            return _missing(body)
        return Response.json({"Session": found.session})

    def _ListSessions(self, body: dict[str, Any], region: str) -> Response:
        found = self._cluster(body, region)
        if found is None:
            return _missing(body)
        return Response.json({"Sessions": [found.session] if found.session else []})

    def _GetSessionEndpoint(self, body: dict[str, Any], region: str) -> Response:
        found = self._cluster(body, region)
        if found is None or found.session is None or found.session["State"] not in LIVE:
            return _missing(body)
        token = f"token-{next(self._ids)}"
        found.tokens[token] = time.time() + self.token_seconds
        return Response.json(
            {
                "Endpoint": f"https://localhost:{self._proxy.port if self._proxy else 443}",
                "AuthToken": token,
                "AuthTokenExpirationTime": found.tokens[token],
            }
        )


def _action(request: Request) -> str:
    target = request.headers.get("x-amz-target", "")
    if target.startswith("ElasticMapReduce."):
        return target.partition(".")[2]
    return {"POST": "CreateSchedule", "DELETE": "DeleteSchedule"}.get(request.method, "")


def _error(code: str, message: str) -> Response:
    status = {"InternalServerException": 500, "ResourceNotFoundException": 404}.get(code, 400)
    headers = {"x-amzn-ErrorType": code}
    return Response.json(
        {"__type": code, "message": message, "Message": message}, status, **headers
    )


def _missing(body: dict[str, Any]) -> Response:
    named = body.get("SessionId") or body.get("ClusterId") or body.get("JobFlowIds")
    return _error("InvalidRequestException", f"{named} is not valid.")
