"""Nebius as a cloud that rents machines, with cloud-init.

There is one project for each region. A launch is accepted first and may be refused later: the
machine is then stopped, and the operation has the reason. A machine that is off is billed for its
disk until a request deletes it.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from logging import CRITICAL, getLogger
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import N_
from jupyter_sky.clouds.launches.rest_provider import RANK, ListedMachine, RestProvider
from jupyter_sky.clouds.provider.classification import ProviderError, group_codes
from jupyter_sky.clouds.provider.naming import NOTEBOOK, fit_name
from jupyter_sky.clouds.provider.parallel_requests import StopRequested, pause
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine, MachineConfig, MachineState

if TYPE_CHECKING:
    from nebius.api.nebius.compute import v1 as compute

IMAGE, CPU_IMAGE = "ubuntu22.04-cuda12", "ubuntu22.04-driverless"
_KEY_FIX = (
    "set NEBIUS_CREDENTIALS_FILE to the credentials of a service account "
    "(https://docs.nebius.com/iam/service-accounts), or NEBIUS_IAM_TOKEN to a token"
)
_STATES: dict[str, MachineState] = {
    "RUNNING": "running",
    "UPDATING": "running",
    "STOPPING": "running",
    "STOPPED": "running",
    "ERROR": "running",
    "DELETING": "ended",
}
"""States by their names; one that is off is billed for its disk."""
_START_SECONDS, _POLL_SECONDS = 600.0, 1.0
_LONGEST_LABEL = 63


class Nebius(RestProvider):
    """Nebius as a cloud that rents machines; an ID is that of an instance.

    Examples
    --------
    >>> Nebius.find_meaning("not_enough_resources", 0)[0]
    'capacity'
    """

    name, title, billing = "nebius", "Nebius", (1.0, 0.0)
    packages, install = ("nebius",), "pip install 'jupyter_sky[nebius]'"
    console_page = "https://console.nebius.com"
    account = N_("a tenant with a project in each region to use: https://console.nebius.com")
    permissions = N_("a service account in the group editors, with an authorized key")
    launchable, has_live_offers, colour = True, True, "#c2255c"
    power_off_cost, deletes_itself = "disk", False
    settings: ClassVar = {
        "endpoint": "Host and port of all services, where they are not those of Nebius.",
        "image": "Image family of the boot disk.",
        "launch_seconds": "Seconds from one launch to the next.",
        "projects": "IDs of the projects to use, with commas; else the first of each region.",
        "tenant": "ID of the tenant, where the credentials reach several.",
    }

    api = ""
    login = _KEY_FIX
    errors: ClassVar = group_codes(
        ("capacity", "region", "", "not_enough_resources"),
        ("quota", "region", "ask for more: https://console.nebius.com/quotas", "quota_failure"),
        ("permission", "region", _KEY_FIX, "permission_denied PERMISSION_DENIED UNAUTHENTICATED"),
        (
            "invalid",
            "region",
            "",
            "bad_request bad_resource_state resource_not_found INVALID_ARGUMENT OUT_OF_RANGE "
            "NOT_FOUND FAILED_PRECONDITION ALREADY_EXISTS UNIMPLEMENTED",
        ),
        ("throttled", "region", "", "too_many_requests RESOURCE_EXHAUSTED"),
        ("transient", "region", "", "internal_error operation_conflict ABORTED INTERNAL UNKNOWN"),
    )

    def __init__(self) -> None:
        super().__init__()
        names = ("endpoint", "tenant", "projects")
        self._api = NebiusApi(*(self.setting(name, "") for name in names))

    def configured(self) -> str:
        """Return where the credentials are: a token, or the file of a service account."""
        if os.environ.get(TOKEN_VARIABLE):
            return f"environment variable {TOKEN_VARIABLE}"
        return str(credentials_file()) if credentials_file().is_file() else ""

    def identify(self) -> str:
        """Prove the credentials by one request; return the regions with a project."""
        return f"projects in {', '.join(self._api.projects())}"

    # -- what is on sale ------------------------------------------------------------------------

    def offers(self) -> Iterator[Offer]:
        """Yield the catalog's offers in regions with a project, without what is sold out now."""
        from nebius.api.nebius.capacity import v1 as capacity

        from jupyter_sky.knowledge.catalog import load

        is_free: dict[tuple[str, str, bool], bool] = {}
        service = capacity.ResourceAdviceServiceClient(self._api.connection)
        request, tenant = capacity.ListResourceAdviceRequest, self._api.tenant()
        for advice in self._api.pages(service.list, request, tenant):
            machine, status = advice.spec.compute_instance, advice.status
            kind = f"{machine.platform}_{machine.preset.name}"
            for spot, seen in ((False, status.on_demand), (True, status.preemptible)):
                key = (advice.spec.region, kind, spot)  # told for each of several fabrics
                is_free[key] = is_free.get(key, False) or not _is_sold_out(seen)
        projects = self._api.projects()
        for offer in load().filter(cloud=self.name).offers():
            key = (offer.region, offer.instance_type, offer.spot)
            if offer.region in projects and is_free.get(key, True):
                yield offer

    # -- machines -------------------------------------------------------------------------------

    def launch(self, request: LaunchRequest, config: MachineConfig, stop: Event) -> list[Machine]:
        """Launch machines, and wait until they start: a refusal comes after they are accepted."""
        machines = super().launch(request, config, stop)
        try:
            for machine in machines:
                self._await_start(machine.id, stop)
        except (ProviderError, ConnectionError, StopRequested) as error:
            if not self.is_transient(error):  # else the same request comes again and finds them
                self._give_up(request.token, machines)
            raise
        return machines

    def _await_start(self, id: str, stop: Event) -> None:
        from nebius.api.nebius.compute.v1 import GetInstanceRequest

        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until:
            instance = self._api.call(self._instances().get, GetInstanceRequest(id=id))
            if instance.status.state.name in ("RUNNING", "DELETING", "ERROR"):
                return
            if refusal := self._find_refusal(instance):
                raise refusal
            if _is_off(instance):  # it has started, and ended
                return
            pause(stop, _POLL_SECONDS)

    def _find_refusal(self, instance: compute.Instance) -> ProviderError | ConnectionError | None:
        """Return why a machine was not started; None for one that was, or is starting."""
        from nebius.api.nebius.common.v1 import ListOperationsRequest

        if not _is_off(instance):
            return None
        request = ListOperationsRequest(resource_id=instance.metadata.id)
        operations = self._api.call(self._instances().operation_service().list, request).operations
        first = min(operations, key=lambda each: each.created_at, default=None)
        failed = first and first.status and first.status.code.name != "OK"
        return read_refusal(first.status) if failed else None

    def _instances(self) -> Any:
        from nebius.api.nebius.compute.v1 import InstanceServiceClient

        return InstanceServiceClient(self._api.connection)

    def prepare_launch(self, request: LaunchRequest, config: MachineConfig) -> tuple[str, str]:
        """Return the project of the region, and the first subnet in it."""
        from nebius.api.nebius.vpc import v1 as vpc

        region = request.offer.region
        project = self._api.projects().get(region, "")
        service = vpc.SubnetServiceClient(self._api.connection)
        subnets = self._api.pages(service.list, vpc.ListSubnetsRequest, project)
        subnet = next(subnets, None) if project else None
        if subnet is None:
            text = f"there is no project with a subnet in {region}"
            raise ProviderError(text, code="NOT_FOUND")
        return project, subnet.metadata.id

    def create_machine(
        self,
        request: LaunchRequest,
        config: MachineConfig,
        tags: Mapping[str, str],
        prepared: tuple[str, str],
    ) -> Machine:
        """Launch one machine; the same request again is recognized by its key."""
        from nebius.api.nebius.common.v1 import ResourceMetadata
        from nebius.api.nebius.compute.v1 import CreateInstanceRequest

        project, subnet = prepared
        name = fit_name(f"{request.token}-{tags[RANK]}", 56)
        spec = self._instance_spec(request.offer, config, name, subnet)
        marks = {key: value for key, value in tags.items() if key != NOTEBOOK}
        about = ResourceMetadata(parent_id=project, name=name, labels=write_labels(marks))
        asked = CreateInstanceRequest(metadata=about, spec=spec)
        operation = self._api.call(self._instances().create, asked, f"{project}-{name}")
        return self.tagged(tags, id=operation.resource_id, state="starting")

    def _instance_spec(
        self, offer: Offer, config: MachineConfig, name: str, subnet: str
    ) -> compute.InstanceSpec:
        """Return one machine with its disk and its public address."""
        from nebius.api.nebius.compute import v1 as compute

        platform, _, preset = offer.instance_type.partition("_")
        family = self.setting("image", IMAGE if offer.gpu else CPU_IMAGE)
        disk = compute.DiskSpec(
            type=compute.DiskSpec.DiskType.NETWORK_SSD,
            size_gibibytes=math.ceil(config.disk),
            source_image_family=compute.SourceImageFamily(image_family=family),
        )
        network = compute.NetworkInterfaceSpec(
            name="eth0",
            subnet_id=subnet,
            ip_address=compute.IPAddress(),
            public_ip_address=compute.PublicIPAddress(),
        )
        spec = compute.InstanceSpec(
            resources=compute.ResourcesSpec(platform=platform, preset=preset),
            boot_disk=compute.AttachedDiskSpec(  # a managed disk ends with its machine
                attach_mode=compute.AttachedDiskSpec.AttachMode.READ_WRITE,
                managed_disk=compute.ManagedDisk(name=f"{name}-boot", spec=disk),
            ),
            network_interfaces=[network],
            cloud_init_user_data=config.user_data,
            # else a machine that powers itself off is started again, and billed
            recovery_policy=compute.InstanceRecoveryPolicy.FAIL,
        )
        if offer.spot:
            policy = compute.PreemptibleSpec.PreemptionPolicy.STOP
            spec.preemptible = compute.PreemptibleSpec(on_preemption=policy)
        return spec

    def list_machines(self) -> Iterator[ListedMachine]:
        """Yield the instances of all projects."""
        from nebius.api.nebius.compute.v1 import ListInstancesRequest

        for region, project in self._api.projects().items():
            for entry in self._api.pages(self._instances().list, ListInstancesRequest, project):
                is_billed = entry.status.state.name != "DELETING"
                yield ListedMachine(self._parse_machine(entry), region, is_billed)

    def _parse_machine(self, entry: compute.Instance) -> Machine:
        is_taken = _is_off(entry) and entry.spec.check_presence("preemptible")
        state, reason = _STATES.get(entry.status.state.name, "starting"), ""
        if is_taken:
            state, reason = "ended", "Nebius took the machine back"
        elif refusal := self._find_refusal(entry):
            state, reason = "ended", str(refusal)
        elif entry.status.state.name == "STOPPED" and not _is_off(entry):
            state = "starting"
        network = next(iter(entry.status.network_interfaces), None)
        return self.tagged(
            read_labels(entry.metadata.labels),
            id=entry.metadata.id,
            state=state,
            preempted=is_taken,
            reason=reason,
            stopped=state == "running" and _is_off(entry),
            # they end with the length of their network's prefix
            address=network.public_ip_address.address.partition("/")[0] if network else "",
            private=network.ip_address.address.partition("/")[0] if network else "",
        )

    def delete_machine(self, id: str) -> None:
        """Delete one machine, with its managed disk."""
        from nebius.api.nebius.compute.v1 import DeleteInstanceRequest

        self._api.call(self._instances().delete, DeleteInstanceRequest(id=id))


def _is_off(instance: compute.Instance) -> bool:
    """Whether a machine is stopped, and not about to start for the first time."""
    return instance.status.state.name == "STOPPED" and not instance.status.reconciling


def _is_sold_out(seen: Any) -> bool:
    """Whether none is free in a market, by what was measured lately."""
    is_none = seen.available == 0 and seen.data_state.name == "DATA_STATE_FRESH"
    return is_none or seen.availability_level.name == "AVAILABILITY_LEVEL_LIMIT_REACHED"


def write_labels(tags: Mapping[str, str]) -> dict[str, str]:
    """Return labels for tags: in their alphabet, and several for what is too long for one.

    Examples
    --------
    >>> write_labels({"jupyter-sky-owner": "Größe 7"})
    {'jupyter-sky-owner': '_47r_c3_b6_c3_9fe_207'}
    >>> read_labels(write_labels({"jupyter-sky-owner": "Größe 7"}))
    {'jupyter-sky-owner': 'Größe 7'}
    """
    labels = {}
    for name, value in tags.items():
        text = re.sub(r"[^a-z0-9-]", _escape, value)
        for number in range(0, len(text), _LONGEST_LABEL):
            part = number // _LONGEST_LABEL
            labels[f"{name}-{part}" if part else name] = text[number : number + _LONGEST_LABEL]
    return labels


def read_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the tags in labels of `write_labels`."""
    tags: dict[str, str] = {}
    for name in sorted(labels):
        tag = re.sub(r"-\d$", "", name)
        tags[tag] = tags.get(tag, "") + labels[name]
    return {name: _unescape(text) for name, text in tags.items()}


def _escape(found: re.Match[str]) -> str:
    return "".join(f"_{byte:02x}" for byte in found[0].encode())


def _unescape(text: str) -> str:
    data = re.sub(rb"_([0-9a-f]{2})", lambda found: bytes.fromhex(found[1].decode()), text.encode())
    return data.decode(errors="replace")


# -- Requests to Nebius: credentials, the projects of a tenant, lists of several pages, -----------

TOKEN_VARIABLE, FILE_VARIABLE = "NEBIUS_IAM_TOKEN", "NEBIUS_CREDENTIALS_FILE"
TENANT_VARIABLE = "NEBIUS_TENANT_ID"
TIMEOUT_SECONDS = 60.0
_NO_ANSWER = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")
_CLOSE_SECONDS = 10.0
_PAGE = 500


def credentials_file() -> Path:
    """Return the file with the credentials of a service account, which need not exist."""
    named = os.environ.get(FILE_VARIABLE)
    return Path(named) if named else Path.home() / ".nebius" / "credentials.json"


class NebiusApi:
    """Connection to the API; the SDK is imported with the first request.

    Parameters
    ----------
    endpoint
        Host and port of all services; empty for those of Nebius.
    tenant
        ID of the tenant; empty for the first one that the credentials reach.
    projects
        IDs of the projects to use, separated by commas; empty for the first one of each region.
    """

    def __init__(self, endpoint: str = "", tenant: str = "", projects: str = "") -> None:
        self._endpoint, self._tenant = endpoint, tenant
        self._wanted = {each.strip() for each in projects.split(",") if each.strip()}
        self._connection: Any = None
        self._projects: dict[str, str] = {}
        self._lock = threading.RLock()

    @property
    def connection(self) -> Any:
        """The SDK, which services take; it gets and renews tokens."""
        with self._lock:
            if self._connection is None:
                self._connection = self._connect()
            return self._connection

    def _connect(self) -> Any:
        from grpc import ssl_channel_credentials
        from nebius.aio.token.static import EnvBearer
        from nebius.base.resolver import Constant
        from nebius.sdk import SDK

        getLogger("nebius").setLevel(CRITICAL)  # it logs what it raises, too
        options: dict[str, Any] = {"user_agent_prefix": "jupyter-sky"}
        if os.environ.get(TOKEN_VARIABLE):
            options["credentials"] = EnvBearer(TOKEN_VARIABLE)
        else:
            options["credentials_file_name"] = credentials_file()
        if self._endpoint:
            options["resolver"] = Constant(self._endpoint)
        # gRPC has a variable of its own for what others take from these
        named = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE")
        if named:
            roots = Path(named).read_bytes()
            options["tls_credentials"] = ssl_channel_credentials(root_certificates=roots)
        try:
            return SDK(**options)
        except Exception as error:  # of reading the file, of many kinds
            text = f"the credentials in {credentials_file()} cannot be read: {error}"
            raise ProviderError(text, code="UNAUTHENTICATED") from None

    def call(self, method: Callable[..., Any], request: Any, key: str = "") -> Any:
        """Send a request once; return the answer.

        Parameters
        ----------
        key
            Of idempotency: a request with the same one is answered as the first was.

        Raises
        ------
        ProviderError
            Nebius refuses.
        ConnectionError
            No answer has come; the request may have been carried out.
        """
        from nebius.aio.service_error import RequestError
        from nebius.aio.token.options import OPTION_REPORT_ERROR
        from nebius.base.error import SDKError

        options: dict[str, Any] = {"timeout": TIMEOUT_SECONDS, "retries": 0}
        options |= {"auth_timeout": TIMEOUT_SECONDS, "auth_options": {OPTION_REPORT_ERROR: "1"}}
        options |= {"metadata": [("x-idempotency-key", key)]} if key else {}
        sent = method(request, **options)
        # in a thread, since the SDK refuses to wait in one with an event loop, as kernels have
        worker = ThreadPoolExecutor(1, thread_name_prefix="jupyter-sky-nebius")
        try:
            return worker.submit(sent.wait).result()
        except RequestError as error:
            refusal = read_refusal(error.status)
            if getattr(refusal, "code", "") == "UNAUTHENTICATED":
                # it would go on asking for tokens; the next call connects anew
                with self._lock:
                    connection, self._connection = self._connection, None
                if connection is not None:
                    worker.submit(connection.sync_close, _CLOSE_SECONDS)
            raise refusal from None
        except SDKError as error:
            raise ConnectionError(str(error)) from None
        finally:
            worker.shutdown(wait=False)

    def pages(self, method: Callable[..., Any], request: type, parent: str) -> Iterator[Any]:
        """Yield the items of a list, page by page."""
        token = ""
        while True:
            asked = request(page_size=_PAGE, page_token=token)
            if parent:
                asked.parent_id = parent
            page = self.call(method, asked)
            yield from page.items
            if not (token := page.next_page_token):
                return

    def tenant(self) -> str:
        """Return the ID of the tenant."""
        from nebius.api.nebius.iam import v2 as iam

        if not (self._tenant or os.environ.get(TENANT_VARIABLE)):
            list_tenants = iam.TenantServiceClient(self.connection).list
            found = next(self.pages(list_tenants, iam.ListTenantsRequest, ""), None)
            if found is None:
                raise ProviderError("the credentials reach no tenant", code="PERMISSION_DENIED")
            self._tenant = found.metadata.id
        return self._tenant or os.environ[TENANT_VARIABLE]

    def projects(self) -> dict[str, str]:
        """Return the ID of a project by region; asked for once."""
        from nebius.api.nebius.iam import v2 as iam

        with self._lock:
            if not self._projects:
                service = iam.ProjectServiceClient(self.connection)
                for each in self.pages(service.list, iam.ListProjectsRequest, self.tenant()):
                    if not self._wanted or each.metadata.id in self._wanted:
                        self._projects.setdefault(each.spec.region, each.metadata.id)
            return self._projects


def read_refusal(status: Any) -> ProviderError | ConnectionError:
    """Return the error that a status tells: its code is that of the first detail, if it has one."""
    details = [error.details for error in status.service_errors if error.details is not None]
    name, text = status.code.name, status.message or status.code.name
    if name in _NO_ANSWER and not status.service_errors:
        return ConnectionError(text)
    code = details[0].field if details else name
    return ProviderError(text, code=code, status=404 if name == "NOT_FOUND" else 0)
