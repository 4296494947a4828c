"""Sizes of data that somebody has measured within a day, for tasks that name none."""

from __future__ import annotations

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.dag.dag import Dag, Data, Task, Usage, with_size
from jupyter_sky.machines.storage.datasets.data import usage_memory
from jupyter_sky.machines.storage.stores.uri import StorageUri


def take_measured_sizes(what: Dag | Task) -> None:
    """Give inputs without a size the one that was measured within a day, if there is one.

    Nothing is listed for it: a bucket may hold millions of objects.
    """
    for task in [what] if isinstance(what, Task) else list(what):
        task.inputs = [_measured(each) if isinstance(each, Data) else each for each in task.inputs]


def _measured(data: Data) -> Data:
    usage = None if data.gb is not None or data.is_anywhere else _recall(data.uri)
    return data if usage is None else with_size(data, usage)


def _recall(text: str) -> Usage | None:
    try:
        return usage_memory().recall(StorageUri.parse(text))
    except SkyUsageError:  # a place, or an address of the web
        return None
