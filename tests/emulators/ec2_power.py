"""Instances of EC2 that are stopped by a request and started again, their disks kept."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

from .ec2_errors import error
from .server import Request, Response

ENDED = ("shutting-down", "terminated")
"""States of instances that are gone, or going."""


class PowerCycle:
    """Part of an account: StopInstances and StartInstances.

    Attributes
    ----------
    boot : float
        Seconds from a start until an instance runs, and from its halt until it is off.
    """

    boot: float
    _lives: dict[str, Any]

    def _next_address(self) -> str:
        raise NotImplementedError

    def _before_StopInstances(
        self, _: Request, region: str, form: dict[str, str]
    ) -> Response | None:
        lives, refused = self._named(region, form)
        for life in lives:
            name = life.record.id
            if life.record.lifecycle == "spot":
                told = f"You can't stop the Spot Instance '{name}' because it is associated with a "
                return error("ec2", "UnsupportedOperation", told + "one-time Spot Instance request")
            if life.state == "pending" or life.state in ENDED:
                told = f"The instance '{name}' is not in a state from which it can be stopped."
                return error("ec2", "IncorrectInstanceState", told)
        for life in lives:
            if life.state == "running":
                life.off = math.inf
                threading.Thread(target=self._halt, args=(life,), daemon=True).start()
        return refused

    def _halt(self, life: Any) -> None:
        if life.host is not None:
            life.host.halt()
        life.off = time.time() + self.boot

    def _after_StopInstances(
        self, response: Response, region: str, form: dict[str, str]
    ) -> Response:
        for life in self._named(region, form)[0]:
            if life.off:
                self._set_state(life, "stopping", 64)
                life.why = ("Client.UserInitiatedShutdown", "User initiated")
                for nic in life.record.nics.values():
                    nic.public_ip = None
        return response

    def _before_StartInstances(
        self, _: Request, region: str, form: dict[str, str]
    ) -> Response | None:
        lives, refused = self._named(region, form)
        for life in lives:
            if life.state not in ("stopped", "running", "pending"):
                told = f"The instance '{life.record.id}' is not in a state from which it can be "
                return error("ec2", "IncorrectInstanceState", told + "started.")
        for life in lives:
            life.starts = life.state == "stopped"
        return refused

    def _after_StartInstances(
        self, response: Response, region: str, form: dict[str, str]
    ) -> Response:
        for life in self._named(region, form)[0]:
            if life.starts:
                life.starts, life.up = False, time.time() + self.boot
                self._set_state(life, "pending", 0)
                if life.host is not None:
                    life.host.start()
                else:
                    life.address = self._next_address()
        return response

    def _named(self, region: str, form: dict[str, str]) -> tuple[list[Any], Response | None]:
        """Return the instances of a request; or a refusal where one is not known."""
        names = [form[key] for key in form if key.startswith("InstanceId.")]
        for name in names:
            if name not in self._lives or self._lives[name].region != region:
                told = f"The instance ID '{name}' does not exist"
                return [], error("ec2", "InvalidInstanceID.NotFound", told)
        return [self._lives[name] for name in names], None

    @staticmethod
    def _set_state(life: Any, name: str, code: int) -> None:
        life.record._state.name, life.record._state.code = name, code
