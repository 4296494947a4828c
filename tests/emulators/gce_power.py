"""Machines of Compute Engine that are stopped and started: instances.stop, instances.start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .gce_errors import late
from .gce_operations import now
from .gce_validation import Refused


class PowerCycle:
    """Part of a project: its machines off and on, with their disks."""

    instances: dict[Any, dict[str, Any]]
    bills: Any
    lock: Any
    _hosts: dict[Any, Any]
    _limits: dict[Any, float]
    _operation: Callable[..., dict[str, Any]]
    instance: Callable[[Any], dict[str, Any]]
    _limit: Callable[[Any, dict[str, Any]], None]

    def stop(self, key: tuple[str, str]) -> dict[str, Any]:
        """Begin to stop a machine; one that is stopped already stays so."""
        machine = self.instance(key)
        if machine["status"] not in ("RUNNING", "TERMINATED"):
            raise _unready(machine)
        if machine["status"] == "RUNNING":
            machine["status"] = "STOPPING"
        return self._operation(key[0], "stop", f"instances/{key[1]}", lambda: self._off(key))

    def start(self, key: tuple[str, str], fails: str = "") -> dict[str, Any]:
        """Begin to start a machine; `fails` is the code that its operation is to fail with."""
        machine = self.instance(key)
        if machine["status"] not in ("RUNNING", "TERMINATED"):
            raise _unready(machine)
        words = {"name": key[1], "zone": key[0], "project": "", "region": "", "metric": "CPUS"}
        failure = late(fails, **words, account="", user="") if fails else None
        if failure is None and machine["status"] == "TERMINATED":
            machine["status"] = "STAGING"
        return self._operation(
            key[0], "start", f"instances/{key[1]}", lambda: self._on(key, failure)
        )

    def _off(self, key: tuple[str, str]) -> None:
        if host := self._hosts.get(key):
            host.halt()
        with self.lock:
            machine = self.instances.get(key)
            if machine is None or machine["status"] == "TERMINATED":
                return
            machine.update(status="TERMINATED", lastStopTimestamp=now())
            machine.pop("resourceStatus", None)
            self._limits.pop(key, None)
            for access in machine["networkInterfaces"][0].get("accessConfigs", []):
                machine.setdefault("_address", access.pop("natIP", ""))
            self.bills.end(f"{key[0]}/{key[1]}", "machine", "address")

    def _on(self, key: tuple[str, str], failure: dict[str, Any] | None) -> dict[str, Any] | None:
        with self.lock:
            machine = self.instances.get(key)
            if failure is not None or machine is None or machine["status"] != "STAGING":
                return failure
            address = machine.pop("_address", "")
            for access in machine["networkInterfaces"][0].get("accessConfigs", []):
                access["natIP"] = address
            machine.update(status="RUNNING", lastStartTimestamp=now())
            self.bills.begin(f"{key[0]}/{key[1]}", "machine", "address")
            self._limit(key, machine)
        if host := self._hosts.get(key):
            host.start()
        return None


def _unready(machine: dict[str, Any]) -> Refused:
    words = f"The resource '{machine['name']}' is not ready"
    return Refused(400, "resourceNotReady", words)
