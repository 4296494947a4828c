"""From what a user asks to the search that answers it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.search.bandit import CloudBandit
from jupyter_sky.decisions.search.baselines import Independent, RisingBandits, SuccessiveHalving
from jupyter_sky.decisions.search.components import COMPONENTS, component
from jupyter_sky.decisions.search.gaussian_process import FlatGP
from jupyter_sky.decisions.search.limits import SearchLimits
from jupyter_sky.decisions.search.measurement import FunctionRunner, Measure, TrialRunner
from jupyter_sky.decisions.search.offers import on_sale
from jupyter_sky.decisions.search.optimizer import Optimizer, Seed, Statistic
from jupyter_sky.decisions.search.result import SearchResult, Target
from jupyter_sky.decisions.search.runner import Search, Stop
from jupyter_sky.decisions.search.smac import SMAC
from jupyter_sky.decisions.search.space import Point, Space
from jupyter_sky.decisions.search.transfer import Earlier, Transfer

Workload = object
"""A function or the text of a cell; with a runner of its own whatever that can run."""


def search(
    workload: Workload,
    space: Space | Mapping[str, Any],
    budget: int,
    minimize: Target = "cost",
    *,
    measure: Callable[[Any, Point], Any] | None = None,
    runner: TrialRunner | None = None,
    limits: SearchLimits | None = None,
    method: str = "auto",
    history: Iterable[SearchResult | Earlier] = (),
    seed: int = 0,
    parallel: int = 1,
    timeout: float | None = None,
    repeats: int = 1,
    statistic: Statistic = "mean",
    stop: Stop | None = None,
    log: str | Path | None = None,
    watch: Callable[[SearchResult], None] | None = None,
    **options: Any,
) -> SearchResult:
    """Find the configuration on which a workload costs least, or is fastest, by trying some.

    Parameters
    ----------
    workload
        A function or the text of a cell. A function without ``measure`` is the measurement
        itself: it is called with each `Point` and gives seconds, or a `Measurement`.
    space
        A `Space`, or the arguments of `on_sale`, which makes one of the catalog's offers.
    budget
        Configurations to try at most.
    minimize
        ``cost``, in USD, or ``time``, in seconds.
    measure
        ``measure(workload, point)`` runs the workload on a configuration and gives seconds or a
        `Measurement`. What it raises is a failed try, which costs the time until then.
    runner
        Carries out the runs in place of a function.
    limits
        What the search may cost, and how long it may last; for runners that know of them.
    method
        One of `METHODS`. ``auto`` learns from the history where there is one, and else models all
        arms at once.
    history
        Earlier results over the same configurations, or mappings from configuration to seconds.
    seed
        Same seed and measurements, same tries.
    parallel, timeout
        Tries at once, and seconds after which a run counts as failed.
    repeats, statistic
        Runs of each configuration, and what they amount to: ``mean``, ``median``, ``p90``.
    stop
        Reasons to end early.
    log
        A file that a search that was interrupted goes on from.
    watch
        Called with the result so far after each try, and when tries side by side have begun.
    **options
        Parameters of the method.

    Raises
    ------
    SkyUsageError
        For what makes no sense, said before anything is measured.
    """
    if not isinstance(space, Space):
        space = on_sale(**space)
    earlier = [one.history() if isinstance(one, SearchResult) else one for one in history]
    if minimize not in ("cost", "time"):
        raise SkyUsageError(f"minimize={minimize!r}", hint=_("give 'cost' or 'time'"))
    chosen = make_method(
        method,
        space,
        budget,
        minimize=minimize,
        history=earlier,
        seed=seed,
        statistic=statistic,
        **options,
    )
    header = {"method": method, "seed": seed, "statistic": str(statistic), "options": options}
    if method not in ("auto", "gp", "transfer"):
        header["budget"] = budget  # others plan with it
    run = Search(
        chosen,
        runner or FunctionRunner(_make_measure(workload, measure)),
        budget,
        minimize,
        parallel=parallel,
        timeout=timeout,
        repeats=repeats,
        statistic=statistic,
        stop=stop,
        limits=limits,
        log=log,
        header=header,
        watch=watch,
    )
    return run.run()


def _make_measure(workload: Workload, measure: Callable[[Any, Point], Any] | None) -> Measure:
    if measure is not None:
        if not callable(measure):
            raise SkyUsageError(
                _("measure={measure!r} cannot be called").format(measure=measure),
                hint=_("give a function"),
            )
        return lambda point: measure(workload, point)
    if callable(workload):
        return workload
    raise SkyUsageError(
        _("a cell needs something that runs it on a configuration"),
        hint=_("give measure=f, where f(cell, point) runs the cell and returns seconds"),
    )


# -- Methods of searching a whole space, by name --------------------------------------------------

_WHOLE_SPACE: dict[str, Callable[..., Optimizer]] = {
    "cloudbandit": CloudBandit.for_budget,
    "gp": lambda space, budget, **options: FlatGP(space, **options),
    "transfer": lambda space, budget, **options: Transfer(space, **options),
    "rising-bandits": RisingBandits,
    "successive-halving": SuccessiveHalving,
    "independent": Independent,
    "smac": lambda space, budget, **options: SMAC(space, budget=budget, **options),
}
_PRICED = ("gp", "transfer")

METHODS = ("auto", *_WHOLE_SPACE, *COMPONENTS)
"""Names that `method` knows: a component's name is that component over the whole space."""


def make_method(
    name: str,
    space: Space,
    budget: int,
    *,
    minimize: Target = "cost",
    history: Sequence[Earlier] = (),
    seed: Seed = 0,
    statistic: Statistic = "mean",
    **options: Any,
) -> Optimizer:
    """Make an optimizer over a space by its name.

    Parameters
    ----------
    name
        One of `METHODS`. ``auto`` is ``transfer`` when there is a history, and else ``gp``.
    budget
        Evaluations in all, for those that plan with it.
    minimize
        ``cost`` or ``time``, for those that know of prices.
    history
        Earlier workloads, see `Transfer`.
    **options
        Parameters of the method's class, as ``component="tpe"``, ``eta=4``.

    Returns
    -------
    Optimizer
        The optimizer of this method.

    Raises
    ------
    SkyUsageError
        For an unknown name or option, or a budget that is too small for the method.

    Examples
    --------
    >>> space = Space.of({"A": {"nodes": [1, 2]}, "B": {"nodes": [1, 2]}})
    >>> type(make_method("cloudbandit", space, 4, component="random")).__name__
    'CloudBandit'
    """
    if not isinstance(budget, int) or budget < 1:
        raise SkyUsageError(f"budget={budget!r}", hint=_("give a whole number, 1 or more"))
    if name not in METHODS:
        raise SkyUsageError(
            _("there is no method {name!r}").format(name=name), hint=suggest(name, METHODS)
        )
    if name == "auto":
        name = "transfer" if history else "gp"
    if history and name != "transfer":
        raise SkyUsageError(
            _("the method {name!r} learns nothing from a history").format(name=name),
            hint=_("leave the history out, or choose method='transfer'"),
        )
    options |= {"seed": seed, "statistic": statistic}
    if name not in _WHOLE_SPACE:
        return component(name, space, **options)
    if name in _PRICED:
        options["minimize"] = minimize
    if name == "transfer":
        options["history"] = history
    try:
        return _WHOLE_SPACE[name](space, budget, **options)
    except TypeError as error:
        raise SkyUsageError(
            _("method {name!r}: {error}").format(name=name, error=error),
            hint=_("see the parameters of its class"),
        ) from None
