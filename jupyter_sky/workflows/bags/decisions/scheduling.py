"""Pure decisions on the jobs of a bag: what becomes of attempts, what is sent, when all is over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jupyter_sky.knowledge.lifetimes import validation
from jupyter_sky.workflows.bags.decisions.run_times import RunTimes
from jupyter_sky.workflows.bags.queue.application import (
    BagCounts,
    BagSettings,
    End,
    JobChange,
    JobOutcome,
    JobState,
    OpenJob,
)

CHUNK_SECONDS = 0.5
"""Work that is sent in one message: short beside the time after which losses are noticed."""
CHUNK_JOBS = 1000
LONG_SECONDS = 2.0
"""Run time from which nothing is gained by sending a machine its next job ahead of time."""
MAX_DEATHS = 3
"""Processes that a job may end which ran it alone, before it seems to be their cause."""
FAILURES_OF_ALL = 10
"""Jobs after whose failure, with no success, the others are taken to fail too."""
FEW_JOBS = 3
"""Jobs that must have ended before others are called stragglers."""


def judge_outcome(
    job: OpenJob, outcome: JobOutcome, retries: int, machine: str = "", usd: float = 0.0
) -> JobChange:
    """Return what becomes of a job whose attempt has ended.

    Parameters
    ----------
    retries
        Further attempts after an error of its own.
    machine, usd
        Place and cost of the attempt.

    Examples
    --------
    >>> failed = JobOutcome(0, None, error="ValueError: no")
    >>> change = judge_outcome(OpenJob(0, {}, attempts=1), failed, retries=1)
    >>> str(change.state), change.job.failures
    ('queued', 1)
    >>> str(judge_outcome(change.job, failed, retries=1).state)
    'failed'
    """
    if not outcome.error:
        return JobChange(job, JobState.SUCCEEDED, outcome, machine, usd)
    job = replace(job, failures=job.failures + 1)
    state = JobState.QUEUED if job.failures <= retries else JobState.FAILED
    return JobChange(job, state, outcome, machine, usd, outcome.error)


def judge_loss(job: OpenJob, reason: str, is_at_fault: bool) -> JobChange:
    """Return what becomes of a job whose attempt was lost with its process or machine.

    Losses of machines are not failures. A job that has run alone in several processes that ended is
    taken to be their cause.

    Parameters
    ----------
    is_at_fault
        Whether the job was the only one in a process that ended while its machine went on.

    Examples
    --------
    >>> job = OpenJob(0, {}, deaths=2)
    >>> str(judge_loss(job, "its engine died", is_at_fault=True).state)
    'failed'
    >>> str(judge_loss(job, "its machine was taken", is_at_fault=False).state)
    'queued'
    """
    if not is_at_fault:
        return JobChange(replace(job, losses=job.losses + 1), JobState.QUEUED, reason=reason)
    job = replace(job, deaths=job.deaths + 1)
    state = JobState.FAILED if job.deaths >= MAX_DEATHS else JobState.QUEUED
    return JobChange(job, state, reason=reason)


def chunk_size(waiting: int, slots: int, mean_seconds: float | None) -> int:
    """Return the number of jobs of the next message.

    Parameters
    ----------
    waiting
        Jobs in the queue.
    slots
        Jobs that run at a time on all machines.
    mean_seconds
        Mean run time of those that have ended; None before the first.

    Examples
    --------
    >>> chunk_size(10_000, 2, None), chunk_size(10_000, 2, 0.001), chunk_size(10_000, 2, 5.0)
    (1, 500, 1)
    >>> chunk_size(100, 2, 0.001)
    25
    """
    if mean_seconds is None:
        return 1
    by_time = int(CHUNK_SECONDS / max(mean_seconds, CHUNK_SECONDS / CHUNK_JOBS))
    # towards the end they get smaller, so that all machines end together
    return max(1, min(by_time, math.ceil(waiting / (2 * max(slots, 1)))))


def messages_ahead(slots: int, mean_seconds: float | None) -> int:
    """Return the number of messages that may be under way.

    Examples
    --------
    >>> messages_ahead(4, 0.01), messages_ahead(4, 60.0)
    (8, 4)
    """
    return slots if mean_seconds is None or mean_seconds > LONG_SECONDS else 2 * slots


def order_jobs(jobs: Sequence[OpenJob], size: str) -> list[OpenJob]:
    """Return jobs in the order in which they are sent: the longest first where that is known.

    The last to end then is a short one (longest processing time first; Graham, 1969).

    Examples
    --------
    >>> [job.number for job in order_jobs([OpenJob(0, {"n": 1}), OpenJob(1, {"n": 9})], "n")]
    [1, 0]
    """
    if not size:
        return list(jobs)
    return sorted(jobs, key=lambda job: -float(job.parameters.get(size) or 0.0))


@dataclass(frozen=True, slots=True)
class Spending:
    """Money and time of a bag at one moment.

    Attributes
    ----------
    usd
        Spent up to now.
    usd_h
        Price of all machines that are up, USD/h.
    elapsed
        Seconds since the begin.
    """

    usd: float = 0.0
    usd_h: float = 0.0
    elapsed: float = 0.0


STOP_SECONDS = 60.0
"""Time for which machines are billed after it was decided to end them."""


def find_end(counts: BagCounts, settings: BagSettings, spending: Spending) -> End | None:
    """Return why a bag ends now; None while it goes on.

    Examples
    --------
    >>> asked = BagSettings("f", "function", needed=2)
    >>> find_end(BagCounts(queued=8, succeeded=2), asked, Spending())
    <End.DONE: 'done'>
    >>> find_end(BagCounts(queued=1, failed=9), asked, Spending())
    <End.FAILED: 'failed'>
    >>> find_end(BagCounts(queued=90, failed=10), BagSettings("f", "function"), Spending())
    <End.ALL_FAIL: 'all fail'>
    >>> rich = BagSettings("f", "function", budget=1.0)
    >>> find_end(BagCounts(queued=9), rich, Spending(usd=0.99, usd_h=6.0))
    <End.BUDGET: 'budget'>
    """
    if settings.needed is not None:
        if counts.succeeded >= settings.needed:
            return End.DONE
        if counts.total - counts.failed - counts.cancelled < settings.needed:
            return End.FAILED
    if not counts.open:
        return End.DONE
    if not counts.succeeded and counts.failed >= FAILURES_OF_ALL:
        return End.ALL_FAIL
    if is_budget_spent(settings, spending):
        return End.BUDGET
    is_late = settings.deadline is not None and spending.elapsed > settings.deadline
    return End.DEADLINE if is_late and not counts.running else None


def is_budget_spent(settings: BagSettings, spending: Spending) -> bool:
    """Return whether the budget would be passed if machines did not begin to end now."""
    if settings.budget is None:
        return False
    return spending.usd + spending.usd_h * STOP_SECONDS / 3600 > settings.budget


def may_begin(
    settings: BagSettings, spending: Spending, mean_seconds: float | None, slots: int
) -> bool:
    """Return whether one more attempt may begin.

    Not after the deadline, and not where it could not end within the budget.

    Parameters
    ----------
    mean_seconds
        Mean run time of the attempts that have ended.
    slots
        Jobs that run at a time; their machines are paid for until this attempt ends.

    Examples
    --------
    >>> asked = BagSettings("f", "function", budget=1.0)
    >>> spending = Spending(usd=0.5, usd_h=1.0)
    >>> may_begin(asked, spending, 600.0, 1), may_begin(asked, spending, 3600.0, 1)
    (True, False)
    """
    if settings.deadline is not None and spending.elapsed > settings.deadline:
        return False
    if settings.budget is None:
        return True
    usd = spending.usd + spending.usd_h * ((mean_seconds or 0.0) + STOP_SECONDS) / 3600
    return slots > 0 and usd <= settings.budget


def find_straggler(
    running: Sequence[tuple[int, float]], seconds: Sequence[float], copied: frozenset[int]
) -> int | None:
    """Return the number of the job that a free machine races with a copy; None for none.

    A copy is expected to end first and to save more machine time than it takes: a job that takes
    long because others like it do is left alone (`stragglers`).

    Parameters
    ----------
    running
        Number of each job that runs, and for how long it has (s).
    seconds
        Run times of the jobs that have ended.
    copied
        Jobs that have a copy already.

    Examples
    --------
    >>> find_straggler([(4, 30.0), (7, 100.0)], [10.0, 12.0, 11.0], frozenset())
    7
    >>> find_straggler([(7, 12.0)], [10.0, 12.0, 11.0], frozenset()) is None
    True
    """
    slow = [(elapsed, number) for number, elapsed in running if number not in copied]
    if not slow or len(seconds) < FEW_JOBS:
        return None
    elapsed, number = max(slow)
    if elapsed < LONG_SECONDS:
        return None
    # those that still run would say that jobs are long, and no copy would be tried
    times = RunTimes.of([max(each, 1e-3) / 3600 for each in seconds])
    return number if consider_copy(elapsed / 3600, times).pays else None


# -- Copies of jobs that take long: when a second run on an idle machine pays ---------------------
#
# With T the run time, a job that has run for e hours and a copy that begins now on a machine which
# is up in B hours race; the first to end counts. Their expected times are sums over the
# distribution of run times::
#
#     rest  = E[T - e | T > e]
#     fresh = B + E[T]
#     race  = E[min(T - e | T > e, B + T')],   T' independent of T
#
# The copy costs `race` machine hours, and the original ends ``rest - race`` hours sooner.

FACTOR = 1.5
"""Multiple of the median run time below which a job is no straggler."""


@dataclass(frozen=True)
class Race:
    """Expected times of a job that has run for long, and of a copy of it.

    Attributes
    ----------
    rest : float
        Hours until the job ends alone.
    fresh : float
        Hours until a copy would end alone.
    race : float
        Hours until the first of both ends.
    pays : bool
        Whether to start the copy.

    Examples
    --------
    >>> Race(rest=1.0, fresh=0.3, race=0.25, pays=True).saved
    0.75
    """

    rest: float
    fresh: float
    race: float
    pays: bool

    @property
    def saved(self) -> float:
        """Hours by which the copy makes the end come sooner."""
        return self.rest - self.race


def consider_copy(
    elapsed: float,
    run_times: RunTimes,
    *,
    boot: float = 0.0,
    price: float = 0.0,
    value: float = 0.0,
    slow_share: float = 1.0,
) -> Race:
    """Return whether a copy of a running job is worth its machine.

    It is for machines that have nothing else to do, for jobs that may run twice.

    Parameters
    ----------
    elapsed
        Hours for which the job has run.
    run_times
        Run times of the bag's jobs.
    boot
        Hours until the copy's machine is up; 0 where one is idle.
    price
        USD/h of the copy's group.
    value
        USD that an hour sooner is worth; 0 where only the cost counts.
    slow_share
        Chance that the machine is what makes the job slow, so that a copy runs as other jobs do;
        else the job itself is long, and the copy takes as long as it. 1 for jobs that are alike.

    Returns
    -------
    Race
        Expected times and the decision: a straggler, whose copy is expected to end first, and to
        save at least the machine hours or the money that it costs.

    Examples
    --------
    >>> times = RunTimes((0.9, 1.0, 1.1, 6.0), (5.0, 5.0, 5.0, 1.0))
    >>> consider_copy(0.5, times).pays, consider_copy(2.0, times).pays
    (False, True)
    """
    validation.check_number(elapsed, "hours that the job has run")
    later = run_times.beyond(elapsed)
    rests = np.asarray(later.hours) - elapsed
    rest_weights = np.asarray(later.weights) / sum(later.weights)
    runs = np.asarray(run_times.hours) + boot
    run_weights = np.asarray(run_times.weights) / sum(run_times.weights)
    rest, fresh = float(rests @ rest_weights), float(runs @ run_weights)
    race = float(rest_weights @ np.minimum(rests[:, None], runs[None, :]) @ run_weights)
    race = slow_share * race + (1 - slow_share) * rest
    is_straggler = elapsed > FACTOR * run_times.median and rest > fresh
    # the original's machine is free sooner by what is saved, the copy's is used until then
    gain = (rest - race) * (price + value) - race * price
    return Race(rest, fresh, race, is_straggler and (gain > 0 or rest - race > race))
