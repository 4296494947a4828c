"""Search of the best configuration of a workload by trials on real machines."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyError, SkyNoOffer, SkyUsageError
from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.base.requests.quantities import parse_duration
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.store.rows import ClusterRow, RunRow
from jupyter_sky.base.store.store import Store
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.search.api import search
from jupyter_sky.decisions.search.limits import SearchLimits
from jupyter_sky.decisions.search.offers import on_sale
from jupyter_sky.decisions.search.result import LABELS_EXAMPLE, SearchResult, Target
from jupyter_sky.decisions.search.space import Space
from jupyter_sky.decisions.search.transfer import Earlier
from jupyter_sky.execution.cells.inputs import collect_inputs
from jupyter_sky.execution.cells.request import with_settings
from jupyter_sky.execution.cells.run_record import digest_code
from jupyter_sky.execution.sessions import session as sessions
from jupyter_sky.execution.sessions.session import Session
from jupyter_sky.workflows.trials.cell_trials import CellTrials
from jupyter_sky.workflows.trials.workload import Workload, make_workload

PARALLEL = 4
"""Trials that run side by side unless told otherwise."""
_SHOWN = 5


def search_live(
    workload: object,
    space: Space | Mapping[str, Any],
    trials: int,
    minimize: Target = "cost",
    *,
    session: Session | None = None,
    usd: float | None = None,
    deadline: str | float | None = None,
    yes: bool = False,
    parallel: int = PARALLEL,
    options: CellOptions | None = None,
    refusal_seconds: float = 900.0,
    **settings: Any,
) -> SearchResult:
    """Try configurations on real machines, and return what each took and cost.

    Each trial launches its offer, runs the workload, books and gives the machine back.

    Parameters
    ----------
    workload
        The text of a cell, a function without arguments, a call, a Task or a Dag.
    space
        Configurations with offers, or labels from which `on_sale` makes them.
    trials
        Configurations to try at most.
    minimize
        ``cost`` or ``time`` of one run.
    session
        Whose launches, ledger and variables are used; that of this process unless given.
    usd, deadline
        Most that all trials together may cost, and time after which none goes on.
    yes
        Repeat what the workload changes outside its machines.
    parallel
        Trials side by side.
    options
        Of a cell: its inputs, packages and data.
    refusal_seconds
        Longest wait for refused machines once nothing else is left to try.
    **settings
        ``method``, ``seed``, ``repeats``, ``statistic``, ``stop``, ``log``, ``watch``, ``history``:
        see `jupyter_sky.decisions.search.api.search`.

    Raises
    ------
    SkyUsageError
        The workload cannot be run, has side effects, or the budget is below any trial.
    SkyNoOffer
        Nothing in the space can be launched from here.
    """
    given = options or CellOptions()
    work = make_workload(workload, given)
    check_effects(work, yes or given.yes)
    need = Resources()
    if not isinstance(space, Space):
        labels = {name: value for name, value in space.items() if name not in ("nodes", "types")}
        need, space = Resources.parse(**labels), on_sale(**space)
    space = launchable(space)
    session = session or sessions.current()
    _check_inputs(session, work)
    token = f"search-{uuid.uuid4().hex[:6]}"
    runner = CellTrials(session, work, need, token)
    seconds = parse_duration(deadline, "deadline") if isinstance(deadline, str) else deadline
    limits = SearchLimits(usd, seconds, refusal_seconds)
    check_budget(space, runner, usd)
    if settings.get("method", "auto") == "auto" and "history" not in settings:
        settings["history"] = _usable_history(session, work, space, minimize)
    return search(
        work.code,
        space,
        trials,
        minimize,
        runner=runner,
        limits=limits,
        parallel=parallel,
        **settings,
    )


def check_effects(workload: Workload, yes: bool) -> None:
    """Raise SkyUsageError for a workload that changes what its trials would change repeatedly."""
    if workload.effects and not yes:
        raise SkyUsageError(
            _("every trial would repeat what it does: {effects}").format(
                effects="; ".join(workload.effects)
            ),
            hint=_("if that does no harm: --yes, or yes=True"),
        )


def launchable(space: Space) -> Space:
    """Return the configurations that can be launched from here.

    Raises
    ------
    SkyUsageError
        None of them names an offer.
    SkyNoOffer
        None of them can be launched.
    """
    if not any(point.offer for point in space.points):
        raise SkyUsageError(
            _("the configurations do not say which machines to launch"),
            hint=_(
                "give labels such as {example}, or give measure=f, where f(workload, configuration)"
                " runs it and returns seconds"
            ).format(example=LABELS_EXAMPLE),
        )
    obstacles: dict[str, int] = {}
    points = []
    for point in space.points:
        if point.offer is None:
            continue
        why = clouds.launch_obstacle(point.offer)
        if not why and not clouds.is_ready(point.offer.cloud):
            why = _("{cloud} cannot be used from here").format(cloud=point.offer.cloud)
        if why:
            obstacles[why] = obstacles.get(why, 0) + 1
        else:
            points.append(point)
    if not points:
        words = "; ".join(f"{why} ({count})" for why, count in [*obstacles.items()][:_SHOWN])
        raise SkyNoOffer(
            _("none of {count} configurations can be launched from here: {words}").format(
                count=len(space), words=words
            ),
            hint=_("%sky check says which clouds can be used, and what is missing"),
        )
    return Space(tuple(points))


def check_budget(space: Space, runner: CellTrials, usd: float | None) -> None:
    """Raise SkyUsageError for a budget that no trial keeps to, or whose use cannot be known."""
    if usd is None:
        return
    unknown = next((point for point in space.points if point.price is None), None)
    if unknown is not None:
        raise SkyUsageError(
            _("{point} has no known price, so a budget cannot be kept").format(point=unknown),
            hint=_("leave it out, or give no budget"),
        )
    cheapest = min(space.points, key=runner.least_usd)
    least = runner.least_usd(cheapest)
    if usd < least:
        raise SkyUsageError(
            _(
                "a budget of ${usd:g}: the cheapest trial, {point}, costs ${least:.4f} or more"
            ).format(usd=usd, point=cheapest, least=least),
            hint=_("give more, or allow cheaper machines"),
        )


def _check_inputs(session: Session, workload: Workload) -> None:
    """Pack the inputs of a cell once: what is missing is said before anything is launched."""
    if workload.steps[0].name:
        return  # of a task: its values come with it
    cell = workload.steps[0].make(lambda task, name: None)
    if not cell.values:
        options = with_settings(cell.options, session.config)
        collect_inputs(options, cell.code, session.namespace, session.config)


def _usable_history(
    session: Session, workload: Workload, space: Space, minimize: Target
) -> list[Any]:
    if minimize == "cost" and not all(point.price for point in space.points):
        return []
    return read_history(session.store, workload.code, space)


def best_options(result: SearchResult, options: CellOptions) -> CellOptions:
    """Return the options of a cell with the machines of the best configuration.

    Raises
    ------
    SkyUsageError
        No configuration has succeeded; the reason of each is told.
    """
    best = result.best
    if best is None or best.point.offer is None:
        raise SkyUsageError(describe_failures(result), hint=_("see what each trial says"))
    offer = best.point.offer
    need = replace(
        options.resources,
        clouds=(offer.cloud,),
        instance_type=offer.instance_type,
        spot=offer.spot,
        nodes=best.point.nodes,
    )
    return replace(options, resources=need)


def describe_failures(result: SearchResult) -> str:
    """Return in words why no configuration has succeeded, each with its reason."""
    failed = [*result.tries, *result.refused]
    reasons = dict.fromkeys(f"{one.point}: {one.error}" for one in failed)
    lines = "".join(f"\n  {reason}" for reason in reasons)
    if not failed:
        return _("no configuration was tried: {why}").format(why=result.stopped)
    return _("no configuration has succeeded:{lines}").format(lines=lines)


# -- Measured history of a workload: what earlier runs of the same code took, on which ------------

LEAST = 2
"""Configurations that an earlier workload must have run on to tell which is faster."""
LIMIT = 2000
"""Runs that are looked at, the latest first."""


def read_history(store: Store, code: str, space: Space) -> list[Earlier]:
    """Return what earlier runs of some code took: one mapping for each session or search.

    Their data may have been others; what they have in common is which machines suit the code.

    Parameters
    ----------
    store
        Of all notebooks.
    code
        Of the cell.
    space
        Runs on machines that are not in it are left out.
    """
    try:
        digest = digest_code(code)
        runs = [run for run in store.runs(limit=LIMIT) if run.code_digest == digest]
        rows = store.clusters(live_only=False)
    except SkyError:  # what is remembered helps; it is not needed
        return []
    return collect_history(runs, rows, space)


def collect_history(
    runs: Iterable[RunRow], clusters: Iterable[ClusterRow], space: Space
) -> list[Earlier]:
    """Return the mean seconds of runs by configuration, one mapping for each session or search."""
    points = {
        (point.offer.cloud, point.offer.instance_type, point.nodes): str(point)
        for point in space.points
        if point.offer is not None
    }
    known: dict[str, list[ClusterRow]] = {}
    for row in clusters:
        known.setdefault(row.name, []).append(row)
    found: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        row = next((one for one in known.get(run.cluster, []) if one.created <= run.started), None)
        if row is None or run.status != "ok" or run.ended is None or not run.nodes:
            continue
        if point := points.get((row.cloud, row.instance_type, row.nodes)):
            of_session = found.setdefault(_workload_of(run), {})
            of_session.setdefault(point, []).append(run.ended - run.started)
    return [means(one) for one in found.values() if len(one) >= LEAST]


def means(seconds: Mapping[str, Iterable[float]]) -> Earlier:
    """Return the means of what was measured.

    Examples
    --------
    >>> means({"aws nodes=1": [1.0, 3.0]})
    {'aws nodes=1': 2.0}
    """
    return {point: fmean(values) for point, values in seconds.items()}


def _workload_of(run: RunRow) -> str:
    """Return what tells the data of runs apart: the search that they belong to, or the kernel."""
    return run.cluster.rpartition("-")[0] if run.cluster.startswith("search-") else run.session
