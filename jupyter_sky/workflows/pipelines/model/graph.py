"""The graph that a run carries out: names of tasks, their producers, how often each is tried."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any
from zlib import crc32

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.dag.dag import topological_order
from jupyter_sky.base.translation import _

LOSSES = 5
"""Refusals and losses of machines that a task survives unless its graph says otherwise."""


@dataclass(frozen=True, slots=True)
class RunTask:
    """A task of a run.

    Attributes
    ----------
    name
        Unique in the graph.
    after
        Names of the tasks that must have ended well before.
    retries
        How often it is tried again after an error of its own code.
    losses
        How often it is tried again after its machine was refused or lost.
    is_batched
        Whether it may be sent to its cluster in one message with others, of which one begins after
        the other; its inputs are in the message.
    group, most_failures
        Tasks of one group may fail, as many as this of all of it, without keeping those that follow
        from running.
    optional
        Those among `after` that may be skipped by their own condition: what they give has defaults.
    body
        What it runs, for whoever carries out the actions; not read here. Values of JSON.
    """

    name: str
    after: tuple[str, ...] = ()
    retries: int = 0
    losses: int = LOSSES
    is_batched: bool = False
    optional: tuple[str, ...] = ()
    group: str = ""
    most_failures: int = 0
    body: Mapping[str, Any] = field(default_factory=dict)


class RunGraph:
    """Tasks in an order in which each follows its producers.

    Parameters
    ----------
    tasks
        In the order in which their author wrote them, which is kept where it can be.

    Raises
    ------
    SkyUsageError
        Two tasks share a name, a producer is missing, or tasks wait for each other.

    Examples
    --------
    >>> graph = RunGraph([RunTask("train", ("prepare",)), RunTask("prepare")])
    >>> list(graph.tasks), graph.consumers["prepare"]
    (['prepare', 'train'], ('train',))
    """

    def __init__(self, tasks: Iterable[RunTask]) -> None:
        given = list(tasks)
        names = [task.name for task in given]
        positions = {name: index for index, name in enumerate(names)}
        if len(positions) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SkyUsageError(
                _("two tasks are called {name}").format(name=twice), hint=_("rename one of them")
            )
        links = []
        for task in given:
            for producer in task.after:
                if producer not in positions:
                    raise SkyUsageError(
                        _("{task} waits for {producer}, which is no task").format(
                            task=task.name, producer=producer
                        ),
                        hint=suggest(producer, names),
                    )
                links.append((positions[producer], positions[task.name]))
        ordered = [given[index] for index in topological_order(names, links)]
        consumers: dict[str, list[str]] = {name: [] for name in names}
        for task in ordered:
            for producer in dict.fromkeys(task.after):
                consumers[producer].append(task.name)
        self.tasks: Mapping[str, RunTask] = {task.name: task for task in ordered}
        self.consumers: Mapping[str, tuple[str, ...]] = {
            name: tuple(found) for name, found in consumers.items()
        }

    def to_json(self) -> list[dict[str, Any]]:
        """Return values of JSON from which `from_json` makes an equal graph."""
        return [
            {each.name: getattr(task, each.name) for each in fields(task)}
            for task in self.tasks.values()
        ]

    @classmethod
    def from_json(cls, data: Iterable[Mapping[str, Any]]) -> RunGraph:
        """Return the graph of what `to_json` gave.

        Examples
        --------
        >>> graph = RunGraph([RunTask("prepare"), RunTask("train", ("prepare",))])
        >>> list(RunGraph.from_json(graph.to_json()).tasks)
        ['prepare', 'train']
        """
        lists = ("after", "optional")
        return cls(
            RunTask(**{**task, **{name: tuple(task.get(name, ())) for name in lists}})
            for task in data
        )


# -- Names of files, clusters and cells that are named after tasks --------------------------------


def plain_name(task: str) -> str:
    """Return a name of letters, digits, ``_``, ``-`` and ``.`` that no other task's name gives.

    Examples
    --------
    >>> plain_name("train"), plain_name("fit[lr=0.1]"), plain_name("fit[lr=-0.1]")
    ('train', 'fit_lr_0_1_1925f0b8', 'fit_lr_0_1_f4ff6ff3')
    """
    if re.fullmatch(r"[\w.-]+", task):
        return task
    words = re.sub(r"[\W_]+", "_", task).strip("_")
    return f"{words[:40]}_{crc32(task.encode()):08x}"


def attempt_name(run: str, task: str, attempt: int) -> str:
    """Return the name of the cell of an attempt.

    Examples
    --------
    >>> attempt_name("nightly", "train-0.1", 2)
    'nightly_train_0_1_attempt2'
    """
    return re.sub(r"\W", "_", f"{run}_{plain_name(task)}_attempt{attempt}")


def cluster_name(token: str) -> str:
    """Return the name of the cluster that was launched with a token.

    Examples
    --------
    >>> cluster_name("nightly/train/2")
    'nightly-train-2'
    """
    return re.sub(r"[^A-Za-z0-9]+", "-", token)
