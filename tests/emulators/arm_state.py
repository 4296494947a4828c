"""What is in a subscription: groups, networks, machines, roles, and operations that take time."""

from __future__ import annotations

import base64
import copy
import itertools
import json
import re
import secrets
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from .arm_bodies import Refused, check, check_machine
from .arm_words import words
from .server import Request, Response

SLOW = {"virtualnetworks", "networksecuritygroups", "virtualmachines"}
_TAG = re.compile(r"tagName eq '((?:[^']|'')*)'(?: and tagValue eq '((?:[^']|'')*)')?")
_CONTRIBUTOR = "b24988ac-6180-42a0-ab88-20f7382dd24c"
Error = dict[str, str]


def kind_of(path: str) -> str:
    """What a path leads to, such as ``virtualMachines``.

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


class State:
    """The resources of one subscription."""

    def __init__(
        self,
        subscription: str,
        url: str,
        fleet: Any,
        boot: float,
        issue: Callable[[str], str],
        authority: str,
    ) -> None:
        self.home, self.url = f"/subscriptions/{subscription}", url
        self.subscription, self.fleet, self.boot = subscription, fleet, boot
        self.subscriptions = {subscription: "Emulated"}
        self.gone_sizes: set[str] = set()
        self._issue, self._authority = issue, authority
        self._all: dict[str, dict[str, Any]] = {}
        self._hosts: dict[str, Any] = {}
        self._consoles: dict[str, str] = {}
        self._operations: dict[str, dict[str, Any]] = {}
        self._addresses = itertools.count(1)
        self._lock = threading.RLock()
        self._closed = threading.Event()

    # -- for tests ---------------------------------------------------------------------------

    def names(self, kind: str) -> list[str]:
        """Names of all resources of a kind."""
        return sorted(one["name"] for one in self.all(kind))

    def all(self, kind: str) -> list[dict[str, Any]]:
        """All resources of a kind."""
        with self._lock:
            return [one for one in self._all.values() if _kind(one) == kind]

    def tags(self, kind: str) -> list[dict[str, str]]:
        """Tags of all resources of a kind."""
        return [one.get("tags") or {} for one in self.all(kind)]

    def machines(self) -> list[dict[str, Any]]:
        """Machines that have not ended."""
        with self._lock:
            return [
                {
                    "id": f"{_group(one['id'])}/{one['name']}",
                    "tags": dict(one.get("tags") or {}),
                    "state": one["_power"],
                    "lease_end": float((one.get("tags") or {}).get("jupyter-sky-lease-end", 0)),
                }
                for one in self._all.values()
                if _kind(one) == "virtualmachines" and one["_power"]
            ]

    def machine_of(self, id: str) -> dict[str, Any]:
        """The machine of an id such as ``group/name``."""
        group, _, name = id.lower().partition("/")
        path = f"{self.home}/resourcegroups/{group}/providers/microsoft.compute/virtualmachines/"
        with self._lock:
            return self._all[path.lower() + name]

    def evict(self, machine: dict[str, Any], notice: float) -> None:
        """Take a spot machine back."""
        host = self._hosts.get(machine["id"].lower())

        def end() -> None:
            if host is not None:
                host.notice(notice)  # ends it then, and says so by on_end
            else:
                self._closed.wait(notice)
                self._delete(machine["id"])

        threading.Thread(target=end, daemon=True).start()

    def may(self, who: str, path: str) -> bool:
        """Whether a machine's identity has a role that covers a path."""
        with self._lock:
            return any(
                one["properties"]["principalId"] == who and path.lower().startswith(one["_scope"])
                for one in self._all.values()
                if _kind(one) == "roleassignments"
            )

    def close(self) -> None:
        """End all machines."""
        self._closed.set()
        with self._lock:
            hosts = list(self._hosts.values())
            self._hosts.clear()
        for host in hosts:
            host.kill()

    # -- requests ----------------------------------------------------------------------------

    def answer(
        self, request: Request, page: int, retry_after: str, later: Error | None
    ) -> Response:
        """Answer one request whose sender is known; `later` is what its operation ends with."""
        path, key, kind = request.path, request.path.lower(), kind_of(request.path).lower()
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
            if request.method == "POST":
                return self._act(key)
        raise Refused("MethodNotAllowed", request.method, 405)

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
            raise _refused("ResourceGroupNotFound", group=name)
        if not key.endswith(f"/{kind.split('/')[-1]}"):
            raise self._missing(request.path, kind)
        prefix = key.split("/providers/")[0] if group else self.home.lower()
        tag = _TAG.fullmatch(request.query.get("$filter", ""))
        if request.query.get("$filter") and not tag:
            raise Refused("InvalidFilterInQueryString", "The filter is not understood.")
        found = [
            self._shown(one, expanded)
            for path, one in sorted(self._all.items())
            if path.startswith(prefix) and _kind(one) == kind and _tagged(one, tag)
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
            return _refused("ResourceGroupNotFound", group=path.rpartition("/")[2])
        return _refused("ResourceNotFound", scope=path, group=_group(path))

    def _alive_group(self, key: str) -> None:
        path = "/".join(key.split("/")[:5])
        if not re.match("/subscriptions/[^/]+/resourcegroups/.", path):
            return
        group = self._all.get(path)
        if group is None and path != key:
            raise _refused("ResourceGroupNotFound", group=path.rpartition("/")[2])
        if group is not None and group["properties"]["provisioningState"] == "Deleting":
            raise _refused("ResourceGroupBeingDeleted", group=group["name"])

    # -- making ------------------------------------------------------------------------------

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
            raise _refused("PreconditionFailed")
        if kind == "roleassignments":
            return self._assign(request.path, key, body)
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

    def _new(self, path: str, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        made = copy.deepcopy(body)
        properties = made.get("properties") or {}
        made |= {"id": path, "name": path.rpartition("/")[2], "_kind": kind}
        made["properties"] = properties | {"provisioningState": "Succeeded"}
        return made

    def _put_machine(
        self,
        request: Request,
        key: str,
        body: dict[str, Any],
        old: dict[str, Any] | None,
        retry_after: str,
        later: Error | None,
    ) -> Response:
        if old is not None:
            if body["properties"].get("osProfile", {}).get("customData") != old["_custom"]:
                message = "Changing property 'osProfile.customData' is not allowed."
                raise Refused("PropertyChangeNotAllowed", message, 409)
            return Response.json(self._shown(old), 200, **self._begin(None, retry_after, 0.0))
        there = set(self._all) | {
            subnet["id"].lower()
            for one in self._all.values()
            for subnet in one["properties"].get("subnets") or ()
        }
        check_machine(request.path.rpartition("/")[2], body, self.gone_sizes, there)
        made = self._new(request.path, "virtualmachines", body)
        about = made["properties"]
        system, disk = about["osProfile"], about["storageProfile"]["osDisk"]
        made |= {"_custom": system.pop("customData", ""), "_power": "", "_failure": None}
        system.pop("adminPassword", None)
        about |= {"provisioningState": "Creating", "vmId": str(uuid.uuid4())}
        about["timeCreated"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        if (made.get("identity") or {}).get("type") == "SystemAssigned":
            made["identity"]["principalId"] = str(uuid.uuid4())
        group = request.path.split("/providers/")[0]
        name = disk.setdefault("name", f"{made['name']}_disk")
        disk_id = f"{group}/providers/Microsoft.Compute/disks/{name}"
        disk.setdefault("managedDisk", {})["id"] = disk_id
        self._all[disk_id.lower()] = self._new(disk_id, "disks", {"tags": made.get("tags")})
        self._make_interfaces(made, group)
        self._all[key] = made
        headers = self._begin(lambda: self._boot(made, later), retry_after, self.boot)
        return Response.json(self._shown(made), 201, **headers)

    def _make_interfaces(self, made: dict[str, Any], group: str) -> None:
        network = made["properties"]["networkProfile"]
        around = f"{group}/providers/Microsoft.Network"
        number = next(self._addresses)
        network["networkInterfaces"] = []
        for one in network.pop("networkInterfaceConfigurations"):
            ways = copy.deepcopy(one["properties"]["ipConfigurations"])
            for way in ways:
                asked = way["properties"].pop("publicIPAddressConfiguration", None)
                way["properties"]["privateIPAddress"] = f"10.77.0.{number + 3}"
                if asked:
                    id = f"{around}/publicIPAddresses/{asked['name']}"
                    self._all[id.lower()] = self._new(id, "publicipaddresses", asked)
                    way["properties"]["publicIPAddress"] = {"id": id}
            id = f"{around}/networkInterfaces/{one['name']}"
            body = {
                "tags": one.get("tags"),
                "location": made["location"],
                "properties": {"ipConfigurations": ways, "virtualMachine": {"id": made["id"]}},
            }
            self._all[id.lower()] = self._new(id, "networkinterfaces", body)
            kept = {"primary": True, "deleteOption": one["properties"].get("deleteOption")}
            network["networkInterfaces"].append({"id": id, "properties": kept})

    def _boot(self, made: dict[str, Any], later: Error | None) -> Error | None:
        """What happens behind a machine's operation."""
        with self._lock:
            if (
                made["id"].lower() not in self._all
                or made["properties"]["provisioningState"] == "Deleting"
            ):
                return {"code": "OperationPreempted", "message": "The operation was preempted."}
            if later is not None:
                made["properties"]["provisioningState"] = "Failed"
                made["_failure"] = later
                return later
            number = next(self._addresses)
            made["_power"] = "starting"
            addresses = f"192.0.2.{number % 250 + 1}", ""
            host = self._launch(made) if self.fleet is not None else None
            if host is not None:
                addresses = host.address, host.private
            self._set_addresses(made, *addresses)
            made["_power"] = "running"
        if host is not None:
            host.ready(60)
        with self._lock:
            if made["properties"]["provisioningState"] == "Creating":
                made["properties"]["provisioningState"] = "Succeeded"
        return None

    def _set_addresses(self, made: dict[str, Any], address: str, private: str) -> None:
        for one in made["properties"]["networkProfile"]["networkInterfaces"]:
            for way in self._all[one["id"].lower()]["properties"]["ipConfigurations"]:
                if private:
                    way["properties"]["privateIPAddress"] = private
                if public := way["properties"].get("publicIPAddress"):
                    self._all[public["id"].lower()]["properties"]["ipAddress"] = address

    def _launch(self, made: dict[str, Any]) -> Any:
        """Start a real machine, with the firewall of its interface."""
        about, system = made["properties"], made["properties"]["osProfile"]
        keys = ((system.get("linuxConfiguration") or {}).get("ssh") or {}).get("publicKeys") or []
        group = _group(made["id"])
        principal = (made.get("identity") or {}).get("principalId")
        metadata = {
            "cloud": "azure",
            "id": made["name"],
            "type": about["hardwareProfile"]["vmSize"],
            "region": made["location"],
            "zone": next(iter(made.get("zones") or ()), ""),
            "account": self.subscription,
            "group": group,
            "tags": made.get("tags") or {},
        }
        if principal:
            metadata["identity_token"] = self._issue(principal)
        host = self.fleet.launch(
            made["name"],
            base64.b64decode(made["_custom"]).decode(),
            ingress=self._ingress(made),
            spot=about.get("priority") == "Spot",
            metadata=metadata,
            on_end=lambda why: self._ended(made, why),
            public_key=keys[0]["keyData"] if keys else "",
            user=system["adminUsername"],
            authority=self._authority,
        )
        self._hosts[made["id"].lower()] = host
        return host

    def _ingress(self, made: dict[str, Any]) -> list[tuple[str, int]]:
        """Rules of the firewall, and what Azure allows by itself: all within the network."""
        rules: list[tuple[str, int]] = [(self.fleet.network, 0)]
        group = made["id"].split("/providers/")[0].lower()
        for one in self._all.values():
            if _kind(one) != "networksecuritygroups" or not one["id"].lower().startswith(group):
                continue
            for rule in one["properties"].get("securityRules") or ():
                about = rule["properties"]
                if about["access"] == "Allow" and about["direction"] == "Inbound":
                    sources = about.get("sourceAddressPrefixes") or [about["sourceAddressPrefix"]]
                    rules += [(source, int(about["destinationPortRange"])) for source in sources]
        return rules

    def _ended(self, made: dict[str, Any], why: str) -> None:
        """A machine ended by itself. One that is off is there still, and billed."""
        self._keep_console(made)
        with self._lock:
            self._hosts.pop(made["id"].lower(), None)
        if why == "preempted" and made["properties"].get("evictionPolicy") == "Delete":
            self._delete(made["id"])
        else:
            made["_power"] = "stopped"

    def _assign(self, path: str, key: str, body: dict[str, Any]) -> Response:
        about = body.get("properties") or {}
        if not str(about.get("roleDefinitionId", "")).endswith(f"/roleDefinitions/{_CONTRIBUTOR}"):
            raise Refused("RoleDefinitionDoesNotExist", "The role is not known.", 404)
        known = [(one.get("identity") or {}).get("principalId") for one in self._all.values()]
        if about.get("principalId") not in known:
            message = f"Principal {about.get('principalId')} does not exist in the directory."
            raise Refused("PrincipalNotFound", message)
        try:
            uuid.UUID(path.rpartition("/")[2])
        except ValueError:
            message = "The role assignment ID is not valid: a GUID is expected."
            raise Refused("InvalidRoleAssignmentId", message) from None
        if key in self._all:
            raise _refused("RoleAssignmentExists")
        made = self._new(path, "roleassignments", body)
        made["_scope"] = path.lower().split("/providers/microsoft.authorization")[0]
        self._all[key] = made
        return Response.json(self._shown(made), 201)

    # -- ending ------------------------------------------------------------------------------

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

    def _delete(self, id: str) -> None:
        """Delete a resource, what is below it, and what goes with it."""
        with self._lock:
            top = id.lower()
            going = [path for path in self._all if path == top or path.startswith(f"{top}/")]
            hosts = []
            for path in going:
                one = self._all.get(path)
                if one is not None and _kind(one) == "virtualmachines":
                    hosts.append(self._hosts.pop(path, None))
                    self._cascade(one)
                self._all.pop(path, None)
        for host in hosts:
            if host is not None:
                host.kill()

    def _cascade(self, machine: dict[str, Any]) -> None:
        disk = machine["properties"]["storageProfile"]["osDisk"]
        if disk.get("deleteOption") == "Delete":
            self._all.pop(disk["managedDisk"]["id"].lower(), None)
        for one in machine["properties"]["networkProfile"]["networkInterfaces"]:
            if one["properties"].get("deleteOption") != "Delete":
                continue
            interface = self._all.pop(one["id"].lower(), None)
            for way in interface["properties"]["ipConfigurations"] if interface else ():
                address = self._all.get(
                    way["properties"].get("publicIPAddress", {}).get("id", "").lower()
                )
                if address and address["properties"].get("deleteOption") == "Delete":
                    self._all.pop(address["id"].lower(), None)

    # -- the rest ----------------------------------------------------------------------------

    def _parent(self, key: str) -> str:
        return key.rpartition("/")[0]

    def _act(self, key: str) -> Response:
        machine, action = self._all.get(self._parent(key)), _last(key)
        if machine is None:
            raise self._missing(self._parent(key), "virtualmachines")
        if action == "simulateeviction":
            if machine["properties"].get("priority") != "Spot":
                message = "The VM is not a Spot VM and cannot be evicted."
                raise Refused("OperationNotAllowed", message, 409)
            self.evict(machine, 0.0)
            return Response(b"", 204)
        if action == "retrievebootdiagnosticsdata":
            boot = (machine["properties"].get("diagnosticsProfile") or {}).get("bootDiagnostics")
            if not (boot or {}).get("enabled"):
                raise Refused("OperationNotAllowed", "Boot diagnostics is not enabled.", 409)
            self._keep_console(machine)
            signed = (
                f"{self.url}/console/{machine['properties']['vmId']}?sig={secrets.token_hex(8)}"
            )
            return Response.json({"serialConsoleLogBlobUri": signed})
        raise Refused("InvalidAction", f"{action} is not understood.", 404)

    def _keep_console(self, machine: dict[str, Any]) -> None:
        host, vm = self._hosts.get(machine["id"].lower()), machine["properties"]["vmId"]
        if host is not None:
            self._consoles[vm] = host.console()
        else:
            self._consoles.setdefault(vm, f"{machine['name']} login: \n")

    def console(self, request: Request) -> Response:
        """What a machine has written, by a signed address; no other credentials may be sent."""
        text = self._consoles.get(request.path.rpartition("/")[2])
        if text is None or "sig" not in request.query or "authorization" in request.headers:
            return Response(b"<Error><Code>AuthenticationFailed</Code></Error>", 403)
        return Response(text.encode(), 200, {"Content-Type": "text/plain"})

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
        operation = self._operations.get(_last(path))
        if operation is None:
            raise Refused("NotFound", "The operation was not found.", 404)
        if "/operationresults/" not in path.lower():
            return Response.json(operation, 200, **{"Retry-After": retry_after})
        if operation["status"] == "InProgress":
            return Response(b"", 202, {"Location": f"{self.url}{path}?api-version=2024-07-01"})
        return Response(b"", 204)

    def _shown(self, one: dict[str, Any], expanded: bool = False) -> dict[str, Any]:
        shown = copy.deepcopy({name: v for name, v in one.items() if not name.startswith("_")})
        if expanded and _kind(one) == "virtualmachines":
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


def _kind(one: dict[str, Any]) -> str:
    return one["_kind"]


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _group(path: str) -> str:
    return path.split("/")[4] if path.count("/") > 3 else ""


def _tagged(one: dict[str, Any], tag: re.Match[str] | None) -> bool:
    if tag is None:
        return True
    name, value = tag[1].replace("''", "'"), tag[2]
    tags = one.get("tags") or {}
    return name in tags and (value is None or tags[name] == value.replace("''", "'"))


def _refused(code: str, **names: str) -> Refused:
    said = words(code)
    return Refused(code, said.message.format_map(names), said.status)
