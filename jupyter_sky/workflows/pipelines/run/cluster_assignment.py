"""Clusters of the tasks of a run: chains stay where they are, branches run side by side."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

from jupyter_sky.decisions.optimizer.assumptions import SPIN_UP_HOURS
from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask
from jupyter_sky.workflows.pipelines.model.task_names import plain_name
from jupyter_sky.workflows.pipelines.run.outlook import Residual

Offers = Mapping[str, Mapping[str, Any]]
"""Offer of each task, or of each cluster, as values of JSON; its ``resources`` tell it apart."""


def assign_clusters(
    graph: RunGraph, wanted: Offers, left: Residual, finish_h: Mapping[str, float] | None = None
) -> tuple[dict[str, str], dict[str, Mapping[str, Any]]]:
    """Return the cluster of each task, and the offer of each cluster.

    Parameters
    ----------
    graph
        Of the run.
    wanted
        Planned offer of each task that may go anywhere.
    left
        What is left of the run.
    finish_h
        Planned end of each task, hours; of one that has ended 0.

    A task runs on the cluster of a producer that needs the same machines, if no other consumer
    does and if it need not stand idle for longer than a new machine takes to boot; so chains stay
    where they are, and branches run side by side. One that reads variables of another, or is to
    share its cluster, runs where that one does. A name of a cluster stands for one offer in the
    whole run.

    Examples
    --------
    >>> from jupyter_sky.workflows.pipelines.model.graph import RunTask
    >>> from jupyter_sky.workflows.pipelines.run.outlook import residual
    >>> from jupyter_sky.workflows.pipelines.run.state import RunState
    >>> graph = RunGraph([RunTask("a"), RunTask("b", ("a",))])
    >>> offer = {"resources": "--cpus 2"}
    >>> assign_clusters(graph, {"a": offer, "b": offer}, residual(RunState.begin(graph), 0.0))[0]
    {'a': 'a', 'b': 'a'}
    """
    clusters = {name: held.cluster for name, held in left.held.items()}
    clusters |= {name: result.cluster for name, result in left.done.items()}
    continued = _find_continued(graph, clusters)
    ends = finish_h or {}
    offers: dict[str, Mapping[str, Any]] = {}
    known = ChainMap(offers, dict(left.offers))
    shared: dict[str, str] = {}
    for name, task in graph.tasks.items():
        if name in clusters or name not in wanted:
            continue
        if kept := task.body.get("kept_by"):
            clusters[name] = clusters[kept]
            offers.setdefault(clusters[kept], left.offers.get(clusters[kept], wanted[name]))
            continue
        leader = task.body.get("shares", "")
        together = clusters.get(leader) or shared.get(leader, "")
        if together in offers or together in left.live:
            clusters[name] = together
            continue
        line = wanted[name]["resources"]
        free = [p for p in task.after if p not in continued and clusters.get(p)]
        same = [
            p
            for p in free
            if known[clusters[p]]["resources"] == line
            and (p not in left.done or clusters[p] in left.live)
            and (not wanted[name].get("usd_h") or _idle_hours(task, p, ends) <= SPIN_UP_HOURS)
        ]
        if same:
            continued.add(same[0])
            clusters[name] = clusters[same[0]]
        else:
            clusters[name] = _name_cluster(name, line, left)
        offers[clusters[name]] = wanted[name]
        if leader:  # of whose result was kept: the others that share its cluster take this one
            shared[leader] = clusters[name]
    return {name: clusters[name] for name in clusters if name in wanted}, offers


def _idle_hours(task: RunTask, producer: str, ends: Mapping[str, float]) -> float:
    """Return the hours from the end of a producer until the last one of a task has ended."""
    return max(ends.get(each, 0.0) for each in task.after) - ends.get(producer, 0.0)


def _find_continued(graph: RunGraph, clusters: Mapping[str, str]) -> set[str]:
    """Return the tasks whose clusters another task has taken over already."""
    return {
        producer
        for name, cluster in clusters.items()
        if not graph.tasks[name].body.get("kept_by")
        for producer in graph.tasks[name].after
        if cluster and clusters.get(producer) == cluster
    }


def _name_cluster(task: str, line: str, left: Residual) -> str:
    """Return the name of a cluster that begins with a task."""
    name, current = plain_name(task), left.rest.get(task, "")
    if current == name and left.offers[name]["resources"] == line:
        return name
    is_free = name not in left.live and name not in left.offers
    same = name in left.offers and left.offers[name]["resources"] == line and name not in left.live
    return name if is_free or same else f"{name}-plan{left.plans}"
