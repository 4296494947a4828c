"""Scripted faults of a cloud's requests, the same words for every emulated cloud."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from .server import Emulator


@dataclass
class Script:
    """Something that happens to the next requests that match.

    Attributes
    ----------
    kind : str
        ``refuse``, ``lose``, ``double``, ``slow``, or what an emulator has beside them.
    action : str
        In the words of its cloud.
    code : str
        Of a refusal, in the words of its cloud.
    zone, instance_type, spot
        Of a machine that is asked for; all unless given.
    """

    kind: str
    action: str
    times: float = 1
    code: str = ""
    zone: str = ""
    instance_type: str = ""
    spot: bool | None = None
    seconds: float = 0.0
    status: int = 0
    fields: dict[str, str] = field(default_factory=dict)

    def fits(self, zone: str, instance_type: str, spot: bool) -> bool:
        """Whether it is about a machine of this kind."""
        return (
            self.zone in ("", zone)
            and self.instance_type in ("", instance_type)
            and self.spot in (None, spot)
        )


class Scripted(Emulator):
    """An emulator whose failures are ordered beforehand.

    Attributes
    ----------
    ACTIONS : mapping
        Short names of requests, for scripts; the cloud's own words will do too.
    TOO_MANY : str
        What the cloud answers when there are too many requests.
    """

    ACTIONS: ClassVar[Mapping[str, str]] = {}
    TOO_MANY: ClassVar[str]

    def __init__(self, host: str = "localhost") -> None:
        self.scripts: list[Script] = []
        super().__init__(host)

    def refuse(
        self,
        code: str,
        *,
        zone: str = "",
        instance_type: str = "",
        spot: bool | None = None,
        times: float = 1,
        action: str = "create",
        status: int = 0,
        **fields: str,
    ) -> None:
        """Refuse the next requests with a code of the cloud's; `fields` fill its message."""
        which = {"zone": zone, "instance_type": instance_type, "spot": spot}
        self._order("refuse", action, times, code=code, status=status, fields=fields, **which)

    def lose(self, action: str = "create", times: float = 1) -> None:
        """Do what is asked, and answer nothing."""
        self._order("lose", action, times)

    def double(self, action: str = "create", times: float = 1) -> None:
        """Let requests arrive twice; the second answer is sent."""
        self._order("double", action, times)

    def slow(self, action: str, seconds: float, times: float = 1) -> None:
        """Answer late: the request is carried out at the end of the time."""
        self._order("slow", action, times, seconds=seconds)

    def throttle(self, action: str, times: float = 1) -> None:
        """Refuse what comes too often."""
        self.refuse(self.TOO_MANY, action=action, times=times)

    def _order(self, kind: str, action: str, times: float, **more: object) -> None:
        script = Script(kind, self.ACTIONS.get(action, action), times, **more)  # type: ignore[arg-type]
        with self._lock:
            self.scripts.append(script)

    def _due(self, meets: Callable[[Script], bool]) -> dict[str, Script]:
        """Return the faults of a request: the first script of each kind that is about it."""
        found: dict[str, Script] = {}
        with self._lock:
            for script in self.scripts:
                if script.times >= 1 and script.kind not in found and meets(script):
                    script.times -= 1
                    found[script.kind] = script
        return found
