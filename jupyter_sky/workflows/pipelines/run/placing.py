"""Placement of a graph that is to be run: one plan over all that can be launched from here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jupyter_sky import clouds
from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import SkyNoOffer
from jupyter_sky.base.requests.dag.dag import Constant, Data, Edge, Graph, TaskSpec
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.machines.provisioner.placement import (
    no_place_error,
    on_premises_candidates,
    usable_providers,
)
from jupyter_sky.workflows.pipelines.run.outlook import HeldTask, Residual, Result

if TYPE_CHECKING:
    from jupyter_sky.base.requests.dag.dag import Dag
    from jupyter_sky.decisions.optimizer.plan import Plan
    from jupyter_sky.workflows.pipelines.model.task_body import Stores
    from jupyter_sky.workflows.pipelines.run.graph_parts import GraphPart


def place_graph(
    dag: Dag, minimize: Any = "cost", part: GraphPart | None = None, **settings: Any
) -> Plan:
    """Return the plan of a graph over one's own machines and the clouds that can be used.

    Parameters
    ----------
    dag
        The graph.
    minimize, **settings
        As `jupyter_sky.plan` has them.
    part
        Of the graph that is to be run; None for the whole.

    Raises
    ------
    SkyNoOffer
        Nothing that can be launched from here meets what a task asks for.
    SkyPermission
        A task asks for a cloud that cannot be used from here.
    SkyNoPlan
        The demands cannot all be kept.
    """
    from jupyter_sky.execution.files.measured_data import take_measured_sizes
    from jupyter_sky.workflows.pipelines.run.graph_parts import limit_graph, limit_settings

    take_measured_sizes(dag)
    graph = dag.freeze()
    if part is not None:
        graph, settings = limit_graph(graph, part), limit_settings(settings, part)
    return plan_graph(graph, minimize, **settings)


def plan_graph(graph: Graph, minimize: Any = "cost", **settings: Any) -> Plan:
    """Return the plan of a frozen graph; see `place_graph`."""
    from jupyter_sky.decisions.optimizer.launchability import Launchable
    from jupyter_sky.decisions.optimizer.planning import plan

    needs = list(dict.fromkeys(need for task in graph.tasks for need in task.needs))
    met = {need: on_premises_candidates(need)[0] for need in needs}
    own = list(dict.fromkeys(offer for offers in met.values() for offer in offers))
    renting = _usable_providers(needs)
    if not renting:
        for task in graph.tasks:
            if not any(met[need] for need in task.needs):
                raise no_place_error(task.needs[0], own)
        return plan(graph, minimize, offers=own, **settings)
    constraints = (*settings.pop("constraints", ()), Launchable())
    offers = [*own, *clouds.external_offers(renting)]
    return plan(graph, minimize, own=offers, constraints=constraints, **settings)


def _usable_providers(needs: Sequence[Resources]) -> tuple[str, ...]:
    """Return the clouds that rent machines for some requests.

    Those that are used only by name are among them where each request names its clouds: they would
    be taken for the others, too.
    """
    named = dict.fromkeys(name for need in needs for name in need.clouds)
    only = tuple(name for name in named if find_facts(name).only_by_name)
    found = usable_providers(Resources())
    if only and all(need.clouds for need in needs):
        return (*found, *usable_providers(Resources(clouds=only)))
    return found


def choose_stores(dag: Dag, plan: Plan) -> Stores:
    """Return an address for each output ``?:/name``: a store where the plan has its task run.

    Parameters
    ----------
    dag
        The tasks as they were planned.
    plan
        Its offers.

    Raises
    ------
    SkyUsageError
        The place of a task has no store, and ``Sky.scratch`` names none for it.
    """
    from jupyter_sky.execution.files.scratch import output_root, place_of_scratch

    offers = {placed.task: placed.offer for placed in plan.tasks}
    stores: dict[tuple[str, str], str] = {}
    for task in dag:
        for data in task.outputs:
            if data.is_anywhere:
                offer = offers[task.name]
                root = output_root(place_of_scratch(offer.cloud, offer.region))
                name = data.uri.partition(":")[2].strip("/") or f"output{len(stores)}"
                path = "/".join(filter(None, (dag.name, task.name, name)))
                stores[task.name, data.uri] = str(root.child(f"{path}/"))
    return stores


def pin(needs: tuple[Resources, ...], offer: Offer) -> Resources:
    """Return the request that only a planned offer meets.

    Parameters
    ----------
    needs
        Alternatives; that which the offer meets counts.

    Examples
    --------
    >>> offer = Offer("aws", "us-east-1", "t3.nano", 2, 0.5, zone="us-east-1a", spot=True)
    >>> pin((Resources.parse(cpus="2+"),), offer).command_line()
    '--cpus 2+ --cloud aws --region us-east-1 --zone us-east-1a --instance-type t3.nano --spot'
    """
    met = [need for need in needs if not (set(need.unmet_labels(offer)) - {"max_hourly_cost"})]
    if not met:
        raise SkyNoOffer(f"{offer.place}: {needs[0].command_line()}")
    if offer.cloud in clouds.ON_PREMISES:
        return replace(met[0], clouds=(offer.cloud,))
    return replace(
        met[0],
        clouds=(offer.cloud,),
        region=offer.region or None,
        zone=offer.zone or None,
        instance_type=offer.instance_type,
        spot=offer.spot,
    )


# -- Graph of what is left of a run, as plans take it ---------------------------------------------


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
