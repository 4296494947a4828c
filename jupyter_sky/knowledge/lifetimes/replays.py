"""Replays of recorded availability: what a job would have cost and taken under a strategy."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.lifetimes.availability import Availability, AvailabilityRecord
from jupyter_sky.knowledge.lifetimes.deadlines import (
    AGES,
    SAMPLE,
    DeadlineJob,
    DeadlinePolicy,
    Machine,
    Moment,
    age_class,
)
from jupyter_sky.knowledge.lifetimes.observations import Happening, Seen
from jupyter_sky.knowledge.lifetimes.recovery import Situation, SpotPlace, Strategy, ask

FIRST_WAIT = 1 / 60
"""Hours of waiting after all places have refused for the first time."""
WAIT_GROWTH = 1.6
LONGEST_WAIT = 5 / 60


@dataclass(frozen=True, slots=True)
class ReplayedJob:
    """Job that saves its state at times.

    Attributes
    ----------
    work : float
        Hours.
    interval, save : float
        Hours of work between two saves, and of one save.
    boot : float
        Hours from a launch until work goes on.
    refusal : float
        Hours until a place has refused.
    egress : float
        USD to bring the state to another region.
    notice : float
        Hours between the notice of a loss and the loss; work is saved if a save fits in.
    """

    work: float
    interval: float
    save: float
    boot: float
    refusal: float
    egress: float = 0.0
    notice: float = 0.0

    @property
    def saves_on_notice(self) -> bool:
        """Whether the last save is made between the notice and the loss."""
        return 0 < self.notice >= self.save


@dataclass(frozen=True, slots=True)
class Replay:
    """Outcome of a replay.

    Attributes
    ----------
    usd : float
        Machines and egress.
    hours : float
        From the start to the end of the job.
    preemptions, moves : int
        Machines that were lost, and changes of region.
    seen : tuple of Seen
        What the job has seen of the places.
    """

    usd: float
    hours: float
    preemptions: int
    moves: int
    seen: tuple[Seen, ...]


def replay(
    job: ReplayedJob,
    places: Sequence[SpotPlace],
    traces: Sequence[AvailabilityRecord],
    strategy: Strategy,
    start: float,
    seen: Sequence[Seen] = (),
) -> Replay:
    """Run a job through recorded availability.

    Parameters
    ----------
    job
        What is run.
    places
        Places that the strategy may choose; those with spot machines have a trace.
    traces
        Availability by zone.
    strategy
        Order of places.
    start
        Hours of the record at which the job starts.
    seen
        What earlier jobs have seen.

    Returns
    -------
    Replay
        Cost, time and losses.

    Raises
    ------
    SkyUsageError
        The record ends before the job does.
    """
    return replay_together([job], places, [traces], strategy, start, seen)[0]


def replay_together(
    jobs: Sequence[ReplayedJob],
    places: Sequence[SpotPlace],
    traces: Sequence[Sequence[AvailabilityRecord]],
    strategy: Strategy,
    start: float,
    seen: Sequence[Seen] = (),
) -> list[Replay]:
    """Run jobs side by side; each knows what has happened to the others until then.

    Parameters
    ----------
    jobs
        Jobs that start together.
    places
        Places that the strategy may choose.
    traces
        Availability by zone for the machines of each job.
    strategy
        Order of places.
    start
        Hours of the record at which the jobs start.
    seen
        What earlier jobs have seen.

    Returns
    -------
    list of Replay
        Cost, time and losses of each job; `Replay.seen` is what all have seen.

    Raises
    ------
    SkyUsageError
        A record ends before the job does.
    """
    shared = sorted(seen, key=_time_of)
    names = [str(number) for number in range(len(jobs))] if len(jobs) > 1 else [""]
    runs = [
        _Run(job, places, {trace.place: trace for trace in own}, shared, start, name)
        for name, job, own in zip(names, jobs, traces, strict=True)
    ]
    while open_runs := [run for run in runs if run.left > 0]:
        min(open_runs, key=lambda run: run.now).step(strategy)
    return [run.outcome() for run in runs]


def _time_of(event: Seen) -> float:
    return event.at


class _Run:
    """Job that is being replayed.

    Parameters
    ----------
    seen
        What this job and those beside it have seen and will see, in the order of time.
    """

    def __init__(
        self,
        job: ReplayedJob,
        places: Sequence[SpotPlace],
        traces: Mapping[str, AvailabilityRecord],
        seen: list[Seen],
        start: float,
        machine: str,
    ) -> None:
        self.job, self.places, self.traces, self.seen = job, places, traces, seen
        self.start, self.now, self.left, self.usd = start, start, job.work, 0.0
        self.region, self.losses, self.moves = "", 0, 0
        self.machine, self.wait = machine, FIRST_WAIT

    def step(self, strategy: Strategy) -> None:
        """Launch a machine and work on it until its end; wait where all places refuse."""
        place = self._launch(strategy)
        if place is None:
            self.now += self.wait
            self.wait = min(self.wait * WAIT_GROWTH, LONGEST_WAIT)
            return
        self.wait = FIRST_WAIT
        self._stay(place)

    def outcome(self) -> Replay:
        """Return what the job has cost and taken so far."""
        hours = self.now - self.start
        return Replay(self.usd, hours, self.losses, self.moves, tuple(self.seen))

    def _launch(self, strategy: Strategy) -> SpotPlace | None:
        """Ask places in the strategy's order; return the one that gave a machine."""
        for place in ask(strategy, self._situation()):
            if not place.is_spot or self._trace(place).is_up(self.now):
                self._note(place, Happening.LAUNCHED)
                return place
            self._note(place, Happening.REFUSED)
            self.now += self.job.refusal
        return None

    def _stay(self, place: SpotPlace) -> None:
        """Work on a machine until it is lost or the work is done."""
        if self.region and place.region != self.region:
            self.usd += self.job.egress
            self.moves += 1
        self.region = place.region
        job = self.job
        saves = max(0, math.ceil(self.left / job.interval) - 1)
        needed = job.boot + self.left + saves * job.save
        lasts = self._trace(place).until_change(self.now) if place.is_spot else math.inf
        is_lost = lasts < needed
        stayed = min(lasts, needed)
        self.usd += stayed * place.price
        self.now += stayed
        self.left -= self._saved(stayed) if is_lost else self.left
        self.losses += is_lost
        self._note(place, Happening.LOST if is_lost else Happening.RELEASED)

    def _saved(self, stayed: float) -> float:
        """Return the hours of work that are saved when a machine is lost."""
        job = self.job
        worked = stayed - job.boot
        cycle = job.interval + job.save
        if job.saves_on_notice:
            worked -= job.save
            cycles, rest = divmod(max(worked, 0.0), cycle)
            return min(self.left, cycles * job.interval + min(rest, job.interval))
        return min(self.left, max(0, math.floor(worked / cycle)) * job.interval)

    def _situation(self) -> Situation:
        job = self.job
        loss = job.save if job.saves_on_notice else job.interval / 2
        return Situation(
            self.now,
            self.left,
            self.places,
            tuple(self.seen[: bisect_right(self.seen, self.now, key=_time_of)]),
            self.region,
            job.boot,
            loss,
            job.egress,
        )

    def _trace(self, place: SpotPlace) -> AvailabilityRecord:
        trace = self.traces[place.zone]
        if self.now >= trace.end:
            raise SkyUsageError(
                _("the record of {zone} ends at {end:.0f} h, before the job does").format(
                    zone=place.zone, end=trace.end
                ),
                hint=_("start earlier, or take a longer record"),
            )
        return trace

    def _note(self, place: SpotPlace, what: Happening) -> None:
        insort(self.seen, Seen(self.now, place.zone, what, self.machine), key=_time_of)


@dataclass(frozen=True, slots=True)
class DeadlineReplay:
    """Outcome of a job with a deadline.

    Attributes
    ----------
    usd, hours : float
        Cost, and hours from the start to the end.
    is_late : bool
        Whether it ended after its deadline.
    """

    usd: float
    hours: float
    is_late: bool


def replay_deadline(
    job: DeadlineJob,
    trace: Availability,
    policy: DeadlinePolicy,
    start: float,
    step: float = SAMPLE,
) -> DeadlineReplay:
    """Run a job with a deadline in one place, choosing its machine at each step.

    Parameters
    ----------
    step
        Hours between two choices.

    Returns
    -------
    DeadlineReplay
        Cost and time.
    """
    usd, remaining, elapsed, changing = 0.0, job.work, 0.0, 0.0
    machine, watcher = Machine.NONE, Watcher()
    while remaining > 1e-9:
        is_up = trace.is_up(start + elapsed)
        watcher.look(is_up=is_up, step=step)
        if machine is Machine.SPOT and not is_up:
            machine = Machine.NONE
        chosen = policy.choose(job, watcher.moment(elapsed, remaining, machine, is_up=is_up))
        if chosen is Machine.SPOT and not is_up:
            chosen = Machine.NONE
        if chosen is not machine:
            machine, changing = chosen, job.change
        worked = max(0.0, min(remaining, step - changing)) if machine is not Machine.NONE else 0.0
        passed = min(step, changing + remaining) if worked == remaining else step
        changing = max(0.0, changing - step)
        prices = {Machine.SPOT: job.spot_price, Machine.ON_DEMAND: job.price}
        usd += passed * prices.get(machine, 0.0)
        remaining -= worked
        elapsed += passed
    return DeadlineReplay(usd, elapsed, elapsed > job.deadline + 1e-6)


class Watcher:
    """Count of a place's changes by the age of its state."""

    def __init__(self) -> None:
        self._is_up: bool | None = None
        self._age = 0.0
        self._events = {True: [0] * len(AGES), False: [0] * len(AGES)}
        self._hours = {True: [0.0] * len(AGES), False: [0.0] * len(AGES)}

    def look(self, *, is_up: bool, step: float) -> None:
        """Note the state of the place after another step."""
        if self._is_up is not None:
            before = age_class(self._age)
            self._hours[self._is_up][before] += step
            self._events[self._is_up][before] += is_up is not self._is_up
        self._age = self._age + step if is_up is self._is_up else 0.0
        self._is_up = is_up

    def moment(self, elapsed: float, remaining: float, machine: Machine, *, is_up: bool) -> Moment:
        """Return all that a policy may know."""
        return Moment(
            elapsed,
            remaining,
            machine,
            is_up,
            self._age,
            tuple(self._events[True]),
            tuple(self._events[False]),
            tuple(self._hours[True]),
            tuple(self._hours[False]),
        )


def watch(traces: Sequence[Availability], begin: float, end: float) -> list[Seen]:
    """Return what machines kept in all places would have seen in a span of time (hours)."""
    seen = list[Seen]()
    for trace in traces:
        for then, until, is_up in trace.periods(begin, end):
            if is_up:
                kind = Happening.LOST if until < end else Happening.RELEASED
                seen += Seen(then, trace.place, Happening.LAUNCHED), Seen(until, trace.place, kind)
    return sorted(seen, key=lambda event: event.at)
