"""Graphs written as task files, which `read_task_file` reads again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.dag.dag import Constant, Dag, Data, Task, TaskOutput
from jupyter_sky.base.translation import _
from jupyter_sky.workflows.pipelines.files.task_file import EXTENSION, import_reference
from jupyter_sky.workflows.pipelines.files.task_resources import write_resources
from jupyter_sky.workflows.pipelines.run.export import dump_yaml


def write_task_file(dag: Dag, path: Path) -> None:
    """Write a graph as a task file.

    Parameters
    ----------
    dag
        Its functions and estimators are written by their names, which must be importable.
    path
        A file that is there is replaced.

    Raises
    ------
    SkyUsageError
        A function has no name that another process can import.
    """
    path.write_text(dump_yaml(describe_dag(dag)), encoding="utf-8")


def describe_dag(dag: Dag) -> list[dict[str, Any]]:
    """Return the documents of a graph.

    Examples
    --------
    >>> with Dag("two") as dag:
    ...     _ = Task("a", run="./a").set_resources(cpus=4, spot=False) >> Task("b", run="./b")
    >>> describe_dag(dag)[1]
    {'name': 'a', 'resources': {'cpus': 4}, 'run': './a'}
    >>> describe_dag(dag)[2]["x-sky"]
    {'after': ['a']}
    """
    dag.freeze()
    edges = dag.describe_edges()
    header: dict[str, Any] = {"name": dag.name or "dag", "execution": "parallel"}
    groups = {
        f"same_{by}": [[one.name for one in pair] for pair in dag.groups(by)]
        for by in ("region", "cluster")
    }
    if own := {name: pairs for name, pairs in groups.items() if pairs}:
        header[EXTENSION] = own
    return [header, *(_describe_task(task, edges.get(task.name, [])) for task in dag)]


def _describe_task(task: Task, after: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    environment = task.environment
    requests = [write_resources(need) for need in task.needs]
    nodes = max(task.num_nodes, *(need.nodes for need in task.needs))
    mounts = {path: {"source": uri, "mode": "MOUNT"} for path, uri in environment.mounts.items()}
    described = {
        "name": task.name,
        "workdir": environment.workdir,
        "num_nodes": nodes if nodes > 1 else None,
        "resources": requests[0] if len(requests) == 1 else {"any_of": requests},
        "envs": dict(environment.variables),
        "secrets": dict.fromkeys(environment.secrets),
        "file_mounts": {**environment.files, **mounts},
        "inputs": _described_data(map(_source, task.inputs)),
        "outputs": _described_data((data.uri, data) for data in task.outputs),
        "setup": environment.setup,
        "run": None if callable(task.run) else task.run,
        EXTENSION: _extension(task, after),
    }
    return {name: value for name, value in described.items() if value not in (None, "", {}, [])}


def _source(source: Data | TaskOutput) -> tuple[str, Data | None]:
    if isinstance(source, Data):
        return source.uri, source
    return f"{source.task.name}.output({source.position})", None


def _described_data(given: Iterable[tuple[str, Data | None]]) -> dict[str, Any]:
    described: dict[str, Any] = {}
    for uri, data in given:
        described[uri] = data and data.gb
        if data and data.region and data.region != Data.from_uri(uri, data.gb).region:
            described[uri] = {"estimated_size_gigabytes": data.gb, "region": data.region}
    return described


def _extension(task: Task, after: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    estimator = task.estimator
    is_constant = isinstance(estimator, Constant)
    found = {
        "after": [dict(each) if len(each) > 1 else each["task"] for each in after],
        "function": _reference(task, task.run) if callable(task.run) else None,
        "arg": task.arg,
        "retry": task.retries,
        "timeout": None if task.timeout is None else f"{task.timeout:g}s",
        "hours": estimator.hours if isinstance(estimator, Constant) else None,
        "time": _reference(task, estimator) if estimator and not is_constant else None,
        "residency": list(task.residency),
        "spin_up": task.spin_up,
    }
    return {name: value for name, value in found.items() if value not in (None, "", 0, [])}


def _reference(task: Task, function: Any) -> str:
    """Return the name of a function as ``module:name``, which is checked."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    reference = f"{module}:{name}"
    try:
        is_found = module != "__main__" and import_reference(reference) is function
    except SkyUsageError:
        is_found = False
    if not is_found:
        raise SkyUsageError(
            _("task {name}: {function} has no name that a file can refer to").format(
                name=task.name, function=name or function
            ),
            hint=_("define it in a module, which another process imports"),
        )
    return reference
