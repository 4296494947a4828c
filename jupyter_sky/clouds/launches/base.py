"""Protocols of clouds as the rest of the package sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from jupyter_sky.base.clouds.index import MANAGED
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from jupyter_sky.clouds.launches.ssh_slot import Slot

Tick = Callable[[], None]
StatusCallback = Callable[[str], None]


def no_tick(_: str = "") -> None:
    """Do nothing and go on waiting."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Whether a cloud can be used from here, and how to mend it if not."""

    cloud: str
    usable: bool
    found: str
    fix: str = ""


class Cloud(Protocol):
    """Operations of a cloud: launch, describe, terminate and list machines."""

    name: str

    def check(self) -> Credentials:
        """Say whether the cloud can be used."""
        ...

    def launch(self, request: LaunchRequest, tick: Tick = no_tick) -> list[Machine]:
        """Launch all nodes of a request, or none.

        Parameters
        ----------
        tick
            Called about ten times a second where a cloud takes its time; it may raise to give up.

        Raises
        ------
        SkyNoCapacity
            The place refuses now.
        """
        ...

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Say how machines are; ones that the cloud no longer knows have ended."""
        ...

    def terminate(self, ids: Sequence[str]) -> None:
        """End machines; ending one that has ended is no error."""
        ...

    def list_mine(self, everywhere: bool = False) -> list[Machine]:
        """List every machine launched by this user that has not ended.

        Parameters
        ----------
        everywhere
            Look also where nothing is noted to have been launched.
        """
        ...


class OnPremisesCloud(Cloud, Protocol):
    """A cloud of machines of one's own: the catalog does not have them, they say it themselves."""

    def offers(self, resources: Resources) -> list[Offer]:
        """List what bears on a request (it need not satisfy it)."""
        ...

    def slots(self, resources: Resources, offer: Offer) -> int | None:
        """Return how many nodes there can be of an offer, used or not; None without a limit."""
        ...

    def free_slots(self, resources: Resources, offer: Offer) -> int | None:
        """Return how many nodes of an offer nobody has now; None without a limit."""
        ...


@runtime_checkable
class SshAccessibleCloud(Protocol):
    """A cloud whose machines are reached by SSH."""

    name: str

    def await_slots(self, machines: Sequence[Machine], say: StatusCallback = no_tick) -> list[Slot]:
        """Return the slots that machines are, by rank, once they answer.

        Parameters
        ----------
        say
            Called with what is being waited for, again and again; it may raise to give up.
        """
        ...

    def recorded_slots(self, machines: Sequence[Machine]) -> list[Slot]:
        """Return the slots that were taken of machines that are up; waits for nothing."""
        ...

    def limits(self, machines: Sequence[Machine]) -> dict[str, object]:
        """Return ``cpus`` and ``memory`` that engines are held to."""
        ...

    def cluster_folder(self, machines: Sequence[Machine]) -> Path:
        """Return where on this machine a cluster is noted."""
        ...


def is_reached_by_ssh(cloud: object) -> TypeIs[SshAccessibleCloud]:
    """Whether cells run on machines that are reached by SSH; those of a session run here."""
    return isinstance(cloud, SshAccessibleCloud) and cloud.name not in MANAGED
