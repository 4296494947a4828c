"""Handle of a run of a graph of tasks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from ..concurrency import result_within
from ..errors import SkyCancelled, SkyError, SkyUsageError, suggest
from ..executor.session import Session
from ..runs.controller import Controller
from ..runs.events import Event, Kind
from ..runs.graph import RunGraph
from ..runs.journal import RunJournal
from ..runs.state import Phase, RunState, TaskState, fold
from ..store.atomic_file import write_atomically
from ..tables import Table
from ..translation import _
from .cell_outputs import output_text
from .export import describe_graph, write_graph
from .kept_results import KeptResults
from .results import RunResults
from .run_report import TaskReport, make_table, report_tasks
from .session_world import POLL_SECONDS, SessionWorld, attempt_name, hourly_price

if TYPE_CHECKING:
    from ..optimizer.plan import Plan


RESULTS = "run-results"
"""Folder of the results of all runs, below that of the user's data."""
_TOLD = frozenset({Phase.RUNNING, Phase.DELAYED, *(one for one in Phase if one.is_final)})
"""Phases that people follow."""


_carried_out: WeakValueDictionary[Path, PipelineRun] = WeakValueDictionary()
"""Runs whose controllers are threads of this process, by data directory and name."""
_lock = threading.Lock()


class PipelineRun:
    """Run of a graph, whose controller is a thread of this process.

    Attributes
    ----------
    name : str
        Unique among the runs of a user.

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
        recorded = self._journal.read(name)
        self._graph, self._settings = recorded.graph, recorded.settings
        self._sweeps: Mapping[str, Sequence[str]] = self._settings.get("sweeps", {})
        self._kept = open_kept(folder)
        self._results = RunResults(folder / RESULTS / name, self._kept)
        self._ended: Future[RunState] = Future()

    def start(self) -> PipelineRun:
        """Carry the run out, from wherever it stands; return the handle that does so already."""
        path = Path(self._session.config.data_dir) / self.name
        with _lock:
            if (known := _carried_out.get(path)) is not None and not known.done():
                return known
            _carried_out[path] = self
        world = SessionWorld(self._session, self._results, self._kept)
        controller = Controller(self._journal, self.name, world)

        def carry_out() -> None:
            try:
                state = asyncio.run(controller.run())
                with suppress(OSError, SkyError):  # what is not removed now is removed later
                    self._kept.sweep(self._needed_files, time.time())
                self._ended.set_result(state)
            except BaseException as error:
                self._ended.set_exception(error)

        threading.Thread(target=carry_out, name=f"sky-run-{self.name}", daemon=True).start()
        return self

    def _needed_files(self) -> set[str]:
        """Return the kept files of the runs that have not ended."""
        needed: set[str] = set()
        for name in self._journal.names():
            recorded = self._journal.read(name)
            state = fold(RunState.begin(recorded.graph), self._journal.events(name))
            if not state.is_over:
                folder = Path(self._session.config.data_dir) / RESULTS / name
                needed |= RunResults(folder, self._kept).used_files()
        return needed

    @property
    def plan(self) -> Plan:
        """Plan with which it began."""
        from ..optimizer.plan import Plan

        return Plan.from_json(self._settings["plan"])

    @property
    def state(self) -> RunState:
        """State of all tasks and clusters, as the journal has it."""
        return fold(RunState.begin(self._graph), self._journal.events(self.name))

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
        return self._report(self._journal.events(self.name))

    def table(self) -> Table:
        """Return the report as a table.

        Examples
        --------
        >>> run.table()  # doctest: +SKIP
        Run nightly: 1 of 2 tasks have ended; 0:41, $0.02
        task     state      time    planned  cost   planned cost  place
        """
        events = self._journal.events(self.name)
        reports = self._report(events)
        is_over = all(report.phase.is_final for report in reports)
        seconds = (events[-1].at if is_over else time.time()) - events[0].at if events else 0.0
        return make_table(self.name, reports, self.plan, seconds)

    def _report(self, events: Sequence[Event]) -> tuple[TaskReport, ...]:
        state = fold(RunState.begin(self._graph), events)
        price = partial(hourly_price, self._session.store)
        return report_tasks(state, events, self.plan, price, time.time())

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
            if task.phase is Phase.FAILED:
                raise SkyError(
                    _("task {task} has failed: {reason}").format(task=name, reason=task.reason),
                    hint=_("what it printed: run.logs({task!r})").format(task=name),
                )
        if state.cancelled:
            raise SkyCancelled(_("run {name} was cancelled").format(name=self.name))
        return self

    def changes(self) -> Iterator[tuple[str, Phase, str]]:
        """Yield the changes of tasks until the end: name, phase, and the reason if there is one.

        The reason of a task that runs is what differs from its last result, that of one that has
        not run that its result was kept.

        Steps that only the run itself sees, such as a search for a stored result, are left out.
        """
        state, count = RunState.begin(self._graph), 0
        while True:
            is_last = self.done()
            events = self._journal.events(self.name, count)
            count += len(events)
            for event in events:
                before, state = state, fold(state, [event])
                for name, task in state.tasks.items():
                    if task.phase in _TOLD and task.phase is not before.tasks[name].phase:
                        yield name, task.phase, _reason(task)
            if is_last:
                return
            time.sleep(POLL_SECONDS)

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
        if task in self._sweeps:
            return [self.result(each, name) for each in self._sweeps[task]]
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
                return self._results.load(task, name or "")
            return {each: self._results.load(task, each) for each in names}
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
        found = self.state.tasks[task]
        return _("its result was kept") if found.stored else found.why

    def show(self) -> Table:
        """Return a table of the tasks: what became of each, and why it has run, or has not."""
        rows = []
        for name, task in self.state.tasks.items():
            unkept = _("not kept: {why}").format(why=task.unkept) if task.unkept else ""
            words = "; ".join(filter(None, (self.why(name), unkept)))
            rows.append((name, str(task.phase), words, f"${task.usd:.2f}"))
        columns = (_("task"), _("state"), _("reason"), _("cost"))
        return Table(_("Tasks of {name}").format(name=self.name), columns, tuple(rows))

    def logs(self, task: str) -> str:
        """Return what the last attempt of a task has printed; of a swept cell what each has."""
        if task in self._sweeps:
            return "".join(f"{each}:\n{self.logs(each)}" for each in self._sweeps[task])
        self._check(task)
        outputs = self._results.outputs(task)
        if outputs is not None and self.state.tasks[task].phase.is_final:
            return output_text(outputs)
        attempts = self.state.tasks[task].attempts
        if not attempts:
            return ""
        return self._session.find_handle(attempt_name(self.name, task, attempts)).logs()

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
        import nbformat

        source = self._settings.get("source")
        if source is None:
            raise SkyUsageError(_("run {name} is not that of a notebook").format(name=self.name))
        state = self.state
        tasks: dict[int, list[str]] = {}
        for name, number in self._settings["cells"].items():
            tasks.setdefault(number, []).append(name)
        code = [cell for cell in source["cells"] if cell["cell_type"] == "code"]
        for number, cell in enumerate(code, 1):
            cell["execution_count"] = None
            names = tasks.get(number, [])
            cell["outputs"] = [
                output for name in names for output in self._cell_outputs(name, state.tasks[name])
            ]
        target = Path(path)
        text = nbformat.writes(nbformat.from_dict(source))
        write_atomically(target, f"{text}\n".encode())
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
        write_graph(describe_graph(self.name, self._graph, cells, self.report()), target)
        return target

    def _cell_outputs(self, name: str, task: TaskState) -> list[dict[str, Any]]:
        """Return what a task has shown; its name above where its cell has several."""
        outputs = list(self._results.outputs(name) or [])
        if task.phase in (Phase.SKIPPED, Phase.CANCELLED, Phase.FAILED):
            words = f"{task.phase}: {task.reason}" if task.reason else str(task.phase)
            outputs.append({"output_type": "stream", "name": "stderr", "text": f"{words}\n"})
        if outputs and any(name in names for names in self._sweeps.values()):
            outputs.insert(0, {"output_type": "stream", "name": "stdout", "text": f"{name}:\n"})
        return outputs

    def _check(self, task: str) -> None:
        if task not in self._graph.tasks:
            raise SkyUsageError(
                _("there is no task {name!r}").format(name=task),
                hint=suggest(task, [*self._sweeps, *self._graph.tasks]),
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

    def __repr__(self) -> str:
        lines = [f"<run {self.name}>"]
        for name, task in self.state.tasks.items():
            why = f": {task.reason}" if task.reason else ""
            lines.append(f"  {name}  {task.phase}{why}")
        return "\n".join(lines)


def _reason(task: TaskState) -> str:
    if task.phase is Phase.RUNNING:
        return task.why
    if task.phase is Phase.SUCCEEDED:
        return _("its result was kept") if task.stored else ""
    return task.reason


def open_kept(folder: Path) -> KeptResults:
    """Return the results that are kept of a user's runs."""
    return KeptResults(folder / "kept-results")


def open_journal(folder: Path) -> RunJournal:
    """Return the journal of a user's runs."""
    return RunJournal(folder / "runs.db")


def start_run(
    session: Session,
    graph: RunGraph,
    name: str,
    plan: Plan,
    *,
    fail_fast: bool = False,
    **settings: Any,
) -> PipelineRun:
    """Store a graph as a run, and carry it out.

    Parameters
    ----------
    fail_fast
        Cancel all when a task has failed.
    **settings
        ``origin`` names the notebook or graph, whose kept results are compared with; ``fresh=True``
        runs every task. For the graph of a notebook ``source`` is the notebook, ``cells`` the
        number of the cell of each task, ``sweeps`` the tasks of each cell that ``--map`` makes
        several of.

    Raises
    ------
    SkyUsageError
        There is a run of that name.
    """
    journal = open_journal(Path(session.config.data_dir))
    try:
        settings = {"notebook": session.notebook, "plan": plan.to_json(), **settings}
        journal.add(name, graph, settings, time.time())
        if fail_fast:
            journal.wish(name, Kind.FAIL_FAST, time.time())
    finally:
        journal.close()
    return PipelineRun(session, name).start()
