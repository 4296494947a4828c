"""Handle of a bag of jobs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from jupyter_sky.base.concurrency import result_within
from jupyter_sky.base.errors import SkyBagFailed, SkyCancelled, SkyError, SkyUsageError, suggest
from jupyter_sky.base.remote.processes import identity, is_alive
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.store.pickles import open_pickle
from jupyter_sky.base.tables import Table, view_bundle
from jupyter_sky.base.translation import _
from jupyter_sky.execution.sessions.session import Session
from jupyter_sky.workflows.bags.controller import BagController
from jupyter_sky.workflows.bags.decisions.outlook import view_fleet
from jupyter_sky.workflows.bags.fleet.fleet import Fleet
from jupyter_sky.workflows.bags.fleet.pool_fleet import PoolFleet
from jupyter_sky.workflows.bags.queue.application import App, BagCounts, BagSettings, End, JobState
from jupyter_sky.workflows.bags.queue.job_queue import JobQueue, RecordedBag
from jupyter_sky.workflows.bags.queue.parameters import Parameters, Sweep, read_jobs
from jupyter_sky.workflows.bags.report import (
    OWN_COLUMNS,
    BagReport,
    job_records,
    job_table,
    make_report,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

WATCH_SECONDS = 0.5
"""Time between two looks at a bag that another process carries out."""

_carried_out: WeakValueDictionary[Path, BagRun] = WeakValueDictionary()
"""Bags whose controllers are threads of this process, by data directory and name."""
_lock = threading.Lock()


def open_queue(folder: Path) -> JobQueue:
    """Return the queue of a user's jobs, in the folder of their data."""
    return JobQueue(folder / "jobs.db")


class BagRun:
    """Bag of jobs, whose controller is a thread of this process or another process.

    Attributes
    ----------
    name : str
        Unique among the bags of a user.
    made : float
        Unix time at which it was stored.

    Examples
    --------
    >>> bag = sky.bag(simulate, [{"salt": 0.1}, {"salt": 0.2}], name="ions")  # doctest: +SKIP
    >>> bag.wait().frame()  # doctest: +SKIP
    """

    def __init__(self, session: Session, name: str) -> None:
        self.name, self._session = name, session
        self._queue = open_queue(Path(session.config.data_dir))
        try:
            self.made = self._queue.read(name).made
        except SkyError:
            self._queue.close()
            raise
        self._ended: Future[End] = Future()

    # -- begin and end -------------------------------------------------------------------------

    def start(self, budget: float | None = None, deadline: float | None = None) -> BagRun:
        """Carry the bag out, from wherever it stands; return the handle that does so already.

        Parameters
        ----------
        budget, deadline
            New limits, in USD and in seconds from the begin of the bag, in place of those that have
            ended it.
        """
        if budget is not None or deadline is not None:
            settings = self.record.settings
            self._queue.change_settings(
                self.name,
                replace(
                    settings,
                    budget=settings.budget if budget is None else budget,
                    deadline=settings.deadline if deadline is None else deadline,
                ),
            )
        path = Path(self._session.config.data_dir) / self.name
        with _lock:
            if (known := _carried_out.get(path)) is not None and not known.done():
                return known
            self._ended = Future()
            _carried_out[path] = self
        threading.Thread(target=self._carry_out, name=f"sky-bag-{self.name}", daemon=True).start()
        return self

    def _carry_out(self) -> None:
        try:
            self._ended.set_result(self._make_controller().run())
        except BaseException as error:
            self._ended.set_exception(error)

    def _make_controller(self) -> BagController:
        record = self.record
        app, around = _load_app(record)
        known = self._queue.clusters(self.name)
        fleet = make_fleet(self._session, self.name, record.settings, around, known, self._queue)
        return BagController(self._queue, record, app, fleet)

    def start_detached(self) -> BagRun:
        """Carry the bag out in a process of its own, which outlives this one."""
        from jupyter_sky.workflows.pipelines.run.detached import start_detached

        start_detached(self._session.config, self._queue, self.name, "bag")
        self.watch()
        return self

    def watch(self) -> None:
        """Notice the end of a bag that another process carries out."""
        self._ended = Future()
        threading.Thread(target=self._watch, name=f"sky-watch-{self.name}", daemon=True).start()

    def _watch(self) -> None:
        while (reason := self.record.reason) is None:
            if not self.is_carried_out() and self.record.reason is None:
                error = SkyError(
                    _("the process of bag {name} has ended before it").format(name=self.name),
                    hint=_("go on with it: sky.bag({name!r}).start()").format(name=self.name),
                )
                self._ended.set_exception(error)
                return
            time.sleep(WATCH_SECONDS)
        self._ended.set_result(reason)

    def is_carried_out(self) -> bool:
        """Return whether a process carries it out: this one, or another that lives."""
        if self._carrier() is not None:
            return True
        return is_alive(self._queue.owner(self.name)) and self.record.reason is None

    def done(self) -> bool:
        """Return whether it has ended, and its machines with it."""
        if (carrier := self._carrier()) is not None:
            return carrier._ended.done()
        return self._ended.done() or self.record.reason is not None

    def _carrier(self) -> BagRun | None:
        """Return the handle in this process that carries the bag out; None where none does."""
        known = _carried_out.get(Path(self._session.config.data_dir) / self.name)
        return known if known is not None and not known._ended.done() else None

    def wait(self, timeout: float | None = None) -> BagRun:
        """Wait for the end; an interrupt ends the waiting and not the bag.

        Parameters
        ----------
        timeout
            Seconds to wait.

        Raises
        ------
        SkyTimeout
            It has not ended by then; it goes on.
        SkyBagFailed
            Jobs have failed, more than may, or the bag has ended before all have run.
        SkyCancelled
            It was cancelled.
        """
        end = result_within(
            self._outcome(),
            timeout,
            lambda: _("bag {name} has not ended after {timeout:g} s").format(
                name=self.name, timeout=timeout
            ),
        )
        self._raise_for(end)
        return self

    def _outcome(self) -> Future[End]:
        """Return the future of the end, in this process or in another.

        Raises
        ------
        SkyUsageError
            Nothing carries it out.
        """
        if (carrier := self._carrier()) is not None:
            return carrier._ended
        if (reason := self.record.reason) is not None:
            known: Future[End] = Future()
            known.set_result(reason)
            return known
        if self.is_carried_out():
            self.watch()
        elif not self._ended.done():
            raise SkyUsageError(
                _("nothing carries the bag {name} out").format(name=self.name),
                hint=_("go on with it: sky.bag({name!r}).start()").format(name=self.name),
            )
        return self._ended

    def _raise_for(self, end: End) -> None:
        """Raise what a bag that has not ended well means to who waits for it."""
        if end is End.CANCELLED:
            raise SkyCancelled(_("bag {name} was cancelled").format(name=self.name))
        report = self.report()
        is_enough = report.settings.needed is not None and end is End.DONE
        if (end is End.DONE and not report.counts.failed) or is_enough:
            return
        first = "; ".join(f"{reason} ({count})" for reason, count in report.failures[:3])
        failed = self._queue.rows(self.name, "state = 'failed' ORDER BY number LIMIT 1")
        raise SkyBagFailed(
            f"{report.headline}{f': {first}' if first else ''}",
            hint=_("its jobs: bag.frame(); what one has printed: bag.logs({number})").format(
                number=failed[0]["number"] if failed else 0
            ),
        )

    # -- what users do -------------------------------------------------------------------------

    def cancel(self) -> None:
        """Stop what runs and begin nothing more; results are kept."""
        self._queue.cancel(self.name, time.time())
        if self.is_carried_out():
            return
        now = time.time()
        epoch = self._queue.take_over(self.name, identity(), now)
        self._queue.record(self.name, epoch, [], now, self.record.usd)
        self._queue.end(self.name, epoch, End.CANCELLED, "", JobState.CANCELLED, now)

    def retry(self, *states: str, detach: bool = False) -> int:
        """Run jobs of some states again, by default those that have failed; return their number.

        Parameters
        ----------
        *states
            ``failed``, ``skipped``, ``cancelled``.
        detach
            Where nothing carries the bag out, do so in a process of its own.

        Examples
        --------
        >>> bag.retry("failed", "cancelled")  # doctest: +SKIP
        3
        """
        wanted = states or (JobState.FAILED.value,)
        known = [state.value for state in JobState if state.is_final and state != "succeeded"]
        for state in wanted:
            if state not in known:
                raise SkyUsageError(
                    _("jobs that are {state!r} cannot be tried again").format(state=state),
                    hint=suggest(state, known),
                )
        return self._go_on(
            lambda now: self._queue.retry(self.name, map(JobState, wanted), now), detach
        )

    def more(self, jobs: Any) -> int:
        """Add jobs; return their number.

        Parameters
        ----------
        jobs
            As `sky.bag` takes them; a number draws so many more from the ranges of a sweep.
        """
        found = self._draw(jobs) if isinstance(jobs, int) else read_jobs(jobs)
        return self._go_on(lambda now: self._queue.extend(self.name, found, now))

    def _draw(self, count: int) -> list[Parameters]:
        """Return the next jobs of a sweep, whose first ones are those that the bag has."""
        __, around = _load_app(self.record)
        sweep, known = around.get("sweep"), self.counts().total
        if not isinstance(sweep, Sweep):
            raise SkyUsageError(
                _("bag {name} is no sweep: of what should {count} more jobs be?").format(
                    name=self.name, count=count
                ),
                hint=_("give them: bag.more([{...}])"),
            )
        return sweep.jobs(known + count)[known:]

    def _go_on(self, change: Callable[[float], int], detach: bool = False) -> int:
        """Change the queue, and carry the bag out again where nobody does."""
        is_carried_out = self.is_carried_out()
        count = change(time.time())
        if count and not is_carried_out:
            self.start_detached() if detach else self.start()
        return count

    # -- what is known -------------------------------------------------------------------------

    @property
    def record(self) -> RecordedBag:
        """The bag as it is stored."""
        return self._queue.read(self.name)

    def counts(self) -> BagCounts:
        """Return the number of jobs in each state."""
        return self._queue.counts(self.name)

    def status(self) -> Mapping[str, int]:
        """Return the number of jobs in each state that any of them has.

        Examples
        --------
        >>> bag.status()  # doctest: +SKIP
        {'queued': 40, 'running': 2, 'succeeded': 58}
        """
        return self.counts().by_state()

    def report(self) -> BagReport:
        """Return progress, forecast and failures of this moment."""
        now, record = time.time(), self.record
        rows = [self._session.store.cluster(name) for name in self._queue.clusters(self.name)]
        up = [row for row in rows if row is not None and row.state == "up"]
        fleet = view_fleet(up, record.settings.per_machine, now)
        is_carried_out = self.is_carried_out()
        return make_report(record, self._queue, is_carried_out, now, self._usd(), fleet)

    def _usd(self) -> float:
        """Return the cost of its machines up to now."""
        usd = (self._session.ledger.cluster_usd(name) for name in self._queue.clusters(self.name))
        return sum(each or 0.0 for each in usd)

    def table(self) -> Table:
        """Return progress and the newest jobs as a table."""
        return job_table(self.report(), self._queue)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield a dict for each job, as `frame` has its rows."""
        return job_records(self._queue, self.name)

    def frame(self) -> DataFrame:
        """Return the jobs as a DataFrame: parameters, results, state, time, cost, machine.

        A result that is a dict has a column for each of its values. It can be asked for while the
        bag runs.
        """
        from pandas import DataFrame

        return DataFrame.from_records(self.records()).set_index("job")

    def plot(self, objective: str | None = None) -> Figure:
        """Return a figure of a result over each parameter that varies.

        Parameters
        ----------
        objective
            Name of the result, which is a number; the first one unless given.

        Raises
        ------
        SkyUsageError
            No job has returned such a number.
        """
        frame = self.frame()
        first = self._queue.rows(self.name, "number = 0")
        parameters = list(json.loads(first[0]["parameters"])) if first else []
        own = {*parameters, *OWN_COLUMNS}
        return plot_objective(frame, parameters, [c for c in frame if c not in own], objective)

    def result(self, number: int) -> Any:
        """Return the result of a job.

        Raises
        ------
        SkyUsageError
            It has none.
        """
        value = self._queue.value(self.name, number)
        if value is None:
            raise SkyUsageError(
                _("job {number} of bag {name} has no result").format(number=number, name=self.name),
                hint=_("what it has printed: bag.logs({number})").format(number=number),
            )
        return open_pickle(value)

    def results(self) -> dict[int, Any]:
        """Return the results of the jobs that have succeeded, by their numbers."""
        return {number: open_pickle(value) for number, value in self._queue.values(self.name)}

    def logs(self, number: int) -> str:
        """Return what the last attempt of a job has printed."""
        return self._queue.output(self.name, number)

    def events(self) -> list[tuple[float, str]]:
        """Return what has happened to its machines: unix time, a sentence."""
        return self._queue.events(self.name)

    def progress(self) -> Iterator[BagReport]:
        """Yield reports until the end, one at each change."""
        shown = None
        while True:
            is_last = self.done() or not self.is_carried_out()
            report = self.report()
            if report.counts != shown or is_last:
                shown = report.counts
                yield report
            if is_last:
                return
            time.sleep(WATCH_SECONDS)

    def close(self) -> None:
        """Close the file of a handle that does not carry the bag out."""
        self._queue.close()

    def __repr__(self) -> str:
        return str(self.table())

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return view_bundle(_view, self, **kwargs)


_view: Callable[[BagRun], Any] | None = None


def register_view(view: Callable[[BagRun], Any]) -> None:
    """Set the function that shows bags in notebooks; without it they are shown as tables."""
    global _view
    _view = view


def start_bag(
    session: Session, name: str, settings: BagSettings, app: bytes, jobs: list[Parameters]
) -> BagRun:
    """Store a bag; return its handle.

    Raises
    ------
    SkyUsageError
        There is one of that name.
    """
    queue = open_queue(Path(session.config.data_dir))
    try:
        queue.add(name, settings, app, jobs, time.time())
    finally:
        queue.close()
    return BagRun(session, name)


# -- Plots of what jobs have returned, over their parameters --------------------------------------

MOST_PANELS = 6
"""Parameters that are shown, in the order in which jobs have them."""


def plot_objective(
    frame: DataFrame, parameters: list[str], results: list[str], objective: str | None
) -> Figure:
    """Return a figure with a panel for each parameter that varies.

    Parameters
    ----------
    frame
        Jobs, as `BagRun.frame` returns them.
    parameters, results
        Its columns of either kind.
    objective
        Result to show; the first that is a number unless given.

    Raises
    ------
    SkyUsageError
        No job has returned such a number.

    Examples
    --------
    >>> from pandas import DataFrame
    >>> frame = DataFrame({"lr": [0.1, 0.2], "loss": [3.0, 2.0], "state": "succeeded"})
    >>> len(plot_objective(frame, ["lr"], ["loss"], None).axes)
    1
    """
    from matplotlib import pyplot

    done: Any = frame[frame["state"] == "succeeded"]
    name = _find_objective(done, results, objective)
    varied = [each for each in parameters if done[each].astype(str).nunique() > 1]
    shown = (varied or parameters)[:MOST_PANELS] or [""]
    figure = pyplot.figure(figsize=(3.6 * len(shown), 3.2), layout="constrained")
    pyplot.close(figure)  # it is shown where it is returned, and not once more
    panels: Any = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axes, each in zip(panels, shown, strict=True):
        values = done[each] if each else done.index
        if each and not _is_number(values):
            values = values.astype(str)
        axes.plot(values, done[name].astype(float), "o", alpha=0.6)
        means: Any = done[name].astype(float).groupby(values).mean()
        if 1 < len(means) < len(done):
            axes.plot(means.index, means, "-", label=_("mean"))
            axes.legend()
        axes.set_xlabel(each or _("job"))
    panels[0].set_ylabel(name)
    return figure


def _find_objective(done: DataFrame, results: list[str], objective: str | None) -> str:
    numbers = [each for each in results if len(done) and _is_number(done[each])]
    if objective is None and numbers:
        return numbers[0]
    if objective is not None and objective in numbers:
        return objective
    if objective is None:
        raise SkyUsageError(
            _("no job has returned a number"),
            hint=_('return one, or a dict such as {"loss": 0.2}; plot it: bag.plot("loss")'),
        )
    raise SkyUsageError(
        _("{name}: not a number that jobs have returned").format(name=objective),
        hint=suggest(objective, numbers),
    )


def _is_number(values: Any) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    kind = values.infer_objects()
    return is_numeric_dtype(kind) and not is_bool_dtype(kind)


# -- Machines that a bag runs on: of clouds, of this machine, or of its Slurm ---------------------


def make_fleet(
    session: Session,
    name: str,
    settings: BagSettings,
    around: Mapping[str, Any],
    known: Sequence[str] = (),
    queue: JobQueue | None = None,
) -> Fleet:
    """Return the machines that a bag asks for; none is launched yet.

    Parameters
    ----------
    session
        Whose clusters they are.
    name
        Of the bag.
    around
        ``image`` and ``plugins`` of its machines.
    known
        Clusters that the bag has had.
    queue
        Where run times of its app are kept.
    """
    if settings.slurm is not None:
        from jupyter_sky.workflows.bags.fleet.slurm_fleet import SlurmFleet

        return SlurmFleet(name, settings, Path(session.config.data_dir) / "slurm" / name)
    nodes = parse_cell_line(settings.options).resources.nodes
    if nodes > 1 or settings.explore:
        from jupyter_sky.workflows.bags.fleet.group_fleet import GroupFleet

        app = f"{settings.kind} {settings.app}"
        fleet = GroupFleet(session, name, settings, around, known)
        if queue is not None:
            fleet.remember(queue.read_times(app), lambda times: queue.keep_times(app, times))
        return fleet
    return PoolFleet(session, name, settings, around, known)


def _load_app(record: RecordedBag) -> tuple[App, dict[str, Any]]:
    """Return the application of a bag, and what belongs to its machines."""
    try:
        return open_pickle(record.app)
    except Exception as error:
        raise SkyError(
            _("the function of bag {name} cannot be read: {kind}: {error}").format(
                name=record.name, kind=type(error).__name__, error=error
            ),
            hint=_("run it in the folder of its modules"),
        ) from error
