"""Expected end and cost of a bag, with their spread, and its cost on demand."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from jupyter_sky.knowledge.lifetimes import validation
from jupyter_sky.workflows.bags.decisions.backlog import Backlog, MachineKind
from jupyter_sky.workflows.bags.decisions.fleet_size import CHANCE, SLACK, choose_fleet_size
from jupyter_sky.workflows.bags.decisions.group_simulation import simulate_groups


@dataclass(frozen=True)
class ForecastRange:
    """Mean of a forecast figure, and the range that holds it in 8 of 10 cases.

    Examples
    --------
    >>> ForecastRange(2.0, 1.5, 2.6).high
    2.6
    """

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: np.ndarray) -> ForecastRange:
        """Return the mean and the 10 and 90 % quantiles of values.

        Examples
        --------
        >>> ForecastRange.of(np.arange(11.0))
        ForecastRange(mean=5.0, low=1.0, high=9.0)
        """
        if not np.isfinite(values).all():
            ordered = np.sort(values)
            low, high = ordered[[len(values) // 10, 9 * len(values) // 10]]
            return cls(math.inf, float(low), float(high))
        low, high = np.quantile(values, [0.1, 0.9])
        return cls(float(values.mean()), float(low), float(high))


@dataclass(frozen=True)
class BagForecast:
    """Forecast of the rest of a bag.

    Attributes
    ----------
    hours : ForecastRange
        Hours from now until enough jobs have ended.
    usd : ForecastRange
        Cost from now on.
    chance : float
        Chance that the deadline is kept; 1 without one.
    groups : int
        Groups that work.

    Examples
    --------
    >>> hours, usd = ForecastRange(2.0, 1.5, 2.6), ForecastRange(9.0, 8.0, 10.0)
    >>> BagForecast(hours, usd, chance=0.97, groups=6).usd.mean
    9.0
    """

    hours: ForecastRange
    usd: ForecastRange
    chance: float
    groups: int


def forecast_bag(
    backlog: Backlog,
    kind: MachineKind,
    groups: int | None = None,
    deadline: float | None = None,
    seed: int = 0,
) -> BagForecast:
    """Return the end and the cost that are to be expected of the rest of a bag.

    Machines are paid from their launch on, while they boot too, and given back when no job is
    queued for them; a machine that is lost is replaced at once.

    Parameters
    ----------
    backlog
        Rest of the bag, with the groups that are there.
    kind
        Machines of further groups.
    groups
        Groups in all; those that are there unless given.
    deadline
        Hours from now.
    seed
        Seed of the simulation.

    Returns
    -------
    BagForecast
        End, cost and chance to keep the deadline.

    Examples
    --------
    >>> from jupyter_sky.workflows.bags.decisions.run_times import RunTimes
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> kind = MachineKind("safe", Exponential(0.0), price=0.5)
    >>> forecast = forecast_bag(Backlog(8, RunTimes((1.0,), (1.0,))), kind, groups=4)
    >>> forecast.hours.mean, forecast.usd.mean
    (2.0, 4.0)
    """
    backlog = backlog.ordered()
    count = validation.check_count(groups or max(1, len(backlog.groups)), "groups")
    count = max(count, sum(group.is_running for group in backlog.groups))
    backlog = backlog.coarse(count)
    jobs, target = backlog.jobs, backlog.target
    if target <= 0:
        nothing = ForecastRange(0.0, 0.0, 0.0)
        return BagForecast(nothing, nothing, 1.0, count)
    times = simulate_groups(backlog, kind, count, seed=seed)
    hours = times.finish(count, jobs, target)
    kinds = [group.kind for group in backlog.groups[:count]]
    kinds += [kind] * (count - len(kinds))
    prices = np.array([one.price * one.nodes for one in kinds])
    usd = times.release(count, jobs, target) @ prices
    chance = 1.0 if deadline is None else float((hours <= deadline).mean())
    return BagForecast(ForecastRange.of(hours), ForecastRange.of(usd), chance, count)


def on_demand_cost(hours: float, kind: MachineKind, groups: int = 1) -> float:
    """Return the cost of the same work on machines that are not taken back.

    Parameters
    ----------
    hours
        Work of all jobs on one group of this kind without failures, in hours.
    kind
        Machines on demand; their lifetime is not looked at.
    groups
        Groups that boot once each.

    Returns
    -------
    float
        USD.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> on_demand_cost(10.0, MachineKind("on demand", Exponential(0.0), 1.0, boot=0.05), 4)
    10.2
    """
    return (hours * kind.ratio + groups * kind.boot) * kind.nodes * kind.price


@dataclass(frozen=True)
class DegradedOption:
    """One way to go on with a bag when the machines it wants cannot be had or are too slow.

    Attributes
    ----------
    kind : MachineKind
        Machines of further groups: of another zone, shape, number of nodes or market. What runs
        on the machines that are there stays there.
    most : int
        Groups in all that can be had this way; 0 is waiting, with nothing more.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> DegradedOption(MachineKind("on demand", Exponential(0.0), 1.13), most=20).most
    20
    """

    kind: MachineKind
    most: int


@dataclass(frozen=True)
class DegradedChoice:
    """Option to take near a deadline.

    Attributes
    ----------
    option : DegradedOption
        The one to take.
    forecast : BagForecast
        What it leads to.
    keeps_deadline : bool
        Whether it keeps the deadline with the chance asked for.
    others : tuple of (DegradedOption, BagForecast)
        The other options, for the explanation.
    can_wait : bool
        Whether it does not keep the deadline itself, but another option will, taken later.

    Examples
    --------
    >>> from jupyter_sky.workflows.bags.decisions.run_times import RunTimes
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> kind = MachineKind("on demand", Exponential(0.0), 1.13)
    >>> backlog = Backlog(4, RunTimes((1.0,), (1.0,)))
    >>> choose_degraded(backlog, (DegradedOption(kind, most=2),), 1.5).keeps_deadline
    False
    """

    option: DegradedOption
    forecast: BagForecast
    keeps_deadline: bool
    others: tuple[tuple[DegradedOption, BagForecast], ...]
    can_wait: bool = False


def choose_degraded(
    backlog: Backlog,
    options: tuple[DegradedOption, ...],
    deadline: float,
    *,
    chance: float = CHANCE,
    again: float = 0.0,
    seed: int = 0,
) -> DegradedChoice:
    """Return the option that keeps the deadline at the least expected cost.

    The paper's degraded mode (section 4.2) runs jobs on fewer machines or on another size. Which
    of these, or machines on demand, is here a question of expected cost. The cheapest option will
    do for now as long as another one, taken when this is asked again, keeps the deadline even if
    nothing is done until then. Where no option keeps the deadline, the one that is most likely to
    is taken.

    Parameters
    ----------
    backlog
        Rest of the bag, with the groups that are there.
    options
        Ways to go on, in the order of preference where they are equal.
    deadline
        Hours from now.
    chance
        Chance with which the deadline is to be kept.
    again
        Hours until this is asked again; 0 for never.
    seed
        Seed of the simulations.

    Returns
    -------
    DegradedChoice
        The option, with the number of groups in its forecast.

    Examples
    --------
    >>> from jupyter_sky.workflows.bags.decisions.run_times import RunTimes
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> backlog = Backlog(8, RunTimes((1.0,), (1.0,)))
    >>> spot = DegradedOption(MachineKind("spot", Exponential(0.05), 0.24), most=2)
    >>> sure = DegradedOption(MachineKind("on demand", Exponential(0.0), 1.13), most=20)
    >>> [choose_degraded(backlog, (spot, sure), hours).option.kind.name for hours in (8, 3)]
    ['spot', 'on demand']
    """
    there = len(backlog.groups)
    found = [
        (option, _forecast_option(backlog, option, deadline, chance, seed))
        for option in options
        if option.most or there
    ]
    cheapest = min(found, key=lambda pair: pair[1].usd.mean)
    wanted = min(chance, max(forecast.chance for _, forecast in found)) - SLACK
    likely = [pair for pair in found if pair[1].chance >= wanted]
    best = min(likely, key=lambda pair: pair[1].usd.mean)
    can_wait = False
    if 0 < again < deadline and best is not cheapest:
        later = _forecast_option(backlog, best[0], deadline - again, chance, seed)
        can_wait = later.chance >= wanted
        best = cheapest if can_wait else best
    others = tuple(pair for pair in found if pair is not best)
    kept = best[1].chance >= chance - SLACK
    return DegradedChoice(best[0], best[1], kept, others, can_wait and not kept)


def _forecast_option(
    backlog: Backlog, option: DegradedOption, deadline: float, chance: float, seed: int
) -> BagForecast:
    size = choose_fleet_size(
        backlog, option.kind, deadline, chance=chance, most=max(option.most, 1), seed=seed
    )
    return forecast_bag(backlog, option.kind, size.groups, deadline, seed=seed)
