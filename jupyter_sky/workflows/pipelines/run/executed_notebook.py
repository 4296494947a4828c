"""Notebook of a run, with the outputs of its cells."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_sky.workflows.pipelines.run.task_state import Phase, TaskState

_UNRUN = (Phase.SKIPPED, Phase.CANCELLED, Phase.FAILED)


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
