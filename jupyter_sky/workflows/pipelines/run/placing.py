"""Placement of a graph that is to be run: one plan over all that can be launched from here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jupyter_sky import clouds
from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import SkyNoOffer
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.machines.provisioner.placement import (
    no_place_error,
    on_premises_candidates,
    usable_providers,
)

if TYPE_CHECKING:
    from jupyter_sky.base.requests.dag.dag import Dag
    from jupyter_sky.base.requests.dag.graph import Graph
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
    from jupyter_sky.decisions.optimizer.planner import plan

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
