"""Parts of graphs: the tasks to which a run is limited, and the kept results that they read."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

from jupyter_sky.base.clouds.index import LOCAL
from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.dag.dag import Data, Graph
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.constraints import Colocation
from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask
from jupyter_sky.workflows.pipelines.model.identity import TaskKey
from jupyter_sky.workflows.pipelines.model.kept_results import TaskResult
from jupyter_sky.workflows.pipelines.model.reuse import Freshness
from jupyter_sky.workflows.pipelines.notebook.conditions import as_tasks

Judge = Callable[[RunGraph, Iterable[str]], Mapping[str, Freshness]]
"""From a graph and some of its tasks to whether their results, and those before, are kept."""


@dataclass(frozen=True, slots=True)
class PartRequest:
    """Part of a graph that a user asks for.

    Attributes
    ----------
    only
        Tasks that run alone.
    start, end
        Tasks that run with all that follow them, and with all that they follow.
    """

    only: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    end: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether it is a part, and not the whole graph."""
        return bool(self.only or self.start or self.end)


def read_part(
    only: str | Sequence[str] | None = None,
    from_task: str | Sequence[str] | None = None,
    to_task: str | Sequence[str] | None = None,
) -> PartRequest:
    """Return the part that names of tasks ask for, with commas or as a list.

    Raises
    ------
    SkyUsageError
        The names of tasks that run alone come with others.

    Examples
    --------
    >>> read_part("fit[lr=1,kind=a],best")
    PartRequest(only=('fit[lr=1,kind=a]', 'best'), start=(), end=())
    """
    request = PartRequest(_names(only), _names(from_task), _names(to_task))
    if request.only and (request.start or request.end):
        raise SkyUsageError(
            _("--only goes with neither --from nor --to"),
            hint=_("--from A --to B runs A, B and what is between them"),
        )
    return request


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, str):
        given = re.findall(r"(?:\[[^\]]*\]|[^,\[])+", given)
    return tuple(name.strip() for name in given if name.strip())


@dataclass(frozen=True, slots=True)
class GraphPart:
    """Part of a graph, as a run carries it out.

    Attributes
    ----------
    graph
        Its tasks, and those whose kept results they read.
    tasks
        Names of those that may run.
    taken, keys
        Kept results, by task, and the keys of those that have one.
    gb
        Sizes of the values of the kept results, GB.
    """

    graph: RunGraph
    tasks: frozenset[str]
    taken: Mapping[str, TaskResult] = field(default_factory=dict)
    keys: Mapping[str, TaskKey] = field(default_factory=dict)
    gb: Mapping[str, float] = field(default_factory=dict)


def choose_tasks(
    graph: RunGraph, request: PartRequest, cells: Mapping[str, Sequence[str]]
) -> frozenset[str]:
    """Return the tasks of a part.

    Parameters
    ----------
    graph
        The whole graph.
    request
        Names of its tasks, of cells, and of tags of cells (``#nightly``).
    cells
        Tasks of each cell and tag.

    Raises
    ------
    SkyUsageError
        A name is that of nothing in the graph, or nothing is between two tasks.

    Examples
    --------
    >>> graph = RunGraph([RunTask("a"), RunTask("b", ("a",)), RunTask("c", ("b",))])
    >>> sorted(choose_tasks(graph, PartRequest(start=("b",)), {}))
    ['b', 'c']
    """
    before = {name: task.after for name, task in graph.tasks.items()}
    if request.only:
        return _named(graph, request.only, cells)
    found = frozenset(graph.tasks)
    if request.start:
        found &= _reached(_named(graph, request.start, cells), graph.consumers)
    if request.end:
        found &= _reached(_named(graph, request.end, cells), before)
    if not found:
        raise SkyUsageError(
            _("{end} does not follow {start}: nothing is between them").format(
                end=", ".join(request.end), start=", ".join(request.start)
            ),
            hint=_("%sky pipeline show FILE tells what each task follows"),
        )
    return found


def _named(
    graph: RunGraph, names: Iterable[str], cells: Mapping[str, Sequence[str]]
) -> frozenset[str]:
    found: set[str] = set()
    for name in names:
        if name not in graph.tasks and name not in cells:
            raise SkyUsageError(
                _("there is no task {name!r}").format(name=name),
                hint=suggest(name, list(dict.fromkeys([*cells, *graph.tasks]))),
            )
        found |= set(cells.get(name, (name,)))
    return frozenset(found)


def _reached(names: Iterable[str], links: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Return names, and all to which links lead from them."""
    found, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += links[name]
    return frozenset(found)


def take_part(graph: RunGraph, chosen: frozenset[str], judge: Judge) -> GraphPart:
    """Return a part of a graph with the kept results that it reads.

    A task that finds variables of another on its engine brings that one into the part.

    Parameters
    ----------
    graph
        The whole graph, whose bodies have identities.
    chosen
        Names of the tasks of the part.
    judge
        Says which results are kept.

    Raises
    ------
    SkyUsageError
        A result that the part reads is not kept.
    """
    engine = {name: tuple(_identity(task)["tasks"].values()) for name, task in graph.tasks.items()}
    tasks = _reached(chosen, engine)
    sources = {name: _sources(graph.tasks[name]) for name in graph.tasks}
    inputs = {each: name for name in graph.tasks if name in tasks for each in sources[name]}
    read = [name for name in graph.tasks if name in inputs and name not in tasks]
    found = judge(graph, read)
    taken: dict[str, TaskResult] = {}
    for name in read:
        if (result := found[name].result) is None:
            raise _not_kept(inputs[name], name, found, sources)
        taken[name] = result
    keys = {name: key for name in read if (key := found[name].key) is not None}
    rest = [task for name, task in graph.tasks.items() if name in tasks or name in taken]
    return GraphPart(
        RunGraph(_limit_task(graph, task, tasks, taken) for task in rest), tasks, taken, keys
    )


def _identity(task: RunTask) -> Mapping[str, Any]:
    return task.body["identity"]


def _sources(task: RunTask) -> tuple[str, ...]:
    """Return the tasks whose values a task, or its condition, reads."""
    found = [producer for producer, __ in _identity(task)["values"].values()]
    for each in ((task.body.get("condition") or {}).get("reads") or {}).values():
        found += as_tasks(each)
    return tuple(dict.fromkeys(found))


def _not_kept(
    consumer: str,
    producer: str,
    found: Mapping[str, Freshness],
    sources: Mapping[str, Sequence[str]],
) -> SkyUsageError:
    """Return the error that a result is missing, with the first task before it that would run."""
    cause = producer
    while missing := [n for n in sources[cause] if n in found and found[n].result is None]:
        cause = missing[0]
    words = found[cause].why
    if cause != producer:
        words = _("{task} would run: {why}").format(task=cause, why=words)
    return SkyUsageError(
        _("{task} needs the result of {producer}, which is not kept ({why})").format(
            task=consumer, producer=producer, why=words
        ),
        hint=_("run that too: --from {task}, or the whole").format(task=cause),
    )


def _limit_task(
    graph: RunGraph, task: RunTask, tasks: frozenset[str], taken: Mapping[str, TaskResult]
) -> RunTask:
    """Return a task as it is in the part: it follows those of its links that are there."""
    if task.name in taken:
        identity = {**_identity(task), "tasks": {}, "values": {}}
        body = {**task.body, "identity": identity, "condition": None, "reads": {}, "kept_by": ""}
        return replace(task, after=(), optional=(), body=body)
    after = _nearest_in(graph, task.name, tasks, taken)
    body = dict(task.body)
    if kept_by := body.get("kept_by"):
        while kept_by and kept_by not in tasks:
            kept_by = graph.tasks[kept_by].body.get("kept_by", "")
        body["kept_by"] = kept_by
    if body.get("shares") and body["shares"] not in tasks:
        del body["shares"]
    optional = tuple(name for name in task.optional if name in after)
    return replace(task, after=after, optional=optional, body=body)


def _nearest_in(
    graph: RunGraph, name: str, tasks: frozenset[str], taken: Mapping[str, TaskResult]
) -> tuple[str, ...]:
    """Return the tasks of the part that one follows, also by others that are left out."""
    found, seen = dict[str, None](), set[str]()
    waiting = list(reversed(graph.tasks[name].after))
    while waiting:
        each = waiting.pop()
        if each in tasks or each in taken:
            found[each] = None
        elif each not in seen:
            waiting += reversed(graph.tasks[each].after)
        seen.add(each)
    return tuple(found)


def limit_graph(graph: Graph, part: GraphPart | None) -> Graph:
    """Return the graph of a part as plans take it: kept results are data of this machine.

    Parameters
    ----------
    graph
        The whole graph.
    part
        None for the whole.
    """
    if part is None:
        return graph
    names = [spec.name for spec in graph.tasks]
    places = {
        old: new
        for new, old in enumerate(index for index, name in enumerate(names) if name in part.tasks)
    }
    local = LOCAL
    read: dict[int, list[Data]] = {index: [] for index in places}
    edges = []
    for edge in graph.edges:
        if edge.src in places and edge.dst in places:
            edges.append(replace(edge, src=places[edge.src], dst=places[edge.dst]))
        elif edge.dst in places and (gb := part.gb.get(names[edge.src])):
            read[edge.dst].append(Data(local, gb, local, ""))
    specs = (graph.tasks[index] for index in places)
    tasks = tuple(
        replace(spec, inputs=(*spec.inputs, *read[index]))
        for index, spec in zip(places, specs, strict=True)
    )
    return Graph(
        graph.name,
        tasks,
        tuple(edges),
        tuple(pair for pair in graph.same_region if part.tasks >= set(pair)),
        tuple(pair for pair in graph.same_cluster if part.tasks >= set(pair)),
    )


def limit_settings(settings: Mapping[str, Any], part: GraphPart | None) -> dict[str, Any]:
    """Return the settings of the plan of a graph for a part: demands on its tasks alone."""
    if part is None or "constraints" not in settings:
        return dict(settings)
    limited = (restrict_demand(demand, part.tasks) for demand in settings["constraints"])
    return {**settings, "constraints": [each for each in limited if each is not None]}


def restrict_demand(demand: Any, names: AbstractSet[str]) -> Any:
    """Return a demand on the tasks that are left of those it is about; None where none is.

    Parameters
    ----------
    demand
        Constraint of a plan.
    names
        Of the tasks that are left.
    """
    about = getattr(demand, "tasks", ())
    if not about:
        return demand
    tasks = tuple(name for name in about if name in names)
    if len(tasks) < (2 if isinstance(demand, Colocation) else 1):
        return None
    restricted = copy.copy(demand)
    object.__setattr__(restricted, "tasks", tasks)
    return restricted
