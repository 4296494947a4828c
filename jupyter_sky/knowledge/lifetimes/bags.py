"""Bags of jobs on machines that may be taken back: what is simulated, and what comes out.

A bag is many jobs of known run times. A fleet runs some of them at a time, each on a group of
machines that work together. When a machine is lost its group's job goes back to its last
checkpoint, a new machine takes the place, and the group goes on when it is up. A policy says when a
group's machines are exchanged before they are lost, and when jobs save checkpoints. Policies are
judged by the outcomes (section 4.2 of SciSpot: reuse machines, replenish, stop at m of n jobs).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.lifetimes import validation
from jupyter_sky.knowledge.lifetimes.models import Model


@dataclass(frozen=True)
class Bag:
    """Jobs to run, in this order.

    Attributes
    ----------
    hours : tuple of float
        Run time of each job on one group without failures.
    needed : int, optional
        How many must finish; all unless given. The rest is given up then.

    Examples
    --------
    >>> Bag((1.0, 2.0, 4.0), needed=2).hours
    (1.0, 2.0, 4.0)
    """

    hours: tuple[float, ...]
    needed: int | None = None

    def __post_init__(self) -> None:
        if not self.hours:
            raise SkyUsageError(
                _("a bag without jobs"), hint=_("give the run time of each job, hours")
            )
        for hours in self.hours:
            validation.check_number(hours, "run time of a job (hours)", above=0)
        if self.needed is not None and validation.check_count(self.needed, "needed") > len(
            self.hours
        ):
            raise SkyUsageError(
                _("{needed} of {hours_count} jobs cannot finish").format(
                    needed=self.needed, hours_count=len(self.hours)
                ),
                hint=_("need fewer"),
            )

    @property
    def target(self) -> int:
        """Number of jobs that must finish."""
        return len(self.hours) if self.needed is None else self.needed


@dataclass(frozen=True)
class Fleet:
    """Machines that a bag runs on.

    Attributes
    ----------
    lifetime : Model
        Hours from the launch of a machine until its cloud takes it back.
    groups : int
        Jobs that run at once.
    nodes : int
        Machines of each group, all of which a job needs.
    price : float
        USD/h of one machine, from its launch to its end.
    boot : float
        Hours from a launch until the machine can work.
    shared_fate : float
        Variance of a gamma distributed factor, of mean 1, on the hazard of all machines that are
        launched at the same moment; 0 for independent machines. Batches of the 2019 data had 2.5
        times the binomial variance.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> Fleet(Exponential(0.1), groups=4, nodes=2, price=0.3).nodes
    2
    """

    lifetime: Model
    groups: int = 1
    nodes: int = 1
    price: float = 0.0
    boot: float = 0.0
    shared_fate: float = 0.0

    def __post_init__(self) -> None:
        for name in ("groups", "nodes"):
            validation.check_count(getattr(self, name), name)
        for name in ("price", "boot", "shared_fate"):
            validation.check_number(getattr(self, name), name)


def _always(age: float, hours: float) -> bool:
    return True


@dataclass(frozen=True)
class Policy:
    """Policy of reuse and checkpoints while a bag runs.

    Attributes
    ----------
    keep : callable
        From a machine's age and the hours that the next job will take on it to whether it is used
        again; asked before each attempt of a machine that has worked. By default always.
    checkpoint : callable, optional
        From the remaining work and the age of the group's oldest machine, both in hours, to the
        work until the next checkpoint. Without, jobs save nothing.
    cost : float
        Hours that a checkpoint takes.

    Examples
    --------
    >>> policy = Policy(checkpoint=lambda work, age: 0.5, cost=1 / 60)
    >>> policy.checkpoint(2.0, 0.0)
    0.5
    """

    keep: Callable[[float, float], bool] = _always
    checkpoint: Callable[[float, float], float] | None = None
    cost: float = 0.0


def never(age: float, hours: float) -> bool:
    """Decide, as a `keep`, for a new machine at every attempt.

    Parameters
    ----------
    age
        Hours that the machine has lived.
    hours
        Hours that the next job will take.

    Returns
    -------
    bool
        False.

    Examples
    --------
    >>> never(2.0, 1.0)
    False
    """
    return False


@dataclass(frozen=True, slots=True)
class Event:
    """Event of a simulated bag.

    Attributes
    ----------
    at : float
        Hours since the start.
    what : str
        ``launch``, ``start``, ``save``, ``done``, ``lost`` (a machine and the work since the last
        checkpoint), ``gone`` (a machine of an idle or booting group) or ``release``.
    group : int
        Number of the group.
    job : int, optional
        Number of the job; None when the group had none.

    Examples
    --------
    >>> Event(0.5, "start", group=0, job=3).what
    'start'
    """

    at: float
    what: str
    group: int
    job: int | None


@dataclass(frozen=True)
class Outcome:
    """Result of a simulated bag.

    Attributes
    ----------
    hours : float
        From the start until enough jobs have finished, or until the time limit.
    usd, machine_hours : float
        Over all machines, from launch to end.
    finished : int
        Jobs that ended.
    preemptions, failures : int
        Machines taken back, and attempts that this cut off.
    lost_hours : float
        Time of groups spent on work or checkpoints that were lost.
    trace : tuple of Event
        Everything that happened, in order.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import Exponential, Fleet, simulate
    >>> outcome = simulate([1.0] * 4, Fleet(Exponential(0.0), groups=2, price=0.5))
    >>> outcome.hours, outcome.usd, outcome.finished
    (2.0, 2.0, 4)
    """

    hours: float
    usd: float
    machine_hours: float
    finished: int
    preemptions: int
    failures: int
    lost_hours: float
    trace: tuple[Event, ...] = field(repr=False)
