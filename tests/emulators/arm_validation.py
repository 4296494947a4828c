"""Refusals of the Resource Manager for a body: fields, kinds and values by the SDK's own models,
then what only the service itself knows."""

from __future__ import annotations

import base64
import binascii
import re
import sys
import types
import typing
from enum import Enum
from functools import cache
from typing import Any

IMAGES = {
    ("Canonical", "ubuntu-24_04-lts", "server"): ("x64", 30),
    ("Canonical", "ubuntu-24_04-lts", "server-arm64"): ("Arm64", 30),
    ("microsoft-dsvm", "ubuntu-hpc", "2404"): ("x64", 64),
    ("microsoft-dsvm", "ubuntu-hpc", "2404-rocm"): ("x64", 64),
    ("microsoft-dsvm", "ubuntu-hpc", "2404-gb200"): ("Arm64", 64),
}
"""Architecture, and GiB of the disk that they come with."""
_ARM = re.compile(r"^Standard_[A-Z]+\d+p|GB[23]00")
_NAMES_TAKEN = {"admin", "administrator", "root", "test", "user", "guest", "console", "sys"}
_DISK_GIB = 4095


class Refused(Exception):
    """The service refuses; in its own words."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.message, self.status = code, message, status


@cache
def _model(kind: str) -> Any:
    from azure.mgmt.compute import models as compute
    from azure.mgmt.network import models as network
    from azure.mgmt.resource.resources import models as resources

    return {
        "resourcegroups": resources.ResourceGroup,
        "virtualnetworks": network.VirtualNetwork,
        "networksecuritygroups": network.NetworkSecurityGroup,
        "virtualmachines": compute.VirtualMachine,
    }.get(kind)


def check(kind: str, body: Any) -> None:
    """Refuse a body that is not one of a kind of resource."""
    model = _model(kind)
    if model is not None:
        _check(model, body, "$")


@cache
def _fields(model: Any) -> dict[str, tuple[Any, bool]]:
    """Kind of each field by its name on the wire, and whether it must be there."""
    module = sys.modules[model.__module__]
    names = vars(module) | {"_models": sys.modules[model.__module__.rpartition(".")[0]]}
    hints: dict[str, Any] = {}
    for base in reversed(model.__mro__):
        for name, hint in vars(base).get("__annotations__", {}).items():
            if isinstance(hint, str):
                hint = typing.ForwardRef(hint)
            scratch = types.SimpleNamespace(__annotations__={name: hint})
            hints |= typing.get_type_hints(scratch, globalns=names, localns=names)
    found = {}
    for name, field in model()._attr_to_rest_field.items():
        kind = hints.get(name, Any)
        optional = type(None) in typing.get_args(kind)
        read_only = field._visibility == ["read"]
        found[field._rest_name] = (kind, not optional and not read_only and kind is not Any)
    return found


def _check(kind: Any, value: Any, path: str) -> None:
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or value is None:
        return
    if origin in (typing.Union, types.UnionType):
        options = [one for one in inside if one is not type(None)]
        enums = [one for one in options if isinstance(one, type) and issubclass(one, Enum)]
        if enums:
            _check_enum(enums[0], value, path)
            return
        _check(options[0], value, path)
    elif origin is list:
        if not isinstance(value, list):
            raise _wrong(path, "an array is expected")
        for at, one in enumerate(value):
            _check(inside[0], one, f"{path}[{at}]")
    elif origin is dict:
        if not isinstance(value, dict):
            raise _wrong(path, "an object is expected")
        for name, one in value.items():
            _check(inside[1], one, f"{path}.{name}")
    elif hasattr(kind, "_attr_to_rest_field") or hasattr(kind, "_is_model"):
        _check_object(kind, value, path)
    elif kind in (str, int, bool, float):
        wanted = (int, float) if kind is float else kind
        if not isinstance(value, wanted) or (kind is int and isinstance(value, bool)):
            raise _wrong(path, f"{value!r} is not of type {kind.__name__}")


def _check_object(model: Any, value: Any, path: str) -> None:
    if not isinstance(value, dict):
        raise _wrong(path, "an object is expected")
    fields = _fields(model)
    for name, one in value.items():
        if name not in fields:
            raise _wrong(path, f"Could not find member '{name}' on object of type {model.__name__}")
        _check(fields[name][0], one, f"{path}.{name}")
    for name, (_, needed) in fields.items():
        if needed and value.get(name) is None:
            raise Refused("InvalidParameter", f"Required parameter '{name}' is missing (null).")


def _check_enum(enum: Any, value: Any, path: str) -> None:
    known = {member.value.lower() for member in enum}
    if enum.__name__ == "VirtualMachineSizeTypes":  # sizes come and go; see `check_machine`
        return
    if not isinstance(value, str) or value.lower() not in known:
        raise _wrong(path, f"{value!r} is not a valid value of {enum.__name__}")


def _wrong(path: str, what: str) -> Refused:
    return Refused(
        "InvalidRequestContent", f"The request content was invalid: {what}, at '{path}'."
    )


# -- what only the service knows ---------------------------------------------------------------


def check_machine(name: str, body: dict[str, Any], gone: set[str], there: set[str]) -> None:
    """Refuse a machine that could not be.

    Parameters
    ----------
    gone
        Sizes that are no longer sold.
    there
        Ids, in lower case, of what a machine may refer to.
    """
    about = body.get("properties") or {}
    size = (about.get("hardwareProfile") or {}).get("vmSize", "")
    if not re.fullmatch(r"(Standard|Basic)_\w+(-\w+)?", size) or size in gone:
        raise Refused(
            "InvalidParameter",
            f"The value {size} provided for the VM size is not valid. The valid sizes in the "
            f"current region are: {', '.join(f'Standard_D{n}s_v5' for n in range(2, 400))}",
        )
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9_])?", name):
        raise Refused("InvalidParameter", f"The entity name '{name}' is invalid.")
    for zone in body.get("zones") or ():
        if zone not in ("1", "2", "3"):
            raise Refused(
                "InvalidAvailabilityZone",
                f"The zone(s) '{zone}' for resource '{name}' is not supported.",
            )
    spot = about.get("priority") == "Spot"
    if about.get("evictionPolicy") and not spot:
        raise Refused(
            "EvictionPolicyCanBeSetOnlyOnAzureSpotVirtualMachines",
            "Eviction policy can be set only on Azure Spot Virtual Machines.",
        )
    _check_storage(about.get("storageProfile") or {}, size)
    _check_system(about.get("osProfile") or {})
    _check_network(about.get("networkProfile") or {}, there)


def _check_storage(storage: dict[str, Any], size: str) -> None:
    image, disk = storage.get("imageReference") or {}, storage.get("osDisk") or {}
    key = image.get("publisher"), image.get("offer"), image.get("sku")
    if key not in IMAGES or image.get("version") != "latest":
        raise Refused("PlatformImageNotFound", f"The platform image '{key}' is not available.", 404)
    arch, least = IMAGES[key]
    able = "Arm64" if _ARM.search(size) else "x64"
    if arch != able:
        raise Refused(
            "BadRequest",
            f"Cannot create a VM of size '{size}' because this VM size only supports a CPU "
            f"Architecture of '{able}', but an image or disk with CPU Architecture '{arch}' was "
            "given.",
        )
    gib = disk.get("diskSizeGB") or least
    if gib > _DISK_GIB:
        raise Refused(
            "InvalidParameter",
            f"The value '{gib}' of parameter 'disk.diskSizeGB' is out of range. The value must be "
            f"between '1' and '{_DISK_GIB}', inclusive.",
        )
    if gib < least:
        raise Refused(
            "InvalidParameter",
            f"The specified disk size {gib} GB is smaller than the size of the corresponding disk "
            f"in the VM image: {least} GB.",
        )


def _check_system(system: dict[str, Any]) -> None:
    user, host = system.get("adminUsername", ""), system.get("computerName", "")
    if not user or user.lower() in _NAMES_TAKEN:
        raise Refused(
            "InvalidParameter", "The Admin Username specified is not allowed: a reserved word."
        )
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9-]{0,62}[A-Za-z0-9])?", host):
        raise Refused("InvalidParameter", f"Linux host name '{host}' is not valid.")
    try:
        document = base64.b64decode(system.get("customData") or "", validate=True)
    except binascii.Error:
        raise Refused(
            "InvalidParameter", "Custom data in OSProfile must be in Base64 encoding."
        ) from None
    if len(document) > 65535:
        raise Refused("InvalidParameter", "Custom data in OSProfile is too long: 64 KB at most.")
    keys = ((system.get("linuxConfiguration") or {}).get("ssh") or {}).get("publicKeys") or []
    for key in keys:
        if key.get("path") != f"/home/{user}/.ssh/authorized_keys":
            raise Refused("InvalidParameter", "Destination path for SSH public keys is fixed.")
        if not re.match(r"ssh-(rsa|ed25519) AAAA", key.get("keyData", "")):
            raise Refused("InvalidParameter", "The value of parameter ssh.keyData is invalid.")
    if not keys and not system.get("adminPassword"):
        raise Refused("InvalidParameter", "Authentication using either SSH or a password is needed")


def _check_network(network: dict[str, Any], there: set[str]) -> None:
    made = network.get("networkInterfaceConfigurations") or []
    if not made:
        raise Refused("InvalidParameter", "The network profile has no interface.")
    if not network.get("networkApiVersion"):
        raise Refused("InvalidParameter", "Required parameter 'networkApiVersion' is missing.")
    for one in made:
        about = one["properties"]
        ids = [way["properties"]["subnet"]["id"] for way in about["ipConfigurations"]]
        ids.append((about.get("networkSecurityGroup") or {}).get("id"))
        for id in ids:
            if id is not None and id.lower() not in there:
                raise Refused(
                    "InvalidResourceReference",
                    f"Resource {id} referenced by {one['name']} was not found.",
                )
