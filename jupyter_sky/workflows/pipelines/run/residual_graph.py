"""Graph of what is left of a run, as plans take it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jupyter_sky.base.requests.dag.graph import Constant, Data, Edge, Graph, TaskSpec
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.workflows.pipelines.run.outlook import HeldTask, Residual, Result
from jupyter_sky.workflows.pipelines.run.placing import pin


def read_offer(facts: Mapping[str, Any]) -> Offer:
    """Return the offer of a cluster's facts, which are values of JSON."""
    given = facts["offer"]
    return Offer(**{**given, "packages": tuple(given["packages"])})


def make_residual_graph(
    graph: Graph, left: Residual, stay: bool = False, is_hopeful: bool = False
) -> Graph:
    """Return the graph of the tasks that have not ended.

    Parameters
    ----------
    graph
        Of the whole run.
    left
        What is left of it. Results of tasks that have ended are data at their places, in their real
        sizes; tasks that run keep their offers, with the rest of their hours.
    stay
        Whether those that have not begun stay where the last plan sends them.
    is_hopeful
        Whether tasks that have run for longer than was expected end now.
    """
    names = [spec.name for spec in graph.tasks]
    kept = [index for index, name in enumerate(names) if name in left.held or name in left.rest]
    place = {old: new for new, old in enumerate(kept)}
    results: dict[int, list[Data]] = {index: [] for index in kept}
    edges = []
    for edge in graph.edges:
        if edge.src in place and edge.dst in place:
            edges.append(replace(edge, src=place[edge.src], dst=place[edge.dst]))
        elif edge.dst in place and names[edge.src] in left.done:
            results[edge.dst] += _as_data(left, left.done[names[edge.src]], edge)
    booted = set(left.live)
    tasks = []
    for index in kept:
        spec = graph.tasks[index]
        if held := left.held.get(spec.name):
            tasks.append(_hold(spec, held, left, is_hopeful))
            continue
        spec = replace(spec, inputs=(*spec.inputs, *results[index]))
        spec = _bind(graph, spec, left)
        cluster = left.rest[spec.name]
        if stay and cluster and not _is_blocked(left, cluster):
            offer = read_offer(left.offers[cluster])
            spin_up = 0.0 if cluster in booted else spec.spin_up
            spec = replace(spec, needs=(pin(spec.needs, offer),), spin_up=spin_up)
            booted.add(cluster)
        tasks.append(spec)
    left_names = {spec.name for spec in tasks}
    return Graph(
        graph.name,
        tuple(tasks),
        tuple(edges),
        tuple(pair for pair in graph.same_region if left_names >= set(pair)),
        tuple(pair for pair in graph.same_cluster if left_names >= set(pair)),
    )


def _hold(spec: TaskSpec, held: HeldTask, left: Residual, is_hopeful: bool) -> TaskSpec:
    """Return a task that stays on its cluster for the rest of its time."""
    offer = read_offer(left.offers[held.cluster])
    need = replace(pin(spec.needs, offer), max_hourly_cost=None)  # its price has been agreed to
    hours = held.least_hours if is_hopeful else held.hours
    return replace(
        spec,
        needs=(need,),
        inputs=(),
        stored=(),
        estimator=Constant(hours),
        each_offer=False,
        spin_up=held.boot_hours,
    )


def _as_data(left: Residual, result: Result, edge: Edge) -> list[Data]:
    """Return the result of a task that has ended as an input of another."""
    gb = edge.gb if result.gb is None else result.gb
    where = result.place
    if not where and result.cluster:
        offer = read_offer(left.offers[result.cluster])
        where = f"{offer.cloud}/{offer.region}"
    if not where or not gb:
        return []
    cloud, __, region = where.partition("/")
    return [Data(where, gb, cloud, region)]


def _bind(graph: Graph, spec: TaskSpec, left: Residual) -> TaskSpec:
    """Return a task that shares a region or cluster with one that has ended, bound to its place."""
    for pairs, is_cluster in ((graph.same_region, False), (graph.same_cluster, True)):
        for pair in pairs:
            other = next((n for n in pair if spec.name in pair and n in left.done), None)
            cluster = left.done[other].cluster if other else ""
            if not cluster or (is_cluster and cluster not in left.live):
                continue
            offer = read_offer(left.offers[cluster])
            if is_cluster:
                return replace(spec, needs=(pin(spec.needs, offer),), spin_up=0.0)
            needs = tuple(
                replace(need, clouds=(offer.cloud,), region=offer.region or None)
                for need in spec.needs
            )
            spec = replace(spec, needs=needs)
    return spec


def _is_blocked(left: Residual, cluster: str) -> bool:
    offer = left.offers[cluster].get("offer")
    return any((one.offer or {}).get("offer") == offer for one in left.blocked.values())
