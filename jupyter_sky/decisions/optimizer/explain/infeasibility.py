"""Errors for graphs without a plan: the fewest conflicting demands, and the nearest way out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import SkyError, SkyNoOffer, SkyNoPlan
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.quantities import format_duration
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.candidates import no_offer
from jupyter_sky.decisions.optimizer.constraints import Residency, _OfferDemand
from jupyter_sky.decisions.optimizer.pricing import PricedTask
from jupyter_sky.decisions.optimizer.problem_builder import ProblemBuilder
from jupyter_sky.decisions.optimizer.quota_limits import WithinQuotas
from jupyter_sky.decisions.optimizer.solver.problem import Objective, Problem, Solution, Solver
from jupyter_sky.decisions.optimizer.solver.solve import solve
from jupyter_sky.knowledge.ledger.ledger import format_usd

SolveFunction = Callable[..., Solution]


def explain_infeasible(
    builder: ProblemBuilder, objective: Objective, solve: SolveFunction
) -> SkyError:
    """Return the error that explains why a graph has no plan."""
    for spec in builder.graph.tasks:
        one = builder.pricer.price_task(spec)
        if not len(one):
            return _explain_no_offer(builder, one)
        possible = np.isfinite(one.own_hours())
        if not possible.any():
            return SkyNoPlan(
                _(
                    "task {name}: its time estimator rules out all of the {one_count:,} "
                    "offers that meet its request"
                ).format(name=spec.name, one_count=len(one)),
                hint=_("it gave inf for every machine: ask for machines that it knows"),
            )
        refused = builder.find_refusals(one)
        if (refused[possible] != 0).all():
            return _explain_refused(builder, one, refused, possible)
    return _explain_conflict(builder, objective, solve)


# -- one task ----------------------------------------------------------------------------------


def _explain_no_offer(builder: ProblemBuilder, one: PricedTask) -> SkyError:
    """Return what stands in the way of each alternative of a request."""
    market, lines = builder.market, []
    for need in one.spec.needs:
        error = _list_unmet_labels(builder, need)
        lines += [error.message, *([error.hint] if error.hint else [])]
    where = f"task {one.spec.name}: " if len(builder.graph.tasks) > 1 else ""
    if market.listed and all(len(market.catalog.filter(need)) for need in one.spec.needs):
        lines = [f"{one.spec.needs[0].command_line()}: no price is known of what meets it"]
    return SkyNoOffer(where + lines[0], hint="\n".join(lines[1:]) or None)


def _list_unmet_labels(builder: ProblemBuilder, need: Resources) -> SkyNoOffer:
    from jupyter_sky.knowledge.catalog.nearest_offers import find_nearest

    market = builder.market
    if not market.listed:
        return no_offer(need, market.own)
    market.catalog.check(need)
    named = (offer for offer in market.own if offer.cloud in need.clouds)
    unlisted = [offer for offer in named if find_facts(offer.cloud).on_premises]
    return no_offer(need, [*unlisted, *find_nearest(market.catalog, need)])


def _explain_refused(
    builder: ProblemBuilder, one: PricedTask, refused: np.ndarray, possible: np.ndarray
) -> SkyError:
    """Return the error where offers meet the request, and none the demands as well."""
    demands = builder.offer_demands(one.spec)
    counts = np.array([int(bits).bit_count() for bits in refused.tolist()])
    fewest = counts[possible].min()
    near = np.flatnonzero(possible & (counts == fewest))
    cost = one.usd()[near]
    best = int(near[np.argmin(cost)])
    gone = [demand for bit, demand in enumerate(demands) if refused[best] >> bit & 1]
    names = [demand.name for demand in gone]
    asked = " or ".join(need.command_line() or "any machine" for need in one.spec.needs)
    nearest = builder.market.offer(one.pool, best)
    sites = np.unique(one.pool.site[possible]).tolist()
    hints = _explain_demands(builder, gone, nearest, sites)
    return SkyNoPlan(
        _(
            "task {name}: {asked} and {names} cannot hold together: {sum:,} offers "
            "meet the request, none of them keeps the rest; nearest: {place}, "
            "without {names}"
        ).format(
            name=one.spec.name,
            asked=asked,
            names=" and ".join(names),
            sum=int(possible.sum()),
            place=nearest.place,
        ),
        hint="\n".join(hints) or None,
    )


def _explain_demands(
    builder: ProblemBuilder, demands: Sequence[_OfferDemand], nearest: Offer, sites: Iterable[int]
) -> list[str]:
    """Return what helps against demands: quotas to raise, areas where the request is on sale."""
    hints = [
        text
        for demand in demands
        if isinstance(demand, WithinQuotas)
        for text in demand.explain(nearest)
        if text
    ]
    regions = sorted({area for site in sites for area in _areas(builder, site)})
    if regions and any(isinstance(demand, Residency) for demand in demands):
        hints.append(_("it is on sale in {regions}").format(regions=", ".join(regions)))
    return hints


def _areas(builder: ProblemBuilder, site: int) -> list[str]:
    cloud, region, __ = builder.market.sites[site]
    found = builder.market.catalog.region(cloud, region)
    return [found.jurisdiction or found.country] if found.country else []


# -- all tasks ---------------------------------------------------------------------------------


def _explain_conflict(
    builder: ProblemBuilder, objective: Objective, solve: SolveFunction
) -> SkyError:
    tables = builder.build(objective, explain=True)
    problem = tables.problem
    names = [*objective.limits(), *problem.constraint_names()]
    conflict = find_conflict(problem, objective)
    if not conflict:
        return SkyNoPlan(_("no plan keeps all of what was asked"), hint=_("ask for less"))
    rest = set(names) - set(conflict)
    alone = problem.without(rest), objective.without(rest)
    # a way out that keeps everything else; where there is none, at least out of this conflict
    ways = [
        _suggest_change(problem, objective, name, solve) or _suggest_change(*alone, name, solve)
        for name in conflict
    ]
    if len(conflict) == 1 and conflict[0] in objective.limits():
        return SkyNoPlan(ways[0])
    texts = [_format_demand(name, objective) for name in conflict]
    together = "hold together" if len(texts) > 1 else "be kept"
    return SkyNoPlan(
        _("{texts} cannot {together}").format(texts=" and ".join(texts), together=together),
        hint="\n".join(
            [_("nearest: ") + ways[0], *(_("or else {way}").format(way=way) for way in ways[1:])]
        ),
    )


def _format_demand(name: str, objective: Objective) -> str:
    if name == "deadline":
        return f"a deadline of {format_duration((objective.deadline_h or 0) * 3600)}"
    if name == "budget":
        return f"a budget of {format_usd(objective.budget_usd)}"
    if name == "carbon cap":
        return f"a cap of {objective.carbon_cap_g:g} g of CO2"
    return "your own constraints (Custom)" if name == "hook" else name


def _suggest_change(problem: Problem, objective: Objective, name: str, solve: SolveFunction) -> str:
    """Return what the plan would have to be allowed, if one demand gave way and the others stayed.

    Empty where no change of a limit alone would do.
    """
    asked = replace(objective.without([name]), kind="cost")
    if name == "deadline":
        found = solve(problem, replace(asked, kind="time"))
        hours = found.hours
        limit = objective.deadline_h or 0.0
        if found.choice is None:
            return ""
        return (
            f"no plan ends within {format_duration(limit * 3600)}: the fastest takes "
            f"{format_duration(math.ceil(hours * 3600))} ({format_usd(found.cost)}); "
            f'nearest: deadline="{_duration(hours)}"'
        )
    if name == "budget":
        found = solve(problem, asked)
        if found.choice is None:
            return ""
        return (
            f"no plan costs {format_usd(objective.budget_usd)} or less: the cheapest costs "
            f"{format_usd(found.cost)} and takes {format_duration(found.hours * 3600)}; "
            f"nearest: budget={math.ceil(found.cost * 10_000 - 1e-6) / 10_000:g}"
        )
    if name == "carbon cap":
        found = solve(problem, replace(asked, kind="carbon"))
        if found.choice is None:
            return ""
        return (
            f"no plan emits {objective.carbon_cap_g:g} g or less: the cleanest emits "
            f"{found.gco2:,.0f} g; nearest: carbon_cap={math.ceil(found.gco2)}"
        )
    found = solve(problem.without([name]), replace(objective, kind="cost"))
    cost = format_usd(found.cost) if found.choice is not None else "no plan either"
    return f"without {_format_demand(name, objective)}: {cost}"


def _duration(hours: float) -> str:
    """Return hours as `deadline` takes them, rounded up: a suggestion must do."""
    seconds = math.ceil(hours * 3600 + 1e-3)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    parts = ((hour, "h"), (minute, "m"), (second, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "1s"


# -- Smallest sets of demands that cannot hold together -------------------------------------------

_SMALL = 2  # sets up to this size are tried one by one, so that the smallest is found


def is_feasible(
    problem: Problem,
    objective: Objective,
    without: Iterable[str] = (),
    *,
    solver: Solver = "auto",
    time_limit: float = 2.0,
) -> bool | None:
    """Return whether some plan keeps every demand but those named; None when time ran out first.

    Examples
    --------
    >>> from jupyter_sky.decisions.optimizer.solver.problem import (
    ...     Places,
    ...     make_edges,
    ...     make_task_labels,
    ... )
    >>> work = (make_task_labels("u", [0], [3.0], [2.0]),)
    >>> problem = Problem(Places(("a",)), work, make_edges([]))
    >>> strict = Objective("cost", deadline_h=1.0)
    >>> is_feasible(problem, strict), is_feasible(problem, strict, without=["deadline"])
    (False, True)
    """
    names = tuple(without)
    limited = objective.without(names)
    kind = "time" if limited.deadline_h is not None else "cost"
    if set(limited.limits()) == {"carbon cap"}:
        kind = "carbon"
    found = solve(  # any plan that keeps the limits is enough
        problem.without(names),
        replace(limited, kind=kind),
        solver=solver,
        time_limit=time_limit,
        gap=0.999,
    )
    return {"optimal": True, "feasible": True, "infeasible": False}.get(found.status)


def find_conflict(
    problem: Problem, objective: Objective, *, solver: Solver = "auto", time_limit: float = 2.0
) -> tuple[str, ...]:
    """Return names of demands that cannot hold together; of two the fewest, of more no fewer.

    Sets of one and two demands are tried one by one. Of larger sets, a demand without which there
    still is no plan is not needed for the conflict and goes, one after the other; no part of what
    stays is impossible by itself. A demand stays when the time limit kept it from being decided.

    Parameters
    ----------
    time_limit : float
        CPU s for each set.

    Returns
    -------
    tuple of str
        Names of masks, rows and sameness, and ``deadline``, ``budget``, ``carbon cap``; empty
        when a plan exists.

    Examples
    --------
    >>> import numpy as np
    >>> from jupyter_sky.decisions.optimizer.solver.problem import LabelMask, Places
    >>> from jupyter_sky.decisions.optimizer.solver.problem import make_edges, make_task_labels
    >>> work = (make_task_labels("u", [0, 1], [3.0, 1.0], [1.0, 5.0]),)
    >>> eu = LabelMask("residency eu", 0, np.array([False, True]))
    >>> problem = Problem(Places(("us", "eu")), work, make_edges([]), masks=(eu,))
    >>> find_conflict(problem, Objective("cost", deadline_h=2.0))
    ('deadline', 'residency eu')
    """
    limits = objective.limits()
    names = [*limits, *problem.constraint_names()]

    def feasible(without: list[str]) -> bool | None:
        return is_feasible(problem, objective, without, solver=solver, time_limit=time_limit)

    for size in range(1, _SMALL + 1):
        for some in combinations(names, size):
            if feasible([name for name in names if name not in some]) is False:
                return some
    if feasible([]):
        return ()
    gone: list[str] = []
    for name in sorted(names, key=lambda one: one in limits):
        if feasible([*gone, name]) is False:
            gone.append(name)
    return tuple(name for name in names if name not in gone)
