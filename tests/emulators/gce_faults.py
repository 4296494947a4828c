"""Requests of Compute Engine's API, and the faults that are injected into them."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from .fault_injection import Script
from .server import Request

_ACTIONS = (
    ("POST", r"/token", "token"),
    ("POST", r"zones/[^/]+/instances", "create"),
    ("DELETE", r"zones/[^/]+/instances/[^/]+", "remove"),
    ("POST", r"zones/[^/]+/instances/[^/]+/stop", "stop"),
    ("POST", r"zones/[^/]+/instances/[^/]+/start", "start"),
    ("GET", r"zones/[^/]+/instances(/[^/]+)?", "describe"),
    ("GET", r"aggregated/instances", "list"),
    ("GET", r"(zones/[^/]+|global)/operations/[^/]+", "poll"),
    ("POST", r"global/(networks|firewalls)", "network"),
    ("GET", r"zones/[^/]+/instances/[^/]+/serialPort", "console"),
    ("GET", r"", "identify"),
)
_PERMISSIONS = {
    "create": "compute.instances.create",
    "remove": "compute.instances.delete",
    "stop": "compute.instances.stop",
    "start": "compute.instances.start",
    "describe": "compute.instances.get",
    "list": "compute.instances.list",
    "poll": "compute.zoneOperations.get",
    "network": "compute.networks.create",
    "console": "compute.instances.getSerialPortOutput",
    "identify": "compute.projects.get",
}


def action_of(method: str, path: str) -> str:
    """Say in a word what a request does, by its path below the project."""
    found = (each for asked, at, each in _ACTIONS if asked == method and re.fullmatch(at, path))
    return next(found, "other")


def permission_for(action: str) -> str:
    """Return the permission that an action needs."""
    return _PERMISSIONS.get(action, "compute.resources.use")


def applies(script: Script, action: str, request: Request, known: bool) -> bool:
    """Whether a script is about a request, which may have come before."""
    if script.action != action:
        return False
    if action != "create":
        return True
    if script.kind == "refuse" and known:
        return False  # what was decided about a request that comes again stays
    body = json.loads(request.body or b"{}")
    spot = body.get("scheduling", {}).get("provisioningModel", "STANDARD") == "SPOT"
    kind = body.get("machineType", "").rpartition("/")[2]
    found = re.search("/zones/([^/]+)/", request.path)
    asked = replace(script, instance_type=script.instance_type.partition("+")[0])
    return asked.fits(found[1] if found else "", kind, spot)
