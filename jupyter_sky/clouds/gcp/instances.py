"""A machine of Compute Engine as it is ordered and as it is read: names, labels, body."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.clouds.gcp import service_account
from jupyter_sky.clouds.provider.naming import fit_name, parse_rank, tagged_machine
from jupyter_sky.clouds.provider.values import (
    TAGS,
    LaunchRequest,
    Machine,
    MachineConfig,
    MachineState,
)

if TYPE_CHECKING:
    from google.cloud.compute_v1 import Instance

NETWORK = "jupyter-sky"
UBUNTU_IMAGE = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-{}"
DEEP_LEARNING_IMAGE = (
    "projects/deeplearning-platform-release/global/images/family/"
    "common-cu129-ubuntu-2404-nvidia-580"
)
DEEP_LEARNING_GIB = 50
TPU_IMAGE = (
    "projects/ubuntu-os-accelerator-images/global/images/family/"
    "ubuntu-accelerator-2204-amd64-tpu-v5e-v5p-v6e"
)
"""Image of TPU machine types, with cloud-init; its family is from memory, not looked up."""
TPU_MACHINES = {
    "tpu-v5p-8": "ct5p-hightpu-4t",
    "tpu-v6e-1": "ct6e-standard-1t",
    "tpu-v6e-4": "ct6e-standard-4t",
    "tpu-v6e-8": "ct6e-standard-8t",
}
"""Machine types of Compute Engine that are TPU slices of one host, by the catalog's word."""
_TPU_MACHINE = re.compile(r"(?:ct\d|tpu\d)")
SHORTEST_SECONDS, LONGEST_SECONDS = 30, 120 * 86400
"""Limits, in seconds, of the time after which Compute Engine deletes a machine."""
_HYPERDISK_ONLY = re.compile(
    r"(?:a3-ultragpu|(?:a4x?|c4[adn]?|ct6e|g4|h4d|m4n?|n4[ad]?|tpu7x|x4)-)|.*-metal$"
)
"""Machine types that take no persistent disks."""
_NOT_MIGRATABLE = frozenset("h3 h4d x4".split())
"""Series whose machines cannot be moved to another host while it is maintained."""
_NOT_MOVED = {"on_host_maintenance": "TERMINATE"}
_STARTING = ("PROVISIONING", "STAGING", "PENDING", "REPAIRING")
_STOPPED_REASONS = {
    "TERMINATED": "it was powered off; its disk is kept",
    "STOPPED": "it was powered off; its disk is kept",
    "SUSPENDED": "it was suspended; its memory and disk are kept",
}


def resource_prefix(token: str) -> str:
    """Return the prefix of the names of a request's machines.

    Examples
    --------
    >>> resource_prefix("train-3f2a91c0"), resource_prefix("Größe_7-3f2a91c0")
    ('train-3f2a91c0', 'gr-e-7-3f2a91c0-693c00')
    """
    return fit_name(token, 56)


def format_label(value: str) -> str:
    """Return a value as labels can hold it; itself where it fits.

    Examples
    --------
    >>> format_label("ann-3f2a91c0"), format_label("Notes on Birds.ipynb")
    ('ann-3f2a91c0', 'notes-on-birds-ipynb-acc92f')
    """
    if re.fullmatch(r"[a-z0-9_-]{0,63}", value):
        return value
    return fit_name(value, 63, r"[^a-z0-9_]+")


def machine_name(token: str, rank: int) -> str:
    """Return the name of one machine of a request."""
    return f"{resource_prefix(token)}-{rank}"


def split_type(instance_type: str) -> tuple[str, str, int]:
    """Return machine type, accelerator to attach, and how many, of the catalog's word.

    Examples
    --------
    >>> split_type("n1-standard-8+V100:1"), split_type("a2-highgpu-1g")
    (('n1-standard-8', 'nvidia-tesla-v100', 1), ('a2-highgpu-1g', '', 0))
    >>> split_type("tpu-v6e-8")
    ('ct6e-standard-8t', '', 0)
    """
    machine, _, gpus = TPU_MACHINES.get(instance_type, instance_type).partition("+")
    model, _, count = gpus.partition(":")
    return machine, f"nvidia-tesla-{model.lower()}" if model else "", int(count or 0)


def select_image(request: LaunchRequest) -> str:
    """Return the family that the boot disk is made from: the latest Ubuntu LTS, or with drivers."""
    if _TPU_MACHINE.match(split_type(request.offer.instance_type)[0]):
        return TPU_IMAGE
    if request.offer.gpu and request.offer.arch != "arm64":
        return DEEP_LEARNING_IMAGE
    return UBUNTU_IMAGE.format("arm64" if request.offer.arch == "arm64" else "amd64")


def ssh_rule_name(config: MachineConfig) -> str:
    """Return the name of the firewall rule by which some networks reach port 22."""
    ranges = ",".join(sorted(config.ssh_from))
    return f"{NETWORK}-ssh-{hashlib.sha256(ranges.encode()).hexdigest()[:8]}"


def instance_body(
    request: LaunchRequest, config: MachineConfig, zone: str, rank: int, account: str = ""
) -> Instance:
    """Return the machine of a rank, as Compute Engine takes it; with a service account or none."""
    import google.cloud.compute_v1 as compute_v1

    machine, gpu, count = split_type(request.offer.instance_type)
    labels = {key: format_label(value) for key, value in config.tags.items()}
    kind = f"zones/{zone}/acceleratorTypes/{gpu}"
    interface = {
        "network": f"global/networks/{NETWORK}",
        "access_configs": [{"name": "External NAT", "type_": "ONE_TO_ONE_NAT"}],
    }
    return compute_v1.Instance(
        name=machine_name(request.token, rank),
        machine_type=f"zones/{zone}/machineTypes/{machine}",
        disks=[_disk(request, config, zone, machine, labels)],
        network_interfaces=[interface],
        guest_accelerators=[{"accelerator_type": kind, "accelerator_count": count}] if gpu else [],
        scheduling=_scheduling(request, machine),
        service_accounts=service_account.service_account_entry(account),
        labels=labels,
        metadata={"items": _metadata(config)},
        tags={"items": [ssh_rule_name(config), resource_prefix(request.token)]},
    )


def _disk(
    request: LaunchRequest, config: MachineConfig, zone: str, machine: str, labels: dict[str, str]
) -> JsonObject:
    kind = "hyperdisk-balanced" if _HYPERDISK_ONLY.match(machine) else "pd-balanced"
    least = DEEP_LEARNING_GIB if select_image(request) == DEEP_LEARNING_IMAGE else 10
    source = {
        "source_image": select_image(request),
        "disk_size_gb": max(least, math.ceil(config.disk)),
        "disk_type": f"zones/{zone}/diskTypes/{kind}",
        "labels": labels,
    }
    return {"boot": True, "auto_delete": True, "initialize_params": source}


def _scheduling(request: LaunchRequest, machine: str) -> JsonObject:
    """Return when it ends: at the latest after its lease, deleted by the cloud itself."""
    lease = min(max(math.ceil(request.lease), SHORTEST_SECONDS), LONGEST_SECONDS)
    fixed = machine.partition("-")[0] in _NOT_MIGRATABLE or machine.endswith("-metal")
    moved = {} if not (request.offer.spot or request.offer.gpu or fixed) else _NOT_MOVED
    return moved | {
        "provisioning_model": "SPOT" if request.offer.spot else "STANDARD",
        "instance_termination_action": "DELETE",
        "max_run_duration": {"seconds": lease},
        "automatic_restart": False,  # what starts again has lost what the cells computed
    }


def _metadata(config: MachineConfig) -> list[dict[str, str]]:
    """Return what the machine can read; tags too, as labels cannot hold all of them."""
    values = {
        "user-data": config.user_data,
        "ssh-keys": f"{config.user}:{config.public_key}",
        "block-project-ssh-keys": "TRUE",
        "enable-oslogin": "FALSE",
        **config.tags,
    }
    return [{"key": key, "value": value} for key, value in values.items() if value]


def read_tags(instance: Instance) -> Mapping[str, str]:
    """Return the tags that a machine was created with."""
    exact = {item.key: item.value for item in instance.metadata.items if item.key in TAGS}
    return {**dict(instance.labels), **exact}


def is_stopped(instance: Instance) -> bool:
    """Whether a machine does not run and is not gone either."""
    return instance.status in _STOPPED_REASONS


def parse_machine(instance: Instance, zone: str) -> Machine:
    """Return a machine as Compute Engine describes it.

    One that was powered off is said to have ended, though its disk is still there.
    """
    status = instance.status
    interface = next(iter(instance.network_interfaces), None)
    access = next(iter(interface.access_configs), None) if interface else None
    stopped = instance.last_stop_timestamp
    state: MachineState = "starting" if status in _STARTING else "running"
    return tagged_machine(
        read_tags(instance),
        id=f"{zone}/{instance.name}",
        cloud="gcp",
        rank=parse_rank(instance.name),
        state="ended" if status in _STOPPED_REASONS else state,
        started=parse_timestamp(instance.creation_timestamp),
        ended=parse_timestamp(stopped) if status in _STOPPED_REASONS and stopped else None,
        reason=_STOPPED_REASONS.get(status, ""),
        address=access.nat_i_p if access else "",
        private=interface.network_i_p if interface else "",
        stopped=status in ("TERMINATED", "STOPPED"),
    )


def parse_timestamp(timestamp: str) -> float:
    """Return unix seconds of a time as Compute Engine writes it; 0 where it writes none."""
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0


def region_of_zone(zone: str) -> str:
    """Return the region of a zone.

    Examples
    --------
    >>> region_of_zone("us-central1-a")
    'us-central1'
    """
    return zone.rpartition("-")[0]
