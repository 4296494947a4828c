"""EMR on machines: clusters and their sessions, and a real Connect server behind them.

Clusters come up in steps and may fail; sessions are refused until then. RunJobFlow takes no token:
sent twice, it makes two clusters.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .ec2_errors import scope
from .emr_account import LIVE, EmrAccount
from .server import Request, Response

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


class Emr(EmrAccount):
    """An account of AWS, as far as EMR on machines needs it; see `EmrAccount`.

    Reasons in `failing` have a code and a message, with a colon between.

    Attributes
    ----------
    roles : set
        Names of the roles that there are.
    schedules : dict
        Bodies of the schedules of EventBridge by their names.
    """

    def __init__(self, upstream: int = 0, *, start: float = 0.4) -> None:
        super().__init__(upstream, start=start)

    def reset(self) -> None:
        """Begin anew, with an account that has nothing but the default roles."""
        super().reset()
        self.roles = {"EMR_DefaultRole", "EMR_EC2_DefaultRole"}
        self.schedules: dict[str, dict[str, Any]] = {}
        self.clusters: dict[str, Cluster] = {}

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

    def live_tokens(self) -> Iterable[Mapping[str, float]]:
        """Tokens of each cluster that is up."""
        return [cluster.tokens for cluster in self.live()]

    # -- requests ----------------------------------------------------------------------------

    def describe(self, request: Request) -> str:
        """Action and region of a request."""
        return f"{_action(request)} {scope(request)[1]}"

    def answer(self, request: Request) -> Response:
        """Answer as AWS does."""
        service, region, __ = scope(request)
        if refused := self.stranger(request):
            return refused
        action = _action(request)
        with self._lock:
            if told := self.refused(action, region):
                return _error(*told)
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
                "Endpoint": self.endpoint,
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
