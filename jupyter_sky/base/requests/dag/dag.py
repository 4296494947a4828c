"""A graph of tasks, as Listing 1 of the SkyPilot paper (NSDI 2023) writes it.

::

    with sky.Dag("vision") as dag:
        train = sky.Task("train").set_input("s3://imagenet", size="150GB", region="us-east-1")
        train.set_output("?:/model", size="100MB")
        train.set_resources({"gpus": "V100"}, {"gpus": "tpu-v3-8"})
        infer = sky.Task("infer").set_input(train.output(0)).set_resources(gpus="T4")
        train >> infer
    sky.plan(dag)

A `Dag` and its tasks are written step by step; `Dag.freeze` gives the `Graph` that plans are made
from, checked and unchangeable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.dag.graph import (
    Data,
    Edge,
    Graph,
    TaskSpec,
    parse_size,
    topological_order,
)
from jupyter_sky.base.requests.dag.task import Task, TaskOutput, open_dags, parse_areas
from jupyter_sky.base.translation import _


class Dag:
    """Tasks and the order between them.

    Parameters
    ----------
    name
        What a plan is called.

    Examples
    --------
    >>> with Dag("two") as dag:
    ...     first, second = Task("first").set_output("?:/x", size="1GB"), Task("second")
    ...     _ = first >> second
    >>> [(edge.src, edge.dst, edge.gb) for edge in dag.freeze().edges]
    [(0, 1, 1.0)]
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.tasks: list[Task] = []
        self._positions: dict[Task, int] = {}
        self._by_name: dict[str, Task] = {}
        self._edges: dict[tuple[int, int], tuple[float | None, tuple[str, ...]]] = {}
        self._same: dict[str, list[tuple[Task, Task]]] = {"region": [], "cluster": []}

    def __enter__(self) -> Dag:
        open_dags.set((*open_dags.get(), self))
        return self

    def __exit__(self, *__: object) -> None:
        open_dags.set(open_dags.get()[:-1])

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __getitem__(self, name: str) -> Task:
        if name not in self._by_name:
            raise SkyUsageError(
                _("there is no task {name!r}").format(name=name), hint=suggest(name, self._by_name)
            )
        return self._by_name[name]

    def add(self, task: Task) -> Task:
        """Put a task into the graph."""
        if task.dag is self:
            return task
        if task.dag is not None:
            raise SkyUsageError(
                _("task {name!r} is in another Dag").format(name=task.name),
                hint=_("make a task of its own"),
            )
        if task.name in self._by_name:
            raise SkyUsageError(
                _("two tasks are called {name!r}").format(name=task.name)
                if task.name
                else _("two tasks have no name"),
                hint=_('give each a name of its own: Task("train")'),
            )
        task.dag = self
        self._positions[task], self._by_name[task.name] = len(self.tasks), task
        self.tasks.append(task)
        return task

    def add_edge(
        self,
        src: Task,
        dst: Task,
        size: str | float | None = None,
        residency: str | Iterable[str] = (),
    ) -> Dag:
        """Let one task follow another.

        Parameters
        ----------
        size
            GB that move; else the outputs that `dst` names as inputs, or all of them.
        residency
            Areas that these data may not leave: both tasks then run there.
        """
        gb = None if size is None else parse_size(size, f"{src.name} >> {dst.name}")
        areas = parse_areas([residency] if isinstance(residency, str) else residency)
        self._edges[self._position(src), self._position(dst)] = (gb, areas)
        return self

    def same_region(self, *tasks: Task) -> Dag:
        """Run these tasks in one region."""
        return self._add_group("region", tasks)

    def same_cluster(self, *tasks: Task) -> Dag:
        """Run these tasks on the same machines."""
        return self._add_group("cluster", tasks)

    def _add_group(self, by: str, tasks: Iterable[Task]) -> Dag:
        known = [self.tasks[self._position(task)] for task in tasks]
        if len(known) < 2:
            raise SkyUsageError(
                _("same_{by} takes two tasks or more").format(by=by),
                hint=_("same_{by}(a, b)").format(by=by),
            )
        self._same[by] += [(known[0], other) for other in known[1:]]
        return self

    def groups(self, by: str) -> list[tuple[Task, Task]]:
        """Return the pairs of tasks that share a ``region``, or a ``cluster``."""
        return [*self._same[by]]

    def describe_edges(self) -> dict[str, list[dict[str, Any]]]:
        """Return for each task those that it follows by an edge of its own, with what they send.

        Examples
        --------
        >>> with Dag() as dag:
        ...     _ = Task("a") >> Task("b")
        >>> dag.describe_edges()
        {'b': [{'task': 'a'}]}
        """
        found: dict[str, list[dict[str, Any]]] = {}
        for (src, dst), (gb, areas) in self._edges.items():
            facts = {"task": self.tasks[src].name, "size": gb, "residency": list(areas)}
            given = {name: value for name, value in facts.items() if value not in (None, [])}
            found.setdefault(self.tasks[dst].name, []).append(given)
        return found

    def _position(self, task: Task) -> int:
        if task not in self._positions:
            raise SkyUsageError(
                _("task {name!r} is not in this Dag").format(name=task.name), hint="dag.add(task)"
            )
        return self._positions[task]

    def freeze(self) -> Graph:
        """Return the graph as it is now, checked.

        Raises
        ------
        SkyUsageError
            For a cycle, which is named, an empty graph, or data without a size.
        """
        if not self.tasks:
            raise SkyUsageError(
                _("the Dag has no task"), hint=_('with sky.Dag() as dag: sky.Task("train")')
            )
        links = dict(self._edges)
        for position, task in enumerate(self.tasks):
            for source in task.inputs:
                if isinstance(source, TaskOutput):
                    links.setdefault((self._position(source.task), position), (None, ()))
        order = topological_order([task.name for task in self.tasks], links)
        place = {old: new for new, old in enumerate(order)}
        stored: dict[int, list[Data]] = {index: [] for index in range(len(self.tasks))}
        edges = []
        for (src, dst), (gb, areas) in links.items():
            moved, kept = _transfer_gb(self.tasks[src], self.tasks[dst])
            edges.append(Edge(place[src], place[dst], moved if gb is None else gb, areas))
            if gb is None:
                stored[dst] += kept
        pairs = {
            by: tuple((one.name, other.name) for one, other in self._same[by]) for by in self._same
        }
        return Graph(
            self.name,
            tuple(_freeze_task(self.tasks[old], stored[old]) for old in order),
            tuple(sorted(edges, key=lambda edge: (edge.src, edge.dst))),
            pairs["region"],
            pairs["cluster"],
        )


def _freeze_task(task: Task, stored: list[Data]) -> TaskSpec:
    inputs = [one for one in task.inputs if isinstance(one, Data)]
    for data in (*inputs, *stored, *task.outputs):
        _with_size(task, data)
    nodes = task.num_nodes
    if not isinstance(nodes, int) or isinstance(nodes, bool) or nodes < 1:
        raise SkyUsageError(
            _("task {name}: num_nodes={nodes!r}").format(name=task.name, nodes=nodes),
            hint=_("a whole number from 1"),
        )
    needs = tuple(n if n.nodes > 1 else replace(n, nodes=nodes) for n in task.needs)
    return TaskSpec(
        task.name or "task",
        needs,
        tuple(inputs),
        tuple(stored),
        tuple(task.outputs),
        task.estimator,
        task.each_offer,
        task.residency,
        task.spin_up,
    )


def _with_size(task: Task, data: Data) -> float:
    if data.gb is None:
        raise SkyUsageError(
            _("task {name}: the size of {uri} is missing").format(name=task.name, uri=data.uri),
            hint=_(
                "a plan weighs what moving it costs: give size=..., 0 if it does not matter; "
                "%sky storage du {uri} measures it for a day"
            ).format(uri=data.uri),
        )
    return data.gb


def _transfer_gb(src: Task, dst: Task) -> tuple[float, list[Data]]:
    """GB that go from task to task, and what the second reads where the first has stored it."""
    named = [one.position for one in dst.inputs if isinstance(one, TaskOutput) and one.task is src]
    for position in named:
        if not 0 <= position < len(src.outputs):
            raise SkyUsageError(
                _("task {name}: {name2} has no output {position}").format(
                    name=dst.name, name2=src.name, position=position
                ),
                hint=_("it has {outputs_count}: {name}.set_output(uri, size=...)").format(
                    outputs_count=len(src.outputs), name=src.name
                ),
            )
    taken = [src.outputs[position] for position in named] if named else src.outputs
    moving = sum(_with_size(src, data) for data in taken if data.is_anywhere)
    return moving, [data for data in taken if not data.is_anywhere]
