"""Amazon EMR on machines: a cluster for each request, with one session of Spark Connect.

A session that nobody uses ends by itself, and its cluster soon after it. RunJobFlow takes no token:
clusters are looked for by their tags before it is sent again.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING, ClassVar

from jupyter_sky.base.clouds.cloud_facts import parse_release
from jupyter_sky.base.json_types import JsonMapping, JsonObject
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.aws import errors, schedules
from jupyter_sky.clouds.aws.account import AwsAccount
from jupyter_sky.clouds.aws.emr_sessions import (
    FAILED,
    LIVE_STATES,
    end_reason,
    idle_minutes,
    named,
    session_endpoint,
)
from jupyter_sky.clouds.aws.facts import AwsFacts, EmrFacts
from jupyter_sky.clouds.aws.schedules import client_token
from jupyter_sky.clouds.launches.session_provider import SessionEndpoint, SessionProvider
from jupyter_sky.clouds.provider.classification import ErrorTable, ProviderError, Refinement
from jupyter_sky.clouds.provider.naming import (
    CLUSTER,
    OWNER,
    TOKEN,
    fit_name,
    split_id,
    tagged_machine,
)
from jupyter_sky.clouds.provider.parallel_requests import pause
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine, MachineConfig, MachineState

if TYPE_CHECKING:
    from botocore.client import BaseClient

NAME_PREFIX = "jupyter-sky-"
RUNNING_STATES = ("RUNNING", "WAITING")
"""States of a cluster that takes sessions."""
BILLED_STATES = ("STARTING", "BOOTSTRAPPING", *RUNNING_STATES)
SERVICE_ROLE, MACHINE_ROLE = "EMR_DefaultRole", "EMR_EC2_DefaultRole"
SHORTEST_IDLE, LONGEST_IDLE = 60, 7 * 86400
"""Seconds between which the idle time of a cluster may be."""
IDLE_MARGIN = 120
"""Seconds that a cluster waits after the end of its session."""
LOOK_BACK_SECONDS = 900.0
"""Clusters of a request are looked for among those made since."""
_IDLE_TAG = "jupyter-sky-idle"
"""Tag with the minutes after which a session that is not used ends."""
_SUBNET = "set providers.aws.emr_subnet to a subnet of the region"
_CREATE_ROLES = "aws emr create-default-roles"
_QUOTA = "see the limits, and ask for more: aws service-quotas list-service-quotas --service-code "
_QUOTA += "ec2"
_POLICY = (
    "ask for elasticmapreduce:RunJobFlow, elasticmapreduce:TerminateJobFlows, "
    "elasticmapreduce:*Session*, elasticmapreduce:Describe*, elasticmapreduce:List*, "
    f"elasticmapreduce:AddTags, and iam:PassRole on {SERVICE_ROLE} and {MACHINE_ROLE}"
)

_ERRORS: ErrorTable = {
    **errors.TABLE,
    "AccessDeniedException": ("permission", "region", _POLICY),
    "InvalidRequestException": ("invalid", "region", ""),
    FAILED: ("transient", "zone", ""),
}
_ANY = f"ValidationException InvalidRequestException AccessDeniedException {FAILED}"
_REFINEMENTS = (
    Refinement(_ANY, r"(?i)EMR_\w*DefaultRole|\brole\b", "permission", "region", _CREATE_ROLES),
    Refinement(_ANY, r"(?i)vCPU limit|quota|limit exceeded", "quota", "family", _QUOTA),
    Refinement(
        _ANY, r"(?i)insufficient|capacity|provisioning.*timeout|INSTANCE_FLEET_TIMEOUT", "capacity"
    ),
    Refinement(_ANY, r"(?i)instance type.*not supported", "capacity", "zone"),
    Refinement(
        _ANY,
        r"(?i)subnet",
        "invalid",
        "region",
        "set providers.aws.emr_subnet to one of the region",
    ),
    *errors.REFINEMENTS,
)


class Emr(EmrFacts, AwsAccount, SessionProvider):
    """EMR on machines of EC2; an ID is ``region/cluster``.

    Examples
    --------
    >>> Emr().name
    'emr'
    """

    errors: ClassVar[ErrorTable] = _ERRORS
    refinements = _REFINEMENTS

    # -- launching ---------------------------------------------------------------------------

    def launch(self, request: LaunchRequest, config: MachineConfig, stop: Event) -> list[Machine]:
        """Start a cluster, unless one of this token is there."""
        region = request.offer.region
        pause(stop, 0.0)
        client = self._access.client("emr", region)
        since = time.time() - LOOK_BACK_SECONDS
        found = self._clusters(client, {TOKEN: request.token}, since)
        if found:
            cluster = found[0]["Id"]
        else:
            once = self._access.client("emr", region, once=True)
            answer = once.run_job_flow(**cluster_arguments(request, config.tags))
            cluster = named(answer, "JobFlowId")
        action = {"JobFlowIds": [cluster]}
        schedules.schedule_end(self._access, request, config, "emr:terminateJobFlows", action)
        fields = {"rank": 0, "state": "starting", "started": time.time()}
        return [tagged_machine(config.tags, id=f"{region}/{cluster}", cloud=self.name, **fields)]

    def endpoint(self, id: str) -> SessionEndpoint | None:
        """Return where the session of a cluster is reached; it is started once that can be."""
        region, cluster = split_id(id)
        client = self._access.client("emr", region)
        told = client.describe_cluster(ClusterId=cluster)["Cluster"]
        state = told["Status"]["State"]
        if state not in RUNNING_STATES:
            if state in BILLED_STATES:
                return None
            raise ProviderError(_cluster_end(told) or f"the cluster is {state}", code=FAILED)
        session = self._session(client, told)
        names = {"ClusterId": cluster, "SessionId": session["Id"]}
        if session["State"] in ("SUBMITTED", "STARTING"):
            return None
        if session["State"] not in LIVE_STATES:
            reason = session.get("StateChangeReason") or f"the session is {session['State']}"
            raise ProviderError(reason, code=FAILED)
        answer = client.get_session_endpoint(**names)
        return session_endpoint(
            answer["Endpoint"],
            answer["AuthToken"],
            answer["AuthTokenExpirationTime"].timestamp(),
        )

    def _session(self, client: BaseClient, cluster: JsonMapping) -> JsonMapping:
        """Return the session of a cluster that takes some; the same token makes it once."""
        tags = _tags(cluster)
        started = client.start_session(
            ClusterId=cluster["Id"],
            ClientRequestToken=client_token(tags[TOKEN], cluster["Id"]),
            SessionIdleTimeoutInMinutes=int(tags.get(_IDLE_TAG, "0")) or idle_minutes(0),
            Name=fit_name(tags[TOKEN], 64),
        )
        asked = {"ClusterId": cluster["Id"], "SessionId": named(started, "Id")}
        return client.get_session(**asked)["Session"]

    # -- afterwards --------------------------------------------------------------------------

    def machines(
        self, *, owner: str = "", token: str = "", regions: Collection[str] | None = None
    ) -> list[Machine]:
        """List the clusters that cost, or are about to."""
        wanted = {OWNER: owner, TOKEN: token}

        def ask(region: str) -> list[Machine]:
            client = self._access.client("emr", region)
            return [self._machine(region, cluster) for cluster in self._clusters(client, wanted)]

        return self._access.call_regions(ask, _regions() if regions is None else regions)

    def _clusters(
        self, client: BaseClient, wanted: Mapping[str, str], since: float = 0.0
    ) -> list[JsonObject]:
        """Return the clusters of this package that cost and have some tags."""
        asked: JsonObject = {"ClusterStates": list(BILLED_STATES)}
        if since:
            asked["CreatedAfter"] = datetime.fromtimestamp(since, UTC)
        pages = client.get_paginator("list_clusters").paginate(**asked)
        found = [
            client.describe_cluster(ClusterId=each["Id"])["Cluster"]
            for page in pages
            for each in page["Clusters"]
            if each["Name"].startswith(NAME_PREFIX)
        ]
        return [
            each
            for each in found
            if all(_tags(each).get(key) == text for key, text in wanted.items() if text)
        ]

    def _machine(
        self, region: str, cluster: JsonMapping, session: JsonMapping | None = None
    ) -> Machine:
        """Return a cluster as a machine; with its session, if that has ended before it."""
        timeline = cluster["Status"]["Timeline"]
        state, reason = _state(cluster["Status"]["State"]), _cluster_end(cluster)
        ended = timeline.get("EndDateTime")
        if state == "running" and session:
            state, ended = "ended", session.get("EndedAt")
            reason = end_reason(
                session["State"],
                session.get("StateChangeReason") or "",
                session.get("IdleSince"),
                ended,
                session.get("SessionIdleTimeoutInMinutes"),
            )
        return tagged_machine(
            _tags(cluster),
            id=f"{region}/{cluster['Id']}",
            cloud=self.name,
            rank=0,
            state=state,
            started=timeline["CreationDateTime"].timestamp(),
            ended=ended.timestamp() if ended else None,
            reason=reason if state == "ended" else "",
        )

    def _ended_session(self, client: BaseClient, cluster: str) -> JsonMapping | None:
        """Return the session of a cluster if it has ended, and none else is there."""
        sessions = client.list_sessions(ClusterId=cluster)["Sessions"]
        if not sessions or any(each["State"] in LIVE_STATES for each in sessions):
            return None
        return sessions[0]

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Return clusters of these IDs; those that AWS no longer knows are left out."""
        found = []
        for region, cluster in map(split_id, ids):
            client = self._access.client("emr", region)
            with suppress(client.exceptions.InvalidRequestException):
                told = client.describe_cluster(ClusterId=cluster)["Cluster"]
                found.append(self._machine(region, told, self._ended_session(client, cluster)))
        return found

    def terminate(self, ids: Sequence[str]) -> None:
        """End clusters, and their sessions with them."""
        for region, cluster in map(split_id, ids):
            client = self._access.client("emr", region)
            with suppress(client.exceptions.InvalidRequestException):  # it is not known any more
                told = client.describe_cluster(ClusterId=cluster)["Cluster"]
                client.terminate_job_flows(JobFlowIds=[cluster])
                schedules.remove_schedule(self._access, region, _tags(told).get(TOKEN, ""))

    def sweep(
        self, owner: str, alive: Collection[str], regions: Collection[str] | None = None
    ) -> list[str]:
        """Delete nothing: a cluster leaves nothing that costs."""
        return []


def cluster_arguments(request: LaunchRequest, tags: Mapping[str, str]) -> JsonObject:
    """Return the arguments of RunJobFlow."""
    minutes = idle_minutes(request.idle)
    every = dict(tags) | {
        "Name": f"jupyter-sky {tags.get(CLUSTER, '')}",
        _IDLE_TAG: f"{minutes}",
    }
    return {
        "Name": fit_name(f"{NAME_PREFIX}{request.token}", 64),
        "ReleaseLabel": release_label(request.offer),
        "Applications": [{"Name": "Spark"}],
        "Instances": _cluster_instances(request.offer, request.resources.nodes),
        "SessionEnabled": True,
        # the session's idle time comes first, whatever the cluster takes for idle
        "AutoTerminationPolicy": {
            "IdleTimeout": min(max(minutes * 60 + IDLE_MARGIN, SHORTEST_IDLE), LONGEST_IDLE)
        },
        "ServiceRole": SERVICE_ROLE,
        "JobFlowRole": MACHINE_ROLE,
        "VisibleToAllUsers": True,
        "Tags": [{"Key": key, "Value": value} for key, value in every.items()],
    }


def _cluster_instances(offer: Offer, nodes: int) -> JsonObject:
    """Return the machines of a cluster: one master, the others its core."""
    instances: JsonObject = {
        "InstanceGroups": [
            {
                "InstanceRole": role,
                "InstanceType": offer.instance_type,
                "InstanceCount": count,
                "Market": "SPOT" if offer.spot else "ON_DEMAND",
            }
            for role, count in (("MASTER", 1), ("CORE", nodes - 1))
            if count
        ],
        "KeepJobFlowAliveWhenNoSteps": True,
        "TerminationProtected": False,
    }
    if subnet := Sky.load().provider_setting(AwsFacts.name, "emr_subnet"):
        instances["Ec2SubnetId"] = subnet
    elif offer.zone:
        instances["Placement"] = {"AvailabilityZone": offer.zone}
    return instances


def release_label(offer: Offer) -> str:
    """Return the release that an offer is of, as AWS writes it.

    Raises
    ------
    ProviderError
        It has no sessions of Spark Connect.

    Examples
    --------
    >>> packages = ("emr==8.0.0", "spark==4.0.2")
    >>> release_label(Offer("aws", "us-east-1", "m5.xlarge", 4, 16, packages=packages))
    'emr-spark-8.0.0'
    """
    version = dict(each.split("==", 1) for each in offer.packages)[EmrFacts.name]
    if parse_release(version) < EmrFacts.first_release:
        raise ProviderError(
            f"EMR {version} has no sessions of Spark Connect", code="InvalidRequestException"
        )
    return f"emr-spark-{version}"


def _tags(cluster: JsonMapping) -> dict[str, str]:
    return {each["Key"]: each["Value"] for each in cluster.get("Tags", ())}


def _state(word: str) -> MachineState:
    if word in ("STARTING", "BOOTSTRAPPING"):
        return "starting"
    return "running" if word in RUNNING_STATES else "ended"


def _cluster_end(cluster: JsonMapping) -> str:
    """Return in words why a cluster has ended, with AWS's code; empty where it says nothing."""
    reason = cluster["Status"].get("StateChangeReason", {})
    return ": ".join(filter(None, (reason.get("Code"), reason.get("Message"))))


def _regions() -> list[str]:
    """Return the regions of AWS in the catalog."""
    from jupyter_sky.knowledge.catalog import load

    return sorted(region for cloud, region in load().regions if cloud == AwsFacts.name)
