"""From what a user asks to the search that answers it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.search.limits import SearchLimits
from jupyter_sky.decisions.search.measurement import FunctionRunner, Measure, TrialRunner
from jupyter_sky.decisions.search.methods import method as optimizer
from jupyter_sky.decisions.search.offers import on_sale
from jupyter_sky.decisions.search.optimizer import Statistic
from jupyter_sky.decisions.search.result import SearchResult, Target
from jupyter_sky.decisions.search.runner import Search, Stop
from jupyter_sky.decisions.search.space import Point, Space
from jupyter_sky.decisions.search.transfer import Earlier

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
    chosen = optimizer(
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
