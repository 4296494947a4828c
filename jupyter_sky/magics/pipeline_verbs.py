"""Verb ``pipeline``: notebooks run as graphs, looked at, resumed and cancelled."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SkyUsageError
from ..tables import Table
from ..translation import _
from .arguments import option, parse_path, word
from .declaration import verb

if TYPE_CHECKING:
    from ..pipelines.pipeline_run import PipelineRun


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
        return {str(each.arg): _read_value(each.value) for each in call.keywords if each.arg}
    except (SyntaxError, ValueError, AssertionError):
        raise SkyUsageError(
            _("{name} {text}: not a list of parameters").format(name=name, text=text),
            hint=_("such as -p lr=0.1,epochs=3"),
        ) from None


def _read_value(node: ast.expr) -> Any:
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)


_NOTEBOOK = word("NOTEBOOK", "Notebook; it is not changed.", "path", parse_path)
_RUN = word("NAME", "Name of the run.")
_MINIMIZE = option("--minimize", "GOAL", "cost, time, time_then_cost, carbon.", "--minimize time")
_DEADLINE = option("--deadline", "TIME", "Longest time that it may take.", "--deadline 3h")
_BUDGET = option("--budget", "USD", "Most USD that it may cost.", "--budget 20")
_PARAMETERS = option(
    "-p --parameters",
    "NAME=VALUE",
    "Values of its parameters.",
    "-p lr=0.1",
    "",
    parse_parameters,
)
_OUTPUT = option(
    "-o --output", "FILE", "Write the outputs there.", "-o out.ipynb", "path", parse_path
)


@verb("pipeline", "pipeline")
def list_runs() -> Any:
    """Show the runs of graphs, with the states of their tasks."""
    from ..api.pipelines import runs

    return runs()


@verb("pipeline show", "pipeline show train.ipynb", _NOTEBOOK, _PARAMETERS, needs_session=False)
def show_pipeline(notebook: Path, parameters: dict[str, Any] | None) -> Any:
    """Show the tasks of a notebook: what each waits for, whether it runs, and what is wrong."""
    from ..api.pipelines import preview_notebook, read_notebook

    __, found = read_notebook(notebook)
    for finding in found.findings:
        print(f"{finding.text}; {finding.hint}")
    is_wrong = not found.tasks or any(finding.is_error for finding in found.findings)
    results = {} if is_wrong else preview_notebook(found, notebook, parameters or {})
    rows = []
    for cell in found.tasks:
        links = [link for link in found.links if link.consumer == cell.name]
        before = dict.fromkeys(link.producer for link in links)
        reads = dict.fromkeys(link.name for link in links if link.name)
        names = (cell.name, cell.number, str(cell.kind), ", ".join(before), ", ".join(reads))
        rows.append((*names, results.get(cell.name, "")))
    columns = (_("task"), _("cell"), _("kind"), _("after"), _("reads"), _("result"))
    return Table(_("Tasks of {notebook}").format(notebook=notebook.name), columns, tuple(rows))


@verb(
    "pipeline plan",
    "pipeline plan train.ipynb --deadline 3h",
    _NOTEBOOK,
    _MINIMIZE,
    _DEADLINE,
    _BUDGET,
)
def plan_pipeline(notebook: Path, **limits: str | None) -> Any:
    """Show where the tasks of a notebook would run, and what that costs."""
    from ..api.pipelines import plan_notebook

    return plan_notebook(notebook, **_given(limits))


@verb(
    "pipeline run",
    "pipeline run train.ipynb -p lr=0.1 -o out.ipynb",
    _NOTEBOOK,
    _PARAMETERS,
    option("--name", "NAME", "Name of the run.", "--name nightly"),
    option("--fresh", "", "Run every task, whatever is kept of earlier runs."),
    _OUTPUT,
    _MINIMIZE,
    _DEADLINE,
    _BUDGET,
)
def run_pipeline(
    notebook: Path,
    parameters: dict[str, Any] | None,
    name: str | None,
    fresh: bool,
    output: Path | None,
    **limits: str | None,
) -> Any:
    """Run the tasks of a notebook whose results are not kept, and say what becomes of each."""
    from ..api.pipelines import start_notebook

    run = start_notebook(notebook, name, parameters or {}, fresh, **_given(limits))
    return _follow(run, output)


@verb("pipeline resume", "pipeline resume nightly", _RUN, _OUTPUT)
def resume_pipeline(name: str, output: Path | None) -> Any:
    """Go on with a run whose process has ended."""
    from ..api.pipelines import resume

    return _follow(resume(name), output)


@verb("pipeline cancel", "pipeline cancel nightly", _RUN)
def cancel_pipeline(name: str) -> None:
    """Stop what runs and begin nothing more; results are kept."""
    from ..api.pipelines import find

    find(name).cancel()


@verb(
    "pipeline logs",
    "pipeline logs nightly train",
    _RUN,
    word("TASK", "Name of a task."),
)
def show_logs(name: str, task: str) -> None:
    """Print what a task of a run has printed."""
    from ..api.pipelines import find

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
    run.wait()
