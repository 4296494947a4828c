"""State of a project of Compute Engine: machines, disks, rules, operations."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from . import gce_validation as bodies
from .fleet import Fleet, Host
from .gce_errors import late
from .gce_network import Networks
from .gce_operations import BASE, now, stamp
from .gce_power import PowerCycle
from .gce_service_accounts import Accounts
from .gce_validation import Refused, invalid
from .provider_billing import Bills

PREEMPTED = "compute.instances.preempted"
_DOCUMENTATION = ("192.0.2", "198.51.100", "203.0.113")
Key = tuple[str, str]
"""Zone and name."""


@cache
def sold() -> tuple[dict[str, dict[str, str]], dict[str, set[str]]]:
    """Return what each zone sells, as the shipped catalog has it.

    Machine types come with their architecture, accelerators are those that can be attached.
    """
    import pyarrow.compute as pc

    from jupyter_sky import catalog

    columns = ["region", "zone", "instance_type", "kind", "arch"]
    table = catalog.load().table("offers")
    rows = table.filter(pc.equal(table["cloud"], "gcp")).select(columns).to_pylist()
    zones: dict[str, set[str]] = {}
    for row in rows:
        place = zones.setdefault(row["region"], set())
        if row["zone"] and row["kind"] == "vm":
            place.add(row["zone"])
    types: dict[str, dict[str, str]] = {}
    gpus: dict[str, set[str]] = {}
    for row in rows:
        kind, _, attached = row["instance_type"].partition("+")
        for zone in [row["zone"]] if row["zone"] else zones[row["region"]]:
            if row["kind"] == "vm":
                types.setdefault(zone, {})[kind] = row["arch"]
            if attached:
                name = f"nvidia-tesla-{attached.partition(':')[0].lower()}"
                gpus.setdefault(zone, set()).add(name)
    return types, gpus


@dataclass
class World(PowerCycle, Networks):
    """One project.

    Parameters
    ----------
    fleet
        Starts a real host for each machine.
    minute
        Seconds that a minute of a machine's limit of run time takes.
    accounts
        Who may be on machines.
    authority
        Certificate authority (PEM) that machines trust.
    """

    accounts: Accounts = field(kw_only=True)
    authority: str = ""
    fleet: Fleet | None = None
    minute: float = 60.0
    disks: dict[Key, dict[str, Any]] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._hosts: dict[Key, Host] = {}
        self._limits: dict[Key, float] = {}
        self._addresses = itertools.count(10)
        self.bills = Bills("gcp")

    def close(self) -> None:
        """End everything."""
        self.clockwork.close()
        for host in self._hosts.values():
            host.kill()

    def insert(
        self, zone: str, body: dict[str, Any], request_id: str | None, fails: str = ""
    ) -> dict[str, Any]:
        """Accept a machine; `fails` is the code that its operation is to fail with."""
        bodies.check_request_id(request_id)
        if request_id and (name := self.requests.get(request_id)):
            return self.operations[name]
        bodies.check("Instance", body)
        kind = self._check_sold(zone, body)
        bodies.check_instance(body, zone, sold()[0][zone][kind])
        key, network = (zone, body["name"]), self.network_of(body)
        attached = body.get("serviceAccounts", [])
        fails = fails or self.accounts.check(attached)
        if key in self.instances:
            raise self._exists(f"zones/{zone}/instances/{key[1]}")
        self.instances[key] = self._made(key, body, network, kind)
        self._make_disks(key)
        words = {"name": key[1], "zone": zone, "project": self.project}
        code, _, metric = fails.partition(":")
        words |= {"region": zone.rpartition("-")[0], "metric": metric or "CPUS"}
        words |= {"account": attached[0]["email"] if attached else "", "user": self.accounts.us}
        failure = late(code, **words) if fails else None
        done = self._operation(
            zone, "insert", f"instances/{key[1]}", lambda: self._built(key, failure)
        )
        if request_id:
            self.requests[request_id] = done["name"]
        return done

    def delete(self, key: Key) -> dict[str, Any]:
        """Begin to remove a machine."""
        self.instance(key)["status"] = "STOPPING"
        return self._operation(key[0], "delete", f"instances/{key[1]}", lambda: self._gone(key))

    def instance(self, key: Key) -> dict[str, Any]:
        """A machine that is there."""
        if key not in self.instances:
            raise self._missing(f"zones/{key[0]}/instances/{key[1]}")
        return self.instances[key]

    def machines(self) -> list[dict[str, Any]]:
        """Return in short what machines there are, and how."""
        with self.lock:
            return [
                {
                    "id": f"{zone}/{name}",
                    "tags": (tags := _tags(machine)),
                    "state": machine["status"],
                    "lease_end": float(tags.get("jupyter-sky-lease-end") or "nan"),
                    "instance_type": machine["machineType"].rpartition("/")[2],
                    "zone": zone,
                    "spot": machine["scheduling"].get("provisioningModel") == "SPOT",
                }
                for (zone, name), machine in self.instances.items()
            ]

    def console(self, key: Key) -> str:
        """Return what a machine has written to its serial port."""
        self.instance(key)
        host = self._hosts.get(key)
        return host.console() if host else f"{key[1]} login: "

    def preempt(self, key: Key, notice: float) -> None:
        """Take a spot machine back after a notice of some seconds."""
        with self.lock:
            machine = self.instance(key)
            if machine["scheduling"].get("provisioningModel") != "SPOT":
                raise Refused(400, "invalid", f"{key[1]} is not a Spot machine.")
            if host := self._hosts.get(key):
                host.notice(notice)
                return
        self.clockwork.after(notice, lambda: self._ended(key, "preempted"))

    def power_off(self, key: Key) -> None:
        """Power a machine off from within."""
        self.instance(key)
        if host := self._hosts.get(key):
            host.shutdown()
        else:
            self._ended(key, "shutdown")

    def reboot(self, key: Key) -> None:
        """Restart a machine."""
        self.instance(key)
        if host := self._hosts.get(key):
            host.reboot()

    def expire(self, now: float) -> list[str]:
        """End what has run for longer than it may at a unix time; return the names."""
        with self.lock:
            late = [key for key, limit in self._limits.items() if limit <= now]
        for key in late:
            self._limit_reached(key)
        return [name for _, name in late]

    def _check_sold(self, zone: str, body: dict[str, Any]) -> str:
        types, gpus = sold()
        if zone not in types:
            raise invalid("zone", zone, "Unknown zone.")
        kind = body.get("machineType", "").rpartition("/")[2]
        absent = "The referenced resource does not exist."
        if kind not in types[zone]:
            raise invalid("resource.machineType", body.get("machineType", ""), absent)
        for number, gpu in enumerate(body.get("guestAccelerators", [])):
            if gpu["acceleratorType"].rpartition("/")[2] not in gpus.get(zone, ()):
                where = f"resource.guestAccelerators[{number}].acceleratorType"
                raise invalid(where, gpu["acceleratorType"], absent)
        return kind

    def _made(self, key: Key, body: dict[str, Any], network: str, kind: str) -> dict[str, Any]:
        (zone, name), asked = key, body.get("serviceAccounts")
        base = BASE.format(self.project)
        interface = {
            **body["networkInterfaces"][0],
            "name": "nic0",
            "kind": "compute#networkInterface",
            "network": f"{base}/global/networks/{network}",
        }
        return {
            **body,
            "kind": "compute#instance",
            "id": str(next(self._ids)),
            "creationTimestamp": now(),
            "status": "PROVISIONING",
            "zone": f"{base}/zones/{zone}",
            "machineType": f"{base}/zones/{zone}/machineTypes/{kind}",
            "networkInterfaces": [interface],
            "selfLink": f"{base}/zones/{zone}/instances/{name}",
            "labelFingerprint": "42WmSpB8rSM=",
            **({"serviceAccounts": self.accounts.attached(asked)} if asked else {}),
        }

    def _make_disks(self, key: Key) -> None:
        machine = self.instances[key]
        for disk in machine["disks"]:
            params = disk.get("initializeParams", {})
            self.disks[key] = {
                "kind": "compute#disk",
                "id": str(next(self._ids)),
                "name": key[1],
                "creationTimestamp": now(),
                "sizeGb": params.get("diskSizeGb", "10"),
                "status": "READY",
                "labels": params.get("labels", {}),
                "users": [machine["selfLink"]],
                "zone": machine["zone"],
            }
        self.bills.begin(
            f"{key[0]}/{key[1]}",
            "disk",
            tags=_tags(machine),
            instance_type=machine["machineType"].rpartition("/")[2],
            region=key[0].rpartition("-")[0],
            zone=key[0],
            spot=machine["scheduling"].get("provisioningModel") == "SPOT",
            disk_gib=float(self.disks[key]["sizeGb"]),
        )

    def _built(self, key: Key, failure: dict[str, Any] | None) -> dict[str, Any] | None:
        with self.lock:
            machine = self.instances.get(key)
            if failure is not None:
                self._gone(key)
            if failure is not None or machine is None or machine["status"] != "PROVISIONING":
                return failure
            number = next(self._addresses)
            public = f"{_DOCUMENTATION[number // 250 % 3]}.{number % 250 + 1}"
            private = f"10.128.{number // 250}.{number % 250 + 1}"
            if self.fleet is not None:
                host = self._hosts[key] = self._host(key, machine)
                public, private = host.address, host.private
            interface = machine["networkInterfaces"][0]
            interface["networkIP"] = private
            for access in interface.get("accessConfigs", []):
                access.update(natIP=public, kind="compute#accessConfig")
            machine.update(status="RUNNING", lastStartTimestamp=now())
            self.bills.begin(f"{key[0]}/{key[1]}", "machine", "address")
            self._admit()
            self._limit(key, machine)
        return None

    def _host(self, key: Key, machine: dict[str, Any]) -> Host:
        assert self.fleet is not None
        attributes = {item["key"]: item["value"] for item in machine["metadata"]["items"]}
        user, _, public_key = attributes.get("ssh-keys", "").partition(":")
        metadata = {
            "cloud": "gcp",
            "id": machine["id"],
            "type": machine["machineType"].rpartition("/")[2],
            "region": key[0].rpartition("-")[0],
            "zone": key[0],
            "image": machine["disks"][0]["initializeParams"]["sourceImage"],
            "account": self.project,
            "attributes": attributes,
            **self.accounts.identity(machine.get("serviceAccounts", [])),
        }
        return self.fleet.launch(
            key[1],
            attributes.get("user-data", ""),
            ingress=self.ingress(machine),
            spot=machine["scheduling"].get("provisioningModel") == "SPOT",
            metadata=metadata,
            on_end=lambda reason: self._ended(key, reason),
            public_key=public_key,
            user=user,
            authority=self.authority,
        )

    def _limit(self, key: Key, machine: dict[str, Any]) -> None:
        limit = machine["scheduling"].get("maxRunDuration", {}).get("seconds")
        if limit is None:
            return
        ends = time.time() + int(limit)
        self._limits[key] = ends
        machine["resourceStatus"] = {"scheduling": {"terminationTimestamp": stamp(ends)}}
        mark = machine["id"], machine["lastStartTimestamp"]

        def reached() -> None:
            found = self.instances.get(key, {})
            if (found.get("id"), found.get("lastStartTimestamp")) == mark and key in self._limits:
                self._limit_reached(key)

        self.clockwork.after(int(limit) / 60 * self.minute, reached)

    def _limit_reached(self, key: Key) -> None:
        machine = self.instances.get(key)
        if machine and machine["scheduling"].get("instanceTerminationAction") == "DELETE":
            self._gone(key)
        elif machine:
            self._ended(key, "shutdown")

    def _ended(self, key: Key, reason: str) -> None:
        """A machine has powered itself off, crashed, or been taken back."""
        with self.lock:
            machine = self.instances.get(key)
            if machine is None:
                return
            if reason == "preempted":
                self._operation(key[0], PREEMPTED, f"instances/{key[1]}", lambda: None)
            self.bills.end(f"{key[0]}/{key[1]}", "machine", "address")
            delete = machine["scheduling"].get("instanceTerminationAction") == "DELETE"
            delete = delete and reason == "preempted"
            if not delete:
                machine.update(status="TERMINATED", lastStopTimestamp=now())
                self._limits.pop(key, None)
        if delete:
            self._gone(key)

    def _gone(self, key: Key) -> None:
        with self.lock:
            machine, host = self.instances.pop(key, None), self._hosts.pop(key, None)
            self._limits.pop(key, None)
            if machine is None:
                return
            self.bills.end(f"{key[0]}/{key[1]}", "machine", "address")
            if machine["disks"][0].get("autoDelete"):
                self.disks.pop(key, None)
                self.bills.end(f"{key[0]}/{key[1]}", "disk")
            else:
                self.disks[key]["users"] = []
            self._admit()
        if host is not None:
            host.kill()

    def delete_disk(self, key: Key) -> dict[str, Any]:
        """Delete a disk that no machine uses."""
        if key not in self.disks:
            raise self._missing(f"zones/{key[0]}/disks/{key[1]}")
        if users := self.disks[key]["users"]:
            words = f"The disk resource '{key[1]}' is already being used by '{users[0]}'"
            raise Refused(400, "resourceInUseByAnotherResource", words)
        del self.disks[key]
        self.bills.end(f"{key[0]}/{key[1]}", "disk")
        return self._operation(key[0], "delete", f"disks/{key[1]}", lambda: None)

    def _admit(self) -> None:
        """Let machines be reached as the rules now say."""
        with self.lock:
            for key, host in self._hosts.items():
                if machine := self.instances.get(key):
                    host.admit(self.ingress(machine))


def _tags(machine: dict[str, Any]) -> dict[str, str]:
    """Labels of a machine, and what metadata says more exactly."""
    labels, items = machine.get("labels", {}), machine.get("metadata", {}).get("items", [])
    return labels | {item["key"]: item["value"] for item in items if item["key"] in labels}
