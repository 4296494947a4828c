"""Refusals of Compute Engine for a request: fields, kinds and values by Google's own discovery
document, then what only the service itself knows; and the filters of its lists."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_METADATA_KEY = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_METADATA_BYTES, _ALL_METADATA_BYTES = 256 * 1024, 512 * 1024
IMAGES = {
    ("ubuntu-os-cloud", "ubuntu-2404-lts-amd64"): ("x86_64", 10),
    ("ubuntu-os-cloud", "ubuntu-2404-lts-arm64"): ("arm64", 10),
    ("deeplearning-platform-release", "common-cu129-ubuntu-2404-nvidia-580"): ("x86_64", 50),
}
"""Families by project: architecture, and GiB of the disk that they come with."""
_DISK_GIB = 65536
_HYPERDISK = frozenset("a4 a4x c4 c4a c4d c4n g4 h4d m4 m4n n4 n4a n4d x4".split())
"""Series whose machines take no persistent disks, nor do bare ones and A3 Ultra."""
_WITH_GPUS = re.compile(r"(?:a2|a3|a4|a4x|g2|g4)-")
_KINDS = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "array": list,
    "object": dict,
}


class Refused(Exception):
    """The service refuses; in its own words."""

    def __init__(self, status: int, reason: str, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.status, self.reason, self.message, self.detail = status, reason, message, detail


def invalid(field: str, value: Any, why: str) -> Refused:
    """A field that has a value which it cannot have."""
    return Refused(400, "invalid", f"Invalid value for field '{field}': '{value}'. {why}")


@cache
def schemas(api: str) -> dict[str, Any]:
    """The schemas of an API's discovery document, which Google's client for Python comes with."""
    import googleapiclient

    folder = Path(googleapiclient.__file__).parent / "discovery_cache" / "documents"
    return json.loads((folder / f"{api}.json").read_text())["schemas"]


def check(kind: str, value: Any, path: str = "", *, api: str = "compute.v1") -> None:
    """Refuse a value that is not of a schema of an API."""
    _check(api, {"$ref": kind}, value, path)


def _check(api: str, schema: dict[str, Any], value: Any, path: str) -> None:
    if "$ref" in schema:
        schema = schemas(api)[schema["$ref"]]
    kind = schema.get("type", "object")
    if not isinstance(value, _KINDS[kind]) or (kind == "integer" and isinstance(value, bool)):
        raise Refused(400, "invalid", f"Invalid value at '{path}': {json.dumps(value)}")
    if schema.get("format") in ("int64", "uint64") and not re.fullmatch(r"-?\d+", str(value)):
        raise Refused(400, "invalid", f"Invalid value at '{path}' (TYPE_INT64), {value!r}")
    if "enum" in schema and value not in schema["enum"]:
        raise Refused(400, "invalid", f"Invalid value at '{path}', \"{value}\"")
    if kind == "array":
        for number, each in enumerate(value):
            _check(api, schema["items"], each, f"{path}[{number}]")
    elif kind == "object":
        known = schema.get("properties", {})
        others = schema.get("additionalProperties")
        for name, each in value.items():
            if name not in known and others is None:
                words = f"Invalid JSON payload received. Unknown name \"{name}\" at '{path}'"
                raise Refused(400, "invalid", f"{words}: Cannot find field.")
            _check(api, known.get(name, others), each, f"{path}.{name}" if path else name)


def check_name(name: str) -> None:
    """Refuse what is no name of a resource."""
    if not NAME.fullmatch(name):
        raise invalid("resource.name", name, f"Must be a match of regex '{NAME.pattern}'")


def check_request_id(request_id: str | None) -> None:
    """Refuse what is no id of a request."""
    if request_id is not None and not _UUID.fullmatch(request_id.lower()):
        raise invalid("requestId", request_id, "The requestId must be a valid UUID.")


def check_instance(body: dict[str, Any], zone: str, arch: str) -> None:
    """Refuse a machine that the service would not make.

    Parameters
    ----------
    arch
        Of its machine type.
    """
    check_name(body.get("name", ""))
    _check_labels(body.get("labels", {}), "resource.labels")
    _check_metadata(body.get("metadata", {}).get("items", []))
    if not body.get("disks"):
        raise Refused(400, "required", "Invalid value for field 'resource.disks': ''. At least "
                      "one disk must be specified.")  # fmt: skip
    _check_disk(body["disks"][0], body["machineType"].rpartition("/")[2], arch)
    _check_scheduling(body)


def _check_labels(labels: dict[str, str], field: str) -> None:
    if len(labels) > 64:
        raise invalid(field, "", "There can be at most 64 labels.")
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            why = "Label keys and values must be lower case letters, numbers, dashes, underscores."
            raise invalid(f"{field}.{key}", value, why)


def _check_metadata(items: list[dict[str, str]]) -> None:
    for item in items:
        if not _METADATA_KEY.fullmatch(item["key"]):
            raise invalid("resource.metadata.items.key", item["key"], "Not a key of metadata.")
        if len(item.get("value", "").encode()) > _METADATA_BYTES:
            raise invalid(f"resource.metadata.items.{item['key']}", "...", "Value too long.")
    if sum(len(item.get("value", "").encode()) for item in items) > _ALL_METADATA_BYTES:
        raise invalid("resource.metadata", "...", "The total size of metadata is too large.")
    if len({item["key"] for item in items}) < len(items):
        raise invalid("resource.metadata", "...", "Metadata has duplicate keys.")


def _check_disk(disk: dict[str, Any], kind: str, arch: str) -> None:
    params, field = disk.get("initializeParams", {}), "resource.disks[0].initializeParams"
    found = re.fullmatch(
        r"projects/([^/]+)/global/images/family/([^/]+)", params.get("sourceImage", "")
    )
    if not found or found.groups() not in IMAGES:
        why = "The referenced image resource cannot be found."
        raise invalid(f"{field}.sourceImage", params.get("sourceImage", ""), why)
    (image_arch, least), gib = IMAGES[found.group(1), found.group(2)], params.get("diskSizeGb", 10)
    if image_arch != arch:
        raise Refused(400, "invalid", "The architecture of the machine type is not compatible "
                      "with that of the image.")  # fmt: skip
    if int(gib) > _DISK_GIB:
        raise invalid(f"{field}.diskSizeGb", gib, f"Disk cannot be larger than {_DISK_GIB} GB.")
    if int(gib) < least:
        why = f"Requested disk size cannot be smaller than the image size ({least} GB)"
        raise invalid(f"{field}.diskSizeGb", gib, why)
    disk_type = params.get("diskType", "pd-standard").rpartition("/")[2]
    fast = kind.partition("-")[0] in _HYPERDISK or re.search(r"^a3-ultra|-metal$", kind)
    if disk_type.startswith("hyperdisk") != bool(fast):
        words = f"[{disk_type}] features are not compatible for creating instance."
        raise Refused(400, "badRequest", words)
    _check_labels(params.get("labels", {}), f"{field}.labels")


def _check_scheduling(body: dict[str, Any]) -> None:
    plan = body.get("scheduling", {})
    spot = plan.get("provisioningModel") == "SPOT"
    kind = body["machineType"].rpartition("/")[2]
    gpus = body.get("guestAccelerators") or _WITH_GPUS.match(kind)
    still = plan.get("onHostMaintenance") == "TERMINATE"
    limit = plan.get("maxRunDuration", {}).get("seconds")
    if gpus and not still:
        words = "Instances with guest accelerators do not support live migration."
        raise Refused(400, "badRequest", words)
    if spot and (plan.get("automaticRestart", True) or not still):
        words = "Scheduling must have preemptible be false when AutomaticRestart is true."
        raise Refused(400, "invalid", words)
    if limit is not None and not 30 <= int(limit) <= 120 * 86400:
        why = "Must be between 30 seconds and 120 days."
        raise invalid("resource.scheduling.maxRunDuration.seconds", limit, why)
    if plan.get("instanceTerminationAction") and not (spot or limit):
        words = "instanceTerminationAction needs provisioningModel SPOT or a limit of run time."
        raise Refused(400, "invalid", words)


# -- filters -------------------------------------------------------------------------------

_TERM = re.compile(r"""\(?\s*([\w.-]+)\s*(!=|=|:|\beq\b)\s*("[^"]*"|\*|[^\s()]+)\s*\)?""")


def matcher(text: str) -> Callable[[dict[str, Any]], bool]:
    """Whether an entry of a list gets through a filter of comparisons, with AND and OR."""
    ways: list[list[tuple[str, str, str]]] = [[]]
    position = 0
    while position < len(text.rstrip()):
        rest = text[position:]
        if word := re.match(r"\s*(AND|OR)\b\s*|\s+", rest):
            if word[1] == "OR":
                ways.append([])
            position += word.end()
            continue
        term = _TERM.match(rest)
        if term is None:
            raise invalid("filter", text, "Invalid list filter expression.")
        ways[-1].append((term[1], term[2], term[3].strip('"')))
        position += term.end()
    return lambda entry: any(all(_holds(entry, *term) for term in way) for way in ways)


def _holds(entry: dict[str, Any], field: str, sign: str, wanted: str) -> bool:
    value: Any = entry
    for part in field.split(".", 1):
        value = value.get(part) if isinstance(value, dict) else None
    if sign == ":":
        return value is not None and (wanted == "*" or wanted in str(value))
    if sign == "eq":
        return re.fullmatch(wanted, str(value or "")) is not None
    return (str(value if value is not None else "") == wanted) == (sign == "=")
