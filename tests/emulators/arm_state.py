"""A subscription as its requests see it: groups, networks, machines and roles."""

from __future__ import annotations

import json
import re
import time
import uuid
from datetime import datetime
from typing import Any

from .arm_machines import Machines
from .arm_power import PowerCycle
from .arm_resources import Error, group_of, last, refused, type_of
from .arm_validation import Refused, check
from .server import Request, Response

SLOW = {"virtualnetworks", "networksecuritygroups", "virtualmachines"}
_USAGES = re.compile(r"/subscriptions/[^/]+/providers/microsoft.compute/locations/(\w+)/usages")
_TAG = re.compile(r"tagName eq '((?:[^']|'')*)'(?: and tagValue eq '((?:[^']|'')*)')?")
_CONTRIBUTOR = "b24988ac-6180-42a0-ab88-20f7382dd24c"


def kind_of(path: str) -> str:
    """Kind of resource that a path leads to, such as ``virtualMachines``.

    >>> kind_of("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/a")
    'virtualMachines'
    """
    if path.endswith("/token"):
        return "token"
    _, found, inside = path.rpartition("/providers/")
    if found:
        parts = inside.split("/")[1:]
        if parts[0] == "locations":
            return "operations"
        kind = "/".join(parts[0::2])
        return kind if len(parts) != 3 else "/".join((parts[0], parts[2]))
    if re.search("/resourcegroups(/|$)", path, re.IGNORECASE):
        return "resourceGroups"
    return path.split("/")[1] if path.count("/") else path


def action_of(method: str, path: str) -> str:
    """Return the permission that a request needs.

    >>> action_of("DELETE", "/subscriptions/s/resourceGroups/g")
    'Microsoft.Resources/subscriptions/resourceGroups/delete'
    """
    verb = {"GET": "read", "PUT": "write", "DELETE": "delete"}.get(method, "action")
    _, found, inside = path.rpartition("/providers/")
    if not found:
        return f"Microsoft.Resources/subscriptions/{kind_of(path)}/{verb}"
    return f"{inside.partition('/')[0]}/{kind_of(path)}/{verb}"


class State(PowerCycle, Machines):
    """One subscription."""

    def __init__(self, subscription: str, *rest: Any) -> None:
        super().__init__(subscription, *rest)
        self.subscriptions = {subscription: "Emulated"}
        self.usages: dict[str, list[tuple[str, str, int, int]]] = {}
        """Name, title, use and limit of the quotas of each region."""
        self.roles_lag = False

    def may(self, who: str, path: str, action: str) -> bool:
        """Whether a machine's identity has a role that covers an action at a path."""
        with self._lock:
            given = [
                str(one["properties"]["roleDefinitionId"]).lower()
                for one in self._all.values()
                if type_of(one) == "roleassignments"
                and one["properties"]["principalId"] == who
                and path.lower().startswith(one["_scope"])
            ]
            return any(
                role.endswith(_CONTRIBUTOR) or action.lower() in self._actions(role)
                for role in given
            )

    def _actions(self, role: str) -> set[str]:
        about = self._all.get(role, {}).get("properties", {})
        return {
            action.lower()
            for permission in about.get("permissions") or ()
            for action in permission["actions"]
        }

    def answer(
        self, request: Request, page: int, retry_after: str, later: Error | None
    ) -> Response:
        """Answer one request whose sender is known; `later` is what its operation ends with."""
        path, key, kind = request.path, request.path.lower(), kind_of(request.path).lower()
        if key.endswith("/virtualmachinessubmitdeallocate"):
            return self._submit_deallocate(request)
        if request.method == "GET" and (place := _USAGES.fullmatch(key)):
            return self._list_usages(place[1])
        if kind == "operations":
            return self._operation(path, retry_after)
        with self._lock:
            if request.method == "GET":
                return self._get(request, key, kind, page)
            self._alive_group(key)
            if request.method == "PUT":
                return self._put(request, key, kind, retry_after, later)
            if request.method == "DELETE":
                return self._remove(key, kind, retry_after)
            if request.method == "POST" and last(key) in ("deallocate", "start"):
                return self._change_power(key, retry_after, later)
            if request.method == "POST":
                return self._act(key)
        raise Refused("MethodNotAllowed", request.method, 405)

    def _list_usages(self, region: str) -> Response:
        """Return what the subscription uses of its quotas in a region, and their limits."""
        if region not in self.usages:
            raise refused("NoRegisteredProviderFound", region=region)
        return Response.json(
            {
                "value": [
                    {
                        "unit": "Count",
                        "currentValue": used,
                        "limit": limit,
                        "name": {"value": name, "localizedValue": title},
                    }
                    for name, title, used, limit in self.usages[region]
                ]
            }
        )

    def _get(self, request: Request, key: str, kind: str, page: int) -> Response:
        expanded = request.query.get("$expand", "") == "instanceView"
        if key == self.home.lower():
            return Response.json(self._subscription(self.subscription))
        if key == "/subscriptions":
            return Response.json({"value": [self._subscription(id) for id in self.subscriptions]})
        if key in self._all:
            return Response.json(self._shown(self._all[key], expanded))
        group = re.match(r"(/subscriptions/[^/]+/resourcegroups/[^/]+)/", key)
        if group and group[1] not in self._all:
            name = request.path.split("/")[4]
            raise refused("ResourceGroupNotFound", group=name)
        if not key.endswith(f"/{kind.split('/')[-1]}"):
            raise self._missing(request.path, kind)
        prefix = key.split("/providers/")[0] if group else self.home.lower()
        tag = _TAG.fullmatch(request.query.get("$filter", ""))
        if request.query.get("$filter") and not tag:
            raise Refused("InvalidFilterInQueryString", "The filter is not understood.")
        found = [
            self._shown(one, expanded)
            for path, one in sorted(self._all.items())
            if path.startswith(prefix) and type_of(one) == kind and _tagged(one, tag)
        ]
        start = int(request.query.get("$skipToken", "0"))
        answer: dict[str, Any] = {"value": found[start : start + page]}
        if start + page < len(found):
            query = {**request.query, "$skipToken": str(start + page)}
            pairs = "&".join(f"{name}={value}" for name, value in query.items())
            answer["nextLink"] = f"{self.url}{request.path}?{pairs}".replace(" ", "%20")
        return Response.json(answer)

    def _subscription(self, id: str) -> dict[str, Any]:
        return {
            "id": f"/subscriptions/{id}",
            "subscriptionId": id,
            "displayName": self.subscriptions[id],
            "state": "Enabled",
        }

    def _missing(self, path: str, kind: str) -> Refused:
        if kind == "resourcegroups":
            return refused("ResourceGroupNotFound", group=path.rpartition("/")[2])
        return refused("ResourceNotFound", scope=path, group=group_of(path))

    def _alive_group(self, key: str) -> None:
        path = "/".join(key.split("/")[:5])
        if not re.match("/subscriptions/[^/]+/resourcegroups/.", path):
            return
        group = self._all.get(path)
        if group is None and path != key:
            raise refused("ResourceGroupNotFound", group=path.rpartition("/")[2])
        if group is not None and group["properties"]["provisioningState"] == "Deleting":
            raise refused("ResourceGroupBeingDeleted", group=group["name"])

    def _put(
        self, request: Request, key: str, kind: str, retry_after: str, later: Error | None
    ) -> Response:
        try:
            body = json.loads(request.body)
        except ValueError:
            raise Refused("InvalidRequestContent", "The request content is not JSON.") from None
        check(kind, body)
        old = self._all.get(key)
        if old is not None and request.headers.get("if-none-match") == "*":
            raise refused("PreconditionFailed")
        if kind == "roleassignments":
            return self._assign(request.path, key, body)
        if kind == "roledefinitions":
            return self._define(request.path, key, body)
        if old is not None and old.get("location") != body.get("location"):
            code = "InvalidResourceGroupLocation" if kind == "resourcegroups" else "InvalidResource"
            raise Refused(code, f"'{old['name']}' already exists in '{old.get('location')}'.", 409)
        if kind == "virtualmachines":
            return self._put_machine(request, key, body, old, retry_after, later)
        made = self._new(request.path, kind, body)
        for subnet in made["properties"].get("subnets") or ():
            subnet["id"] = f"{request.path}/subnets/{subnet['name']}"
        self._all[key] = made
        if kind not in SLOW:
            return Response.json(self._shown(made), 200 if old else 201)
        made["properties"]["provisioningState"] = "Updating"

        def finish() -> Error | None:
            made["properties"]["provisioningState"] = "Succeeded"
            return later

        headers = self._begin(finish, retry_after, 0.0)
        return Response.json(self._shown(made), 200 if old else 201, **headers)

    def _assign(self, path: str, key: str, body: dict[str, Any]) -> Response:
        about = body.get("properties") or {}
        role = str(about.get("roleDefinitionId", ""))
        known = role.endswith(f"/roleDefinitions/{_CONTRIBUTOR}") or role.lower() in self._all
        if not known or (role.lower() in self._all and self.roles_lag):
            raise Refused("RoleDefinitionDoesNotExist", "The role is not known.", 404)
        principals = [(one.get("identity") or {}).get("principalId") for one in self._all.values()]
        if about.get("principalId") not in principals:
            message = f"Principal {about.get('principalId')} does not exist in the directory."
            raise Refused("PrincipalNotFound", message)
        try:
            uuid.UUID(path.rpartition("/")[2])
        except ValueError:
            message = "The role assignment ID is not valid: a GUID is expected."
            raise Refused("InvalidRoleAssignmentId", message) from None
        if key in self._all:
            raise refused("RoleAssignmentExists")
        made = self._new(path, "roleassignments", body)
        made["_scope"] = path.lower().split("/providers/microsoft.authorization")[0]
        self._all[key] = made
        return Response.json(self._shown(made), 201)

    def _define(self, path: str, key: str, body: dict[str, Any]) -> Response:
        """Make a role of one's own: https://learn.microsoft.com/rest/api/authorization."""
        about = body.get("properties") or {}
        for name in ("roleName", "permissions", "assignableScopes"):
            if not about.get(name):
                raise Refused("RoleDefinitionMissingProperty", f"The role has no {name}.")
        scope = path.lower().split("/providers/")[0]
        if scope not in [each.lower() for each in about["assignableScopes"]]:
            raise Refused("InvalidRoleDefinitionScope", "The role cannot be given there.")
        made = self._all[key] = self._new(path, "roledefinitions", body)
        return Response.json(self._shown(made), 201)

    def _submit_deallocate(self, request: Request) -> Response:
        """Deallocate machines at a time: Scheduled Actions, virtualMachinesSubmitDeallocate."""
        asked = json.loads(request.body)
        schedule, ids = asked["schedule"], asked["resources"]["ids"]
        when = datetime.fromisoformat(schedule["deadline"])
        if schedule["deadlineType"] != "InitiateAt" or schedule["timezone"] != "UTC":
            raise Refused("InvalidRequest", "The schedule is not understood.")
        if not asked.get("correlationid") or "executionParameters" not in asked:
            raise Refused("InvalidRequest", "A required property is missing.")
        if when.timestamp() < time.time():
            raise Refused("DeadlineInPast", "The deadline is in the past.")
        results = []
        for id in ids:
            about = {
                "operationId": str(uuid.uuid4()),
                "resourceId": id,
                "opType": "Deallocate",
                "state": "PendingScheduling",
                **schedule,
            }
            results.append({"resourceId": id, "operation": about})
            self.deallocate_at(id, when.timestamp())
        said = {"type": "VirtualMachines", "location": "here", "results": results}
        return Response.json(said | {"description": "Deallocate Resource request"})

    def _remove(self, key: str, kind: str, retry_after: str) -> Response:
        if key not in self._all:
            if kind == "resourcegroups":
                raise self._missing(key, kind)
            return Response(b"", 204)
        for path, one in self._all.items():
            if path == key or path.startswith(f"{key}/"):
                one["properties"]["provisioningState"] = "Deleting"
        headers = self._begin(lambda: self._delete(key), retry_after, self.boot)
        return Response(b"", 202, headers)


def _tagged(one: dict[str, Any], tag: re.Match[str] | None) -> bool:
    if tag is None:
        return True
    name, value = tag[1].replace("''", "'"), tag[2]
    tags = one.get("tags") or {}
    return name in tags and (value is None or tags[name] == value.replace("''", "'"))
