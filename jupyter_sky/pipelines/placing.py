"""Placement of a graph that is to be run: one plan over all that can be launched from here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import clouds
from ..errors import SkyNoOffer
from ..offers import Offer
from ..provisioner.placement import no_place_error, on_premises_candidates, usable_providers
from ..resources import Resources
from ..runs.graph import RunGraph

if TYPE_CHECKING:
    from ..dag.dag import Dag
    from ..optimizer.plan import Plan


def place_graph(dag: Dag, minimize: Any = "cost", **settings: Any) -> Plan:
    """Return the plan of a graph over one's own machines and the clouds that can be used.

    Parameters
    ----------
    dag
        The graph.
    minimize, **settings
        As `jupyter_sky.plan` has them.

    Raises
    ------
    SkyNoOffer
        Nothing that can be launched from here meets what a task asks for.
    SkyPermission
        A task asks for a cloud that cannot be used from here.
    SkyNoPlan
        The demands cannot all be kept.
    """
    from ..executor.measured_data import take_measured_sizes
    from ..optimizer.launchability import Launchable
    from ..optimizer.planner import plan

    take_measured_sizes(dag)
    needs = list(dict.fromkeys(need for task in dag for need in task.needs))
    met = {need: on_premises_candidates(need)[0] for need in needs}
    own = list(dict.fromkeys(offer for offers in met.values() for offer in offers))
    renting = usable_providers(Resources())
    if not renting:
        for task in dag:
            if not any(met[need] for need in task.needs):
                raise no_place_error(task.needs[0], own)
        return plan(dag, minimize, offers=own, **settings)
    constraints = (*settings.pop("constraints", ()), Launchable())
    offers = [*own, *clouds.external_offers(renting)]
    return plan(dag, minimize, own=offers, constraints=constraints, **settings)


def pin_graph(graph: RunGraph, dag: Dag, plan: Plan) -> RunGraph:
    """Return a graph each of whose tasks asks for the offer of its plan.

    Parameters
    ----------
    graph
        What is to be run.
    dag
        The tasks as they were planned, with what they ask for.
    plan
        Its offers.
    """
    offers = {placed.task: placed.offer for placed in plan.tasks}
    needs = {task.name: task.needs for task in dag}
    return RunGraph(
        replace(
            task, body={**task.body, "resources": pin(needs[name], offers[name]).command_line()}
        )
        for name, task in graph.tasks.items()
    )


def pin(needs: tuple[Resources, ...], offer: Offer) -> Resources:
    """Return the request that only a planned offer meets.

    Parameters
    ----------
    needs
        Alternatives; that which the offer meets counts.

    Examples
    --------
    >>> offer = Offer("aws", "us-east-1", "us-east-1a", "t3.nano", 2, 0.5, price=0.01, spot=True)
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
