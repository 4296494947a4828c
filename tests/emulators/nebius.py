"""Nebius: projects, instances and their operations of a tenant, by gRPC."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

import grpc
import jwt
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.status_pb2 import Status
from nebius.api.nebius.capacity import v1 as capacity
from nebius.api.nebius.common import v1 as common
from nebius.api.nebius.compute import v1 as compute
from nebius.api.nebius.iam import v1 as token_api
from nebius.api.nebius.iam import v2 as iam
from nebius.api.nebius.vpc import v1 as vpc

from .fleet import Fleet
from .grpc_server import GrpcEmulator, GrpcRefusal
from .rest_account import RestAccount

TOKEN = "nebius-4711"
TENANT = "tenant-e00main"
REGIONS = {"eu-north1": "project-e00north", "eu-west1": "project-e01west"}
LARGEST_PAGE, LONGEST_NAME, LONGEST_USER_DATA = 50, 63, 32768
_STATE = compute.InstanceStatus.InstanceState
_DETAILS: dict[str, Callable[[], Any]] = {
    "not_enough_resources": common.NotEnoughResources,
    "quota_failure": common.QuotaFailure,
    "too_many_requests": common.TooManyRequests,
    "permission_denied": common.PermissionDenied,
    "bad_request": common.BadRequest,
}


class NebiusAccount(GrpcEmulator, RestAccount):
    """The API.

    Attributes
    ----------
    late : bool
        Whether launches that are refused for capacity are accepted first.
    disks : dict of str to bool
        Disks by their instance, and whether they are managed, and end with it.
    sold_out : set
        Region, platform and preset, and market that have none free.
    authorized_keys : dict
        Public keys of service accounts by ID.
    boot_seconds : float
        Time in which a new instance is stopped and being started.
    """

    refusal_texts: ClassVar = {
        "not_enough_resources": (grpc.StatusCode.RESOURCE_EXHAUSTED, "Not enough resources"),
        "quota_failure": (grpc.StatusCode.RESOURCE_EXHAUSTED, "Quota limit exceeded"),
        "too_many_requests": (grpc.StatusCode.RESOURCE_EXHAUSTED, "Too many requests"),
        "permission_denied": (grpc.StatusCode.PERMISSION_DENIED, "Permission denied"),
        "bad_request": (grpc.StatusCode.INVALID_ARGUMENT, "Bad request"),
        "NOT_FOUND": (grpc.StatusCode.NOT_FOUND, "Not found"),
        "ALREADY_EXISTS": (grpc.StatusCode.ALREADY_EXISTS, "The name is taken"),
        "UNAUTHENTICATED": (grpc.StatusCode.UNAUTHENTICATED, "The token is not valid"),
    }
    off, ended, taken_back = "STOPPED", "DELETING", "STOPPED"
    free = ("DELETING",)

    def __init__(self, fleet: Fleet) -> None:
        self.disks: dict[str, bool] = {}
        self.sold_out: set[tuple[str, str, bool]] = set()
        super().__init__(fleet)
        self.reset()

    def reset(self) -> None:
        """Begin with an empty account."""
        super().reset()
        self.rented.clear()
        self.disks.clear()
        self.sold_out.clear()
        self.operations: dict[str, list[Any]] = {}
        self.keys: dict[str, Any] = {}
        self.authorized_keys: dict[str, Any] = {}
        self.late, self.boot_seconds, self.subnets = False, 0.2, True

    def show_address(self, entry: dict[str, Any], address: str, private: str, port: int) -> None:
        """Write the addresses, with the length of their prefixes."""
        entry |= {"public": f"{address}/32", "private": f"{private}/32"}

    def serve(self, name: str, body: bytes, metadata: dict[str, str]) -> bytes:
        """Answer a call."""
        if name == "TokenExchangeService.Exchange":
            asked = token_api.ExchangeTokenRequest.FromString(body)
            return self._exchange(asked.subject_token).SerializeToString()
        if metadata.get("authorization") != f"Bearer {TOKEN}":
            raise self.refusal("UNAUTHENTICATED")
        calls: dict[str, tuple[Any, Callable[[Any], Any]]] = {
            "TenantService.List": (iam.ListTenantsRequest, self._list_tenants),
            "ProjectService.List": (iam.ListProjectsRequest, self._list_projects),
            "SubnetService.List": (vpc.ListSubnetsRequest, self._list_subnets),
            "ResourceAdviceService.List": (capacity.ListResourceAdviceRequest, self._advise),
            "InstanceService.List": (compute.ListInstancesRequest, self._list_instances),
            "InstanceService.Get": (compute.GetInstanceRequest, self._get),
            "InstanceService.Delete": (compute.DeleteInstanceRequest, self._delete),
            "OperationService.List": (common.ListOperationsRequest, self._list_operations),
        }
        if name == "InstanceService.Create":
            asked = compute.CreateInstanceRequest.FromString(body)
            return self._create(asked, metadata["x-idempotency-key"]).SerializeToString()
        if name not in calls:
            raise GrpcRefusal(grpc.StatusCode.UNIMPLEMENTED, name)
        kind, answer = calls[name]
        return answer(kind.FromString(body)).SerializeToString()

    def _exchange(self, signed: str) -> Any:
        """Give a token for what a service account has signed."""
        try:
            key = self.authorized_keys[jwt.get_unverified_header(signed)["kid"]]
            jwt.decode(signed, key, ["RS256"], options={"verify_aud": False})
        except (KeyError, jwt.InvalidTokenError):
            raise self.refusal("UNAUTHENTICATED") from None
        return token_api.CreateTokenResponse(
            access_token=TOKEN, token_type="Bearer", expires_in=43200
        )

    def refusal(self, code: str) -> GrpcRefusal:
        """Return a refusal in the cloud's words, with its details."""
        status, message = self.refusal_texts[code]
        details = self._status(code).SerializeToString() if code in _DETAILS else b""
        return GrpcRefusal(status, message, details)

    def _status(self, code: str) -> Status:
        status, message = self.refusal_texts[code]
        told = common.ServiceError(service="compute", code=code, **{code: _DETAILS[code]()})
        kind = "type.googleapis.com/nebius.common.v1.ServiceError"
        detail = AnyMessage(type_url=kind, value=told.SerializeToString())
        return Status(code=status.value[0], message=message, details=[detail])

    # -- what surrounds instances

    def _list_tenants(self, asked: Any) -> Any:
        about = common.ResourceMetadata(id=TENANT, name="main")
        return iam.ListTenantsResponse(items=[iam.Tenant(metadata=about)])

    def _list_projects(self, asked: Any) -> Any:
        if asked.parent_id != TENANT:
            raise self.refusal("permission_denied")
        items = [
            iam.Project(
                metadata=common.ResourceMetadata(id=id, parent_id=TENANT, name="default"),
                spec=iam.ProjectSpec(region=region),
            )
            for region, id in [*REGIONS.items(), ("eu-north1", "project-e00other")]
        ]
        return iam.ListProjectsResponse(items=items)

    def _list_subnets(self, asked: Any) -> Any:
        about = common.ResourceMetadata(id=f"subnet-of-{asked.parent_id}", name="default")
        return vpc.ListSubnetsResponse(items=[vpc.Subnet(metadata=about)] if self.subnets else [])

    def _advise(self, asked: Any) -> Any:
        if asked.parent_id != TENANT:
            raise self.refusal("bad_request")
        status = capacity.ResourceAdviceStatus
        fresh = status.Availability.DataState.DATA_STATE_FRESH
        kinds = sorted({(region, kind) for region, kind, _spot in self.sold_out})
        items = []
        for region, kind in kinds:
            platform, _, preset = kind.partition("_")
            free = [
                status.Availability(
                    data_state=fresh, available=0 if (region, kind, spot) in self.sold_out else 3
                )
                for spot in (False, True)
            ]
            about = capacity.ComputeInstanceDetails(
                platform=platform, preset=capacity.ComputeInstanceDetails.Preset(name=preset)
            )
            items.append(
                capacity.ResourceAdvice(
                    spec=capacity.ResourceAdviceSpec(region=region, compute_instance=about),
                    status=status(on_demand=free[0], preemptible=free[1]),
                )
            )
        return capacity.ListResourceAdviceResponse(items=items)

    # -- instances

    def _create(self, asked: Any, key: str) -> Any:
        time.sleep(self.delay)
        with self._lock:
            if key in self.keys:  # the same request again
                return self.keys[key]
            code = self.next_refusal()
            late = self.late and code == "not_enough_resources"
            if code and not late:
                raise self.refusal(code)
            self._check(asked)
            id = self._enter(asked, self._status(code) if late else None)
            self.keys[key] = self.operations[id][0]
            return self.keys[key]

    def _check(self, asked: Any) -> None:
        about, spec = asked.metadata, asked.spec
        (network,) = spec.network_interfaces
        disk = spec.boot_disk
        well_formed = (
            about.parent_id in REGIONS.values()
            and len(about.name) <= LONGEST_NAME
            and all(len(value) <= LONGEST_NAME for value in about.labels.values())
            and len(spec.cloud_init_user_data) <= LONGEST_USER_DATA
            and network.subnet_id == f"subnet-of-{about.parent_id}"
            and network.check_presence("ip_address")
            and (disk.check_presence("managed_disk") or disk.check_presence("existing_disk"))
            and disk.attach_mode == compute.AttachedDiskSpec.AttachMode.READ_WRITE
            and spec.resources.platform
            and spec.resources.preset
        )
        if not well_formed:
            raise self.refusal("bad_request")
        taken = {one.entry["name"] for id, one in self.rented.items() if id in self.billed()}
        if about.name in taken:
            raise self.refusal("ALREADY_EXISTS")

    def _enter(self, asked: Any, refusal: Status | None = None) -> str:
        self.number += 1
        id = f"computeinstance-e00{self.number:08x}"
        entry = {"id": id, "name": asked.metadata.name, "asked": asked, "ready": time.monotonic()}
        entry["status"] = "RUNNING"
        if refusal:
            entry["status"] = "STOPPED"
        else:
            entry["ready"] += self.boot_seconds
        self.disks[id] = asked.spec.boot_disk.check_presence("managed_disk")
        now = datetime.now(UTC)
        operation = common.Operation(
            id=f"op-{id}", resource_id=id, created_at=now, status=refusal or Status()
        )
        self.operations[id] = [operation]
        user_data = asked.spec.cloud_init_user_data
        has_machine = bool(user_data) and refusal is None
        self.add(id, entry, self.machine(id, user_data, entry) if has_machine else None)
        return id

    def _show(self, entry: dict[str, Any]) -> Any:
        """Return an instance as the API does: stopped and being started at first."""
        starts = entry["status"] == "RUNNING" and time.monotonic() < entry["ready"]
        network = compute.NetworkInterfaceStatus(
            ip_address=compute.IPAddressStatus(address=entry["private"]),
            public_ip_address=compute.PublicIPAddressStatus(address=entry["public"]),
        )
        status = compute.InstanceStatus(
            state=_STATE.STOPPED if starts else _STATE[entry["status"]],
            reconciling=starts,
            network_interfaces=[network],
        )
        asked = entry["asked"]
        about = common.ResourceMetadata(
            id=entry["id"],
            parent_id=asked.metadata.parent_id,
            name=entry["name"],
            labels=dict(asked.metadata.labels),
        )
        return compute.Instance(metadata=about, spec=asked.spec, status=status)

    def _present(self) -> list[dict[str, Any]]:
        return [entry for entry in self.listed() if entry["status"] != "DELETING"]

    def _list_instances(self, asked: Any) -> Any:
        there = [
            entry
            for entry in self._present()
            if entry["asked"].metadata.parent_id == asked.parent_id
        ]
        first, size = int(asked.page_token or 0), min(asked.page_size or 10, LARGEST_PAGE)
        items = [self._show(entry) for entry in there[first : first + size]]
        more = str(first + size) if first + size < len(there) else ""
        return compute.ListInstancesResponse(items=items, next_page_token=more)

    def _get(self, asked: Any) -> Any:
        if asked.id not in self.billed():
            raise self.refusal("NOT_FOUND")
        return self._show(self.rented[asked.id].entry)

    def _delete(self, asked: Any) -> Any:
        if asked.id not in self.billed():
            raise self.refusal("NOT_FOUND")
        self.end(asked.id)
        if self.disks[asked.id]:
            del self.disks[asked.id]
        return common.Operation(id=f"delete-{asked.id}", resource_id=asked.id, status=Status())

    def _list_operations(self, asked: Any) -> Any:
        return common.ListOperationsResponse(operations=self.operations.get(asked.resource_id, []))

    def power_off(self, id: str) -> None:
        """Press the power button; a machine to be recovered is started again, and billed."""
        super().power_off(id)
        entry = self.rented[id].entry
        if entry["asked"].spec.recovery_policy != compute.InstanceRecoveryPolicy.FAIL:
            entry["status"] = "RUNNING"

    def fill(self, count: int, tags: dict[str, str]) -> set[str]:
        """Add instances that are nothing but entries."""
        projects: Sequence[str] = list(REGIONS.values())
        ids = set()
        for number in range(count):
            about = common.ResourceMetadata(
                parent_id=projects[number % 2], name=f"many-{number}", labels=tags
            )
            ids.add(self._enter(compute.CreateInstanceRequest(metadata=about)))
        return ids
