"""TPU VMs of Google Cloud by the TPU API: single hosts and slices of several.

A slice is one node of the API, and a machine for each of its network endpoints: they come together
and are deleted together. Larger requests than one slice are several nodes. Slices that are sold as
machine types of Compute Engine are launched there: see `instances.TPU_MACHINES`.

From memory, not looked up: the runtime versions of v5p and v6e; that a TPU VM which powers itself
off goes on being billed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from threading import Event
from typing import Any

from jupyter_sky.base.json_types import JsonMapping, JsonObject
from jupyter_sky.base.requests import accelerators
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import parse_duration
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.gcp import instances, service_account
from jupyter_sky.clouds.gcp.clients import SCOPE, GcpClients
from jupyter_sky.clouds.gcp.facts import GcpFacts
from jupyter_sky.clouds.gcp.tpu_client import PATH_KEY, TpuClient, ignore_missing
from jupyter_sky.clouds.provider.classification import ProviderError
from jupyter_sky.clouds.provider.naming import TOKEN, tagged_machine
from jupyter_sky.clouds.provider.parallel_requests import pause
from jupyter_sky.clouds.provider.values import (
    TAGS,
    LaunchRequest,
    Machine,
    MachineConfig,
    MachineState,
)

OPERATION_SECONDS = 1800.0
"""A slice that is not ready so long after its time in Google's queue is given up."""
RUNTIMES = {
    "v5e": "v2-alpha-tpuv5-lite",
    "v5p": "v2-alpha-tpuv5",
    "v6e": "v2-alpha-tpuv6e",
}
"""Runtime version by generation; that of all others is `RUNTIME`."""
RUNTIME = "tpu-ubuntu2204-base"
_STARTING = ("CREATING", "STARTING", "RESTARTING", "REIMAGING", "REPAIRING")
_RUNNING = ("READY", "STATE_UNSPECIFIED", "UNKNOWN", "UNHIDING")
_WAITING = ("CREATING", "ACCEPTED", "PROVISIONING", "WAITING_FOR_RESOURCES")
_NAMESPACE = uuid.UUID("5b0f8d1c-6a51-4f0e-9d0b-0d7a7c1f52b4")


def is_slice(offer: Offer) -> bool:
    """Whether an offer is launched by the TPU API.

    Examples
    --------
    >>> is_slice(Offer("gcp", "us-central1", "tpu-v2-8", 96, 334))
    True
    >>> is_slice(Offer("gcp", "us-central1", "tpu-v6e-8", 180, 1440))
    False
    """
    return (
        offer.instance_type.startswith("tpu-") and offer.instance_type not in instances.TPU_MACHINES
    )


def is_slice_id(id: str) -> bool:
    """Whether an ID is ``zone/slice/rank``, of a VM of a slice."""
    return id.count("/") == 2


# -- launching ----------------------------------------------------------------------------------


def launch(
    access: GcpClients, request: LaunchRequest, config: MachineConfig, stop: Event
) -> list[Machine]:
    """Create the slices of a request in one zone, or none; return when their VMs are up."""
    client, zone = TpuClient(access), request.offer.zone or ""
    if not zone:
        raise ProviderError("a slice of TPUs needs a zone", code="tpu:INVALID_ARGUMENT")
    names = [instances.machine_name(request.token, n) for n in range(request.resources.nodes)]
    account = service_account.configured_account()
    queue = Sky.load().provider_setting(GcpFacts.name, "tpu_queue")
    wait = parse_duration(queue, "providers.gcp.tpu_queue") if queue else 0.0
    pending = [
        _create(client, zone, _node_body(request, config, name, account, bool(wait)), name, wait)
        for name in names
    ]
    for name, operation in zip(names, pending, strict=True):
        _await_ready(client, zone, name, operation, stop, wait)
    nodes = [client.get(f"{zone}/nodes/{name}") for name in names]
    return [machine for node in filter(None, nodes) for machine in machines_of(node)]


def discard(access: GcpClients, request: LaunchRequest) -> None:
    """Delete what a launch that has failed may have created."""
    client = TpuClient(access)
    for number in range(request.resources.nodes):
        with suppress(Exception):  # whoever sent the request looks for what is left of it
            name = instances.machine_name(request.token, number)
            delete(client, request.offer.zone or "", name)


def _node_body(
    request: LaunchRequest, config: MachineConfig, name: str, account: str, is_queued: bool
) -> JsonObject:
    offer = request.offer
    kind = offer.instance_type.removeprefix("tpu-")
    generation = accelerators.canonical(offer.instance_type).split("-")[1]
    metadata = {
        "ssh-keys": f"{config.user}:{config.public_key}",
        "startup-script": config.script,
        "enable-oslogin": "FALSE",
        PATH_KEY: f"queuedResources/{name}?force=true" if is_queued else f"nodes/{name}",
        **config.tags,
    }
    body = {
        "acceleratorType": kind,
        "runtimeVersion": RUNTIMES.get(generation, RUNTIME),
        "networkConfig": {"network": instances.NETWORK, "enableExternalIps": True},
        "labels": {key: instances.format_label(value) for key, value in config.tags.items()},
        "metadata": {key: value for key, value in metadata.items() if value},
        "tags": [instances.ssh_rule_name(config), instances.resource_prefix(request.token)],
    }
    if offer.spot:
        body["schedulingConfig"] = {"spot": True}
    if account and account != "default":
        body["serviceAccount"] = {"email": account, "scope": [SCOPE]}
    return body


def _create(client: TpuClient, zone: str, body: JsonObject, name: str, wait: float) -> str:
    """Ask for a slice; return the path of its operation, empty where it was asked for before.

    Parameters
    ----------
    wait
        Seconds that it may wait in Google's queue; 0 for none.
    """
    token = body["metadata"][TOKEN]
    try:
        if not wait:
            return f"/v2/{client.call('POST', f'{zone}/nodes', body, nodeId=name)['name']}"
        spot = body.pop("schedulingConfig", None)
        parent = client.parent(zone)
        queued: JsonObject = {
            "tpu": {"nodeSpec": [{"parent": parent, "nodeId": name, "node": body}]},
            "queueingPolicy": {"validUntilDuration": f"{int(wait)}s"},
        }
        if spot:
            queued["spot"] = {}
        key = str(uuid.uuid5(_NAMESPACE, f"{zone}/{name}"))
        path = f"{zone}/queuedResources"
        client.call("POST", path, queued, queuedResourceId=name, requestId=key)
        return ""
    except ProviderError as error:
        if error.status != 409:
            raise
        node = client.get(f"{zone}/nodes/{name}")
        if node is not None and _tags(node).get(TOKEN) != token:
            raise ProviderError(error.message, code="tpu:INVALID_ARGUMENT", status=409) from None
        return ""  # our own request, whose answer was lost


def _await_ready(
    client: TpuClient, zone: str, name: str, operation: str, stop: Event, queue: float
) -> None:
    """Wait until a slice is ready.

    Parameters
    ----------
    queue
        Seconds that it may wait in Google's queue; 0 where it is not there.

    Raises
    ------
    ProviderError
        Its operation or its queued resource has failed, or it has gone.
    """
    until, wait = time.monotonic() + queue + OPERATION_SECONDS, 0.1
    while True:
        found = (client.get(operation) if operation else None) or {}
        if error := found.get("error"):
            code = f"tpu:OPERATION:{error.get('code', 13)}"
            raise ProviderError(error.get("message", ""), code=code)
        if queue:
            _check_queue(client.get(f"{zone}/queuedResources/{name}"), name)
        node = client.get(f"{zone}/nodes/{name}")
        if node is not None and node["state"] == "READY":
            return
        if node is not None and node["state"] not in (*_STARTING, *_RUNNING):
            raise ProviderError(f"{name} is {node['state']}", code="tpu:OPERATION:8")
        if node is None and not queue and (found.get("done") or not operation):
            raise ProviderError(f"{name} has gone", code="tpu:ABORTED")
        if time.monotonic() > until:
            words = f"{name} is not ready after {queue + OPERATION_SECONDS:g} s"
            raise ProviderError(words, code="tpu:QUEUE")
        pause(stop, wait)
        wait = min(wait * 1.4, 5.0)


def _check_queue(queued: Any, name: str) -> None:
    state = ((queued or {}).get("state") or {}).get("state", "SUSPENDED")
    if state in ("FAILED", "SUSPENDED", "SUSPENDING", "DELETING"):
        failed = queued["state"].get("failedData", {}).get("error", {}) if queued else {}
        words = failed.get("message") or f"the queued request for {name} is {state}"
        raise ProviderError(words, code="tpu:QUEUE")


# -- life ---------------------------------------------------------------------------------------


def list_machines(access: GcpClients) -> Iterator[tuple[str, Machine]]:
    """Yield zone and VM of all slices of ours, those that wait in a queue and are taken back, too.

    A project without the TPU API, or that we may not ask, has none.
    """
    client = TpuClient(access)
    try:
        nodes = [node for node in client.list_all("nodes") if TOKEN in _tags(node)]
        queued = list(client.list_all("queuedResources"))
    except ProviderError as error:
        if error.status in (403, 404):
            return
        raise
    for node in (*nodes, *_queued_nodes(queued, {node["name"] for node in nodes})):
        for machine in machines_of(node):
            yield machine.id.partition("/")[0], machine


def _queued_nodes(queued: Iterable[Any], there: set[str]) -> Iterator[JsonObject]:
    """Yield nodes that are asked for by queued resources and not there."""
    for each in queued:
        for spec in (each.get("tpu") or {}).get("nodeSpec", ()):
            name = f"{spec['parent']}/nodes/{spec['nodeId']}"
            waits = each["state"]["state"] in _WAITING
            if name not in there and waits and TOKEN in _tags(spec["node"]):
                yield spec["node"] | {"name": name, "state": "CREATING"}


def machines_of(node: JsonMapping) -> list[Machine]:
    """Return the VMs of a slice, by rank."""
    _projects, _project, _locations, zone, _nodes, name = node["name"].split("/")
    ends, state = node.get("networkEndpoints") or [], node["state"]
    hosts = accelerators.tpu_hosts(f"tpu-{node['acceleratorType']}")
    count = len(ends) or (hosts.count if hosts else 1)
    phase: MachineState = "starting" if state in _STARTING else "running"
    is_over = state not in (*_STARTING, *_RUNNING)
    first = count * int(name.rpartition("-")[2])
    created = node.get("createTime", "")
    return [
        tagged_machine(
            _tags(node),
            id=f"{zone}/{name}/{number}",
            cloud=GcpFacts.name,
            rank=first + number,
            state="ended" if is_over else phase,
            started=datetime.fromisoformat(created).timestamp() if created else time.time(),
            reason=f"the slice is {state}" if is_over else "",
            preempted=state == "PREEMPTED",
            address=end.get("accessConfig", {}).get("externalIp", ""),
            private=end.get("ipAddress", ""),
        )
        for number, end in enumerate(ends or [{}] * count)
    ]


def _tags(node: JsonMapping) -> dict[str, str]:
    metadata = node.get("metadata") or {}
    return {key: metadata[key] for key in TAGS if key in metadata}


def describe(access: GcpClients, ids: Sequence[str]) -> list[Machine]:
    """Return the VMs of these IDs; those whose slice is gone are left out."""
    client, found = TpuClient(access), list[Machine]()
    for slice_ in dict.fromkeys(id.rpartition("/")[0] for id in ids):
        zone, _, name = slice_.partition("/")
        if node := client.get(f"{zone}/nodes/{name}"):
            found += machines_of(node)
        elif queued := client.get(f"{zone}/queuedResources/{name}"):
            found += [m for each in _queued_nodes([queued], set()) for m in machines_of(each)]
    return [machine for machine in found if machine.id in ids]


def terminate(access: GcpClients, ids: Sequence[str]) -> Iterator[Callable[[Event], None]]:
    """Yield the requests that delete the slices of VMs, each with all of its VMs."""
    client = TpuClient(access)
    for slice_ in dict.fromkeys(id.rpartition("/")[0] for id in ids):
        zone, _, name = slice_.partition("/")
        yield lambda _stop, zone=zone, name=name: delete(client, zone, name)


def delete(client: TpuClient, zone: str, name: str) -> None:
    """Ask for the end of a slice, and of the queued resource that it came by."""
    with ignore_missing():
        client.call("DELETE", f"{zone}/queuedResources/{name}", force="true")
        return
    with ignore_missing():
        client.call("DELETE", f"{zone}/nodes/{name}")
