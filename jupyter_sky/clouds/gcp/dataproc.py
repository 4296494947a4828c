"""Google Cloud Dataproc, serverless: sessions of Spark Connect by google-cloud-dataproc.

The size of the request is what driver and executors of a session may reach together. A session that
nobody uses ends by itself, and so does one at the end of its lease.
"""

from __future__ import annotations

import math
import os
import re
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC
from functools import lru_cache, partial
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.gcp import errors
from jupyter_sky.clouds.gcp.account import GcpAccount
from jupyter_sky.clouds.gcp.clients import CALL_OPTIONS, GcpClients, connect
from jupyter_sky.clouds.gcp.errors import ignore_codes
from jupyter_sky.clouds.gcp.facts import DataprocServerlessFacts, GcpFacts
from jupyter_sky.clouds.gcp.instances import format_label
from jupyter_sky.clouds.launches.session_provider import SessionEndpoint, SessionProvider
from jupyter_sky.clouds.provider.classification import ErrorTable, ProviderError, Refinement
from jupyter_sky.clouds.provider.naming import (
    OWNER,
    TOKEN,
    fit_name,
    group_ids,
    split_id,
    tagged_machine,
)
from jupyter_sky.clouds.provider.parallel_requests import pause, send_parallel
from jupyter_sky.clouds.provider.values import (
    TAGS,
    LaunchRequest,
    Machine,
    MachineConfig,
    MachineState,
)

if TYPE_CHECKING:
    from google.cloud.dataproc_v1 import Session, SessionControllerClient

ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_DATAPROC"
CONNECT_SERVER = "Spark Connect Server"
"""Name of the address of a session's Connect server among its endpoints."""
BRIDGE = "tcp-over-websocket-bridge/35218cb7-1201-4940-89e8-48d8f03fed96"
"""Path below that address at which bytes are taken in WebSocket messages."""
LIVE_STATES = ("CREATING", "ACTIVE")
"""States of a session that costs, or is about to."""
SHORTEST_TTL, LONGEST_TTL = 600.0, 14 * 86400.0
"""Seconds between which the time to live of a session may be."""
WORKER_CPUS = 4
"""vCPUs of a driver and of an executor; Dataproc takes 4, 8 and 16."""
MIN_EXECUTORS = 2
MAX_GIB_PER_CPU = 7.25
ABANDONED_SECONDS = 900.0
"""A session that ended so long ago is looked at by nobody any more."""
FRESH_SECONDS = 300.0
"""A token that expires sooner is renewed."""
_OVERHEAD = 0.1
_FAILED = "SessionFailed"
_NAMESPACE = uuid.UUID("0c9f3a5e-6d1b-4a40-9f3e-2b0f9d1f6c11")
_TAG_PROPERTY = "spark."
"""Prefix of properties that hold tags which are no labels."""
_QUOTA = "see the limits, and ask for more: https://console.cloud.google.com/iam-admin/quotas"
_ROLE = (
    "ask for the role: gcloud projects add-iam-policy-binding PROJECT --member=user:YOU "
    "--role=roles/dataproc.editor"
)
_ENABLE = "gcloud services enable dataproc.googleapis.com --project PROJECT; it takes some minutes"
_SUBNET = (
    "gcloud compute networks subnets update default --region REGION "
    "--enable-private-ip-google-access, or set providers.gcp.dataproc_subnetwork to one that has it"
)
_ENDED_CODES = ("FAILED_PRECONDITION", "ABORTED")
"""States of a request to end what has ended, or is ending."""
_ANY = "400 403 404 409 412 429 IAM_PERMISSION_DENIED forbidden invalid"

_REFINEMENTS = (
    Refinement("SERVICE_DISABLED accessNotConfigured", r"", fix=_ENABLE),
    Refinement(
        f"{_ANY} {_FAILED}", r"(?i)private.?google.?access", "permission", "region", _SUBNET
    ),
    Refinement(f"{_ANY} {_FAILED}", r"(?i)quota", "quota", "region", _QUOTA),
    Refinement(
        _FAILED, r"(?i)capacity|stockout|exhausted|does not have enough", "capacity", "region"
    ),
    Refinement("403 IAM_PERMISSION_DENIED forbidden", r"(?i)dataproc", fix=_ROLE),
    *errors.REFINEMENTS,
)


class DataprocServerless(DataprocServerlessFacts, GcpAccount, SessionProvider):
    """Dataproc's serverless sessions; an ID is ``region/session``.

    Examples
    --------
    >>> DataprocServerless().name
    'dataproc-serverless'
    """

    refinements = _REFINEMENTS
    errors: ClassVar[ErrorTable] = {
        **GcpAccount.errors,
        _FAILED: ("transient", "region", ""),
    }

    # -- launching ---------------------------------------------------------------------------

    def launch(self, request: LaunchRequest, config: MachineConfig, stop: Event) -> list[Machine]:
        """Create a session; the same token makes it once."""
        region, access = request.offer.region, connect()
        pause(stop, 0.0)
        name = fit_name(f"jupyter-sky-{request.token}", 63)
        asked = {
            "parent": _parent(access, region),
            "session_id": name,
            "session": session_body(request, config.tags),
            "request_id": str(uuid.uuid5(_NAMESPACE, f"{request.token}/{region}")),
        }
        with ignore_codes("ALREADY_EXISTS"):
            _client(access, region).create_session(request=asked, **CALL_OPTIONS)
        session = _client(access, region).get_session(
            name=f"{asked['parent']}/sessions/{name}", **CALL_OPTIONS
        )
        if _state(session) == "ended" or _tags(session).get(TOKEN) != request.token:
            raise ProviderError(f"{name} is there, and is not the session asked for", code="409")
        return [_machine(session)]

    def endpoint(self, id: str) -> SessionEndpoint | None:
        """Return where a session is reached, with a new token; None while it starts."""
        access, (region, name) = connect(), split_id(id)
        session = _client(access, region).get_session(
            name=_name(access, region, name), **CALL_OPTIONS
        )
        state = session.state.name
        if state not in LIVE_STATES:
            raise ProviderError(session.state_message or f"the session is {state}", code=_FAILED)
        address = session.runtime_info.endpoints.get(CONNECT_SERVER, "")
        if state == "CREATING" or not address:
            return None
        token, expires = _access_token(access)
        where = urlsplit(address if "//" in address else f"//{address}")
        return SessionEndpoint(
            host=f"{where.hostname}:{where.port or 443}",
            headers={"Authorization": f"Bearer {token}"},
            expires=expires,
            authority=os.environ.get("REQUESTS_CA_BUNDLE", ""),
            bridge=BRIDGE,
        )

    # -- afterwards --------------------------------------------------------------------------

    def machines(
        self, *, owner: str = "", token: str = "", regions: Collection[str] | None = None
    ) -> list[Machine]:
        """List the sessions that cost, or are about to."""
        listed = self._list(connect(), {OWNER: owner, TOKEN: token}, regions)
        return [_machine(session) for session in listed if session.state.name in LIVE_STATES]

    def _list(
        self, access: GcpClients, wanted: Mapping[str, str], regions: Collection[str] | None
    ) -> list[Session]:
        """Return the sessions that have some tags, of all regions or some, asked side by side."""
        asked = sorted(_regions() if regions is None else regions)
        requests = [partial(_sessions, access, region, wanted) for region in asked]
        answers = send_parallel(requests, self.is_transient)
        return [session for answer in answers for session in answer]

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Return sessions of these IDs; those that Google no longer knows are left out."""
        access, found = connect(), list[Machine]()
        for region, names in group_ids(ids).items():
            for name in names:
                with ignore_codes("gone"):
                    asked = _name(access, region, name)
                    found.append(
                        _machine(_client(access, region).get_session(name=asked, **CALL_OPTIONS))
                    )
        return found

    def terminate(self, ids: Sequence[str]) -> None:
        """Ask for the end of sessions."""
        access = connect()
        for region, name in map(split_id, ids):
            with ignore_codes("gone", *_ENDED_CODES):  # `describe` says that it has ended
                _client(access, region).terminate_session(
                    name=_name(access, region, name), **CALL_OPTIONS
                )

    def sweep(
        self, owner: str, alive: Collection[str], regions: Collection[str] | None = None
    ) -> list[str]:
        """Delete what is known of sessions that ended a while ago; return their names."""
        access, deleted = connect(), list[str]()
        for session in self._list(access, {OWNER: owner}, regions):
            token, age = _tags(session).get(TOKEN), _age(session)
            if _state(session) == "ended" and token not in alive and age > ABANDONED_SECONDS:
                region, name = split_id(_machine(session).id)
                with ignore_codes("gone", *_ENDED_CODES):
                    _client(access, region).delete_session(name=session.name, **CALL_OPTIONS)
                    deleted.append(f"session {name}")
        return deleted


def session_body(request: LaunchRequest, tags: Mapping[str, str]) -> JsonObject:
    """Return a session as the API takes it."""
    offer = request.offer
    known = Sky.load().provider_setting
    execution = {
        "idle_ttl": {"seconds": _ttl(request.idle)},
        "ttl": {"seconds": _ttl(request.lease)},
        "subnetwork_uri": known(GcpFacts.name, "dataproc_subnetwork"),
        "service_account": known(GcpFacts.name, "dataproc_service_account"),
    }
    labels = {key: format_label(value) for key, value in tags.items() if value}
    exact = {_TAG_PROPERTY + key: value for key, value in tags.items() if labels.get(key) != value}
    return {
        "spark_connect_session": {},
        "labels": labels,
        "runtime_config": {
            "version": runtime_version(offer),
            "properties": worker_properties(offer, request.resources.nodes) | exact,
        },
        "environment_config": {"execution_config": {k: v for k, v in execution.items() if v}},
    }


def runtime_version(offer: Offer) -> str:
    """Return the version of the runtime that an offer is of.

    Examples
    --------
    >>> packages = ("dataproc-serverless==3.0", "spark==4.0.1")
    >>> runtime_version(Offer("gcp", "us-central1", "", 4, 16, packages=packages))
    '3.0'
    """
    return dict(each.split("==", 1) for each in offer.packages)[DataprocServerlessFacts.name]


def worker_properties(offer: Offer, nodes: int) -> dict[str, str]:
    """Return sizes and greatest number of executors, which with the driver fit into the size.

    Raises
    ------
    ProviderError
        It is too small for a driver and two executors.

    Examples
    --------
    >>> properties = worker_properties(Offer("gcp", "us-central1", "", 16, 64), 3)
    >>> properties["spark.dynamicAllocation.maxExecutors"], properties["spark.executor.memory"]
    ('11', '14894m')
    """
    cpus, memory = offer.vcpus * nodes, offer.memory * nodes
    executors = math.floor(cpus / WORKER_CPUS) - 1
    gib = min(memory / cpus, MAX_GIB_PER_CPU) * WORKER_CPUS
    if executors < MIN_EXECUTORS or gib < WORKER_CPUS:
        least = WORKER_CPUS * (MIN_EXECUTORS + 1)
        raise ProviderError(
            f"{cpus:g} vCPUs and {memory:g} GiB are too small: a driver and {MIN_EXECUTORS} "
            f"executors need {least} vCPUs and {least} GiB together",
            code="invalid",
        )
    heap = math.floor(gib * 1024 / (1 + _OVERHEAD))
    sizes = {
        "cores": f"{WORKER_CPUS}",
        "memory": f"{heap}m",
        "memoryOverhead": f"{math.floor(gib * 1024) - heap}m",
    }
    return {
        "spark.executor.instances": f"{MIN_EXECUTORS}",
        "spark.dynamicAllocation.maxExecutors": f"{executors}",
        **{
            f"spark.{role}.{key}": text
            for role in ("driver", "executor")
            for key, text in sizes.items()
        },
    }


def end_reason(session: Session) -> str:
    """Return ``idle`` or in words why a session has ended; empty while it goes on."""
    if session.state.name in LIVE_STATES:
        return ""
    return "idle" if re.search(r"(?i)\bidle\b", session.state_message) else session.state_message


def _ttl(seconds: float) -> int:
    return math.ceil(min(max(seconds, SHORTEST_TTL), LONGEST_TTL))


def _state(session: Session) -> MachineState:
    state = session.state.name
    if state == "CREATING":
        return "starting"
    return "running" if state in LIVE_STATES else "ended"


def _tags(session: Session) -> dict[str, str]:
    """Return the tags that a session was created with; Google puts ``spark:`` before properties."""
    properties = session.runtime_config.properties.items()
    exact = {
        name.removeprefix("spark:").removeprefix(_TAG_PROPERTY): text for name, text in properties
    }
    return {**dict(session.labels), **{key: exact[key] for key in TAGS if key in exact}}


def _machine(session: Any) -> Machine:
    *__, region, __, name = session.name.split("/")
    ended = _state(session) == "ended"
    return tagged_machine(
        _tags(session),
        id=f"{region}/{name}",
        cloud=DataprocServerlessFacts.name,
        rank=0,
        state=_state(session),
        started=session.create_time.timestamp(),
        ended=session.state_time.timestamp() if ended else None,
        reason=end_reason(session),
    )


def _age(session: Any) -> float:
    """Return the seconds since a session came into its state."""
    return time.time() - session.state_time.timestamp()


def _sessions(
    access: GcpClients, region: str, wanted: Mapping[str, str], _: Event
) -> list[Session]:
    """Return the sessions of this package in a region that have some tags."""
    parts = [f'labels.{key} = "{format_label(text)}"' for key, text in wanted.items() if text]
    asked = {
        "parent": _parent(access, region),
        "filter": " AND ".join(parts) or f"labels.{OWNER}:*",
    }
    exact = {key: text for key, text in wanted.items() if text}
    return [
        session
        for session in _client(access, region).list_sessions(request=asked, **CALL_OPTIONS)
        if OWNER in (tags := _tags(session)) and exact.items() <= tags.items()
    ]


def _parent(access: GcpClients, region: str) -> str:
    return f"projects/{access.project}/locations/{region}"


def _name(access: GcpClients, region: str, name: str) -> str:
    return f"{_parent(access, region)}/sessions/{name}"


def _client(access: GcpClients, region: str) -> SessionControllerClient:
    """Return the client of a region."""
    return _make_client(access, region, os.environ.get(ENDPOINT, ""))


@lru_cache(maxsize=128)
def _make_client(access: GcpClients, region: str, endpoint: str) -> SessionControllerClient:
    from google.cloud.dataproc_v1 import SessionControllerClient

    host = endpoint.rstrip("/") or f"https://{region}-dataproc.googleapis.com"
    transport = SessionControllerClient.get_transport_class("rest")
    return SessionControllerClient(transport=transport(credentials=access.tokens, host=host))


def _access_token(access: GcpClients) -> tuple[str, float]:
    """Return a token of the credentials, and the unix seconds at which it expires."""
    from google.auth.transport.requests import Request

    credentials = access.credentials
    if (
        not credentials.token
        or credentials.expiry is None
        or _expiry(credentials) < time.time() + FRESH_SECONDS
    ):
        credentials.refresh(Request())
    return credentials.token, _expiry(credentials)


def _expiry(credentials: Any) -> float:
    return credentials.expiry.replace(tzinfo=UTC).timestamp()


@lru_cache(maxsize=1)
def _regions() -> list[str]:
    """Return the regions that the service is sold in."""
    from jupyter_sky.knowledge.catalog import load

    rows = load().managed()
    return sorted({row["region"] for row in rows if row["service"] == DataprocServerlessFacts.name})
