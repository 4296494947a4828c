"""Resources of a subscription, and the operations that take time."""

from __future__ import annotations

import copy
import threading
import uuid
from collections.abc import Callable
from typing import Any

from .arm_errors import words
from .arm_validation import Refused
from .server import Response

Error = dict[str, str]
Resource = dict[str, Any]
"""As it is on the wire; names that begin with ``_`` are not shown."""


def refused(code: str, **names: str) -> Refused:
    """A refusal in Azure's words."""
    said = words(code)
    return Refused(code, said.message.format_map(names), said.status)


def last(path: str) -> str:
    """The name at the end of a path."""
    return path.rpartition("/")[2]


def group_of(path: str) -> str:
    """The group that a path is in."""
    return path.split("/")[4] if path.count("/") > 3 else ""


class Resources:
    """The resources of one subscription by their ids in lower case."""

    def __init__(self, subscription: str, url: str) -> None:
        self.home, self.url = f"/subscriptions/{subscription}", url
        self._all: dict[str, Resource] = {}
        self._operations: dict[str, dict[str, Any]] = {}
        self._lock = threading.RLock()
        self._closed = threading.Event()

    def names(self, kind: str) -> list[str]:
        """Names of all resources of a kind."""
        return sorted(one["name"] for one in self.all(kind))

    def all(self, kind: str) -> list[dict[str, Any]]:
        """All resources of a kind."""
        with self._lock:
            return [one for one in self._all.values() if type_of(one) == kind]

    def tags(self, kind: str) -> list[dict[str, str]]:
        """Tags of all resources of a kind."""
        return [one.get("tags") or {} for one in self.all(kind)]

    def _new(self, path: str, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        made = copy.deepcopy(body)
        properties = made.get("properties") or {}
        made |= {"id": path, "name": path.rpartition("/")[2], "_kind": kind}
        made["properties"] = properties | {"provisioningState": "Succeeded"}
        return made

    def _shown(self, one: dict[str, Any], expanded: bool = False) -> dict[str, Any]:
        shown = copy.deepcopy({name: v for name, v in one.items() if not name.startswith("_")})
        if expanded and type_of(one) == "virtualmachines":
            statuses = [
                {"code": f"ProvisioningState/{one['properties']['provisioningState'].lower()}"}
            ]
            if failure := one["_failure"]:
                statuses[0]["code"] += f"/{failure['code']}"
                statuses[0]["message"] = failure["message"]
            if one["_power"]:
                statuses.append({"code": f"PowerState/{one['_power']}", "level": "Info"})
            shown["properties"]["instanceView"] = {"statuses": statuses}
        return shown

    def _begin(
        self, work: Callable[[], Error | None] | None, retry_after: str, seconds: float
    ) -> dict[str, str]:
        """Begin an operation; returns the headers by which it is followed."""
        id = str(uuid.uuid4())
        operation: dict[str, Any] = {"name": id, "status": "InProgress"}
        self._operations[id] = operation

        def run() -> None:
            if self._closed.wait(seconds):
                return
            error: Error | None = None
            try:
                error = work() if work else None
            except Exception as unexpected:
                error = {"code": "InternalExecutionError", "message": repr(unexpected)}
            if error:
                operation["error"] = error
            operation["status"] = "Failed" if error else "Succeeded"

        if seconds or work:
            threading.Thread(target=run, daemon=True).start()
        else:
            run()
        version = "api-version=2024-07-01"
        place = f"{self.url}{self.home}/providers/Microsoft.Compute/locations/here"
        return {
            "Azure-AsyncOperation": f"{place}/operations/{id}?{version}",
            "Location": f"{place}/operationResults/{id}?{version}",
            "Retry-After": retry_after,
        }

    def _operation(self, path: str, retry_after: str) -> Response:
        operation = self._operations.get(last(path))
        if operation is None:
            raise Refused("NotFound", "The operation was not found.", 404)
        if "/operationresults/" not in path.lower():
            return Response.json(operation, 200, **{"Retry-After": retry_after})
        if operation["status"] == "InProgress":
            return Response(b"", 202, {"Location": f"{self.url}{path}?api-version=2024-07-01"})
        return Response(b"", 204)


def type_of(one: Resource) -> str:
    """Return the type of a resource in lower case."""
    return one["_kind"]
