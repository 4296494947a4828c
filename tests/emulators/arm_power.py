"""Machines of Azure that are deallocated and started again: virtualMachines/deallocate, /start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .arm_resources import Error, group_of, last
from .arm_validation import Refused
from .server import Response


class PowerCycle:
    """Part of a subscription: its machines off and on, with disks and addresses."""

    boot: float
    bills: Any
    _all: dict[str, dict[str, Any]]
    _hosts: dict[str, Any]
    _lock: Any
    _begin: Callable[..., dict[str, str]]
    _missing: Callable[[str, str], Refused]

    def _change_power(self, key: str, retry_after: str, later: Error | None) -> Response:
        path, action = key.rpartition("/")[0], last(key)
        machine = self._all.get(path)
        if machine is None:
            raise self._missing(path, "virtualmachines")
        act = self._deallocate if action == "deallocate" else self._start
        if later is None:
            machine["_power"] = "deallocating" if action == "deallocate" else "starting"
        headers = self._begin(lambda: later or act(path), retry_after, self.boot)
        return Response(b"", 202, headers)

    def _deallocate(self, path: str) -> Error | None:
        if host := self._hosts.get(path):
            host.halt()
        with self._lock:
            if (machine := self._all.get(path)) is not None:
                machine["_power"] = "deallocated"
                self.bills.end(_id(machine), "machine")
        return None

    def _start(self, path: str) -> Error | None:
        with self._lock:
            machine = self._all.get(path)
            if machine is None:
                return {"code": "OperationPreempted", "message": "The operation was preempted."}
            machine["_power"] = "running"
            self.bills.begin(_id(machine), "machine")
        if host := self._hosts.get(path):
            host.start()
        return None


def _id(machine: dict[str, Any]) -> str:
    return f"{group_of(machine['id'])}/{machine['name']}"
