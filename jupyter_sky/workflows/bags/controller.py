"""Controller of a bag: sends jobs to machines, stores what became of them, ends when all is over.

It holds nothing that is not in the queue's file: killed at any point, another goes on, and only
jobs whose results had not come run again. Each round is one transaction, before anything is sent.
"""

from __future__ import annotations

import math
import queue
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from jupyter_sky.base.errors import SkyError, SkyTaskLost
from jupyter_sky.base.remote.processes import identity
from jupyter_sky.workflows.bags.decisions.fleet_plan import PARTS, BagView, is_due, plan_fleet
from jupyter_sky.workflows.bags.decisions.outlook import describe_late, view_bag
from jupyter_sky.workflows.bags.decisions.reuse import with_exchange
from jupyter_sky.workflows.bags.decisions.scheduling import (
    Spending,
    chunk_size,
    find_end,
    find_straggler,
    judge_loss,
    judge_outcome,
    may_begin,
    messages_ahead,
    order_jobs,
)
from jupyter_sky.workflows.bags.fleet.fleet import Fleet
from jupyter_sky.workflows.bags.queue.application import (
    App,
    BagCounts,
    BagSettings,
    End,
    JobChange,
    JobOutcome,
    JobState,
    OpenJob,
)
from jupyter_sky.workflows.bags.queue.job_queue import CANCEL, RELOAD, JobQueue, RecordedBag

ROUND_SECONDS = 0.25
"""Longest time between two looks at what users wish and what machines cost."""
MEASURED_JOBS = 200
"""Newest run times, by which messages are sized."""


@dataclass(eq=False, slots=True)
class _Message:
    """Jobs that were sent together."""

    jobs: list[OpenJob]
    future: Future[list[JobOutcome]]
    sent: float


class BagController:
    """Carries out one bag.

    Parameters
    ----------
    jobs
        Queue with the bag.
    bag
        The bag.
    app
        Its application.
    fleet
        Machines that run it.
    clock
        Unix time.
    at_point
        Called between any two steps that outlast this process; for tests that end it there.
    """

    def __init__(
        self,
        jobs: JobQueue,
        bag: RecordedBag,
        app: App,
        fleet: Fleet,
        clock: Callable[[], float] = time.time,
        at_point: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._queue, self._name, self._app, self._fleet = jobs, bag.name, app, fleet
        self._settings: BagSettings = bag.settings
        self._clock, self._at_point = clock, at_point
        self._epoch = 0
        self._waiting: deque[OpenJob] = deque()
        self._open: dict[int, OpenJob] = {}
        self._counts = BagCounts()
        self._messages: list[_Message] = []
        self._ended: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._seconds: deque[float] = deque(maxlen=MEASURED_JOBS)
        self._begun = bag.begun or clock()
        self._wishes: set[str] = set()
        self._asked, self._asked_at = 0, clock()
        self._exchange_age = math.inf
        self._warning = ""

    def run(self) -> End:
        """Carry the bag out, from wherever it stands; return why it has ended.

        Raises
        ------
        SkyRunTaken
            Another controller has taken it over; nothing more is done here.
        SkyStoreError
            The file cannot be written; nothing new begins.
        """
        self._epoch = self._queue.take_over(self._name, identity(), self._clock())
        self._load()
        try:
            while True:
                if (end := self._round()) is not None:
                    return end
        finally:
            for message in self._messages:
                message.future.cancel()
            self._fleet.end()

    def _load(self) -> None:
        """Read the jobs that are to be run."""
        sent = {job.number for message in self._messages for job in message.jobs}
        recorded = self._queue.read(self._name)
        self._settings = recorded.settings
        fresh = [job for job in self._queue.open_jobs(self._name) if job.number not in sent]
        self._waiting = deque(order_jobs(fresh, self._settings.size))
        self._open = {job.number: job for job in fresh} | {
            number: job for number, job in self._open.items() if number in sent
        }
        self._counts = self._queue.counts(self._name)
        if self._waiting:
            self._fleet.begin(len(self._waiting))

    def _round(self) -> End | None:
        """Take in what has ended, store it, send what follows; return why all is over, if it is."""
        changes = [change for message in self._collect() for change in self._judge(message)]
        spending = self._spending()
        chunks = self._next_chunks(spending)
        begun = [JobChange(job, JobState.RUNNING) for chunk in chunks for job in chunk]
        if changes or begun or self._queue.has_wishes(self._name):
            self._store([*changes, *begun], spending)
        for chunk in chunks:
            self._send(chunk)
        if RELOAD in self._wishes:
            self._wishes.discard(RELOAD)
            self._load()
        if not self._waiting and self._messages:
            self._fleet.give_back(len(self._messages))
        elif changes or self._is_plan_old():
            self._plan_fleet(spending)
        return self._end_if_over(spending)

    def _is_plan_old(self) -> bool:
        """Return whether a twentieth of the deadline has passed since the plan was asked for."""
        deadline = self._settings.deadline
        return deadline is not None and self._clock() - self._asked_at > deadline / PARTS

    def _plan_fleet(self, spending: Spending) -> None:
        """Have more machines, or other ones, where the deadline needs them; exchange old ones.

        It is asked at each twentieth of the jobs and of the time.
        """
        counts = self._counts
        done = counts.succeeded + counts.failed
        if is_due(done, counts.total, self._asked) or self._is_plan_old():
            self._asked, now = done, self._clock()
            self._asked_at = now
            running = [now - message.sent for message in self._messages]
            view = view_bag(
                counts,
                self._settings,
                self._fleet.view(now),
                self._seconds,
                running,
                spending.elapsed,
                self._fleet.alternatives() if self._settings.deadline is not None else (),
            )
            if view is not None:
                self._follow_plan(view)
        self._fleet.exchange(self._exchange_age)

    def _follow_plan(self, view: BagView) -> None:
        mean = self._mean_seconds
        if mean and getattr(view.kind.lifetime, "cap", math.inf) < math.inf:
            self._exchange_age = with_exchange(view.kind, mean / 3600).exchange_age
        if view.deadline is None:
            return
        plan = plan_fleet(view)
        self._warning = describe_late(plan, view.deadline, self._settings)
        if self._settings.machines is None:
            self._fleet.grow(plan.groups, None if plan.kind.name == view.kind.name else plan.kind)

    # -- what has ended ------------------------------------------------------------------------

    def _collect(self) -> list[_Message]:
        """Wait for messages that have ended, for a round at most."""
        ended: list[_Message] = []
        has_to_send = self._waiting and self._fleet.slots and not self._messages
        try:
            ended.append(self._ended.get(timeout=0.0 if has_to_send else ROUND_SECONDS))
            while True:
                ended.append(self._ended.get_nowait())
        except queue.Empty:
            pass
        self._messages = [each for each in self._messages if each not in ended]
        return ended

    def _judge(self, message: _Message) -> list[JobChange]:
        """Return what becomes of the jobs of a message that has ended."""
        try:
            outcomes = {outcome.number: outcome for outcome in message.future.result()}
        except BaseException as error:
            return [self._apply(each) for each in self._judge_error(message, error)]
        changes = []
        for job in message.jobs:
            if job.number not in self._open:  # a copy was faster
                continue
            outcome = outcomes.get(job.number)
            if outcome is None:  # there was no time to begin it
                undone = replace(job, attempts=job.attempts - 1)
                changes.append(JobChange(undone, JobState.QUEUED))
                continue
            self._seconds.append(outcome.seconds)
            place, usd_h = self._fleet.describe(outcome.rank)
            usd = outcome.seconds / 3600 * usd_h
            changes.append(judge_outcome(job, outcome, self._settings.retries, place, usd))
        return [self._apply(each) for each in changes]

    def _judge_error(self, message: _Message, error: BaseException) -> list[JobChange]:
        """Return what becomes of jobs whose message came to nothing."""
        jobs = [job for job in message.jobs if job.number in self._open]
        if isinstance(error, SkyError):
            reason = error.message
            is_at_fault = isinstance(error, SkyTaskLost) and error.is_at_fault
            return [judge_loss(job, reason, is_at_fault and len(jobs) == 1) for job in jobs]
        reason = f"{type(error).__name__}: {error}"
        if len(jobs) > 1:  # the one at fault fails when it is sent alone
            return [judge_loss(job, reason, is_at_fault=False) for job in jobs]
        retries = self._settings.retries
        failed = [JobOutcome(job.number, None, error=reason) for job in jobs]
        return [judge_outcome(job, each, retries) for job, each in zip(jobs, failed, strict=True)]

    def _apply(self, change: JobChange) -> JobChange:
        """Hold the new state of a job."""
        number = change.job.number
        if change.state.is_final:
            del self._open[number]
            for message in self._messages_of(number):  # copies
                message.future.cancel()
            return change
        self._open[number] = change.job
        if self._messages_of(number):
            return replace(change, state=JobState.RUNNING)
        self._waiting.appendleft(change.job)
        return change

    def _messages_of(self, number: int) -> list[_Message]:
        """Return the messages that have a job alone, as copies are sent."""
        alone = [each for each in self._messages if len(each.jobs) == 1]
        return [each for each in alone if each.jobs[0].number == number]

    # -- what is sent --------------------------------------------------------------------------

    def _next_chunks(self, spending: Spending) -> list[list[OpenJob]]:
        """Take the jobs from the queue that are sent now, those of each message in a list."""
        slots, mean = self._fleet.slots, self._mean_seconds
        chunks: list[list[OpenJob]] = []
        if not may_begin(self._settings, spending, mean, slots):
            return []
        room = messages_ahead(slots, mean) - len(self._messages)
        while self._waiting and len(chunks) < room:
            size = chunk_size(len(self._waiting), slots, mean)
            if self._settings.timeout or self._settings.recover:  # of single attempts
                size = 1
            chunk = [self._waiting.popleft()]
            while len(chunk) < size and self._waiting and not chunk[0].is_suspect:
                if self._waiting[0].is_suspect:
                    break
                chunk.append(self._waiting.popleft())
            chunks.append([self._begin(job) for job in chunk])
        if not self._waiting and not chunks and len(self._messages) < slots:
            chunks += self._copy_straggler()
        return chunks

    def _begin(self, job: OpenJob) -> OpenJob:
        begun = replace(job, attempts=job.attempts + 1)
        self._open[job.number] = begun
        return begun

    def _copy_straggler(self) -> list[list[OpenJob]]:
        """Return a copy of the job that runs for too long, for a machine that is free."""
        if not self._settings.idempotent:
            return []
        now = self._clock()
        alone = [
            each
            for each in self._messages
            if len(each.jobs) == 1 and each.jobs[0].number in self._open
        ]
        numbers = [each.jobs[0].number for each in alone]
        copied = frozenset(number for number in numbers if numbers.count(number) > 1)
        running = [(each.jobs[0].number, now - each.sent) for each in alone]
        number = find_straggler(running, list(self._seconds), copied)
        return [] if number is None else [[self._begin(self._open[number])]]

    def _send(self, chunk: list[OpenJob]) -> None:
        self._at_point("before sending")
        try:
            future = self._fleet.submit(self._app, chunk, self._settings.timeout)
        except SkyError as error:  # the machines are gone
            future = Future()
            future.set_exception(error)
        message = _Message(chunk, future, self._clock())
        self._messages.append(message)
        future.add_done_callback(lambda _future: self._ended.put(message))
        self._at_point("after sending")

    @property
    def _mean_seconds(self) -> float | None:
        return statistics.fmean(self._seconds) if self._seconds else None

    # -- what is stored ------------------------------------------------------------------------

    def _spending(self) -> Spending:
        usd, usd_h = self._fleet.spending()
        return Spending(usd, usd_h, self._clock() - self._begun)

    def _store(self, changes: Sequence[JobChange], spending: Spending) -> None:
        self._at_point("before storing")
        self._wishes |= self._queue.record(
            self._name,
            self._epoch,
            changes,
            self._clock(),
            spending.usd,
            self._fleet.clusters(),
            self._fleet.take_events(),
            self._warning,
        )
        self._at_point("after storing")
        self._count(changes)

    def _count(self, changes: Sequence[JobChange]) -> None:
        """Count the jobs in each state: those that are open are held here."""
        if not changes:
            return
        counts = self._counts
        done = sum(change.state is JobState.SUCCEEDED for change in changes)
        failed = sum(change.state is JobState.FAILED for change in changes)
        running = len(self._open) - len(self._waiting)
        self._counts = replace(
            counts,
            queued=len(self._waiting),
            running=running,
            succeeded=counts.succeeded + done,
            failed=counts.failed + failed,
        )

    # -- the end -------------------------------------------------------------------------------

    def _end_if_over(self, spending: Spending) -> End | None:
        end, detail = find_end(self._counts, self._settings, spending), ""
        if CANCEL in self._wishes:
            end = End.CANCELLED
        elif end is None and not self._messages:
            mean, slots = self._mean_seconds, self._fleet.slots
            if self._fleet.error is not None:
                end, detail = End.NO_MACHINES, self._fleet.error.message
            elif slots and not may_begin(self._settings, spending, mean, slots):
                end = End.BUDGET
        if end is None:
            return None
        for message in self._messages:
            message.future.cancel()
        rest = _REST.get(end, JobState.SKIPPED)
        self._store([], self._spending())
        if not self._wishes - {CANCEL}:
            self._wishes |= self._queue.end(
                self._name, self._epoch, end, detail, rest, self._clock()
            )
        if RELOAD in self._wishes:  # jobs have come meanwhile
            return None
        return end


_REST = {
    End.CANCELLED: JobState.CANCELLED,
    End.BUDGET: JobState.QUEUED,
    End.DEADLINE: JobState.QUEUED,
    End.NO_MACHINES: JobState.QUEUED,
}
"""State of the jobs that have not run; of others they are skipped."""
