"""Plan of a graph, by what catalog and tracker know now."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyStoreError
from jupyter_sky.base.requests.dag.dag import Dag, Data, Graph, Task
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.decisions.optimizer.constraints import Avoid
from jupyter_sky.decisions.optimizer.market import Market
from jupyter_sky.decisions.optimizer.objectives import (
    build_graph,
    build_objective,
)
from jupyter_sky.decisions.optimizer.plan import (
    Plan,
)
from jupyter_sky.decisions.optimizer.planner import Planner
from jupyter_sky.decisions.optimizer.problem_builder import ProblemBuilder
from jupyter_sky.decisions.optimizer.quota_limits import quota_demands
from jupyter_sky.decisions.optimizer.service_requests import check_service
from jupyter_sky.decisions.optimizer.solver.problem import (
    Solver,
)
from jupyter_sky.knowledge.lifetimes.priors import Beliefs
from jupyter_sky.knowledge.lifetimes.recomputation import Recompute, expected_runs
from jupyter_sky.knowledge.tracker.quotas import current_quotas

if TYPE_CHECKING:
    from jupyter_sky.knowledge.catalog import Catalog


def plan(
    what: Dag | Graph | Task | Resources | Mapping[str, Any] | None = None,
    minimize: str | Mapping[str, float] = "cost",
    *,
    deadline: str | float | None = None,
    budget: str | float | None = None,
    carbon_cap: float | None = None,
    constraints: Sequence[Any] = (),
    solver: Solver = "auto",
    presolve: bool = True,
    time_limit: float = 5.0,
    gap: float = 0.0,
    catalog: Catalog | None = None,
    offers: Sequence[Offer] | None = None,
    own: Sequence[Offer] = (),
    warm: Sequence[Offer] = (),
    tracked: bool = True,
    recompute: Recompute = expected_runs,
    inputs: Sequence[Data] = (),
    begun: Collection[str] = (),
    **labels: Any,
) -> Plan:
    """Decide where each task of a graph runs.

    Parameters
    ----------
    what
        A graph, a task, or a request; or give the labels of one request: ``gpus="A100:8"``.
    minimize
        ``cost``, ``time``, ``time_then_cost``, ``carbon``, or weights of usd, hours and grams.
    deadline
        Most time from start to end: a duration, or hours.
    budget
        Most USD in all.
    carbon_cap
        Most grams of CO2 in all.
    constraints
        See `jupyter_sky.decisions.optimizer.constraints`.
    solver
        ``glpk``, ``highs``, or ``auto``.
    presolve
        Whether to reduce the problem before the model; the answer is the same without, later.
    time_limit
        Seconds for the solver; after that the best plan so far, with its gap.
    gap
        Share of the value within which a plan is good enough.
    catalog
        Where prices come from; what is installed unless given.
    offers
        Only these offers, in place of the catalog's.
    own
        Offers beside the catalog's: machines of one's own.
    warm
        Clusters that are up: offers without spin-up.
    tracked
        Whether what the tracker knows counts: spot prices, blocked places, lifetimes, launches.
    recompute
        How many times over the work on a spot machine is paid for, by the lifetimes of
        `jupyter_sky.preemption`. By default all of it is done again after each loss
        (`preemption.expected_runs`); `preemption.checkpointed(0.5)` saves every half hour.
    inputs
        Data that a single request reads.
    begun
        Tasks that have begun: what the tracker has blocked since is theirs still.

    Raises
    ------
    SkyNoOffer
        Nothing on sale meets what a task asks for; says which label stands in the way.
    SkyNoPlan
        The demands cannot all be kept; names the fewest that conflict and the nearest way out.
    SkyUsageError
        What was asked makes no sense.

    Examples
    --------
    >>> plan(dag, deadline="3h", constraints=[Residency("eu")])  # doctest: +SKIP
    """
    graph = with_inputs(build_graph(what, labels), inputs)
    objective = build_objective(minimize, deadline, budget, carbon_cap)
    needs = [need for spec in graph.tasks for need in spec.needs] if offers is None else []
    market, blocks = build_market(catalog, offers, (*own, *warm), tracked, needs)
    first = len(market.own) - len(warm)
    free = tuple(spec.name for spec in graph.tasks if spec.name not in begun)
    avoided = [Avoid(blocks, tasks=free if begun else ())] if blocks and free else []
    limits = quota_demands(graph, current_quotas(), free) if tracked and market.listed else []
    demands = (*constraints, *avoided, *limits)
    indices = frozenset(range(first, len(market.own)))
    builder = ProblemBuilder(graph, market, demands, recompute, indices)
    settings = {"solver": solver, "presolve": presolve, "time_limit": time_limit, "gap": gap}
    return Planner(builder, objective, settings).plan()


def build_market(
    catalog: Catalog | None,
    offers: Sequence[Offer] | None,
    beside: Sequence[Offer],
    tracked: bool,
    needs: Sequence[Resources],
) -> tuple[Market, tuple]:
    """Return what can be had, and which places are blocked."""
    from jupyter_sky.knowledge import catalog as rooms
    from jupyter_sky.knowledge.catalog.managed_services import serverless_offers

    shelf = rooms.load() if catalog is None else catalog
    known, beliefs, prices, rates = None, None, {}, None
    if tracked:
        from jupyter_sky.knowledge import tracker

        with suppress(SkyStoreError):  # what is remembered helps; it is not needed
            now = time.time()
            seen = tracker.current()
            known, prices = tracker.knowledge(now), seen.prices(now)
            rates = seen.transfer_rates(now)
            beliefs = Beliefs.of(seen.observations(), now, shelf.interruption)
    for need in needs:
        check_service(need, shelf)
    serverless = [offer for need in needs for offer in serverless_offers(shelf, need)]
    own = (*(offers or ()), *dict.fromkeys(serverless), *beside)
    market = Market(shelf, own, offers is None, known, beliefs, prices, rates)
    return market, tuple(block.scope for block in known.blocks) if known else ()


def with_inputs(graph: Graph, inputs: Sequence[Data]) -> Graph:
    """Return the graph of one task that reads data as well."""
    if not inputs:
        return graph
    (task,) = graph.tasks
    return replace(graph, tasks=(replace(task, inputs=(*task.inputs, *inputs)),))
