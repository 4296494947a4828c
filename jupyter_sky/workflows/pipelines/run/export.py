"""Graphs of runs as documents of JSON or YAML, for other tools and for review."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.workflows.pipelines.model.graph import RunGraph
from jupyter_sky.workflows.pipelines.run.run_report import (
    TaskReport,
)
from jupyter_sky.workflows.pipelines.run.state import (
    Phase,
    TaskState,
)

_UNRUN = (Phase.SKIPPED, Phase.CANCELLED, Phase.FAILED)

_SHOWN = ("definitions", "code", "command", "inputs", "outputs", "gives")
"""Parts of a body that are shown, where they are not empty."""


def describe_graph(
    run: str,
    graph: RunGraph,
    cells: Mapping[str, int],
    reports: Iterable[TaskReport],
) -> dict[str, Any]:
    """Return a graph as values of JSON.

    Parameters
    ----------
    run
        Name of the run.
    graph
        Its tasks.
    cells
        Number of the cell of each task; empty for the graph of a Dag.
    reports
        Of the tasks.

    Examples
    --------
    >>> from jupyter_sky.workflows.pipelines.model.graph import RunTask
    >>> graph = RunGraph([RunTask("fit", body={"request": "--gpus V100", "command": "./fit"})])
    >>> describe_graph("nightly", graph, {}, [])
    {'run': 'nightly', 'tasks': [{'name': 'fit', 'resources': '--gpus V100', 'command': './fit'}]}
    """
    states = {report.name: report.to_json() for report in reports}
    tasks = []
    for name, task in graph.tasks.items():
        body = {key: task.body.get(key) for key in _SHOWN}
        described = {
            "name": name,
            "cell": cells.get(name),
            "after": list(task.after),
            "if": (task.body.get("condition") or {}).get("expression"),
            "resources": task.body.get("request"),
            **body,
            **states.get(name, {}),
        }
        tasks.append(
            {key: value for key, value in described.items() if value not in (None, "", [])}
        )
    return {"run": run, "tasks": tasks}


def write_graph(described: Mapping[str, Any], path: Path) -> None:
    """Write a graph as JSON or YAML, by the ending of the path.

    Raises
    ------
    SkyUsageError
        The ending is another.
    """
    if path.suffix == ".json":
        text = json.dumps(described, indent=1, ensure_ascii=False) + "\n"
    elif path.suffix in (".yaml", ".yml"):
        text = dump_yaml([described])
    else:
        raise SkyUsageError(
            _("{path}: not a format of pipelines").format(path=path),
            hint=_("the notebook with its outputs is .ipynb, the graph .json or .yaml"),
        )
    path.write_text(text, encoding="utf-8")


def dump_yaml(documents: Iterable[Mapping[str, Any]]) -> str:
    """Return documents of YAML in which code stands line by line."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def add_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)

    Dumper.add_representer(str, add_text)
    return yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, allow_unicode=True)


def fill_notebook(
    source: Mapping[str, Any],
    cells: Mapping[str, int],
    sweeps: Mapping[str, Sequence[str]],
    states: Mapping[str, TaskState],
    shown: Mapping[str, Sequence[dict[str, Any]]],
) -> str:
    """Return a notebook with the outputs of its tasks, as the text of its file.

    Parameters
    ----------
    source
        The notebook, in format 4.
    cells
        Number of the code cell of each task.
    sweeps
        Tasks of each cell that ``--map`` makes several of: the name of each is above its outputs.
    states, shown
        State and outputs of each task; of one that did not end well the reason follows them.
    """
    import nbformat

    tasks: dict[int, list[str]] = {}
    for name, number in cells.items():
        tasks.setdefault(number, []).append(name)
    swept = {name for names in sweeps.values() for name in names}
    filled = copy.deepcopy(dict(source))
    code = [cell for cell in filled["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code, 1):
        cell["execution_count"] = None
        cell["outputs"] = [
            output
            for name in tasks.get(number, [])
            for output in _outputs(name, states[name], shown[name], name in swept)
        ]
    return f"{nbformat.writes(nbformat.from_dict(filled))}\n"


def _outputs(
    name: str, task: TaskState, shown: Sequence[dict[str, Any]], is_swept: bool
) -> list[dict[str, Any]]:
    outputs = list(shown)
    if task.phase in _UNRUN:
        words = f"{task.phase}: {task.reason}" if task.reason else str(task.phase)
        outputs.append({"output_type": "stream", "name": "stderr", "text": f"{words}\n"})
    if outputs and is_swept:
        outputs.insert(0, {"output_type": "stream", "name": "stdout", "text": f"{name}:\n"})
    return outputs
