"""Handle of a run of a graph of tasks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from jupyter_sky.base.concurrency import result_within
from jupyter_sky.base.errors import SkyCancelled, SkyError, SkyRunTaken, SkyUsageError, suggest
from jupyter_sky.base.remote.processes import is_alive
from jupyter_sky.base.store.atomic_file import write_atomically
from jupyter_sky.base.tables import Table, view_bundle
from jupyter_sky.base.translation import _
from jupyter_sky.execution.sessions.session import Session
from jupyter_sky.workflows.pipelines.model.graph import attempt_name
from jupyter_sky.workflows.pipelines.model.kept_results import Claims, RunResults
from jupyter_sky.workflows.pipelines.notebook.cell_runs import (
    hourly_price,
    output_text,
)
from jupyter_sky.workflows.pipelines.run.controller import Controller
from jupyter_sky.workflows.pipelines.run.export import describe_graph, fill_notebook, write_graph
from jupyter_sky.workflows.pipelines.run.run_report import (
    Replan,
    RunSnapshot,
    TaskReport,
    find_replans,
    follow_changes,
    reason_table,
    run_reason,
    take_snapshot,
)
from jupyter_sky.workflows.pipelines.run.run_storage import needed_files, open_journal, open_kept
from jupyter_sky.workflows.pipelines.run.session_world import SessionWorld
from jupyter_sky.workflows.pipelines.run.single_clouds import (
    Saving,
    note_single_clouds,
    read_saving,
)
from jupyter_sky.workflows.pipelines.run.state import (
    Kind,
    Phase,
    RunState,
    fold,
)
from jupyter_sky.workflows.pipelines.run.stored_inputs import fetched

if TYPE_CHECKING:
    from jupyter_sky.decisions.optimizer.plan import Plan


WATCH_SECONDS = 0.5
"""Time between two looks at a run that another process carries out."""

_carried_out: WeakValueDictionary[Path, PipelineRun] = WeakValueDictionary()
"""Runs whose controllers are threads of this process, by data directory and name."""
_lock = threading.Lock()


class PipelineRun:
    """Run of a graph, whose controller is a thread of this process.

    Attributes
    ----------
    name : str
        Unique among the runs of a user.
    made : float
        Unix time at which it was stored.
    graph : RunGraph
        Its tasks.
    sweeps : mapping
        Names of the tasks of each cell that ``--map`` makes several of.

    Examples
    --------
    >>> run = sky.run(dag)  # doctest: +SKIP
    >>> run.wait().result("train")  # doctest: +SKIP
    0.93
    """

    def __init__(self, session: Session, name: str) -> None:
        self.name = name
        self._session = session
        folder = Path(session.config.data_dir)
        self._journal = open_journal(folder)
        try:
            recorded = self._journal.read(name)
        except SkyError:
            self._journal.close()
            raise
        self.made = recorded.made
        self.graph, self._settings = recorded.graph, recorded.settings
        self.sweeps: Mapping[str, Sequence[str]] = self._settings.get("sweeps", {})
        self._kept = open_kept(folder)
        self._results = RunResults(name, self._kept)
        self._ended: Future[RunState] = Future()

    def start(self) -> PipelineRun:
        """Carry the run out, from wherever it stands; return the handle that does so already."""
        path = Path(self._session.config.data_dir) / self.name
        with _lock:
            if (known := _carried_out.get(path)) is not None and not known.done():
                return known
            _carried_out[path] = self
        claims = Claims(self._kept, self._journal, self.name)
        world = SessionWorld(self._session, self._results, self._kept, claims)
        controller = Controller(self._journal, self.name, world)

        facts = (self._journal, self.name)
        comparison = threading.Thread(target=note_single_clouds, args=facts, daemon=True)

        def carry_out() -> None:
            try:
                comparison.start()
                state = asyncio.run(controller.run())
                comparison.join()
                with suppress(OSError, SkyError):  # what is not removed now is removed later
                    claims.release()
                    self._kept.sweep(partial(needed_files, self._journal, self._kept), time.time())
                self._ended.set_result(state)
            except BaseException as error:
                with suppress(SkyError):
                    if not isinstance(error, SkyRunTaken):  # else they are another process's now
                        claims.release()
                self._ended.set_exception(error)

        threading.Thread(target=carry_out, name=f"sky-run-{self.name}", daemon=True).start()
        return self

    def saving(self) -> Saving:
        """Return what the plan saves against the best single cloud that could be used.

        Examples
        --------
        >>> print(run.saving().headline)  # doctest: +SKIP
        placement saves $11.90 (21 %) against gcp alone
        """
        return read_saving(self._journal, self.name, self.plan)

    def start_detached(self) -> PipelineRun:
        """Carry the run out in a process of its own, which outlives this one."""
        from jupyter_sky.workflows.pipelines.run.detached import start_detached

        start_detached(self._session.config, self._journal, self.name)
        threading.Thread(target=self._watch, name=f"sky-watch-{self.name}", daemon=True).start()
        return self

    def _watch(self) -> None:
        """Wait until another process has carried the run out."""
        while not (state := self.state).is_over:
            if not self.is_carried_out() and not self.state.is_over:
                error = SkyError(
                    _("the process of run {name} has ended before it").format(name=self.name),
                    hint=_("go on with it: %sky pipeline resume {name}").format(name=self.name),
                )
                self._ended.set_exception(error)
                return
            time.sleep(WATCH_SECONDS)
        self._ended.set_result(state)

    @property
    def plan(self) -> Plan:
        """Plan with which it began."""
        from jupyter_sky.decisions.optimizer.plan import Plan

        return Plan.from_json(self._settings["plan"])

    @property
    def state(self) -> RunState:
        """State of all tasks and clusters, as the journal has it."""
        return fold(RunState.begin(self.graph), self._journal.events(self.name))

    def status(self) -> Mapping[str, str]:
        """Return the phase of each task.

        Examples
        --------
        >>> run.status()  # doctest: +SKIP
        {'prepare': 'succeeded', 'train': 'running'}
        """
        return {name: str(task.phase) for name, task in self.state.tasks.items()}

    def report(self) -> tuple[TaskReport, ...]:
        """Return state, time and cost of each task, beside those of its plan."""
        return self.snapshot().reports

    def table(self) -> Table:
        """Return the report as a table.

        Examples
        --------
        >>> run.table()  # doctest: +SKIP
        Run nightly: 1 of 2 tasks have ended; 0:41, $0.02
        task     state      time    planned  cost   planned cost  place
        """
        return self.snapshot().table

    def replans(self) -> tuple[Replan, ...]:
        """Return what was planned anew: each time with why, what changed and what that saves.

        Examples
        --------
        >>> print(run.replans()[0].text)  # doctest: +SKIP
        aws us-east-1a g5.xlarge refused (no capacity): train goes to gcp us-central1-a ...
        """
        return find_replans(self._journal.events(self.name))

    def snapshot(self) -> RunSnapshot:
        """Return state, report and times of one moment."""
        events = self._journal.events(self.name)
        price = partial(hourly_price, self._session.store)
        return take_snapshot(
            self.name, self.graph, events, self.plan, price, time.time(), self.saving()
        )

    def cells(self) -> list[tuple[str, str, list[str]]]:
        """Return the cells that are tasks: id, source as it runs, names of the tasks."""
        code = [cell for cell in self._settings["source"]["cells"] if cell["cell_type"] == "code"]
        tasks: dict[int, list[str]] = {}
        for name, number in self._settings["cells"].items():
            tasks.setdefault(number, []).append(name)
        shown = [(code[number - 1], names) for number, names in tasks.items()]
        return [(cell["id"], cell["source"], names) for cell, names in shown if "id" in cell]

    def is_carried_out(self) -> bool:
        """Return whether a process carries it out: this one, or another that lives."""
        events = self._journal.events(self.name)
        last = events[-1].at if events else 0.0
        return is_alive(self._journal.owner(self.name), last)

    def close(self) -> None:
        """Close the files of a handle that does not carry the run out."""
        self._journal.close()
        self._kept.close()

    def done(self) -> bool:
        """Return whether every task has ended and every cluster is gone."""
        return self._ended.done()

    def wait(self, timeout: float | None = None) -> PipelineRun:
        """Wait for the end; an interrupt ends the waiting and not the run.

        Parameters
        ----------
        timeout
            Seconds to wait.

        Raises
        ------
        SkyTimeout
            It has not ended by then; it goes on.
        SkyError
            A task has failed.
        """
        state = result_within(
            self._ended,
            timeout,
            lambda: _("run {name} has not ended after {timeout:g} s").format(
                name=self.name, timeout=timeout
            ),
        )
        for name, task in state.tasks.items():
            if task.phase is Phase.FAILED and not state.is_tolerated(name):
                raise SkyError(
                    _("task {task} has failed: {reason}").format(task=name, reason=task.reason),
                    hint=_("what it printed: run.logs({task!r})").format(task=name),
                )
        if state.cancelled:
            raise SkyCancelled(_("run {name} was cancelled").format(name=self.name))
        return self

    def changes(self) -> Iterator[tuple[str, Phase | Kind, str]]:
        """Yield the changes of tasks until the end: name, phase, and the reason if there is one.

        A plan that was made anew has the name of the run and the kind of its event.

        The reason of a task that runs is what differs from its last result, that of one that has
        not run that its result was kept.

        Steps that only the run itself sees, such as a search for a stored result, are left out.
        """
        return follow_changes(self._journal, self.name, self.graph, self.done)

    def _load(self, task: str, name: str) -> Any:
        """Return a value; the handle of one that its cell has put into a store."""
        value = self._results.load(task, name)
        is_handle = name in (self.graph.tasks[task].body.get("stores") or ())
        return value if is_handle else fetched(value)

    def result(self, task: str, name: str | None = None) -> Any:
        """Return the value of a task that has ended well; of a cell a dict of what it gives.

        Parameters
        ----------
        task
            Its name. That of a swept cell gives a list, in the order of its values.
        name
            One of the values that a cell gives.

        Raises
        ------
        SkyUsageError
            There is no such task, or it has not ended well.
        """
        if task in self.sweeps:
            state = self.state
            return [
                None if state.is_tolerated(each) else self.result(each, name)
                for each in self.sweeps[task]
            ]
        self._check(task)
        result = self._results.find(task)
        if result is None:
            raise SkyUsageError(
                _("task {task} has no value: it is {phase}").format(
                    task=task, phase=self.state.tasks[task].phase
                ),
                hint=_("wait for it: run.wait()"),
            )
        names = [*result.values, *result.handles]
        if name is not None and name not in names:
            raise SkyUsageError(
                _("{task} gives no {name}").format(task=task, name=name),
                hint=suggest(name, names),
            )
        try:
            if name is not None or "" in names:
                return self._load(task, name or "")
            return {each: self._load(task, each) for each in names}
        except FileNotFoundError:
            raise SkyUsageError(
                _("the value of task {task} is not kept any more").format(task=task),
                hint=_("run it again"),
            ) from None

    def why(self, task: str) -> str:
        """Return why a task has run, or that its result was kept.

        Examples
        --------
        >>> run.why("train")  # doctest: +SKIP
        'input data, package torch 2.5 -> 2.6'
        """
        self._check(task)
        return run_reason(self.state.tasks[task])

    def show(self) -> Table:
        """Return a table of the tasks: what became of each, and why it has run, or has not."""
        return reason_table(self.name, self.state)

    def logs(self, task: str) -> str:
        """Return what the last attempt of a task has printed; of a swept cell what each has."""
        if task in self.sweeps:
            return "".join(f"{each}:\n{self.logs(each)}" for each in self.sweeps[task])
        self._check(task)
        outputs = self._results.outputs(task)
        if outputs is not None and self.state.tasks[task].phase.is_final:
            return output_text(outputs)
        attempts = self.state.tasks[task].attempts
        if not attempts:
            return ""
        cell = self._results.cell_of(task, attempts) or attempt_name(self.name, task, attempts)
        return self._session.find_handle(cell).logs()

    def save_notebook(self, path: str | Path) -> Path:
        """Write the notebook of the run with the outputs of the cells that have ended.

        Parameters
        ----------
        path
            A file that is there is replaced.

        Raises
        ------
        SkyUsageError
            The run is not that of a notebook.
        """
        source = self._settings.get("source")
        if source is None:
            raise SkyUsageError(_("run {name} is not that of a notebook").format(name=self.name))
        shown = {name: self._results.outputs(name) or [] for name in self.graph.tasks}
        executed = fill_notebook(
            source, self._settings["cells"], self.sweeps, self.state.tasks, shown
        )
        target = Path(path)
        write_atomically(target, executed.encode())
        return target

    def export(self, path: str | Path) -> Path:
        """Write the notebook with its outputs (``.ipynb``), or the graph (``.json``, ``.yaml``).

        Parameters
        ----------
        path
            A file that is there is replaced.

        Raises
        ------
        SkyUsageError
            The path has another ending, or the run is not that of a notebook.

        Examples
        --------
        >>> run.export("nightly.yaml")  # doctest: +SKIP
        PosixPath('nightly.yaml')
        """
        target = Path(path)
        if target.suffix == ".ipynb":
            return self.save_notebook(target)
        cells = self._settings.get("cells", {})
        write_graph(describe_graph(self.name, self.graph, cells, self.report()), target)
        return target

    def _check(self, task: str) -> None:
        if task not in self.graph.tasks:
            raise SkyUsageError(
                _("there is no task {name!r}").format(name=task),
                hint=suggest(task, [*self.sweeps, *self.graph.tasks]),
            )

    def cancel(self) -> None:
        """Stop what runs, begin nothing more and end the clusters; results are kept."""
        self._journal.wish(self.name, Kind.CANCEL, time.time())

    def pause(self) -> None:
        """Begin nothing more until `resume`; what runs goes on."""
        self._journal.wish(self.name, Kind.PAUSE, time.time())

    def resume(self) -> None:
        """Go on after `pause`."""
        self._journal.wish(self.name, Kind.RESUME, time.time())

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return view_bundle(_view, self, **kwargs)

    def __repr__(self) -> str:
        lines = [f"<run {self.name}>"]
        for name, task in self.state.tasks.items():
            why = f": {task.reason}" if task.reason else ""
            lines.append(f"  {name}  {task.phase}{why}")
        return "\n".join(lines)


_view: Callable[[PipelineRun], Any] | None = None


def register_view(view: Callable[[PipelineRun], Any]) -> None:
    """Set the function that shows runs in notebooks; without it they are shown as text."""
    global _view
    _view = view


# -- Changes of the tasks of a run, with the reasons for them -------------------------------------


# -- Phases through which the tasks of a run go, as its events tell them one after the other ------


# -- Notebook of a run, with the outputs of its cells ---------------------------------------------
