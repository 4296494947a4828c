"""Measured history of a workload: what earlier runs of the same code took, on which machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.store.rows import ClusterRow, RunRow
from jupyter_sky.base.store.store import Store
from jupyter_sky.decisions.search.space import Space
from jupyter_sky.decisions.search.transfer import Earlier
from jupyter_sky.execution.cells.run_record import digest_code

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
