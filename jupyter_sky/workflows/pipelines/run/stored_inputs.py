"""Values of tasks that lie in a store: where they go, and how machines read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_sky.base.clouds.index import LOCAL
from jupyter_sky.base.requests.cell_options.values import CellData
from jupyter_sky.execution.files.stored_values import StoredValue
from jupyter_sky.machines.storage.stores.places import place_of
from jupyter_sky.machines.storage.stores.stores import open_store
from jupyter_sky.machines.storage.stores.uri import StorageUri
from jupyter_sky.workflows.pipelines.model.command_cell import FOLDER
from jupyter_sky.workflows.pipelines.model.kept_results import TaskResult
from jupyter_sky.workflows.pipelines.model.task_body import Address, TaskCell
from jupyter_sky.workflows.pipelines.run import stored_value_node


def result_address(results: str, run: str, attempt: str) -> Address:
    """Return the function that says where a value of an attempt goes.

    Parameters
    ----------
    results
        Address below which results of all runs are kept.
    run, attempt
        Names.

    Examples
    --------
    >>> result_address("s3://mine/results/", "nightly", "train_1")("model")
    's3://mine/results/runs/nightly/train_1/model.value'
    """
    below = StorageUri.parse(results, Path.cwd()).child(f"runs/{run}/{attempt}")
    return lambda name: str(below.child(f"{name}.value"))


def read_on_machine(cell: TaskCell) -> TaskCell:
    """Return a cell whose values in stores come to its machine from there, and not from here."""
    files: dict[str, CellData] = {}
    sent: dict[str, Any] = {}
    values = [each for value in cell.values.values() for each in _as_list(value)]
    modules = {each.module for each in values if isinstance(each, StoredValue)}
    # an import brings the package to machines that lack it
    lines = [f"import {name} as _module" for name in sorted(modules - _EVERYWHERE)]
    for name, value in cell.values.items():
        if isinstance(value, StoredValue):
            lines.append(f"{name} = {_reading(value, files)}")
        elif isinstance(value, list) and any(isinstance(each, StoredValue) for each in value):
            sent[name] = [None if isinstance(each, StoredValue) else each for each in value]
            lines += [
                f"{name}[{place}] = {_reading(each, files)}"
                for place, each in enumerate(value)
                if isinstance(each, StoredValue)
            ]
        else:
            sent[name] = value
    if not files:
        return cell
    before = "\n".join(filter(None, [*lines, cell.before]))  # it may change the folder
    return replace(cell, values=sent, before=before, data=tuple(files.values()))


_EVERYWHERE = {"", "builtins", "__main__"}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _reading(value: StoredValue, files: dict[str, CellData]) -> str:
    """Return the expression that reads a value, whose file is added to those of the cell."""
    uri = str(value.uri)
    path = f"{FOLDER}/values/{len(files)}-{Path(value.uri.key).name}"
    path = files.setdefault(uri, CellData(uri, path)).path
    module = f"__import__('{stored_value_node.__name__}', fromlist=['read_value'])"
    return f"{module}.read_value({path!r})"


def fetch_stored(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with those in stores brought to this machine."""
    return {
        name: [fetched(each) for each in value] if isinstance(value, list) else fetched(value)
        for name, value in values.items()
    }


def fetched(value: Any) -> Any:
    """Return a value; that of a handle is brought to this machine."""
    return value.fetch() if isinstance(value, StoredValue) else value


def place_of_result(result: TaskResult) -> str:
    """Return where the values of a result are: in a store, or here, where others get them from."""
    stored = next(iter(result.handles.values()), None)
    if stored is None:
        return LOCAL
    uri = StorageUri.parse(stored["uri"])
    return place_of(open_store(uri), uri)
