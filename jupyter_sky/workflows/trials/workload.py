"""Workloads of trials: cells, functions, tasks and graphs, as cells that run one after another."""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jupyter_sky.base.errors import (
    SkyUsageError,
)
from jupyter_sky.base.requests.cell_options.values import CellInput, CellOptions
from jupyter_sky.base.requests.dag.dag import Dag, Task
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.assumptions import SPIN_UP_HOURS
from jupyter_sky.execution.cells.magic_code import parse_cell
from jupyter_sky.execution.functions.calls.lazy_calls import Function, PendingFunction
from jupyter_sky.knowledge.lifetimes.priors import spot_lifetimes
from jupyter_sky.knowledge.lifetimes.recomputation import expected_runs
from jupyter_sky.knowledge.tracker.estimates import preempted_share
from jupyter_sky.knowledge.tracker.knowledge import Bands, no_bands
from jupyter_sky.workflows.pipelines.model.file_reads import asks_network
from jupyter_sky.workflows.pipelines.model.graph import RunTask
from jupyter_sky.workflows.pipelines.model.task_body import (
    LoadValue,
    TaskBody,
    TaskCell,
    make_graph,
)

CONFIGURATION = "sky_configuration"
"""Name under which the code of a cell finds the parameters of its configuration, if it reads it."""
RESULT = "_sky_trial_result"
"""Stands in the code of a task for the name of its value, which each trial has of its own."""
_STORE = re.compile(r"(s3|gs|az|abfss?)://")
_WRITING = re.compile(r"to_|write|save|put|upload|dump|copy|sync|open")
_PUSH = re.compile(r"\b(push|publish|deploy|upload|s3 (cp|mv|sync|rm))\b")
_SENDING = frozenset("post put patch delete upload_file upload_fileobj put_object commit".split())


@dataclass(frozen=True, slots=True)
class Step:
    """One cell of a workload.

    Attributes
    ----------
    name : str
        Of its task; empty for a cell or function.
    make : callable
        Returns the cell from a function that loads the values of earlier steps.
    is_needed : bool
        Whether a later step reads its value.
    """

    name: str
    make: Callable[[LoadValue], TaskCell]
    is_needed: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """Steps that one trial runs one after another, on the machines of one configuration.

    Attributes
    ----------
    steps : tuple of Step
    code : str
        By which earlier runs of the same workload are known.
    effects : tuple of str
        What it changes outside its machines, which every trial repeats.
    """

    steps: tuple[Step, ...]
    code: str
    effects: tuple[str, ...] = ()


def make_workload(
    given: object, options: CellOptions | None = None, values: Mapping[str, Any] | None = None
) -> Workload:
    """Return the workload of a cell, a function without arguments, a call, a Task or a Dag.

    Parameters
    ----------
    given
        The workload. The tasks of a Dag run one after another.
    options
        Of a cell: its inputs, packages and data; what it brings back is left out.
    values
        Where the inputs of a cell are found.

    Raises
    ------
    SkyUsageError
        It is none of these, or its code cannot be read.

    Examples
    --------
    >>> make_workload("print(1)").code
    'print(1)'
    """
    if isinstance(given, str):
        return _make_cell(given, options or CellOptions(), values)
    if isinstance(given, Task | Dag):
        return _make_tasks(given)
    if isinstance(given, PendingFunction):
        return _make_function(given.local, given.function.local, given.function.name)
    if isinstance(given, Function):
        return _make_function(given.local, given.local, given.name)
    if callable(given):
        return _make_function(given, given, getattr(given, "__qualname__", repr(given)))
    raise SkyUsageError(
        _("{kind} is nothing that can be run").format(kind=type(given).__name__),
        hint=_("give the text of a cell, a function, a Task or a Dag"),
    )


def _make_cell(code: str, options: CellOptions, values: Mapping[str, Any] | None) -> Workload:
    if not code.strip():
        raise SkyUsageError(_("the cell is empty"), hint=_("give what each trial is to run"))
    kept = replace(options, outputs=(), files=(), maps=(), background=False)
    cell = TaskCell(code, kept, dict(values or {}))
    return Workload((Step("", lambda load: cell),), code, find_effects(code, options))


def _make_function(run: Callable[[], Any], function: Callable[..., Any], name: str) -> Workload:
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        source = name
    options = CellOptions(inputs=(CellInput("_sky_function", "_sky_function"),))
    digest = hashlib.blake2b(source.encode(), digest_size=6).hexdigest()
    code = f"_sky_function()  # {name} {digest}"  # by which its earlier runs are known
    cell = TaskCell(code, options, {"_sky_function": run})
    effects = find_effects(inspect.cleandoc(source), CellOptions())
    return Workload((Step("", lambda load: cell),), cell.code, effects)


def _make_tasks(given: Task | Dag) -> Workload:
    dag = given
    if isinstance(given, Task):
        alone = copy(given)
        alone.dag, dag = None, Dag(given.name)
        dag.add(alone)
    assert isinstance(dag, Dag)
    graph = make_graph(dag, is_batched=False)
    read = {producer for task in graph.tasks.values() for producer in task.after}
    steps = tuple(_task_step(task, task.name in read) for task in graph.tasks.values())
    bodies = [TaskBody.from_json(task.body) for task in graph.tasks.values()]
    effects = [
        _("task {name} writes {uri}").format(name=name, uri=uri)
        for name, body in zip(graph.tasks, bodies, strict=True)
        for uri in body.outputs
    ]
    return Workload(steps, f"# {dag.name} {' '.join(graph.tasks)}", tuple(effects))


def _task_step(task: RunTask, is_needed: bool) -> Step:
    body = TaskBody.from_json(task.body)
    # a part of its cell's name: an attempt is told from others by the trial
    return Step(task.name, lambda load: body.as_cell(task.name, RESULT, load), is_needed)


def reads_configuration(code: str) -> bool:
    """Return whether a cell reads the parameters of its configuration.

    Examples
    --------
    >>> reads_configuration("train(sky_configuration['vcpus'])"), reads_configuration("train()")
    (True, False)
    """
    return CONFIGURATION in code


@dataclass
class _Effects(ast.NodeVisitor):
    """Calls that change something outside the machine, as far as the code tells."""

    found: list[str] = field(default_factory=list)

    def visit_Call(self, node: ast.Call) -> None:
        """Look at a call."""
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
        stores = [text for text in texts if isinstance(text, str) and _STORE.match(text)]
        if stores and _WRITING.match(name):
            self.found.append(_("it writes {uri}").format(uri=stores[0]))
        elif name in _SENDING and isinstance(node.func, ast.Attribute):
            self.found.append(_("it calls {name}").format(name=f"{ast.unparse(node.func)}()"))
        self.generic_visit(node)


def find_effects(code: str, options: CellOptions) -> tuple[str, ...]:
    """Return what a cell changes outside its machines, as far as its code and options tell.

    Files that it writes on a machine are gone with it.

    Examples
    --------
    >>> find_effects("open('a.csv', 'w').write('1')", CellOptions())
    ()
    >>> find_effects("table.to_csv('s3://mine/a.csv')", CellOptions())
    ('it writes s3://mine/a.csv',)
    """
    effects = _Effects()
    if (tree := parse_cell(code)) is not None:
        effects.visit(tree)
    commands = [line.strip() for line in code.splitlines() if line.lstrip().startswith("!")]
    found = [
        *effects.found,
        *(
            _("it runs {command}").format(command=command)
            for command in commands
            if asks_network(command[1:]) or _PUSH.search(command)
        ),
    ]
    uris = [each.uri for each in options.uploads] + [each.uri for each in options.outputs]
    found += [_("it writes {uri}").format(uri=uri) for uri in uris if uri]
    return tuple(dict.fromkeys(found))


def redone(hours: float, offer: Offer, nodes: int, bands: Bands = no_bands) -> float:
    """Return how many times over a run is paid for, 1 or more; 1 on demand.

    A trial that was not interrupted took less than the same run will take on average: what a lost
    machine had done is done again.

    Parameters
    ----------
    hours
        Of a run without interruption.
    offer
        Machine of a node.
    nodes
        Machines that work together.
    bands
        The interruption band of a cloud, region and instance type, as the catalog's.

    Examples
    --------
    >>> offer = Offer("aws", "us-east-1", "m5.large", 2, 8, price=0.03, spot=True)
    >>> redone(4.0, replace(offer, spot=False), 1)
    1.0
    >>> 1.0 < redone(4.0, offer, 1) < redone(4.0, offer, 4)
    True
    """
    if not offer.spot or hours <= 0:
        return 1.0
    share = preempted_share(bands(offer.cloud, offer.region, offer.instance_type))
    shares = np.array([np.nan if share is None else share])
    lives = spot_lifetimes(shares, np.array([float(offer.vcpus)]))
    lives = replace(lives, nodes=np.array([float(nodes)]))
    return float(expected_runs(np.array([hours]), lives, np.array([SPIN_UP_HOURS]))[0])
