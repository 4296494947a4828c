"""Offers, plans, searches and the form, as Python calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from jupyter_sky.base.requests.accelerators import Accelerator
    from jupyter_sky.base.requests.dag.dag import Dag, Task
    from jupyter_sky.decisions.optimizer.plan import Plan
    from jupyter_sky.decisions.search import SearchResult, Space
    from jupyter_sky.execution.functions.calls.lazy_calls import PendingFunction
    from jupyter_sky.interfaces.widgets.form import SkyForm
    from jupyter_sky.interfaces.widgets.offers import Offers


SHORT_LIST = 3
"""With fewer alternatives, a plan of one request lists the prices of the clouds, too."""


def form(line: str = "", **labels: Any) -> SkyForm:
    """Show a form for the options of a cell, with the matching offers and their prices.

    Parameters
    ----------
    line
        Options to begin with, as after ``%%sky``.
    **labels
        The same as labels: ``gpus="V100:1"``.

    Returns
    -------
    SkyForm
        ``form.line`` is its present line; ``form.cell()`` puts a cell with it below this one.

    Examples
    --------
    >>> sky.form("--gpus V100:1 --timeout 2h")  # doctest: +SKIP
    """
    from jupyter_sky.interfaces.widgets.form import form as made

    return made(line, labels)


def offers(
    what: str | Accelerator | None = None,
    *,
    limit: int = 20,
    flagged: bool = False,
    **labels: Any,
) -> Offers:
    """List the offers of the clouds, the cheapest first; nothing is launched and no cloud is asked.

    Parameters
    ----------
    what
        Accelerators (``"A100:8"``, ``"A100:4+"``, ``accelerators.A100(count=8)``) or the name of
        an instance type.
    limit
        Lines to show.
    flagged
        Also spot offers that cost more than the same machine on demand.
    **labels
        Resources, spelled as the options are: ``spot=True``, ``region="eu"``, ``cpus="4+"``;
        ``spot=False`` means on demand.

    Returns
    -------
    Offers
        A table to look at; iteration gives each offer, ``to_pandas()`` all of them.

    Raises
    ------
    SkyUsageError
        Nothing has that name; the hint gives the nearest.
    SkyNoOffer
        Nothing on sale meets the request; names the label that stands in the way.

    Examples
    --------
    >>> sky.offers("A100:8", spot=True, region="eu")  # doctest: +SKIP
    """
    from jupyter_sky.interfaces.api.offer_search import search

    return search(what, limit=limit, flagged=flagged, labels=labels)


def plan(what: Any = None, minimize: Any = "cost", **settings: Any) -> Plan:
    """Choose offers for the tasks of a graph or for one request; nothing is launched.

    One request goes where a cell with these options would run: on a machine of one's own, else on
    a rented one that can be launched from here, a spot machine only where it asks for one. Where
    nothing can be launched, the plan is for the best on sale, and says why. The tasks of a graph
    may go to anything on sale, in either market unless they name one.

    Parameters
    ----------
    what
        A `Dag`, a `Task` or `Resources`; or give the labels of one request: ``gpus="A100:8"``.
    minimize
        ``cost``, ``time``, ``time_then_cost``, ``carbon``, or weights: ``{"usd": 1, "hours": 2}``.
    **settings
        ``deadline="3h"``, ``budget=20`` (USD), ``carbon_cap=5000`` (g), ``constraints=[...]``,
        ``solver="highs"``, ``time_limit=5``: see `jupyter_sky.decisions.optimizer.planning.plan`.

    Returns
    -------
    Plan
        One offer for each task, with what it costs, how long it takes, and how sure that is.

    Raises
    ------
    SkyNoOffer
        Nothing on sale meets what a task asks for; says which label stands in the way.
    SkyNoPlan
        The demands cannot all be kept; says which, and the nearest way out.

    Examples
    --------
    >>> sky.plan(dag, minimize="time_then_cost", budget=50)  # doctest: +SKIP
    """
    from jupyter_sky.base.requests.dag.dag import Dag, Task
    from jupyter_sky.base.settings.settings import Sky
    from jupyter_sky.decisions.optimizer.objectives import MARKET_SETTINGS, parse_request
    from jupyter_sky.decisions.optimizer.planning import plan as decide
    from jupyter_sky.execution.cells.request import apply_settings, configured_burst
    from jupyter_sky.execution.files.measured_data import take_measured_sizes
    from jupyter_sky.interfaces.api.pipelines import run_graph
    from jupyter_sky.interfaces.widgets import plan as __  # noqa: F401 - registers the drawing of plans
    from jupyter_sky.machines.provisioner.preview import (
        launch_obstacle_notes,
        preview_plan,
        with_alternatives,
    )

    request, limits = parse_request(what, settings)
    if request is None or limits.keys() & MARKET_SETTINGS:
        if isinstance(what, Dag | Task):
            take_measured_sizes(what)
        found = decide(what, minimize, **settings)
        if isinstance(what, Dag) and not limits.keys() & MARKET_SETTINGS:
            found = replace(found, begin=partial(run_graph, what, minimize=minimize, **settings))
        return found.with_obstacles(*launch_obstacle_notes(found))
    if minimize != "cost":
        limits["minimize"] = minimize
    need = apply_settings(request, Sky.load())
    found, obstacles = preview_plan(need, configured_burst(Sky.load()), **limits)
    if (
        len(found.alternatives()) < SHORT_LIST
    ):  # such as this machine, beside which there is nothing
        found = with_alternatives(found, need)
    return found.with_obstacles(*obstacles)


def search(
    function_or_cell: Callable[..., Any] | str | PendingFunction[Any] | Task | Dag,
    space: Space | Mapping[str, Any],
    budget: int,
    minimize: Literal["cost", "time"] = "cost",
    *,
    progress: bool = True,
    **options: Any,
) -> SearchResult:
    """Find the configuration on which a workload costs least, or is fastest, by trying some.

    Parameters
    ----------
    function_or_cell
        The workload: a cell, a function without arguments, a call such as ``train(10)`` of a
        ``sky.function``, a Task or a Dag. Each trial launches its configuration, runs the workload
        there, and gives the machines back. A function of one argument measures itself: it is called
        with each configuration and gives seconds; with ``measure=f``,
        ``f(function_or_cell, configuration)`` does.
    space
        A `decisions.search.Space`, or labels from which one is made of the catalog's offers:
        ``{"cpus": "4+", "cloud": "aws,gcp", "nodes": [1, 2, 4]}``.
    budget
        Configurations to try at most.
    minimize
        ``cost`` or ``time``.
    progress
        Whether to show, after each try, what is best so far and what was spent.
    **options
        ``measure``, ``method``, ``history``, ``seed``, ``parallel``, ``timeout``, ``repeats``,
        ``statistic``, ``stop``, ``log`` and what the method takes; all of them are told in
        `decisions.search.api.search`. For trials on real machines also ``usd``, the most that all
        of them may cost, ``deadline``, ``yes`` for workloads that change something elsewhere, and
        ``options``: `workflows.trials.live_search.search_live`. Their history is by default what
        earlier runs of the same code took.

    Returns
    -------
    SearchResult
        ``best``, ``tries``, ``curve``, ``regret()``; it shows as a table of what was tried and
        what each try cost.

    Examples
    --------
    >>> from jupyter_sky import Space
    >>> space = Space.of({"aws": {"nodes": [1, 2, 4]}}, price=lambda arm, values: values["nodes"])
    >>> search(lambda p: 60 + 3600 / p.nodes, space, 3, progress=False).best.point.nodes
    1
    """
    from jupyter_sky.decisions.search.api import search as find

    watch = options.pop("watch", None)
    if "measure" in options or _takes_configuration(function_or_cell):
        watch = watch or (_progress() if progress else None)
        return find(function_or_cell, space, budget, minimize, watch=watch, **options)
    from IPython import get_ipython  # type: ignore[attr-defined]

    from jupyter_sky.interfaces.widgets.search_view import LiveView
    from jupyter_sky.workflows.trials.live_search import search_live

    view = None if watch or not progress else LiveView(get_ipython())
    found = search_live(function_or_cell, space, budget, minimize, watch=watch or view, **options)
    if view is not None:
        view(found, trials=False)
    return found


def _takes_configuration(workload: object) -> bool:
    """Return whether a workload is a measuring function, which takes a configuration."""
    from jupyter_sky.execution.functions.calls.lazy_calls import Function

    if not callable(workload) or isinstance(workload, Function):
        return False
    try:
        parameters = inspect.signature(workload).parameters.values()
    except (TypeError, ValueError):  # of a builtin nothing is known
        return True
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(each.kind in kinds and each.default is each.empty for each in parameters)


def _progress() -> Callable[[SearchResult], None]:
    """Return a callback that shows a search's summary after each try."""
    from IPython import get_ipython  # type: ignore[attr-defined]
    from IPython.display import display

    if get_ipython() is None:
        return lambda result: print(result.summary, flush=True)
    shown = display({"text/plain": "searching"}, raw=True, display_id=True)
    return lambda result: shown.update({"text/plain": result.summary}, raw=True)  # type: ignore
