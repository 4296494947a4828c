"""Cells with ``--sweep``: a bag with a job for each combination of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import replace
from typing import Any

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.cell_options.conditions import (
    default_value,
    describe_unmet,
    is_met,
)
from jupyter_sky.base.requests.cell_options.sweep import most_failures
from jupyter_sky.base.requests.cell_options.values import CellInput, CellOptions
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.cell_names import free_names
from jupyter_sky.workflows.pipelines.run.names import dated_name


def run_bag(code: str, options: CellOptions, namespace: MutableMapping[str, Any]) -> Any:
    """Run a cell as a bag: show its progress, wait for its end, gather what ``-o`` names as lists.

    Parameters
    ----------
    code
        Of the cell.
    options
        Its options; with ``--bg`` it is not waited for.
    namespace
        Of the notebook: values of ``-i`` are taken from it, and the lists are put there.

    Returns
    -------
    BagRun or None
        The bag of a cell in the background.

    Raises
    ------
    SkyUsageError
        An option is given that bags do not have, or a value cannot be evaluated.
    SkyBagFailed
        Jobs have failed: the others' results are kept, and no lists are put.
    """
    from IPython.display import display

    from jupyter_sky.execution.functions.images.image import Image
    from jupyter_sky.interfaces.api.jobs import bag, bag_names
    from jupyter_sky.workflows.bags.queue.application import CellApp
    from jupyter_sky.workflows.bags.queue.parameters import make_sweep

    _refuse_others(options)
    outputs = tuple(output.name for output in options.outputs)
    app = CellApp(code, outputs, _evaluate_inputs(code, options, namespace))
    label = options.name or "sweep"
    machines = options.resources.command_line()
    if options.burst is not None:
        machines = f"{machines} {options.burst.option()}"
    run = bag(
        app,
        make_sweep(options.ranges),
        name=dated_name(label, bag_names()),
        resources=machines,
        machines=options.at_once,
        budget=options.max_cost,
        timeout=options.timeout,
        retries=options.retries,
        image=Image(pip=options.pip) if options.pip else None,
    )
    if options.background:
        return run
    shown = display(run, display_id=True)
    try:
        run.wait()
    except KeyboardInterrupt:
        run.cancel()
        raise
    finally:
        if shown is not None:
            shown.update(run)  # a saved notebook shows the end, without a kernel
    results = run.results()
    for name in outputs:
        namespace[name] = [results[number][name] for number in sorted(results)]
    return None


def _evaluate_inputs(
    code: str, options: CellOptions, namespace: MutableMapping[str, Any]
) -> dict[str, Any]:
    """Return the values that all jobs read, by their names."""
    values: dict[str, Any] = {}
    for item in options.inputs:
        try:
            values[item.name] = eval(item.expression, dict(namespace))
        except Exception as error:
            raise SkyUsageError(
                _("-i {expression}: {kind}: {error}").format(
                    expression=item.expression, kind=type(error).__name__, error=error
                )
            ) from None
    if Sky.load().auto_inputs if options.auto is None else options.auto:
        read = [name for name in free_names(code, namespace) if name not in options.ranges]
        values |= {name: namespace[name] for name in read if name not in values}
    return values


def _refuse_others(options: CellOptions) -> None:
    """Refuse options of which a bag would do nothing.

    Raises
    ------
    SkyUsageError
        Names the first of them.
    """
    given = {
        "--cluster": options.cluster,
        "--on": options.on,
        "--env": options.env,
        "--sync": options.sync,
        "--data": options.data,
        "--mount": options.mounts,
        "--out": options.uploads,
        "--map": options.maps,
        "--if": options.condition,
        "--nodes": options.resources.nodes > 1,
        "-o file:": options.files,
        "-o NAME!": [output for output in options.outputs if output.keep or output.uri],
    }
    for flag, value in given.items():
        if value:
            raise SkyUsageError(
                _("--sweep and {flag} cannot be given together").format(flag=flag),
                hint=_("a function has more: sky.sweep(function, {...}, image=sky.Image(...))"),
            )


# -- Cells with ``--map`` that are run by hand: once for each value, one after the other ----------

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


def find_defaults(options: CellOptions, namespace: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the defaults of a cell whose condition does not hold, and say so; else None.

    Parameters
    ----------
    options
        Of the cell.
    namespace
        Values of the notebook, and those of a sweep.

    Raises
    ------
    SkyUsageError
        The condition reads what is not there, or cannot be compared.

    Examples
    --------
    >>> from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
    >>> options = parse_cell_line('--if "acc > .9" -o model --default model=None')
    >>> find_defaults(options, {"acc": 0.5})
    the cell is skipped: acc > .9 is false: acc = 0.5
    {'model': None}
    """
    if not options.condition or is_met(options.condition, namespace):
        return None
    why = describe_unmet(options.condition, namespace)
    print(_("the cell is skipped: {why}").format(why=why))
    return {each.name: default_value(each) for each in options.defaults}
