"""Runs of a search on rented machines: launched by the broker as cells are, and given back."""

from __future__ import annotations

import threading
import time
from collections import ChainMap, Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from jupyter_sky.base.errors import (
    SkyBudget,
    SkyCancelled,
    SkyClusterLost,
    SkyEngineLost,
    SkyError,
    SkyNodeLost,
    SkyStoreError,
    SkyUnreachable,
)
from jupyter_sky.base.requests.cell_options.values import CellInput, CellOptions, CellOutput
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.assumptions import SPIN_UP_HOURS
from jupyter_sky.decisions.search.measurement import Measurement, Trial
from jupyter_sky.decisions.search.space import Point
from jupyter_sky.execution.cells.request import CellPosition
from jupyter_sky.execution.cells.run import SkyRun
from jupyter_sky.execution.clusters.cluster_request import ClusterRequest
from jupyter_sky.execution.sessions.session import Session
from jupyter_sky.knowledge import catalog, tracker
from jupyter_sky.knowledge.tracker.blocks import block_seconds
from jupyter_sky.machines.provisioner.interrupts import uninterruptible
from jupyter_sky.workflows.pipelines.model.task_body import TaskCell
from jupyter_sky.workflows.pipelines.run.placing import pin
from jupyter_sky.workflows.trials.workload import (
    CONFIGURATION,
    RESULT,
    Step,
    Workload,
    reads_configuration,
    redone,
)

POLL_SECONDS = 0.05
LEDGER_SECONDS = 1.0
"""Time between two looks at what a trial has cost."""
STOP_SECONDS = 5.0
"""Longest wait for the end of a cell that was stopped; its machines end anyway."""
IDLE_SECONDS = 600.0
"""Time after which the machines of a trial end by themselves once this process is gone."""
LOSSES = 3
"""Machines lost in the midst of the runs of a configuration before it counts as failed."""
LOSS_WAIT_SECONDS = 1.0
FATAL = (SkyBudget, SkyStoreError)
"""Errors of a launch that no other configuration would mend; rights may be lacking in one cloud."""
LOST = (SkyClusterLost, SkyNodeLost, SkyUnreachable)


class CellTrials:
    """Trials of a workload, each on machines of its own.

    Parameters
    ----------
    session
        Whose launches, ledger and variables are used.
    workload
        Its steps run one after another.
    need
        The request of the search; each configuration is one offer that meets it.
    token
        Begin of the names of its clusters, which tells its search from others.
    request
        Returns the request of a configuration; unless given, it is that of the search, at the
        offer of the configuration.
    names
        Names of the runs, by the number of their trial; made of the token unless given.
    watch
        Called with the number of a trial, a stage of its launch and a detail.
    """

    def __init__(
        self,
        session: Session,
        workload: Workload,
        need: Resources,
        token: str,
        *,
        request: Callable[[Point], Resources] | None = None,
        names: Mapping[int, str] = MappingProxyType({}),
        watch: Callable[[int, str, str], None] = lambda number, stage, detail: None,
    ) -> None:
        self._session, self._workload, self._need = session, workload, need
        self._token, self._names, self._watch = token, names, watch
        self._request = request or self._pinned
        self._up: set[str] = set()
        self._busy = 0
        self._runs = 0
        self._losses: Counter[int] = Counter()
        self._stopping = threading.Event()
        self._changed = threading.Condition()

    def least_usd(self, point: Point) -> float:
        """Return the price of a boot and a minute, USD."""
        return (point.price or 0.0) * (SPIN_UP_HOURS + 1 / 60)

    def cluster_name(self, number: int) -> str:
        """Return the name of the cluster of a trial."""
        return f"{self._token}-{number}"

    def run(self, trial: Trial) -> Measurement:
        """Run the workload once; the machines stay for the next run of the same configuration."""
        cluster = self.cluster_name(trial.number)
        with self._changed:
            self._busy += 1
        try:
            found = self._run(cluster, trial)
            if found.ok and not trial.is_last and not self._stopping.is_set():
                return found
            return replace(found, billed=self._end(cluster))
        except BaseException:
            self._end(cluster)
            raise
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Stop what runs, and give every machine back; an interrupt waits for the end of that."""
        self._stopping.set()
        uninterruptible(self._end_all)

    def _end_all(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._busy)
        for cluster in list(self._up):
            self._end(cluster)

    # -- machines ------------------------------------------------------------------------------

    def _run(self, cluster: str, trial: Trial) -> Measurement:
        try:
            self._obtain(cluster, trial)
        except FATAL:
            raise
        except SkyCancelled as error:
            return Measurement(0.0, error=error.message, failure="stopped")
        except SkyError as error:
            wait = refusal_wait(trial.point, error)
            return Measurement(0.0, error=error.message, failure="refused", wait=wait)
        found = self._measure(cluster, trial)
        if found.failure == "refused" and not found.ok:
            self._losses[trial.number] += 1
            if self._losses[trial.number] >= LOSSES:
                return replace(found, failure="crash")
        return found

    def _obtain(self, cluster: str, trial: Trial) -> None:
        """Launch the machines of a configuration, unless they are up from its run before."""
        if cluster in self._up:
            return
        request = ClusterRequest(self._request(trial.point), cluster, IDLE_SECONDS)
        self._session.clusters.launch(request, partial(self._report, trial.number))
        self._up.add(cluster)

    def _pinned(self, point: Point) -> Resources:
        """Return the request that the offer of a configuration meets, in any zone of its region.

        A zone that refuses is no reason to wait.
        """
        assert point.offer is not None
        return replace(pin((replace(self._need, nodes=point.nodes),), point.offer), zone=None)

    def _report(self, number: int, stage: str, detail: str) -> None:
        """End a launch when the search ends."""
        if self._stopping.is_set():
            raise SkyCancelled(_("the search has ended"))
        self._watch(number, stage, detail)

    def _end(self, cluster: str) -> float | None:
        """End the machines of a trial; return what they have cost, USD."""
        with suppress(SkyError):  # it is not up, or its cloud is silent: its lease ends it
            self._session.clusters.terminate(cluster)
        self._up.discard(cluster)
        return self._session.ledger.cluster_usd(cluster)

    # -- runs ----------------------------------------------------------------------------------

    def _measure(self, cluster: str, trial: Trial) -> Measurement:
        seconds, values = 0.0, dict[str, Any]()
        found = Measurement(0.0)
        for step in self._workload.steps:
            cell = step.make(lambda task, name: values[task])
            run, result = self._begin(cluster, trial, step, cell)
            found = self._follow(cluster, trial, run, seconds)
            seconds = found.seconds
            if not found.ok:
                break
            if step.is_needed:
                values[step.name] = self._session.namespace.pop(result, None)
        assert trial.point.offer is not None
        row = self._session.store.cluster(cluster)
        bands = catalog.load().interruption
        times = redone(seconds / 3600, trial.point.offer, trial.point.nodes, bands)
        price = row.price if row is not None else trial.point.price
        usd = None if price is None else seconds * times / 3600 * price
        return replace(found, seconds=seconds, usd=usd, redone=times)

    def _begin(self, cluster: str, trial: Trial, step: Step, cell: TaskCell) -> tuple[SkyRun, str]:
        """Begin a cell in the background; return it, and the name of its result."""
        with self._changed:
            self._runs += 1
            name = self._names.get(trial.number) or f"{cluster}-{self._runs}"
        inputs = {each.name: each for each in cell.options.inputs}
        values, code = dict(cell.values), cell.code
        inputs |= {each: CellInput(each, each) for each in cell.values if each not in inputs}
        if reads_configuration(code):
            values[CONFIGURATION] = dict(trial.point.values)
            inputs[CONFIGURATION] = CellInput(CONFIGURATION, CONFIGURATION)
        result = f"_{name.replace('-', '_')}"
        code = code.replace(RESULT, result)
        options = replace(
            cell.options,
            resources=Resources(nodes=trial.point.nodes),
            cluster=cluster,
            inputs=tuple(inputs.values()),
            outputs=(CellOutput(result),) if step.is_needed else (),
            background=True,
            name=name,
            yes=True,
        )
        namespace = ChainMap(values, dict(self._session.namespace))
        if cell.before:
            before = CellOptions(cluster=cluster, yes=True)
            self._session.run(cell.before, before)
        origin = CellPosition(0, above=cell.above)
        return self._session.run(code, options, origin=origin, values=namespace), result

    def _follow(self, cluster: str, trial: Trial, run: SkyRun, before: float) -> Measurement:
        """Wait for the end of a cell, or for a reason to stop it."""
        spent = _Spending(partial(self._session.ledger.cluster_usd, cluster))
        while not run.done():
            seconds = before + _seconds(run)
            if self._stopping.is_set():
                why = _("the search has ended")
            else:
                why = stop_reason(trial, seconds, spent.usd(), time.monotonic())
            if why:
                run.cancel()
                end = time.monotonic() + STOP_SECONDS
                while not run.done() and time.monotonic() < end:
                    time.sleep(POLL_SECONDS)
                return Measurement(seconds, error=why, failure="stopped")
            time.sleep(POLL_SECONDS)
        seconds = before + _seconds(run)
        try:
            run.result()
        except BaseException as error:
            return failed_run(seconds, error)
        return Measurement(seconds)


class _Spending:
    """What a cluster has cost, read from the ledger now and then."""

    def __init__(self, read: partial[float | None]) -> None:
        self._read, self._at, self._usd = read, 0.0, 0.0

    def usd(self) -> float:
        """Return the cost, not older than `LEDGER_SECONDS`."""
        if time.monotonic() - self._at > LEDGER_SECONDS:
            self._at = time.monotonic()
            with suppress(SkyError):
                self._usd = self._read() or 0.0
        return self._usd


def _seconds(run: SkyRun) -> float:
    """Return the seconds for which a cell has run on its engines."""
    row = run.record.row
    return 0.0 if row is None or not row.nodes else (row.ended or time.time()) - row.started


def stop_reason(trial: Trial, seconds: float, spent: float, now: float) -> str:
    """Return why a run is stopped; empty while it may go on.

    Parameters
    ----------
    seconds, spent
        Time and USD that the trial has taken so far.
    now
        On the clock of `time.monotonic`.

    Examples
    --------
    >>> trial = Trial(1, Point("aws", {}), winning_seconds=lambda: 60.0, usd=0.5)
    >>> stop_reason(trial, 59.0, 0.4, 0.0), stop_reason(trial, 61.0, 0.4, 0.0)
    ('', 'stopped after 61.0 s: it cannot be the best any more')
    """
    winning = trial.winning_seconds()
    if winning is not None and seconds > winning:
        return _("stopped after {seconds:.1f} s: it cannot be the best any more").format(
            seconds=seconds
        )
    if trial.usd is not None and spent >= trial.usd:
        return _("stopped: it has cost ${usd:.4f}, its part of the budget").format(usd=spent)
    if trial.ends is not None and now >= trial.ends:
        return _("stopped: the deadline of the search has passed")
    return ""


def failed_run(seconds: float, error: BaseException) -> Measurement:
    """Return the measurement of a run that has raised an error.

    Examples
    --------
    >>> failed_run(2.0, MemoryError("array")).failure, failed_run(2.0, ValueError()).failure
    ('memory', 'crash')
    >>> from subprocess import CalledProcessError
    >>> failed_run(2.0, CalledProcessError(7, "fit")).error
    'exit code 7'
    >>> failed_run(2.0, SkyEngineLost("it used 3.1 GiB of the 2 GiB asked for")).failure
    'memory'
    """
    code = getattr(error, "returncode", None)
    if type(error).__name__ == "CalledProcessError" and code is not None:
        return Measurement(seconds, error=_("exit code {code}").format(code=code))
    words = f"{type(error).__name__}: {error}".strip(": ")
    if isinstance(error, MemoryError) or (isinstance(error, SkyEngineLost) and _is_full(words)):
        return Measurement(seconds, error=words, failure="memory")
    if isinstance(error, LOST):
        return Measurement(seconds, error=words, failure="refused", wait=LOSS_WAIT_SECONDS)
    return Measurement(seconds, error=words)


def _is_full(words: str) -> bool:
    """Return whether an engine was killed for its memory, as its controller says."""
    return "ran out of memory" in words or " GiB of the " in words


def refusal_wait(point: Point, error: SkyError) -> float:
    """Return the seconds until the machine of a configuration can be asked for again."""
    assert point.offer is not None
    with suppress(SkyStoreError):
        if block := tracker.block(point.offer):
            return max(LOSS_WAIT_SECONDS, block.until - time.time())
    return block_seconds("transient", 1, point.offer.cloud)


# -- Expected hours of a run on spot machines, over those without a loss --------------------------
