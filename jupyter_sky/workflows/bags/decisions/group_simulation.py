"""Simulation of the rest of a bag, many times at once.

A bag runs on groups of machines, one job on each group at a time. Jobs have alike and independent
run times, so each group is a process of its own that knows of the others only when the queue is
empty: it starts jobs at times ``s1 < s2 < ...``, with restarts after losses. Of N jobs those with
the N earliest starts of all groups run, and the bag ends with the last of their ends. This is the
same as following the queue, but all groups of all replicas advance together, and one simulation
answers for any number of groups: the first k of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from jupyter_sky.knowledge.lifetimes.models import Model
from jupyter_sky.workflows.bags.decisions.backlog import MOST_JOBS, Backlog, JobGroup, MachineKind

REPLICAS = (192, 1024)
"""Simulated bags, of large and of small ones: a chance near 0.95 has a standard error of 0.016, and
of 0.007."""
_JOBS = 200_000
TRIES = 60
"""Attempts after which a job is taken never to end."""


@dataclass(frozen=True, eq=False)
class GroupTimes:
    """Starts and ends of jobs in simulated bags, in hours from now.

    Attributes
    ----------
    starts, ends : ndarray
        By replica, group and number of the job on the group; ``inf`` where none.
    ready : ndarray
        Hours at which each group can begin.
    done : ndarray
        Jobs that each group has ended, by replica and group.
    """

    starts: np.ndarray
    ends: np.ndarray
    ready: np.ndarray
    done: np.ndarray

    def chance(self, groups: int, jobs: int, target: int) -> float:
        """Return the share of replicas in which `target` of `jobs` end within the horizon.

        Of the jobs that the horizon cuts off ``jobs - target`` may be among those that run. Let
        s be the start of the next of these: it must not be among the first `jobs` starts.
        """
        if target <= 0:
            return 1.0
        starts, done = self.starts[:, :groups], self.done[:, :groups]
        cut = np.take_along_axis(starts, done[:, :, None], axis=2)[:, :, 0]
        spare = jobs - target
        if spare < groups:
            start = np.partition(cut, spare, axis=1)[:, spare]
        else:
            start = np.full(len(cut), math.inf)
        before = (starts < start[:, None, None]).sum(axis=(1, 2))
        begun = (starts < math.inf).sum(axis=(1, 2))
        return float(np.mean(np.where(begun >= jobs, before >= jobs, done.sum(axis=1) >= target)))

    def finish(self, groups: int, jobs: int, target: int) -> np.ndarray:
        """Return the hours at which `target` of `jobs` have ended, on the first groups.

        Parameters
        ----------
        groups
            Number of groups that work.
        jobs, target
            Number of jobs, and of those that must end.

        Returns
        -------
        ndarray
            Hours for each replica; ``inf`` where it was not followed that far.
        """
        if target <= 0:
            return np.zeros(len(self.starts))
        ends = self._ends_of_first(groups, jobs)[1].reshape(len(self.starts), -1)
        if target > ends.shape[1]:
            return np.full(len(ends), math.inf)
        return np.partition(ends, target - 1, axis=1)[:, target - 1]

    def release(self, groups: int, jobs: int, target: int) -> np.ndarray:
        """Return the hours at which each group is given back, by replica and group."""
        over = self.finish(groups, jobs, target)
        last, ends = self._ends_of_first(groups, jobs)
        worked = np.where(np.isfinite(ends), ends, 0.0).max(axis=2)
        idle = np.minimum(last[:, None], self.ready[None, :groups])
        return np.minimum(np.maximum(worked, idle), over[:, None])

    def _ends_of_first(self, groups: int, jobs: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the last start of `jobs` jobs, and ends of jobs up to it (``inf`` else)."""
        starts, ends = self.starts[:, :groups], self.ends[:, :groups]
        flat = starts.reshape(len(starts), -1)
        if jobs > flat.shape[1]:
            last = np.full(len(flat), math.inf)
        else:
            last = np.partition(flat, jobs - 1, axis=1)[:, jobs - 1]
        return last, np.where(starts <= last[:, None, None], ends, math.inf)


def simulate_groups(
    backlog: Backlog,
    kind: MachineKind,
    groups: int,
    horizon: float = math.inf,
    seed: int = 0,
    replicas: int | None = None,
) -> GroupTimes:
    """Follow each group of a bag by itself, in all replicas at once.

    Parameters
    ----------
    backlog
        Rest of the bag; its groups come first, in their order.
    kind
        Machines of all further groups.
    groups
        Number of groups in all.
    horizon
        Hours after which nothing is followed. Without, each replica is followed until the jobs
        of the backlog have ended on all groups.
    seed, replicas
        Seed, and number of simulated bags; by their size unless given.

    Returns
    -------
    GroupTimes
        Starts and ends of jobs.

    Examples
    --------
    >>> from jupyter_sky.workflows.bags.decisions.run_times import RunTimes
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> backlog = Backlog(8, RunTimes((1.0,), (1.0,)))
    >>> times = simulate_groups(backlog, MachineKind("safe", Exponential(0.0), 0.1), 4)
    >>> float(times.finish(4, 8, 8).max()), float(times.finish(2, 8, 7).max())
    (2.0, 4.0)
    """
    least, most = REPLICAS
    if backlog.jobs > 2 * MOST_JOBS:  # so many that they hardly vary
        least //= 4
    count = replicas or min(most, max(least, _JOBS // max(backlog.jobs, 1)))
    return _Simulation(backlog, kind, groups, horizon, seed, count).run()


class _Simulation:
    """State of all groups of all replicas, flat: a row is a group of a replica."""

    def __init__(
        self,
        backlog: Backlog,
        kind: MachineKind,
        groups: int,
        horizon: float,
        seed: int,
        replicas: int,
    ) -> None:
        self.backlog, self.horizon = backlog, horizon
        self.rng = np.random.default_rng(seed)
        self.groups, self.replicas = groups, replicas
        members = [*backlog.groups[:groups]]
        members += [JobGroup(kind)] * (groups - len(members))
        self.members = members
        self.new_from = min(len(backlog.groups), groups)
        self.kinds = list(dict.fromkeys(member.kind for member in members))
        self.kind_of = self._column([self.kinds.index(member.kind) for member in members])
        self.boot = self._column([member.kind.boot for member in members])
        self.ratio = self._column([member.kind.ratio for member in members])
        self.same_ratio = bool((self.ratio == 1.0).all())
        self.exchange_age = self._column([member.kind.exchange_age for member in members])
        self.samples = backlog.run_times.draw(self.rng, replicas)
        rows = groups * replicas
        self.replica = np.repeat(np.arange(replicas), groups)
        # jobs that could start at the same moment start in the order of the groups
        self.tie = self._column((1e-9 * np.arange(groups)).tolist())
        self.tries = np.zeros(rows, int)
        self.count = np.zeros(rows, int)
        self._begin()

    def _column(self, values: list) -> np.ndarray:
        return np.tile(np.asarray(values), self.replicas)

    def _begin(self) -> None:
        """Set machines' ends, first jobs and their starts."""
        members = self.members
        there = np.arange(self.groups) < self.new_from
        age = np.array([member.age for member in members])
        boots = np.array([member.kind.boot for member in members])
        running = np.array([member.is_running for member in members])
        self.ready = np.where(running, 0.0, np.maximum(0.0, boots - np.where(there, age, 0.0)))
        self.began = np.tile(self.ready, self.replicas)
        nodes = max(member.kind.nodes for member in members)
        self.machine_ends = np.full((len(self.began), nodes), math.inf)
        self.born = np.tile(-age, self.replicas)
        rows = np.arange(len(self.began))
        for node in range(nodes):
            self._renew(rows, node, self.born, np.tile(age, self.replicas))
        self.work = self._draw(rows, 1)[:, 0]
        capacity = 2
        self.starts = np.full((len(rows), capacity), math.inf)
        self.ends = np.full((len(rows), capacity), math.inf)
        self.starts[:, 0] = self.began + self.tie
        for place in np.flatnonzero(running):
            elapsed = float(members[place].elapsed or 0.0)
            column = rows.reshape(self.replicas, self.groups)[:, place]
            later = self.backlog.run_times.beyond(elapsed / members[place].kind.ratio)
            # as if it had begun in the past: a loss takes all of that
            self.work[column] = later.sample(self.replicas, self.rng) * members[place].kind.ratio
            self.began[column] = -elapsed
            self.starts[column, 0] = -math.inf

    def _draw(self, rows: np.ndarray, jobs: int) -> np.ndarray:
        pick = self.rng.integers(256, size=(len(rows), jobs), dtype=np.uint8)
        drawn = self.samples[self.replica[rows][:, None], pick]
        return drawn if self.same_ratio else drawn * self.ratio[rows][:, None]

    def _renew(
        self, rows: np.ndarray, node: int, born: np.ndarray, age: np.ndarray | float
    ) -> None:
        """Give new lives to one machine of some rows; kinds with fewer machines have none."""
        kinds = self.kind_of[rows]
        for number, kind in enumerate(self.kinds):
            mine = kinds == number
            if node >= kind.nodes or not mine.any():
                continue
            ages = age[mine] if isinstance(age, np.ndarray) else age
            lives = _lifetime_table(kind.lifetime).sample(int(mine.sum()), self.rng, ages)
            self.machine_ends[rows[mine], node] = born[mine] + lives

    def run(self) -> GroupTimes:
        """Advance rows by whole stretches of jobs between losses, until none is needed."""
        active = np.arange(len(self.began))
        bound, bounded = np.full(self.replicas, self.horizon), False
        while len(active):
            active = active[self._advance(active)]
            # the bound only saves work: it is not worth finding again for the last few rows
            if self.horizon == math.inf and (len(active) > len(self.began) / 4 or not bounded):
                bound = self._last_start(bound)
                bounded = bool((bound < math.inf).all())
            going = self.starts[active, self.count[active]] <= bound[self.replica[active]]
            active = active[going & (self.tries[active] < TRIES)]
        used = int(self.count.max()) + 1
        shape = (self.replicas, self.groups, used)
        starts, ends = (one[:, :used].reshape(shape) for one in (self.starts, self.ends))
        return GroupTimes(starts, ends, self.ready, self.count.reshape(shape[:2]))

    def _last_start(self, bound: np.ndarray) -> np.ndarray:
        """Return an upper bound of the start of the last job of each replica."""
        jobs = self.backlog.jobs
        counts = (self.count + 1).reshape(self.replicas, self.groups).sum(axis=1)
        if (counts < jobs).any():
            return bound
        used = int(self.count.max()) + 1
        flat = self.starts[:, :used].reshape(self.replicas, -1)
        return np.partition(flat, jobs - 1, axis=1)[:, jobs - 1]

    def _stretch(self, rows: np.ndarray) -> int:
        """Return how many jobs a group may do until it is looked at again."""
        mean = max(self.backlog.run_times.mean * float(self.ratio.min()), 1e-9)
        jobs = self.backlog.jobs / self.groups + 3
        if self.horizon < math.inf:
            jobs = 1.3 * (self.horizon - float(self.began[rows].min())) / mean + 3
        return int(min(max(jobs, 2), 512))

    def _advance(self, rows: np.ndarray) -> np.ndarray:
        """Run each row up to its next loss; return which of them go on."""
        stretch = self._stretch(rows)
        work = self._draw(rows, stretch)
        work[:, 0] = self.work[rows]
        finish = self.began[rows][:, None] + np.cumsum(work + self._saving(work), axis=1)
        first = self.machine_ends[rows].argmin(axis=1)
        lost = self.machine_ends[rows, first]
        done = (finish <= np.minimum(lost, self.horizon)[:, None]).sum(axis=1)
        old = finish - self.born[rows][:, None] >= self.exchange_age[rows][:, None]
        ages_out = np.where(old.any(axis=1), old.argmax(axis=1) + 1, stretch + 1)
        exchanged = ages_out <= done
        done = np.minimum(done, ages_out)
        self._record(rows, finish, done)
        self.began[rows] = np.where(
            done > 0, finish[np.arange(len(rows)), np.maximum(done - 1, 0)], self.began[rows]
        )
        pending = work[np.arange(len(rows)), np.minimum(done, stretch - 1)]
        fresh = self._draw(rows, 1)[:, 0]
        self.work[rows] = np.where((done < stretch) & ~exchanged, pending, fresh)
        self.tries[rows] = np.where(done > 0, 0, self.tries[rows])
        self._exchange(rows[exchanged])
        cut = (done < stretch) & ~exchanged
        out = cut & (lost > self.horizon)
        cut &= ~out
        self._lose(rows[cut], first[cut], lost[cut])
        return ~out

    def _saving(self, work: np.ndarray) -> np.ndarray | float:
        if self.backlog.save_every == math.inf:
            return 0.0
        saves = np.ceil(work / self.backlog.save_every - 1e-9) - 1
        return np.maximum(saves, 0) * self.backlog.save_cost

    def _record(self, rows: np.ndarray, finish: np.ndarray, done: np.ndarray) -> None:
        needed = int(self.count[rows].max()) + finish.shape[1] + 1
        if needed > self.starts.shape[1]:
            more = np.full((len(self.starts), needed - self.starts.shape[1]), math.inf)
            self.starts = np.concatenate([self.starts, more], axis=1)
            self.ends = np.concatenate([self.ends, more], axis=1)
        kept = np.arange(finish.shape[1]) < done[:, None]
        if len(rows) == len(self.count) and not self.count.any():  # the first, by far the longest
            stretch = finish.shape[1]
            self.ends[:, :stretch] = np.where(kept, finish, math.inf)
            self.starts[:, 1 : stretch + 1] = self.ends[:, :stretch] + self.tie[:, None]
            self.count += done
            return
        row, column = np.nonzero(kept)
        at = self.count[rows][row] + column
        self.ends[rows[row], at] = finish[row, column]
        self.starts[rows[row], at + 1] = finish[row, column] + self.tie[rows[row]]
        self.count[rows] += done

    def _exchange(self, rows: np.ndarray) -> None:
        """Launch new machines in place of old ones, between two jobs."""
        if not len(rows):
            return
        launched = self.began[rows]
        for node in range(self.machine_ends.shape[1]):
            self._renew(rows, node, launched, 0.0)
        self.born[rows] = launched
        self.began[rows] = launched + self.boot[rows]
        self.starts[rows, self.count[rows]] = self.began[rows] + self.tie[rows]

    def _lose(self, rows: np.ndarray, node: np.ndarray, at: np.ndarray) -> None:
        """Replace one machine of each row; the job goes on from its last checkpoint."""
        if not len(rows):
            return
        if self.backlog.save_every < math.inf:
            stretch = self.backlog.save_every + self.backlog.save_cost
            saved = np.floor(np.maximum(at - self.began[rows], 0.0) / stretch)
            self.work[rows] = np.maximum(self.work[rows] - saved * self.backlog.save_every, 1e-6)
        for number in range(self.machine_ends.shape[1]):
            mine = node == number
            if mine.any():
                self._renew(rows[mine], number, at[mine], 0.0)
        self.born[rows] = at
        self.began[rows] = np.maximum(self.began[rows], at + self.boot[rows])
        self.tries[rows] += 1


@dataclass(frozen=True, eq=False)
class _LifetimeTable:
    """Cumulative hazard of a model by age, to draw lives from without solving for each."""

    ages: np.ndarray
    hazard: np.ndarray
    cap: float

    def sample(self, size: int, rng: np.random.Generator, age: np.ndarray | float) -> np.ndarray:
        """Return ages at which machines end that are alive at `age`."""
        used = np.interp(age, self.ages, self.hazard)
        wanted = used + rng.standard_exponential(size)
        ends = np.interp(wanted, self.hazard, self.ages)
        return np.where(wanted > self.hazard[-1], self.cap, ends)


@lru_cache(maxsize=64)
def _lifetime_table(model: Model) -> _LifetimeTable:
    cap = getattr(model, "cap", math.inf)
    last = cap if cap < math.inf else 1e4
    ages = last * np.linspace(0.0, 1.0, 2001) ** 3  # fine where machines are young
    ages[-1] = np.nextafter(last, 0.0)
    hazard = np.maximum.accumulate(np.asarray(model.cumulative_below(ages), float))
    return _LifetimeTable(ages, hazard, cap)
