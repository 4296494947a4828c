"""Account of a cloud with a REST API: its machines are entries that boot where a test needs it."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from .fleet import Fleet, Host, Rule
from .server import Emulator, Request, Response

NOWHERE = "192.0.2.7"
"""Address of a machine that has not booted (RFC 5737)."""
_SSH = (("0.0.0.0/0", 22),)
_SHIMS = "/tmp/shims"
_NO_SYSTEMD = '[ "$1" = reload ] || exit 1; PATH=${PATH#*:}; exec systemctl "$@"'
"""Containers have no services; the host's own SSH server stands for the one that they start."""


@dataclass
class Rented:
    """A machine of the account.

    Attributes
    ----------
    entry : dict
        As the API lists it.
    start : callable
        Boots it; None for one that need not answer.
    """

    entry: dict[str, Any]
    start: Callable[[], Host] | None = None
    host: Host | None = None
    launched: float = field(default_factory=time.monotonic)


class RestAccount(Emulator):
    """The API of an account; each cloud answers in its own words.

    Attributes
    ----------
    refusals : list of str
        Codes of the next launches that are refused, empty ones that go well.
    delay : float
        Seconds after which a launch is carried out.
    hidden : float
        Seconds in which a new machine is not listed.
    boots : bool
        Whether new machines boot; else they are entries until `boot`.
    refills : bool
        Whether more is for sale when nearly all has been sold.
    rented : dict
        Machines by ID.
    """

    refusal_texts: ClassVar[Mapping[str, tuple[int, str]]]
    """Status and message of each refusal by its code."""
    status_field: ClassVar[str] = "status"
    off, ended, taken_back = "off", "ended", "taken back"
    free: ClassVar[tuple[str, ...]] = ("ended",)
    """States of a machine: off by itself, ended by a request, taken back; and those not billed."""
    ends_itself: ClassVar[bool] = False
    """Whether a machine that powers itself off has ended itself by a request before."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.number, self.boots, self.refills = fleet, 0, False, False
        self.rented: dict[str, Rented] = {}
        self._pressed = set[str]()
        self.forget_faults()
        super().__init__()

    # -- of each cloud

    def show_address(self, entry: dict[str, Any], address: str, private: str, port: int) -> None:
        """Write into an entry where its machine is reached."""
        raise NotImplementedError

    def fill(self, count: int, tags: dict[str, str]) -> set[str]:
        """Add machines that are nothing but entries."""
        raise NotImplementedError

    # -- the same for all

    def is_billed(self, entry: dict[str, Any]) -> bool:
        """Whether a machine costs."""
        return entry[self.status_field] not in self.free

    def forget_faults(self) -> None:
        """Behave as described."""
        self.refusals, self.delay, self.hidden = list[str](), 0.0, 0.0
        self.troubles = []

    def billed(self) -> set[str]:
        """Return the IDs of the machines that cost."""
        return {id for id, one in list(self.rented.items()) if self.is_billed(one.entry)}

    def listed(self) -> list[dict[str, Any]]:
        """Return the entries that lists have by now."""
        now = time.monotonic()
        every = list(self.rented.values())  # others are added meanwhile
        return [one.entry for one in every if now - one.launched >= self.hidden]

    def next_refusal(self) -> str:
        """Return the code of a refusal of this launch; empty where it goes well."""
        return self.refusals.pop(0) if self.refusals else ""

    def add(self, id: str, entry: dict[str, Any], start: Callable[[], Host] | None = None) -> None:
        """Enter a machine; it boots if machines do."""
        self.rented[id] = Rented(entry, start)
        self.show_address(entry, NOWHERE, NOWHERE, 22)
        if self.boots:
            self.boot()

    def boot(self) -> None:
        """Boot the machines that there are, and all later ones until `reset`."""
        self.boots = True
        for one in list(self.rented.values()):
            if one.start and not one.host and self.is_billed(one.entry):
                one.host = host = one.start()
                self.show_address(one.entry, host.address, host.private, host.port)

    def machine(
        self, id: str, user_data: str, entry: dict[str, Any], ingress: Sequence[Rule] = _SSH
    ) -> Callable[[], Host]:
        """Return what boots a machine with the cloud's cloud-init or start-up script."""

        def turn_off(_: str) -> None:
            if self.is_billed(entry):
                itself = self.ends_itself and id not in self._pressed
                entry[self.status_field] = self.ended if itself else self.off

        return lambda: self.fleet.launch(
            f"node-{id[-8:]}", user_data, ingress=ingress, on_end=turn_off
        )

    def power_off(self, id: str) -> None:
        """Press the power button of a machine."""
        one = self.rented[id]
        self._pressed.add(id)
        if one.host is None:
            one.entry[self.status_field] = self.off
            return
        one.host.shutdown()
        while one.host.running:
            time.sleep(0.02)

    def end(self, id: str) -> None:
        """End a machine by a request."""
        self._stop(id, self.ended)

    def preempt(self, id: str) -> None:
        """Take a machine back."""
        self._stop(id, self.taken_back)

    def _stop(self, id: str, status: str) -> None:
        one = self.rented[id]
        one.entry[self.status_field] = status
        if one.host:
            one.host.kill()

    def reset(self) -> None:
        """End all machines, and forget faults."""
        self.forget_faults()
        for id in self.billed():
            self.end(id)
        self.boots = False

    def refuse(self, code: str) -> Response:
        """Return a refusal in the cloud's words."""
        status, message = self.refusal_texts[code]
        return Response.json({"code": code, "message": message}, status)

    @staticmethod
    def body(request: Request) -> Any:
        """Return the JSON of a request."""
        return json.loads(request.body or b"{}")


def container_start(command: str, env: Mapping[str, str], shims: Mapping[str, str]) -> str:
    """Return user data by which a machine of the fleet starts as a container does.

    Parameters
    ----------
    command
        Shell command of the container.
    env
        Its environment.
    shims
        Shell scripts of programs in its image, by their names.
    """
    lines = ["#!/bin/sh", f"mkdir -p {_SHIMS}"]
    for name, script in {"systemctl": _NO_SYSTEMD, **shims}.items():
        text = shlex.quote(f"#!/bin/sh\n{script}\n")
        lines += [f"printf %s {text} >{_SHIMS}/{name}", f"chmod 755 {_SHIMS}/{name}"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
    lines += [
        f"export PATH={_SHIMS}:$PATH",
        f"setsid sh -c {shlex.quote(command)} >/dev/null 2>&1 &",
    ]
    return "\n".join(lines) + "\n"
