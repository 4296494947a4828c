"""Clusters of a run: its plan, their launch and their end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from jupyter_sky.base.errors import (
    SkyBudget,
    SkyCancelled,
    SkyError,
    SkyNoCapacity,
    SkyStoreError,
    SkyUsageError,
)
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.decisions.optimizer.plan import Plan
from jupyter_sky.execution.clusters.cluster_request import ClusterRequest
from jupyter_sky.execution.sessions.session import Session
from jupyter_sky.workflows.pipelines.model.graph import (
    RunGraph,
    cluster_name,
)
from jupyter_sky.workflows.pipelines.run.actions import (
    Launch,
    Release,
)
from jupyter_sky.workflows.pipelines.run.outlook import Residual
from jupyter_sky.workflows.pipelines.run.placing import plan_graph, read_offer
from jupyter_sky.workflows.pipelines.run.replanning import (
    RunProblem,
    first_event,
    replan,
)
from jupyter_sky.workflows.pipelines.run.state import Event, Kind

_FINAL_ERRORS = (SkyBudget, SkyCancelled, SkyStoreError, SkyUsageError)
"""Errors of a launch that another place would not mend."""
_QUOTA_SECONDS = 7200.0
"""Time for which a place is left out whose quota is used up."""


class RunClusters:
    """Clusters of a run: plan, launch and release.

    Parameters
    ----------
    settings
        Of the run, as its journal has them.
    """

    def __init__(self, session: Session, graph: RunGraph, settings: Mapping[str, Any]) -> None:
        self._session, self._graph, self._settings = session, graph, settings

    def plan(self, left: Residual) -> Event:
        """Take the plan with which the run was begun; later plan what is left."""
        problem = RunProblem.from_text(self._settings["problem"])
        if not left.plans:
            plan = Plan.from_json(self._settings["plan"])
            return first_event(problem, self._graph, plan, left)
        return replan(problem, self._graph, left, plan_graph)

    def launch(self, action: Launch) -> Event:
        """Launch a cluster, or take the one of that name which is up."""
        name = cluster_name(action.token)
        clusters, known = self._session.clusters, self._session.store.cluster(name)
        if known is not None and known.state not in ("starting", "up"):
            return Event(Kind.REFUSED, action.cluster, time.time(), {"reason": "it has ended"})
        resources = parse_cell_line(action.offer["resources"]).resources
        request = ClusterRequest(resources, name, engine="spark" if resources.service else None)
        # without another cluster of its name nothing is shared, and launches go side by side
        start = clusters.obtain if known is not None else clusters.launch
        try:
            start(request, lambda stage, detail: None)
        except SkyError as error:
            return Event(Kind.REFUSED, action.cluster, time.time(), _refusal(error, action.offer))
        return Event(Kind.LAUNCHED, action.cluster, time.time())

    def release(self, action: Release) -> Event:
        """End a cluster."""
        try:
            self._session.clusters.terminate(cluster_name(action.token))
        except SkyUsageError:
            pass  # it has ended
        return Event(Kind.RELEASED, action.cluster, time.time())


def _refusal(error: SkyError, offer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a refused launch."""
    facts: dict[str, Any] = {"reason": error.message, "place": read_offer(offer).place}
    if isinstance(error, _FINAL_ERRORS):
        facts["is_final"] = True
    if isinstance(error, SkyNoCapacity) and error.cause == "quota":
        facts["block_seconds"] = _QUOTA_SECONDS
    return facts
