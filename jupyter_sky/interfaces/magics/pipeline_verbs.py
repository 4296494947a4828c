"""Verb ``pipeline``: notebooks run as graphs, looked at, resumed and cancelled."""

from __future__ import annotations

import ast
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.sweep import read_written
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.magics.arguments import option, parse_path, word
from jupyter_sky.interfaces.magics.declaration import verb

if TYPE_CHECKING:
    from jupyter_sky.workflows.pipelines.run.graph_parts import PartRequest
    from jupyter_sky.workflows.pipelines.run.pipeline_run import PipelineRun


def parse_parameters(text: str, name: str) -> dict[str, Any]:
    """Return the values that ``lr=0.1,epochs=3`` gives; a word without quotes is text.

    Raises
    ------
    SkyUsageError
        The text is not of this form.

    Examples
    --------
    >>> parse_parameters("lr=0.1,kind=adam,sizes=[8, 16]", "-p")
    {'lr': 0.1, 'kind': 'adam', 'sizes': [8, 16]}
    """
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        assert isinstance(call, ast.Call) and not call.args
        return {str(each.arg): read_written(each.value) for each in call.keywords if each.arg}
    except (SyntaxError, ValueError, AssertionError):
        raise SkyUsageError(
            _("{name} {text}: not a list of parameters").format(name=name, text=text),
            hint=_("such as -p lr=0.1,epochs=3"),
        ) from None


_FILE = word("FILE", "Notebook (.ipynb) or task file (.yaml).", "path", parse_path)
_SHOWN_OF_SWEEP = 12
"""Rows of the tasks of one cell; the others are counted."""
_FOLLOW_SECONDS = 1.0
_RUN = word("NAME", "Name of the run.", "graph-run")
_MINIMIZE = option("--minimize", "GOAL", "cost, time, time_then_cost, carbon.", "--minimize time")
_DEADLINE = option("--deadline", "TIME", "Longest time that it may take.", "--deadline 3h")
_BUDGET = option("--budget", "USD", "Most USD that it may cost.", "--budget 20")
_PART = (
    option("--only", "TASK,...", "Run these alone; what they read must be kept.", "--only fit"),
    option("--from", "TASK,...", "Run these and all that follow them.", "--from fit"),
    option("--to", "TASK,...", "Run these and all that they follow.", "--to fit"),
)
_STRICT = (
    option("--strict", "", "Refuse cells whose changes of an input would be lost."),
    option("--no-strict", "", "Only warn of them, as in a notebook."),
)
_OUTPUT = option(
    "-o --output", "FILE", "Write the outputs there.", "-o out.ipynb", "path", parse_path
)
_PARAMETERS = option(
    "-p --parameters",
    "NAME=VALUE",
    "Values of its parameters, and lists of its sweeps.",
    "-p lr=0.1",
    "",
    parse_parameters,
)


@verb("pipeline", "pipeline")
def list_runs() -> Any:
    """Show the runs of graphs, with the states of their tasks."""
    from jupyter_sky.interfaces.api.pipelines import runs

    return runs()


@verb("pipeline show", "pipeline show train.ipynb", _FILE, _PARAMETERS, needs_session=False)
def show_pipeline(file: Path, parameters: dict[str, Any] | None) -> Any:
    """Show the tasks of a file: what each waits for, whether it runs, and what is wrong."""
    from jupyter_sky.interfaces.api.pipeline_files import is_task_file

    show = _show_tasks if is_task_file(file) else _show_cells
    with _printed_warnings():
        return show(file, parameters or {})


def _read_strict(strict: bool, no_strict: bool) -> bool | None:
    """Return whether lost changes are refused, as the options say; None where neither is given."""
    if strict and no_strict:
        raise SkyUsageError(
            _("--strict and --no-strict contradict each other"), hint=_("give one of them")
        )
    return True if strict else False if no_strict else None


@contextmanager
def _printed_warnings() -> Iterator[None]:
    """Print the warnings about a file, each once, without the lines of code that gave them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for text in dict.fromkeys(str(each.message) for each in caught):
        print(text)


def _show_tasks(file: Path, parameters: dict[str, Any], part: PartRequest | None = None) -> Table:
    """Return a table of the tasks of a task file."""
    from jupyter_sky.interfaces.api.pipeline_files import preview_dag, read_dag

    dag = read_dag(file, **parameters)
    results, graph = preview_dag(dag, part), dag.freeze()
    rows = []
    for position, spec in enumerate(graph.tasks):
        before = [graph.tasks[edge.src].name for edge in graph.edges if edge.dst == position]
        needs = _(" or ").join(need.command_line() for need in spec.needs)
        rows.append((spec.name, ", ".join(before), needs, results[spec.name]))
    columns = (_("task"), _("after"), _("resources"), _("result"))
    return Table(_("Tasks of {notebook}").format(notebook=file.name), columns, tuple(rows))


def _show_cells(
    notebook: Path, parameters: dict[str, Any], part: PartRequest | None = None
) -> Table:
    """Return a table of the tasks of a notebook."""
    from jupyter_sky.interfaces.api.pipeline_files import preview_notebook, read_notebook, warn_of
    from jupyter_sky.workflows.pipelines.notebook.sweeps import expand_cells

    __, found = read_notebook(notebook)
    warn_of(found)
    is_wrong = not found.tasks or any(finding.is_error for finding in found.findings)
    results = {} if is_wrong else preview_notebook(found, notebook, parameters, part)
    expanded = expand_cells(found, parameters)
    rows: list[tuple[object, ...]] = []
    for cell in found.tasks:
        links = [link for link in found.links if link.consumer == cell.name]
        before = ", ".join(dict.fromkeys(link.producer for link in links))
        reads = ", ".join(dict.fromkeys(link.name for link in links if link.name))
        if cell.options and cell.options.condition:
            reads = _("{reads} if {condition}").format(
                reads=reads, condition=cell.options.condition
            )
        facts = (cell.number, str(cell.kind), before, reads)
        names = [each.name for each in expanded[cell.name]]
        shown = names if len(names) <= _SHOWN_OF_SWEEP else names[: _SHOWN_OF_SWEEP - 1]
        rows += [(name, *facts, results.get(name, "")) for name in shown]
        if len(shown) < len(names):
            more = _("{cell}: {count} more").format(cell=cell.name, count=len(names) - len(shown))
            rows.append((more, *facts, ""))
    columns = (_("task"), _("cell"), _("kind"), _("after"), _("reads"), _("result"))
    return Table(_("Tasks of {notebook}").format(notebook=notebook.name), columns, tuple(rows))


@verb(
    "pipeline plan",
    "pipeline plan train.ipynb --deadline 3h",
    _FILE,
    _PARAMETERS,
    *_STRICT,
    _MINIMIZE,
    _DEADLINE,
    _BUDGET,
)
def plan_pipeline(
    file: Path,
    parameters: dict[str, Any] | None,
    strict: bool,
    no_strict: bool,
    **limits: str | None,
) -> Any:
    """Show where the tasks of a notebook or task file would run, and what that costs."""
    from jupyter_sky.interfaces.api.pipeline_files import plan_file

    is_strict = _read_strict(strict, no_strict)
    with _printed_warnings():
        return plan_file(file, parameters or {}, None, is_strict, **_given(limits))


@verb(
    "pipeline run",
    "pipeline run train.ipynb -p lr=0.1 -o out.ipynb",
    _FILE,
    _PARAMETERS,
    option("--name", "NAME", "Name of the run.", "--name nightly"),
    option("--fresh", "", "Run every task, whatever is kept of earlier runs."),
    option("--detach", "", "Carry it out in a process of its own, which outlives this one."),
    option(
        "--controller",
        "OPTIONS",
        "Machine that carries it out, so that this one may be switched off.",
        '--controller "--cloud aws --cpus 2"',
    ),
    option("--fail-fast", "", "Stop all when a task has failed."),
    option("--dry-run", "", "Show what would run, where, and for how much."),
    *_PART,
    *_STRICT,
    _OUTPUT,
    _MINIMIZE,
    _DEADLINE,
    _BUDGET,
)
def run_pipeline(
    file: Path,
    parameters: dict[str, Any] | None,
    name: str | None,
    fresh: bool,
    detach: bool,
    controller: str | None,
    fail_fast: bool,
    dry_run: bool,
    strict: bool,
    no_strict: bool,
    output: Path | None,
    **others: str | None,
) -> Any:
    """Run the tasks of a notebook or task file whose results are not kept."""
    from jupyter_sky.interfaces.api.controller_machine import start_on_machine
    from jupyter_sky.interfaces.api.pipeline_files import is_task_file, plan_file
    from jupyter_sky.interfaces.api.pipelines import start_file
    from jupyter_sky.workflows.pipelines.run.graph_parts import read_part

    wanted = _given({each: others.pop(each) for each in ("only", "from", "to")})
    part = read_part(*(wanted.get(each) for each in ("only", "from", "to")))
    limits, is_strict = _given(others), _read_strict(strict, no_strict)
    if (detach or controller is not None) and output is not None:
        hint = _("with --detach, write it later: pipeline export NAME out.ipynb")
        if controller is not None:
            hint = _("with --controller, it lies in the store of results: runs/NAME/executed.ipynb")
        raise SkyUsageError(
            _("--output is written by the process that carries a run out"), hint=hint
        )
    given = parameters or {}
    if dry_run:
        with _printed_warnings():
            show = _show_tasks if is_task_file(file) else _show_cells
            print(show(file, given, part))
            return plan_file(file, given, part, is_strict, **limits)
    if controller is not None:
        flags, options = {"fresh": fresh, "fail-fast": fail_fast}, {**wanted, **limits}
        with _printed_warnings():
            begun = start_on_machine(file, name, controller, given, flags, is_strict, **options)
        print(_("{run} goes on by itself: jupyter sky logs {run} -f").format(run=begun))
        return None
    with _printed_warnings():
        run = start_file(file, name, given, fresh, detach, fail_fast, part, is_strict, **limits)
    if detach:
        text = _("run {name} goes on by itself: pipeline status {name} --follow")
        print(text.format(name=run.name))
        return None
    return _follow(run, output)


@verb(
    "pipeline status",
    "pipeline status nightly",
    word("[NAME]", "Name of the run; the newest unless given.", "graph-run"),
    option("-f --follow", "", "Show what changes until it ends."),
)
def show_status(name: str | None, follow: bool) -> Any:
    """Show states, times and costs of the tasks of a run, beside those of its plan."""
    from jupyter_sky.interfaces.api.pipelines import find, newest

    run = find(name) if name else newest()
    if not follow:
        return run.table()
    _show_until_end(run)
    return None


@verb(
    "pipeline export",
    "pipeline export nightly out.ipynb",
    _RUN,
    word("FILE", "Notebook with outputs (.ipynb), or graph (.json, .yaml).", "path", parse_path),
)
def export_run(name: str, file: Path) -> None:
    """Write the notebook of a run with its outputs, or its graph with states and costs."""
    from jupyter_sky.interfaces.api.pipelines import find

    print(find(name).export(file))


@verb("pipeline resume", "pipeline resume nightly", _RUN, _OUTPUT)
def resume_pipeline(name: str, output: Path | None) -> Any:
    """Go on with a run that is paused, or whose process has ended."""
    from jupyter_sky.interfaces.api.pipelines import resume

    return _follow(resume(name), output)


@verb("pipeline pause", "pipeline pause nightly", _RUN)
def pause_pipeline(name: str) -> None:
    """Begin nothing more until the run is resumed; what runs goes on."""
    from jupyter_sky.interfaces.api.pipelines import find

    find(name).pause()


@verb("pipeline cancel", "pipeline cancel nightly", _RUN)
def cancel_pipeline(name: str) -> None:
    """Stop what runs and begin nothing more; results are kept."""
    from jupyter_sky.interfaces.api.pipelines import find

    find(name).cancel()


@verb(
    "pipeline logs",
    "pipeline logs nightly train",
    _RUN,
    word("TASK", "Name of a task, or of a cell that --map makes several of.", "task"),
)
def show_logs(name: str, task: str) -> None:
    """Print what a task of a run has printed."""
    from jupyter_sky.interfaces.api.pipelines import find

    print(find(name).logs(task), end="")


def _given(limits: dict[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in limits.items() if value is not None}


def _follow(run: PipelineRun, output: Path | None) -> None:
    """Print the changes of a run until its end; write its notebook."""
    print(_("run {name}").format(name=run.name), flush=True)
    try:
        for task, phase, reason in run.changes():
            print(f"{task}: {phase}{f' ({reason})' if reason else ''}", flush=True)
    except KeyboardInterrupt:
        print(
            _("it goes on while this process lives; stop it: pipeline cancel {name}").format(
                name=run.name
            )
        )
        raise
    finally:
        if output is not None:
            run.save_notebook(output)
    if run.done():
        print(_summary(run), flush=True)
    run.wait()


def _summary(run: PipelineRun) -> str:
    """Return how a run ended, as the last lines of a terminal or cell."""
    found = run.snapshot()
    return "\n".join([found.headline, *filter(None, [found.table.note])])


def _show_until_end(run: PipelineRun) -> None:
    """Show the table of a run until all tasks have ended, in a notebook in one place."""
    from IPython.display import display

    table = run.table()
    handle, shown = display(table, display_id=True), [row[:2] for row in table]
    while not all(task.phase.is_final for task in run.state.tasks.values()):
        time.sleep(_FOLLOW_SECONDS)
        table, states = run.table(), [row[:2] for row in run.table()]
        if handle is not None:
            handle.update(table)
        elif states != shown:  # a terminal, where each table takes its own lines
            print(f"\n{table}", flush=True)
        shown = states
    if handle is not None:
        handle.update(run.table())
