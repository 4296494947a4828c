"""Rest of a bag: jobs that are left, the machines that are there and those that can be had."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from jupyter_sky.knowledge.lifetimes import validation
from jupyter_sky.knowledge.lifetimes.models import Model
from jupyter_sky.workflows.bags.decisions.run_times import RunTimes

MOST_JOBS = 2000
"""Jobs that are simulated one by one, unless there are more groups than that allows."""
_FOR_EACH = 50


@dataclass(frozen=True)
class MachineKind:
    """Machines that a bag may run on.

    Attributes
    ----------
    name : str
        Cloud, region and instance type, or what else tells it from others.
    lifetime : Model
        Hours from the launch of one machine until its cloud takes it back.
    price : float
        USD/h of one machine.
    nodes : int
        Machines of a group, all of which a job needs.
    boot : float
        Hours from a launch until the machine can work.
    ratio : float
        Run time on this kind over that of the run times given with it.
    exchange_age : float
        Hours of age from which a machine is exchanged before the next job (`reuse`).

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> MachineKind("gcp n1-highcpu-32 spot", Exponential(0.05), price=0.24).nodes
    1
    """

    name: str
    lifetime: Model
    price: float
    nodes: int = 1
    boot: float = 0.0
    ratio: float = 1.0
    exchange_age: float = math.inf

    def __post_init__(self) -> None:
        validation.check_count(self.nodes, "nodes")
        validation.check_number(self.price, "price (USD/h)")
        validation.check_number(self.boot, "boot (hours)")
        validation.check_number(self.ratio, "ratio of run times", above=0)


@dataclass(frozen=True)
class JobGroup:
    """Machines of a bag that are there, and what they do.

    Attributes
    ----------
    kind : MachineKind
        Kind of the machines.
    age : float
        Hours that the youngest of them has lived.
    elapsed : float, optional
        Hours for which the present attempt of its job has run; None without a job.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> JobGroup(MachineKind("spot", Exponential(0.05), 0.24), age=2.0, elapsed=0.5).is_running
    True
    """

    kind: MachineKind
    age: float = 0.0
    elapsed: float | None = None

    @property
    def is_running(self) -> bool:
        """Whether it has a job."""
        return self.elapsed is not None


@dataclass(frozen=True)
class Backlog:
    """Rest of a bag.

    Attributes
    ----------
    queued : int
        Jobs that no group has.
    run_times : RunTimes
        Run times of all jobs.
    groups : tuple of JobGroup
        Machines that are there.
    needed : int, optional
        Jobs that must still succeed; all that are queued or run unless given.
    save_every, save_cost : float
        Hours of work between checkpoints, and hours that each takes; ``inf`` for none.

    Examples
    --------
    >>> Backlog(36, RunTimes.of([0.24]), needed=32).target
    32
    """

    queued: int
    run_times: RunTimes
    groups: tuple[JobGroup, ...] = ()
    needed: int | None = None
    save_every: float = math.inf
    save_cost: float = 0.0

    @property
    def jobs(self) -> int:
        """Jobs that are queued or run."""
        return self.queued + sum(group.is_running for group in self.groups)

    @property
    def target(self) -> int:
        """Jobs that must still succeed."""
        return self.jobs if self.needed is None else min(self.needed, self.jobs)

    def ordered(self) -> Backlog:
        """Return it with working groups first, then the oldest: those that are kept longest."""
        groups = sorted(self.groups, key=lambda group: (not group.is_running, -group.age))
        return replace(self, groups=tuple(groups))

    def coarse(self, groups: int) -> Backlog:
        """Return it with several jobs as one, where there are thousands for each group.

        A simulation takes as long as there are jobs. Of 2,000 on, and 50 for each group, those
        that follow each other on a group are taken together: the end moves by 2 % at most.

        Parameters
        ----------
        groups
            Groups that may work.

        Returns
        -------
        Backlog
            With fewer jobs, which take as long in all.

        Examples
        --------
        >>> many = Backlog(100_000, RunTimes((0.001,), (1.0,))).coarse(20)
        >>> many.queued, round(many.queued * many.run_times.mean)
        (2000, 100)
        """
        size = min(self.queued // MOST_JOBS, self.queued // (_FOR_EACH * max(groups, 1)))
        if size < 2:
            return self
        needed = None if self.needed is None else math.ceil(self.needed / size)
        queued = math.ceil(self.queued / size)
        return replace(self, queued=queued, run_times=self.run_times.sums(size), needed=needed)
