"""Actions of a run on the world outside, and the protocol of whoever carries them out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask
from jupyter_sky.workflows.pipelines.run.outlook import Residual, residual
from jupyter_sky.workflows.pipelines.run.state import Event, RunState


@dataclass(frozen=True, slots=True)
class MakePlan:
    """Make a plan for what is left: `PLANNED`, `PLAN_KEPT` or `NO_PLAN`.

    Attributes
    ----------
    number
        Plans made before.
    state, now
        What is left to be planned is that of this state, at this Unix time.
    """

    number: int
    state: RunState = field(compare=False)
    now: float = field(compare=False)

    @property
    def residual(self) -> Residual:
        """The rest that is to be planned; an action that is under way already never asks for it."""
        return residual(self.state, self.now)


@dataclass(frozen=True, slots=True)
class LookUpPrices:
    """Look up the prices of clusters that are not launched yet: `PRICES`.

    Attributes
    ----------
    since
        Unix time of the prices that are known; each look-up has its own.
    offers
        Offer of each cluster, by its name.
    """

    since: float
    offers: Mapping[str, Any] = field(compare=False)


@dataclass(frozen=True, slots=True)
class FindResult:
    """Look for the stored result of a task: `RESULT_FOUND` or `NO_RESULT`."""

    task: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch a cluster, or find the one that was launched with the token.

    It ends in `LAUNCHED` or `REFUSED`. A token whose cluster has ended is refused: it is never
    launched twice.
    """

    cluster: str
    token: str
    offer: Any = field(compare=False, default=None)


@dataclass(frozen=True, slots=True)
class Move:
    """Bring the inputs of a task to a cluster: `MOVED`, `NOT_MOVED`."""

    task: str
    cluster: str
    token: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send an attempt to a cluster, once: `BEGUN` also where it began before; `LOST`."""

    task: str
    cluster: str
    token: str
    attempt: int
    offer: Any = field(compare=False, default=None)


@dataclass(frozen=True, slots=True)
class Follow:
    """Wait for the end of an attempt: `SUCCEEDED`, `FAILED` or `LOST`."""

    task: str
    cluster: str
    token: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop an attempt for a user: `STOPPED`, or how it ended before."""

    task: str
    cluster: str
    token: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Release:
    """End a cluster and what it costs: `RELEASED`."""

    cluster: str
    token: str


Action = MakePlan | LookUpPrices | FindResult | Launch | Move | Send | Follow | Stop | Release


class World(Protocol):
    """Carries out actions; all of them may be asked again after a crash, and must bear it.

    The names, tokens and numbers of an action tell what was asked before from what is new. An
    action on a cluster may also tell `CLUSTER_LOST`.
    """

    async def perform(self, action: Action, task: RunTask | None) -> Sequence[Event]:
        """Carry out an action and return what became of it.

        Parameters
        ----------
        action
            What to do.
        task
            The task that it is about; None for a plan or a cluster.
        """
        ...

    def together(self, actions: Sequence[Action]) -> Iterable[Sequence[Action]]:
        """Return actions that are due in the groups in which they are carried out, all of them.

        Each is a group of its own unless a world says otherwise.
        """
        return [[action] for action in actions]

    async def perform_together(self, actions: Sequence[Action]) -> Mapping[Action, Sequence[Event]]:
        """Carry out a group of several actions; return what became of each.

        One that is left out is carried out by itself.
        """
        raise NotImplementedError("each action is carried out by itself")

    def prepare(self, run: str, graph: RunGraph, settings: Mapping[str, Any]) -> None:
        """Get to know the run whose actions are going to be asked for."""
        ...
