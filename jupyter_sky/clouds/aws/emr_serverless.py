"""Amazon EMR Serverless: sessions of Spark Connect by boto3.

A request makes an own application with one session. Its size is the capacity that the application
may reach. A session that nobody uses ends by itself, and the application stops a
minute later; neither costs anything then.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING, ClassVar

from jupyter_sky.base.json_types import JsonMapping, JsonObject
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.aws import errors
from jupyter_sky.clouds.aws.account import AwsAccount
from jupyter_sky.clouds.aws.emr_sessions import (
    FAILED,
    LIVE_STATES,
    end_reason,
    idle_minutes,
    named,
    session_endpoint,
    session_state,
)
from jupyter_sky.clouds.aws.facts import AwsFacts, EmrServerlessFacts
from jupyter_sky.clouds.aws.network import error_code
from jupyter_sky.clouds.aws.schedules import client_token
from jupyter_sky.clouds.launches.session_provider import SessionEndpoint, SessionProvider
from jupyter_sky.clouds.provider.classification import ErrorTable, ProviderError, Refinement
from jupyter_sky.clouds.provider.naming import CLUSTER, OWNER, TOKEN, fit_name, tagged_machine
from jupyter_sky.clouds.provider.parallel_requests import pause
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine, MachineConfig

if TYPE_CHECKING:
    from botocore.client import BaseClient

ROLE = "jupyter-sky-emr-serverless"
"""Name of the role that sessions run with, unless the settings name another."""
NAME_PREFIX = "jupyter-sky-"
POLL_SECONDS = 0.5
REMOVE_SECONDS = 40.0
"""Longest wait until an application has stopped and can be deleted."""
ABANDONED_SECONDS = 900.0
"""An application without a session that is older is no launch in progress."""
MIN_CPUS, MIN_MEMORY = 2.0, 4.0
"""vCPUs and GiB of the smallest session: one driver and one executor."""
_OVERHEAD = 1.1
_TRUST = (
    '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":'
    '"emr-serverless.amazonaws.com"},"Action":"sts:AssumeRole"}]}'
)
_CREATE_ROLE = (
    f"aws iam create-role --role-name {ROLE} --assume-role-policy-document '{_TRUST}'; give it the "
    "rights on your data; or set providers.aws.emr_serverless_role"
)
_QUOTA = "see the limit, and ask for more: aws service-quotas list-service-quotas --service-code "
_QUOTA += "emr-serverless"
_POLICY = "ask for emr-serverless:*, and iam:PassRole on the role of the sessions"

_ERRORS: ErrorTable = {
    **errors.TABLE,
    "ServiceQuotaExceededException": ("quota", "zone", _QUOTA),
    "AccessDeniedException": ("permission", "region", _POLICY),
    FAILED: ("transient", "zone", ""),
}
_REFINEMENTS = (
    Refinement(
        f"ValidationException AccessDeniedException ResourceNotFoundException {FAILED}",
        r"(?i)\brole\b",
        "permission",
        "region",
        _CREATE_ROLE,
    ),
    Refinement(FAILED, r"(?i)quota|limit|exceeded", "quota", "zone", _QUOTA),
    Refinement(FAILED, r"(?i)capacity|insufficient", "capacity", "zone"),
    *errors.REFINEMENTS,
)


class EmrServerless(EmrServerlessFacts, AwsAccount, SessionProvider):
    """EMR Serverless; an ID is ``region/application/session``.

    Examples
    --------
    >>> EmrServerless().name
    'emr-serverless'
    """

    errors: ClassVar[ErrorTable] = _ERRORS
    refinements = _REFINEMENTS

    # -- launching ---------------------------------------------------------------------------

    def launch(self, request: LaunchRequest, config: MachineConfig, stop: Event) -> list[Machine]:
        """Make an application and start its session; the same token makes them once."""
        region = request.offer.region
        properties = worker_properties(request.offer, request.resources.nodes)
        client = self._access.client("emr-serverless", region)
        role, token = self._role(region), client_token(request.token, region)
        arguments = application_arguments(request, config.tags)
        application = named(
            client.create_application(**arguments, clientToken=token), "applicationId"
        )
        try:
            while _application_state(client, application) == "CREATING":
                pause(stop, POLL_SECONDS)
            pause(stop, 0.0)
            answer = client.start_session(
                applicationId=application,
                clientToken=token,
                executionRoleArn=role,
                idleTimeoutMinutes=idle_minutes(request.idle),
                name=fit_name(request.token, 64),
                configurationOverrides={
                    "runtimeConfiguration": [
                        {"classification": "spark-defaults", "properties": properties}
                    ]
                },
                tags=dict(config.tags),
            )
            session = named(answer, "sessionId")
        except BaseException as error:
            if not (isinstance(error, Exception) and self.is_transient(error)):  # sent again
                with suppress(Exception):  # it costs nothing, and the reaper removes it later
                    self._remove(client, application)
            raise
        fields = {"rank": 0, "state": "starting", "started": time.time()}
        id = f"{region}/{application}/{session}"
        return [tagged_machine(config.tags, id=id, cloud=self.name, **fields)]

    def _role(self, region: str) -> str:
        """Return the ARN of the role that sessions run with."""
        if told := Sky.load().provider_setting(AwsFacts.name, "emr_serverless_role"):
            return told
        account = self._access.client("sts", region).get_caller_identity()["Account"]
        return f"arn:{self._access.partition(region)}:iam::{account}:role/{ROLE}"

    def _session(self, id: str) -> tuple[BaseClient, str, dict[str, str]]:
        """Return the client and the region of a session, and the arguments that name it."""
        region, application, session = id.split("/")
        client = self._access.client("emr-serverless", region)
        return client, region, {"applicationId": application, "sessionId": session}

    def endpoint(self, id: str) -> SessionEndpoint | None:
        """Return where a session is reached, with a new token; None while it starts."""
        client, __, names = self._session(id)
        found = client.get_session(**names)["session"]
        if found["state"] in ("SUBMITTED", "STARTING"):
            return None
        if found["state"] not in LIVE_STATES:
            reason = found.get("stateDetails") or f"the session is {found['state']}"
            raise ProviderError(reason, code=FAILED)
        told = client.get_session_endpoint(**names)
        return session_endpoint(
            told["endpoint"], told["authToken"], told["authTokenExpiresAt"].timestamp()
        )

    # -- afterwards --------------------------------------------------------------------------

    def machines(
        self, *, owner: str = "", token: str = "", regions: Collection[str] | None = None
    ) -> list[Machine]:
        """List the sessions that cost, or are about to."""
        wanted = {OWNER: owner, TOKEN: token}

        def ask(region: str) -> list[Machine]:
            client = self._access.client("emr-serverless", region)
            return [
                machine
                for application in self._applications(client, wanted)
                for machine in self._sessions(client, region, application)
            ]

        return self._access.call_regions(ask, _regions() if regions is None else regions)

    def _applications(self, client: BaseClient, wanted: Mapping[str, str]) -> list[JsonObject]:
        """Return the applications of this package that have some tags."""
        pages = client.get_paginator("list_applications").paginate()
        found = [
            client.get_application(applicationId=each["id"])["application"]
            for page in pages
            for each in page["applications"]
            if each["name"].startswith(NAME_PREFIX) and each["state"] != "TERMINATED"
        ]
        return [
            each
            for each in found
            if all(each.get("tags", {}).get(key) == text for key, text in wanted.items() if text)
        ]

    def _sessions(self, client: BaseClient, region: str, application: JsonMapping) -> list[Machine]:
        listed = client.get_paginator("list_sessions")
        pages = listed.paginate(applicationId=application["applicationId"])
        return [
            self._machine(region, session, application.get("tags", {}))
            for page in pages
            for session in page["sessions"]
            if session["state"] in LIVE_STATES
        ]

    def _machine(self, region: str, session: JsonMapping, tags: Mapping[str, str]) -> Machine:
        ended = session.get("endedAt")
        return tagged_machine(
            tags,
            id=f"{region}/{session['applicationId']}/{session['sessionId']}",
            cloud=self.name,
            rank=0,
            state=session_state(session["state"]),
            started=session["createdAt"].timestamp(),
            ended=ended.timestamp() if ended else None,
            reason=end_reason(
                session["state"],
                session.get("stateDetails") or "",
                session.get("idleSince"),
                ended,
                session.get("idleTimeoutMinutes"),
            ),
        )

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Return sessions of these IDs; those that AWS no longer knows are left out."""
        found = []
        for id in ids:
            client, region, names = self._session(id)
            with suppress(client.exceptions.ResourceNotFoundException):
                told = client.get_session(**names)["session"]
                found.append(self._machine(region, told, told.get("tags", {})))
        return found

    def terminate(self, ids: Sequence[str]) -> None:
        """End sessions, then remove their applications."""
        for id in ids:
            client, __, names = self._session(id)
            with suppress(
                client.exceptions.ResourceNotFoundException,
                client.exceptions.ConflictException,
                client.exceptions.ValidationException,
            ):  # it has ended, or is ending: `describe` says so
                client.terminate_session(**names)
            self._remove(client, names["applicationId"])

    def _remove(self, client: BaseClient, application: str) -> bool:
        """Stop and delete an application; return whether it is gone."""
        deadline = time.monotonic() + REMOVE_SECONDS
        while time.monotonic() < deadline:
            state = _application_state(client, application)
            if state == "TERMINATED":
                return True
            with suppress(
                client.exceptions.ConflictException, client.exceptions.ValidationException
            ):  # a session of it is still ending
                if state in ("CREATED", "STOPPED"):
                    client.delete_application(applicationId=application)
                    return True
                if state == "STARTED":
                    client.stop_application(applicationId=application)
            time.sleep(POLL_SECONDS)
        return False

    def sweep(
        self, owner: str, alive: Collection[str], regions: Collection[str] | None = None
    ) -> list[str]:
        """Delete applications without a session; return their names."""

        def ask(region: str) -> list[str]:
            client = self._access.client("emr-serverless", region)
            return [
                f"application {each['name']}"
                for each in self._applications(client, {OWNER: owner})
                if each.get("tags", {}).get(TOKEN) not in alive
                and time.time() - each["createdAt"].timestamp() > ABANDONED_SECONDS
                and self._remove(client, each["applicationId"])
            ]

        return self._access.call_regions(ask, _regions() if regions is None else regions)


def application_arguments(request: LaunchRequest, tags: Mapping[str, str]) -> JsonObject:
    """Return the arguments of CreateApplication, but for its token.

    Its capacity is bounded, so that no query costs more than the offer says.
    """
    offer, nodes = request.offer, request.resources.nodes
    return {
        "name": fit_name(f"{NAME_PREFIX}{request.token}", 64),
        "releaseLabel": release_label(offer),
        "type": "SPARK",
        "interactiveConfiguration": {"sessionEnabled": True},
        "maximumCapacity": {
            "cpu": f"{math.floor(offer.vcpus * nodes)} vCPU",
            "memory": f"{math.floor(offer.memory * nodes)} GB",
        },
        "autoStartConfiguration": {"enabled": True},
        "autoStopConfiguration": {"enabled": True, "idleTimeoutMinutes": 1},
        "tags": dict(tags) | {"Name": f"jupyter-sky {tags.get(CLUSTER, '')}"},
    }


def release_label(offer: Offer) -> str:
    """Return the release that an offer is of, as AWS writes it.

    Examples
    --------
    >>> make = lambda *packages: Offer("aws", "us-east-1", "", 4, 16, packages=packages)
    >>> release_label(make("emr-serverless==7.13.0")), release_label(make("emr-serverless==8.0.0"))
    ('emr-7.13.0', 'emr-spark-8.0.0')
    """
    version = dict(each.split("==", 1) for each in offer.packages)["emr-serverless"]
    return f"emr-{version}" if int(version.partition(".")[0]) < 8 else f"emr-spark-{version}"


def worker_properties(offer: Offer, nodes: int) -> dict[str, str]:
    """Return the sizes of driver and executors, which together fit into the capacity.

    Raises
    ------
    ProviderError
        It is too small for a driver and an executor.

    Examples
    --------
    >>> worker_properties(Offer("aws", "us-east-1", "", 4, 16), 1)["spark.executor.memory"]
    '7447m'
    """
    cpus, memory = offer.vcpus * nodes, offer.memory * nodes
    if cpus < MIN_CPUS or memory < MIN_MEMORY:
        raise ProviderError(
            f"{cpus:g} vCPUs and {memory:g} GiB are too small: a driver and an executor need "
            f"{MIN_CPUS:g} vCPUs and {MIN_MEMORY:g} GiB together",
            code="InvalidRequest",
        )
    cores = next(size for size in (4, 2, 1) if 2 * size <= cpus and 4 * size <= memory)
    workers = cpus // cores
    gib = min(math.floor(memory / workers), 7 * cores)
    heap = math.floor(gib * 1024 / _OVERHEAD)
    sizes = {"cores": str(cores), "memory": f"{heap}m"}
    return {
        f"spark.{role}.{key}": value
        for role in ("driver", "executor")
        for key, value in sizes.items()
    }


def _application_state(client: BaseClient, application: str) -> str:
    try:
        return client.get_application(applicationId=application)["application"]["state"]
    except client.exceptions.ClientError as error:
        if error_code(error) == "ResourceNotFoundException":
            return "TERMINATED"
        raise


def _regions() -> list[str]:
    """Return the regions that the service is sold in."""
    from jupyter_sky.knowledge.catalog import load

    rows = load().managed()
    return sorted({row["region"] for row in rows if row["service"] == EmrServerlessFacts.name})
