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

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from jupyter_sky.base.clouds.index import LOCAL
from jupyter_sky.base.clouds.register import find_facts, find_store
from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.geography import parse_area, parse_service
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.quantities import format_objects, format_size, parse_duration
from jupyter_sky.base.requests.resources import Resources
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
        """Return the direct predecessors of each task, with their edges.

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
    """GB sent from a task to another, and GB that the second reads from a store of the first."""
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


# -- Tasks of a graph: their data, requests and time estimates, written step by step --------------

open_dags: ContextVar[tuple[Dag, ...]] = ContextVar("sky_dags", default=())
"""Graphs whose ``with`` blocks are entered: new tasks go into the last one."""


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """An output of a task, as an input of another: ``infer.set_input(train.output(0))``."""

    task: Task
    position: int


class MeasurableData(Protocol):
    """Data of a store that can measure itself, such as `machines.storage.datasets.data.Storage`."""

    @property
    def uri(self) -> object:
        """Address, as text where it is shown."""
        ...

    @property
    def region(self) -> str:
        """Region of the store; empty where it is not known."""
        ...

    def du(self) -> Usage:
        """Return the size."""
        ...


def with_size(data: Data, usage: Usage) -> Data:
    """Return data with the size that was measured."""
    gb, objects = usage.nbytes / 1e9, usage.objects
    return replace(data, gb=gb, objects=objects, measured=usage.measured)


class Task:
    """Task: inputs, outputs, requests and run time.

    Every ``set_`` method gives the task back, so that they can be chained. A task made inside
    ``with Dag() as dag:`` belongs to it.

    Parameters
    ----------
    name
        What plans and messages call it.
    run, arg
        What to run, and its arguments; a plan does not read them.
    num_nodes
        Machines; what a request says itself wins.

    Examples
    --------
    >>> Task("train").set_resources(gpus="V100:4", spot=True).needs[0].command_line()
    '--gpus V100:4 --spot'
    """

    def __init__(
        self, name: str = "", run: Any = None, arg: str = "", *, num_nodes: int = 1
    ) -> None:
        self.name, self.run, self.arg = str(name), run, arg
        self.num_nodes = num_nodes
        self.inputs: list[Data | TaskOutput] = []
        self.outputs: list[Data] = []
        self.needs: tuple[Resources, ...] = (Resources(),)
        self.estimator: Estimate | None = None
        self.each_offer = False
        self.residency: tuple[str, ...] = ()
        self.spin_up: float | None = None
        self.environment = TaskEnvironment()
        self.retries = 0
        self.timeout: float | None = None
        self.dag: Dag | None = None
        if dags := open_dags.get():
            dags[-1].add(self)

    def __repr__(self) -> str:
        return f"Task({self.name!r})"

    # -- requests ----------------------------------------------------------------------------

    def set_input(
        self,
        source: str | TaskOutput | MeasurableData,
        size: str | float | None = None,
        *,
        region: str | None = None,
    ) -> Task:
        """Read data from a store, or the output of another task, which is then waited for.

        Parameters
        ----------
        source
            ``s3://...``, ``gs://...``, ``az://...``, ``https://...``, a path, a place such as
            ``aws/us-east-1``, ``other.output(0)``, or a `Storage`, whose size is measured.
        size
            GB, or a text with a unit.
        region
            Where the store is, in the cloud's words.
        """
        if isinstance(source, TaskOutput):
            if size is not None or region is not None:
                raise SkyUsageError(
                    _(
                        "task {name}: the size of {name2}.output({position}) belongs to the output"
                    ).format(name=self.name, name2=source.task.name, position=source.position),
                    hint=_("{name}.set_output(uri, size=...)").format(name=source.task.name),
                )
            self.inputs.append(source)
        else:
            usage: Usage | None = None
            if not isinstance(source, str):
                usage = source.du() if size is None else None
                region, source = region or source.region or None, str(source.uri)
            data = Data.from_uri(source, size, region)
            if usage is not None:
                data = with_size(data, usage)
            if data.is_anywhere:
                raise SkyUsageError(
                    _("task {name}: {source!r} does not say where the input is").format(
                        name=self.name, source=source
                    ),
                    hint=_("give its place, or another task's output: set_input(other.output(0))"),
                )
            self.inputs.append(data)
        return self

    def set_output(
        self, uri: str, size: str | float | None = None, *, region: str | None = None
    ) -> Task:
        """Write data to a store; ``?:/name`` is that of the cloud on which the task runs."""
        self.outputs.append(Data.from_uri(uri, size, region))
        return self

    def output(self, position: int = 0) -> TaskOutput:
        """Return an output of this task, to be another's input."""
        return TaskOutput(self, position)

    def set_resources(self, *alternatives: Any, **labels: Any) -> Task:
        """Set the machines' request; of several requests any will do.

        Parameters
        ----------
        *alternatives
            Requests: `Resources`, a dict of labels, or sets and lists of those.
        **labels
            One request, spelled as the options of a cell are: ``gpus="V100:1", spot=True``.
        """
        found = [need for one in alternatives for need in _requests(one)]
        if labels:
            found.append(Resources.parse(**labels))
        if not found:
            raise SkyUsageError(
                _("task {name}: no request is given").format(name=self.name),
                hint=_('such as set_resources(gpus="V100")'),
            )
        self.needs = tuple(dict.fromkeys(found))
        return self

    def set_managed_service(self, *services: AnalyticsService) -> Task:
        """Set the engine that the task runs on, as a managed service or on bare machines.

        Functions have its session as `sky.spark`.

        Parameters
        ----------
        *services
            Any of them will do.

        Examples
        --------
        >>> spark = AnalyticsService({"spark": "3.5.*"}, {"cpus": 16, "nodes": 3})
        >>> Task("query").set_managed_service(spark).needs[0].command_line()
        '--cpus 16 --nodes 3 --service "spark==3.5.*"'
        """
        for one in services:
            if not isinstance(one, AnalyticsService):
                raise SkyUsageError(
                    _("task {name}: {one!r} is no managed service").format(name=self.name, one=one),
                    hint=_('such as sky.AnalyticsService({"spark": "3.5.*"})'),
                )
        return self.set_resources(*(one.request for one in services))

    def set_time_estimator(
        self, estimator: Estimate | float | str | timedelta, *, each_offer: bool = False
    ) -> Task:
        """Set the estimator of the task's duration on a machine.

        Parameters
        ----------
        estimator
            Called with an `Offer`, gives hours or a duration (``"90m"``); or that value itself.
            ``inf`` rules a machine out. See `decisions.optimizer.estimators` for ready ones.
        each_offer
            Ask for each offer in each place. Else it is asked once for each kind of machine,
            with an offer that has neither region nor zone nor price.
        """
        if not callable(estimator):
            estimator = Constant(parse_hours(estimator))
        self.estimator, self.each_offer = estimator, each_offer
        return self

    def set_residency(self, *areas: str) -> Task:
        """Run in these countries or jurisdictions only: ``"eu"``, ``"de"``."""
        self.residency = parse_areas(areas)
        return self

    def set_spin_up(self, hours: float) -> Task:
        """Hours until a machine is ready, in place of the measured time of its cloud."""
        if not (isinstance(hours, int | float) and 0 <= hours < math.inf):
            raise SkyUsageError(
                _("task {name}: spin_up={hours!r}").format(name=self.name, hours=hours),
                hint=_("hours from 0"),
            )
        self.spin_up = float(hours)
        return self

    # -- how it runs -------------------------------------------------------------------------

    def set_environment(self, **parts: Any) -> Task:
        """Set what its machine has before it runs: the attributes of `TaskEnvironment`.

        Examples
        --------
        >>> task = Task("train", run="python train.py").set_environment(
        ...     setup="pip install -r requirements.txt", variables={"EPOCHS": "3"}
        ... )
        >>> task.environment.variables["EPOCHS"]
        '3'
        """
        self.environment = replace(self.environment, **parts)
        return self

    def set_limits(self, *, retries: int = 0, timeout: str | float | None = None) -> Task:
        """Set how often and how long it may run.

        Parameters
        ----------
        retries
            Further tries after an error of its own; losses of machines do not count.
        timeout
            Longest time of one try, such as ``"2h"``, or in seconds; None for no limit.
        """
        if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
            raise SkyUsageError(
                _("task {name}: retries={retries!r}").format(name=self.name, retries=retries),
                hint=_("a whole number from 0"),
            )
        if isinstance(timeout, str):
            timeout = parse_duration(timeout, "timeout")
        if timeout is not None and not 0 < timeout < math.inf:
            raise SkyUsageError(
                _("task {name}: timeout={timeout!r}").format(name=self.name, timeout=timeout),
                hint=_('a time above 0, such as "2h"'),
            )
        self.retries, self.timeout = retries, timeout
        return self

    # -- edges -------------------------------------------------------------------------------

    def __rshift__(self, other: Any) -> Any:
        for task in _tasks(other):
            _common_dag(self, task).add_edge(self, task)
        return other

    def __rrshift__(self, other: Any) -> Task:
        for task in _tasks(other):
            _common_dag(task, self).add_edge(task, self)
        return self

    def __lshift__(self, other: Any) -> Any:
        for task in _tasks(other):
            _common_dag(task, self).add_edge(task, self)
        return other


def _requests(one: Any) -> Iterator[Resources]:
    if isinstance(one, Resources):
        yield one
    elif isinstance(one, Mapping):
        yield Resources.parse(**one)
    elif isinstance(one, set | frozenset):
        # a set has no order of its own: the plan must not depend on it
        found = [need for part in one for need in _requests(part)]
        yield from sorted(found, key=Resources.command_line)
    elif isinstance(one, list | tuple):
        for part in one:
            yield from _requests(part)
    else:
        raise SkyUsageError(
            _("{one!r} is not a request").format(one=one),
            hint=_('such as set_resources({"gpus": "V100"}, ...)'),
        )


def parse_areas(areas: Iterable[str]) -> tuple[str, ...]:
    """Return the codes of areas, each of which may list several.

    Examples
    --------
    >>> parse_areas(["eu, us", "eu"])
    ('EU', 'US')
    """
    words = [word for area in areas for word in str(area).replace(",", " ").split()]
    return tuple(dict.fromkeys(parse_area(word, "residency") for word in words))


def _tasks(other: Any) -> list[Task]:
    found = [other] if isinstance(other, Task) else other
    if not isinstance(found, list | tuple) or not all(isinstance(one, Task) for one in found):
        raise SkyUsageError(
            _("{other!r} cannot follow >>").format(other=other),
            hint=_("a task, or a list of tasks"),
        )
    return list(found)


def _common_dag(one: Task, other: Task) -> Dag:
    if one.dag is None or one.dag is not other.dag:
        raise SkyUsageError(
            _("tasks {name!r} and {name2!r} are not in one Dag").format(
                name=one.name, name2=other.name
            ),
            hint=_("make both inside one: with sky.Dag() as dag:"),
        )
    return one.dag


# -- Managed services that tasks ask for, as Listing 1 of the SkyPilot paper writes them ----------


@dataclass(frozen=True, slots=True, init=False)
class AnalyticsService:
    """Engine for data that outgrow one machine, wherever it costs least.

    Parameters
    ----------
    dependencies
        Packages with their versions: ``{"spark": "3.5.*"}``, ``{"spark": ">=3.4,<4"}``, or names
        alone.
    resources
        Size and number of its nodes, the master included.
    services
        Services to choose from, such as ``("emr", "dataproc")``; all unless given.

    Raises
    ------
    SkyUsageError
        A package or a service has an unknown name, or a version is none.

    Examples
    --------
    >>> AnalyticsService({"Spark": "3.1.2"}, Resources(cpu=16, num_nodes=3)).request.command_line()
    '--cpus 16 --nodes 3 --service spark==3.1.2'
    """

    request: Resources
    """The same as a request for machines."""

    def __init__(
        self,
        dependencies: Mapping[str, str] | Iterable[str],
        resources: Resources | Mapping[str, Any] | None = None,
        services: Iterable[str] = (),
    ) -> None:
        if isinstance(dependencies, str):
            dependencies = [dependencies]
        if isinstance(dependencies, Mapping):
            items = [f"{name}{_clause(version)}" for name, version in dependencies.items()]
        else:
            items = list(dependencies)
        if not items:
            raise SkyUsageError(
                _("AnalyticsService: it needs an engine"),
                hint=_('such as AnalyticsService({"spark": "3.5.*"})'),
            )
        named = [services] if isinstance(services, str) else list(services)
        need = resources if isinstance(resources, Resources) else Resources.parse(**resources or {})
        service = parse_service(",".join([*named, *items]), "AnalyticsService:")
        object.__setattr__(self, "request", replace(need, service=service))


def _clause(version: str) -> str:
    """Return a version as a clause of a requirement.

    Examples
    --------
    >>> _clause("3.1.2"), _clause(">=3.4"), _clause("")
    ('==3.1.2', '>=3.4', '')
    """
    text = str(version).strip()
    return text if not text or re.match(r"[<>=!~]", text) else f"=={text}"


# -- A graph of tasks as frozen values: what `requests.dag.dag` writes and plans are made ---------

Estimate = Callable[[Offer], Any]
"""From a machine to hours, or to a duration such as ``"90m"``."""

_UNITS = {"": 1.0, "k": 1024.0**-2, "m": 1 / 1024, "g": 1.0, "t": 1024.0, "p": 1024.0**2}
_SIZE = r"(?i:(\d+(?:\.\d*)?|\.\d+)\s*([kmgtp]?)i?b?)"
_WEB_SCHEMES = ("http", "https", "ftp", "hf")


def parse_size(size: str | float, what: str = "size") -> float:
    """Read a number of GB, or a text with a unit: ``"150GB"``, ``"0.5 TB"``, ``"100MB"``.

    Units are binary, as everywhere here: clouds write GB and count GiB.

    Examples
    --------
    >>> parse_size("512MB"), parse_size(150), parse_size("1.5TB")
    (0.5, 150.0, 1536.0)
    """
    if isinstance(size, str):
        match = re.fullmatch(_SIZE, size.strip())
        value = float(match[1]) * _UNITS[match[2].lower()] if match else math.nan
    else:
        good = isinstance(size, int | float) and not isinstance(size, bool)
        value = float(size) if good else math.nan
    if not 0 <= value < math.inf:
        raise SkyUsageError(
            _("{what}: {size!r} is not a size").format(what=what, size=size),
            hint=_('give GB from 0, or a text with a unit: 150, "150GB", "100MB"'),
        )
    return value


def parse_hours(value: Any) -> float:
    """Hours from what an estimator gave; SkyUsageError for what is no time.

    Examples
    --------
    >>> parse_hours(1.5), parse_hours("90m"), parse_hours(timedelta(minutes=30))
    (1.5, 1.5, 0.5)
    """
    if isinstance(value, timedelta):
        hours = value.total_seconds() / 3600
    elif isinstance(value, str):
        hours = parse_duration(value, "time estimate") / 3600
    else:
        try:
            hours = float(value)
        except (TypeError, ValueError):
            hours = math.nan
    if math.isnan(hours) or hours < 0:
        raise SkyUsageError(
            _("{value!r} is not a time").format(value=value),
            hint=_('hours from 0, a duration such as "90m", or inf'),
        )
    return hours


@dataclass(frozen=True, slots=True)
class Constant:
    """An estimator: the same time on every machine."""

    hours: float

    def __call__(self, offer: Offer) -> float:
        """Return the constant time (hours)."""
        return self.hours


@dataclass(frozen=True, slots=True)
class Data:
    """Data that a task reads from a store, or writes.

    Attributes
    ----------
    uri : str
        Where it is; ``?:`` stands for the cloud on which the task runs.
    gb : float, optional
        How much, GB; None where nobody has said.
    cloud, region : str
        Where the store is; an empty region where nobody has said. Both are empty for ``?:``.
    objects : int
        Number of objects, each of which is a request at least; 0 where nobody has counted.
    measured : float
        Unix time at which the size was measured; 0 for a size that somebody has said.
    """

    uri: str
    gb: float | None = None
    cloud: str = ""
    region: str = ""
    objects: int = field(default=0, repr=False)
    measured: float = field(default=0.0, repr=False)

    @property
    def is_anywhere(self) -> bool:
        """Whether it lies wherever its task runs."""
        return not self.cloud

    @classmethod
    def from_uri(cls, uri: str, size: str | float | None, region: str | None = None) -> Data:
        """Return the data of a URI; the cloud follows from the scheme.

        Examples
        --------
        >>> Data.from_uri("s3://imagenet", "150GB", "us-east-1")
        Data(uri='s3://imagenet', gb=150.0, cloud='aws', region='us-east-1')
        """
        gb = None if size is None else parse_size(size, f"size of {uri}")
        cloud, found = _parse_uri(uri)
        return cls(uri, gb, cloud, region or found)


def _parse_uri(uri: str) -> tuple[str, str]:
    """Return cloud and region of a URI; no cloud means: wherever the task runs."""
    text = uri.strip()
    scheme, colons, rest = text.partition("://")
    if text.startswith("?") or not text:
        return "", ""
    scheme = scheme.lower()
    if colons and scheme in _WEB_SCHEMES:
        return find_store(scheme, rest.partition("/")[0]) or "internet", ""
    if (colons and scheme == "file") or (not colons and text.startswith((".", "/", "~", "file:"))):
        return LOCAL, ""
    if colons and (cloud := find_store(scheme)):
        return cloud, ""
    parts = text.split("/")  # as the catalog writes places: aws/us-east-1
    if (
        not colons
        and len(parts) <= 3
        and (parts[0] == "internet" or find_facts(parts[0]).storage_region)
    ):
        return parts[0], parts[1] if len(parts) > 1 else ""
    raise SkyUsageError(
        _("{uri!r} is not a place for data").format(uri=uri),
        hint=_(
            "such as s3://bucket, gs://bucket, az://container, https://..., "
            "./file, aws/us-east-1, or ?:/name for the cloud that the task runs on"
        ),
    )


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A task, checked and frozen.

    Attributes
    ----------
    needs : tuple of Resources
        Alternatives: any of them will do.
    inputs : tuple of Data
        What it reads from stores; it can come while others still work.
    stored : tuple of Data
        What it reads from stores to which the tasks before it have written.
    outputs : tuple of Data
        What it writes.
    estimator : callable, optional
        From an offer to hours; None for the default of one hour, which is marked as assumed.
    each_offer : bool
        Whether the estimator is asked for each place, not just for each kind of machine.
    residency : tuple of str
        Areas that it may run in; empty for all.
    spin_up : float, optional
        Hours until a machine is ready; None for the measured time of its cloud.
    """

    name: str
    needs: tuple[Resources, ...]
    inputs: tuple[Data, ...] = ()
    stored: tuple[Data, ...] = ()
    outputs: tuple[Data, ...] = ()
    estimator: Estimate | None = None
    each_offer: bool = False
    residency: tuple[str, ...] = ()
    spin_up: float | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """Task `dst` starts when task `src` has ended and `gb` GB have come from it."""

    src: int
    dst: int
    gb: float
    residency: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Graph:
    """Frozen graph for plans: tasks in an order that respects the edges.

    Attributes
    ----------
    same_region, same_cluster : tuple of (str, str)
        Names of tasks that must share a region, or a machine.
    """

    name: str
    tasks: tuple[TaskSpec, ...]
    edges: tuple[Edge, ...] = ()
    same_region: tuple[tuple[str, str], ...] = ()
    same_cluster: tuple[tuple[str, str], ...] = ()
    _positions: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        positions = {task.name: index for index, task in enumerate(self.tasks)}
        object.__setattr__(self, "_positions", positions)

    def index(self, name: str) -> int:
        """Position of a task; SkyUsageError suggests the nearest name."""
        if name not in self._positions:
            raise SkyUsageError(
                _("there is no task {name!r}").format(name=name),
                hint=suggest(name, self._positions),
            )
        return self._positions[name]


def topological_order(names: list[str], links: Iterable[tuple[int, int]]) -> list[int]:
    """Tasks with every edge going forward, otherwise as they were written (Kahn's algorithm)."""
    after: dict[int, list[int]] = {index: [] for index in range(len(names))}
    waiting = [0] * len(names)
    for src, dst in links:
        after[src].append(dst)
        waiting[dst] += 1
    order: list[int] = []
    ready = [index for index, count in enumerate(waiting) if not count]
    heapify(ready)
    while ready:
        order.append(heappop(ready))
        for dst in after[order[-1]]:
            waiting[dst] -= 1
            if not waiting[dst]:
                heappush(ready, dst)
    if len(order) < len(names):
        placed = set(order)
        cycle = _find_cycle({v: after[v] for v in after if v not in placed})
        path = " >> ".join(names[index] for index in (*cycle, cycle[0]))
        raise SkyUsageError(
            _("the tasks wait for each other: {path}").format(path=path),
            hint=_("take one of these away"),
        )
    return order


def _find_cycle(after: Mapping[int, list[int]]) -> list[int]:
    """Find a cycle among tasks that all wait for another, by walking backwards."""
    before = {dst: src for src, dsts in after.items() for dst in dsts if dst in after}
    at, seen = next(iter(before)), []
    while at not in seen:
        seen.append(at)
        at = before[at]
    return seen[seen.index(at) :][::-1]


@dataclass(frozen=True, slots=True)
class Usage:
    """Measured size of the data at an address.

    Attributes
    ----------
    uri
        The address.
    objects, nbytes
        Number of objects, and their bytes.
    content_id
        Hash of keys and versions: `Manifest.id`.
    measured
        Unix time of the listing.
    """

    uri: str
    objects: int
    nbytes: int
    content_id: str
    measured: float

    def __str__(self) -> str:
        return f"{format_size(self.nbytes)} in {format_objects(self.objects)} of {self.uri}"

    __repr__ = __str__


# -- Surroundings of a task: what its machine has before it runs ----------------------------------


@dataclass(frozen=True, slots=True)
class TaskEnvironment:
    """What the machine of a task has before it runs.

    Attributes
    ----------
    setup : str
        Shell command that prepares a machine, once for all tasks there that have the same.
    variables : mapping of str to str
        Environment variables of the task, for all to read: they are kept with the run.
    secrets : tuple of str
        Environment variables whose values are taken from this machine when the task begins.
    workdir : str
        Folder of this machine, below the present one, in whose copy the task works.
    files : mapping of str to str
        Folders and files by their path on the machine: addresses of stores, or paths here.
    mounts : mapping of str to str
        Addresses of stores by the path at which they are read as the task asks for them.

    Examples
    --------
    >>> TaskEnvironment(variables={"EPOCHS": "3"}).to_json()
    {'variables': {'EPOCHS': '3'}}
    """

    setup: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    workdir: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return values of JSON, without those that are empty."""
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TaskEnvironment:
        """Return the environment of what `to_json` gave."""
        return cls(**{**data, "secrets": tuple(data.get("secrets", ()))})
