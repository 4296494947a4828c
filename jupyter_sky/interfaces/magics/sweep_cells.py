"""Cells with ``--map`` that are run by hand: once for each value, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.cell_options.sweep import most_failures
from jupyter_sky.base.requests.cell_options.values import CellInput, CellOptions
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.magics.conditional_cells import find_defaults

RunCell = Callable[[CellOptions, Mapping[str, Any]], Any]
"""Runs the cell with options and the values of its inputs; returns its value."""


def run_sweep(options: CellOptions, namespace: dict[str, Any], run: RunCell) -> list[Any] | None:
    """Run a cell for each value of its ``--map``, and gather what ``-o`` brings as lists.

    So running all cells gives what the pipeline of the notebook gives, where the tasks of a sweep
    run side by side.

    Parameters
    ----------
    options
        Of the cell.
    namespace
        Of the notebook: a list may be named after a variable, and the lists are put here.
    run
        Runs the cell once.

    Returns
    -------
    list or None
        Values of the last expression, None where there are none.

    Raises
    ------
    SkyUsageError
        A list cannot be swept, or the options ask for what several runs cannot give.
    """
    for flag, is_given in (
        ("--bg", options.background),
        ("-o NAME!", any(output.keep for output in options.outputs)),
    ):
        if is_given:
            raise SkyUsageError(
                _("--map with {flag} works in a pipeline only").format(flag=flag),
                hint=_("%sky pipeline run NOTEBOOK runs the tasks of a sweep side by side"),
            )
    from jupyter_sky.workflows.pipelines.notebook.sweeps import expand_maps

    def find(name: str) -> Any:
        if name in namespace:
            return namespace[name]
        known = [each for each, value in namespace.items() if isinstance(value, list | tuple)]
        raise SkyUsageError(
            _("--map: there is no variable {name}").format(name=name), hint=suggest(name, known)
        )

    values: list[Any] = []
    gathered: dict[str, list[Any]] = {output.name: [] for output in options.outputs}
    tasks = expand_maps(options.name or "", "%%sky", options.maps, {}, find)
    left = most_failures(options.allow_failures, len(tasks))
    for task in tasks:
        print(f"{task.name}:")
        inputs = (*options.inputs, *(CellInput(name, name) for name in task.values))
        swept = replace(options, inputs=inputs, maps=())
        given = find_defaults(options, {**namespace, **task.values})
        if given is None:
            try:
                values.append(run(swept, {**namespace, **task.values}))
                given = namespace
            except Exception as error:
                if not left:
                    raise
                left -= 1
                print(_("{task} has failed: {error}").format(task=task.name, error=error))
                given = dict.fromkeys(gathered)
        for name in gathered:
            gathered[name] += [given[name]] if name in given else []
    for name, found in gathered.items():
        if len(found) == len(tasks):
            namespace[name] = found
        else:  # a list with gaps is not given, as in a pipeline
            namespace.pop(name, None)
    return values if any(value is not None for value in values) else None
