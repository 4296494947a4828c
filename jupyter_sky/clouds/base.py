"""What every cloud can do, and the values that pass between clouds and the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from ..offers import Offer
from ..resources import Resources

if TYPE_CHECKING:
    from .keeper import Node

State = Literal["starting", "running", "ended"]


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine that was launched.

    Attributes
    ----------
    id : str
        The cloud's own name for it.
    rank : int
        Its place in the cluster; rank 0 is the head node.
    ended : float or None
        Unix seconds at which it ended, where the cloud says so.
    reason : str
        Why it ended, in words for the user.
    """

    id: str
    cloud: str
    cluster: str
    rank: int
    state: State
    started: float
    ended: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """An order for the machines of one cluster.

    Attributes
    ----------
    token : str
        The same order sent twice makes the machines once.
    idle : float
        Lease in seconds: the machines end by themselves when nobody has been heard of for so
        long.
    owner, notebook : str
        Written on the machines, so that what is left can be traced.
    """

    token: str
    cluster: str
    offer: Offer
    resources: Resources
    idle: float
    owner: str
    notebook: str


@dataclass(frozen=True, slots=True)
class Credentials:
    """Whether a cloud can be used from here, and how to mend it if not."""

    cloud: str
    usable: bool
    found: str
    fix: str = ""


class Host(Protocol):
    """The head node of a cluster, as a place where commands run."""

    @property
    def python(self) -> str:
        """The Python that runs engines there."""
        ...

    @property
    def limits(self) -> dict[str, object]:
        """``cpus`` (CPU numbers a rank) and ``memory`` (GiB a rank) to hold engines to."""
        ...

    def start(self, module: str, config: dict[str, object]) -> None:
        """Start ``python -m module CONFIG`` there, apart from this process."""
        ...

    def connection(self, timeout: float, alive: Callable[[], None]) -> Path:
        """Wait for the controller's client file and return a local path to it."""
        ...


class Cloud(Protocol):
    """A cloud: offers, launch, describe, terminate, what is mine?"""

    name: str

    def check(self) -> Credentials:
        """Say whether the cloud can be used."""
        ...

    def offers(self, resources: Resources) -> list[Offer]:
        """List what is on sale that bears on a request (it need not satisfy it)."""
        ...

    def launch(self, order: Launch) -> list[Machine]:
        """Launch all nodes of an order, or none.

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

    def mine(self) -> list[Machine]:
        """List every machine launched by this user that has not ended."""
        ...


class Here(Cloud, Protocol):
    """A cloud whose head node is this machine."""

    def host(self, machines: Sequence[Machine]) -> Host:
        """Return the head node of a cluster."""
        ...


@runtime_checkable
class ReachedBySsh(Protocol):
    """A cloud whose machines are reached by SSH."""

    def nodes(self, machines: Sequence[Machine]) -> list[Node]:
        """Return the slots that machines are, by rank."""
        ...

    def limits(self, machines: Sequence[Machine]) -> dict[str, object]:
        """Return ``cpus`` and ``memory`` that engines are held to."""
        ...

    def folder(self, machines: Sequence[Machine]) -> Path:
        """Return where on this machine a cluster is noted."""
        ...
