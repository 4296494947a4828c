"""Machines of Azure: what comes with them, how they boot, and what goes with them."""

from __future__ import annotations

import base64
import copy
import itertools
import secrets
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from .arm_resources import Error, Resources, group_of, last, type_of
from .arm_validation import Refused, check_machine
from .provider_billing import Bills
from .server import Request, Response


class Machines(Resources):
    """The machines of one subscription.

    Parameters
    ----------
    fleet
        Where they run; without one they only say so, `boot` seconds after they were asked for.
    issue
        Gives a token to a machine's own identity.
    authority
        What machines are to trust besides their own, as PEM.
    """

    def __init__(
        self,
        subscription: str,
        url: str,
        fleet: Any,
        boot: float,
        issue: Callable[[str], str],
        authority: str,
    ) -> None:
        super().__init__(subscription, url)
        self.subscription, self.fleet, self.boot = subscription, fleet, boot
        self.gone_sizes: set[str] = set()
        self.late_identity = False
        self._issue, self._authority = issue, authority
        self._hosts: dict[str, Any] = {}
        self.schedules: dict[str, float] = {}
        self._consoles: dict[str, str] = {}
        self._addresses = itertools.count(1)
        self.bills = Bills("azure")
        self._paid: dict[str, dict[str, str]] = {}

    # -- for tests ---------------------------------------------------------------------------

    def machines(self) -> list[dict[str, Any]]:
        """Machines that have not ended."""
        with self._lock:
            return [
                {
                    "id": _id(one),
                    "tags": dict(one.get("tags") or {}),
                    "state": one["_power"],
                    "lease_end": float((one.get("tags") or {}).get("jupyter-sky-lease-end", 0)),
                }
                for one in self._all.values()
                if type_of(one) == "virtualmachines" and one["_power"]
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

    def deallocate_at(self, id: str, when: float) -> None:
        """Take a machine off its host at a time; it is no longer billed, but for its disk."""
        self.schedules[id.lower()] = when

        def wait() -> None:
            if self._closed.wait(max(when - time.time(), 0.0)):
                return
            with self._lock:
                machine, host = self._all.get(id.lower()), self._hosts.pop(id.lower(), None)
                if machine is not None:
                    machine["_power"] = "deallocated"
            if host is not None:
                host.kill()

        threading.Thread(target=wait, daemon=True).start()

    def power_off(self, machine: dict[str, Any]) -> None:
        """Power a machine off from within; it goes on costing its full price."""
        if host := self._hosts.get(machine["id"].lower()):
            host.shutdown()

    def reboot(self, machine: dict[str, Any]) -> None:
        """Restart a machine."""
        if host := self._hosts.get(machine["id"].lower()):
            host.reboot()

    def close(self) -> None:
        """End all machines."""
        self._closed.set()
        with self._lock:
            hosts = list(self._hosts.values())
            self._hosts.clear()
        for host in hosts:
            host.kill()

    # -- making ------------------------------------------------------------------------------

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
        self._bill(made)
        headers = self._begin(lambda: self._boot(made, later), retry_after, self.boot)
        shown = self._shown(made)
        if self.late_identity:
            shown["identity"].pop("principalId", None)
        return Response.json(shown, 201, **headers)

    def _bill(self, made: dict[str, Any]) -> None:
        """Open the bill of a machine: disk and address cost from now on, itself once it starts."""
        about = made["properties"]
        interfaces = about["networkProfile"]["networkInterfaces"]
        ways = [
            way
            for one in interfaces
            for way in self._all[one["id"].lower()]["properties"]["ipConfigurations"]
        ]
        addresses = [way["properties"].get("publicIPAddress", {}).get("id", "") for way in ways]
        self._paid[_id(made)] = {
            "machine": made["id"].lower(),
            "disk": about["storageProfile"]["osDisk"]["managedDisk"]["id"].lower(),
            "address": next((address.lower() for address in addresses if address), ""),
        }
        self.bills.begin(
            _id(made),
            "disk",
            *(["address"] if any(addresses) else []),
            tags=dict(made.get("tags") or {}),
            instance_type=about["hardwareProfile"]["vmSize"],
            region=made["location"],
            zone=next(iter(made.get("zones") or ()), ""),
            spot=about.get("priority") == "Spot",
            disk_gib=float(about["storageProfile"]["osDisk"].get("diskSizeGB") or 30),
        )

    def _settle_bills(self) -> None:
        """Close the bills of what is there no more; a machine that is off goes on to cost."""
        for id, parts in self._paid.items():
            gone = [part for part, path in parts.items() if path not in self._all]
            if gone:
                self.bills.end(id, *gone)

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
        """Carry out a machine's operation."""
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
            self.bills.begin(_id(made), "machine")
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
        group = group_of(made["id"])
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
            if type_of(one) != "networksecuritygroups" or not one["id"].lower().startswith(group):
                continue
            for rule in one["properties"].get("securityRules") or ():
                about = rule["properties"]
                if about["access"] == "Allow" and about["direction"] == "Inbound":
                    sources = about.get("sourceAddressPrefixes") or [about["sourceAddressPrefix"]]
                    rules += [(source, int(about["destinationPortRange"])) for source in sources]
        return rules

    # -- ending ------------------------------------------------------------------------------

    def _ended(self, made: dict[str, Any], why: str) -> None:
        """A machine ended by itself. One that is off is there still, and billed."""
        self._keep_console(made)
        with self._lock:
            self._hosts.pop(made["id"].lower(), None)
        if why == "preempted" and made["properties"].get("evictionPolicy") == "Delete":
            self._delete(made["id"])
        else:
            made["_power"] = "stopped"

    def _delete(self, id: str) -> None:
        """Delete a resource, what is below it, and what goes with it."""
        with self._lock:
            top = id.lower()
            going = [path for path in self._all if path == top or path.startswith(f"{top}/")]
            hosts = []
            for path in going:
                one = self._all.get(path)
                if one is not None and type_of(one) == "virtualmachines":
                    hosts.append(self._hosts.pop(path, None))
                    self._cascade(one)
                self._all.pop(path, None)
            self._settle_bills()
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

    def _act(self, key: str) -> Response:
        machine, action = self._all.get(key.rpartition("/")[0]), last(key)
        if machine is None:
            raise self._missing(key.rpartition("/")[0], "virtualmachines")
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
        """Return a machine's console log by a signed address; no other credentials may be sent."""
        text = self._consoles.get(request.path.rpartition("/")[2])
        if text is None or "sig" not in request.query or "authorization" in request.headers:
            return Response(b"<Error><Code>AuthenticationFailed</Code></Error>", 403)
        return Response(text.encode(), 200, {"Content-Type": "text/plain"})


def _id(machine: dict[str, Any]) -> str:
    """The id by which tests know a machine: ``group/name``."""
    return f"{group_of(machine['id'])}/{machine['name']}"
