"""Pools from arguments of `Compute` or from labels of resources, as `sky.up` takes them."""

from __future__ import annotations

import inspect
from typing import Any

from jupyter_sky.base.clouds.index import MANAGED
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.data_engines import parse_engine
from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.base.requests.resources import Resources, parse_duration
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.request import with_settings
from jupyter_sky.execution.clusters.cluster_request import ClusterRequest
from jupyter_sky.execution.functions.calls.active_pools import active_pools
from jupyter_sky.execution.functions.images.specs import Nodes
from jupyter_sky.execution.functions.pools.compute import Compute
from jupyter_sky.execution.functions.pools.launch import ClusterLauncher, print_at_once
from jupyter_sky.execution.functions.pools.pool import Pool
from jupyter_sky.execution.sessions import session as sessions
from jupyter_sky.machines.services.requests import await_engine

_EQUIPMENT = {"worker", "image", "plugins", "options", "volumes"}
_SHARED_NAMES = {"nodes", "cloud", "region", "max_hourly_cost"}
"""Parameters of `Compute` that mean the same as a label."""


def up(name: str | None, idle: float | str | None, labels: dict[str, Any]) -> Pool:
    """Start a pool from arguments of `Compute` or from resource labels; see `api.up`."""
    engine = labels.pop("engine", "spark" if labels.get("service") else None)
    if engine is not None:
        return _up_with_engine(name, idle, labels, parse_engine(engine, "engine"))
    return _up_plain(name, idle, labels)


def _up_plain(name: str | None, idle: float | str | None, labels: dict[str, Any]) -> Pool:
    """Start a pool without a data engine."""
    parameters = set(inspect.signature(Compute).parameters) - {"specs", "name"}
    equipment = {key: value for key, value in labels.items() if key in _EQUIPMENT}
    labels = {key: value for key, value in labels.items() if key not in _EQUIPMENT}
    plain = not isinstance(labels.get("nodes"), (tuple, list, Nodes))
    if labels.keys() <= parameters and not (labels.keys() <= _SHARED_NAMES and plain):
        if idle is not None:
            labels.setdefault("ttl", idle)
        return Compute(**labels, **equipment, name=name).up(reuse=True)
    if not plain:
        others = ", ".join(sorted(labels.keys() - parameters))
        raise SkyUsageError(
            _("nodes={labels!r} goes with parameters of sky.Compute, and {others} is none").format(
                labels=labels["nodes"], others=others
            ),
            hint=_("sky.up(vcpus=4, memory_gb=16, nodes=(1, 4))"),
        )
    compute = Compute(**equipment)
    compute.check()
    labels = {key: str(value) if key == "nodes" else value for key, value in labels.items()}
    options = CellOptions(resources=Resources.parse(**labels), cluster=name)
    options = with_settings(options, Sky.load())
    seconds = parse_duration(idle, "idle") if isinstance(idle, str) else idle
    session = sessions.current()
    request = ClusterRequest(options.resources, options.cluster, seconds)
    cluster, __ = session.clusters.obtain(request, lambda stage, detail: None, print_at_once)
    existing = next((pool for pool in active_pools() if pool.cluster is cluster), None)
    if existing is not None and not equipment:
        return existing
    return compute.use_clusters(
        [cluster], ClusterLauncher(session.clusters, options.resources, seconds)
    )


def _up_with_engine(
    name: str | None, idle: float | str | None, labels: dict[str, Any], engine: str
) -> Pool:
    """Start a pool with a data engine on its machines."""
    if labels.get("service") and engine != "spark":
        raise SkyUsageError(
            _("a service is for Spark, and engine names {engine}").format(engine=engine),
            hint=_("leave one of both out"),
        )
    if isinstance(labels.get("nodes"), (tuple, list, Nodes)):
        raise SkyUsageError(
            _("a data engine has a number of nodes, and nodes={nodes!r} is a range").format(
                nodes=labels["nodes"]
            ),
            hint=_("such as sky.up(engine={engine!r}, nodes=2)").format(engine=engine),
        )
    pool = _up_plain(name, idle, labels)
    if pool.cluster.row.cloud not in MANAGED:  # its session was waited for as it was launched
        await_engine(pool.cluster.connection.ask_controller, engine, lambda detail: None)
    return pool
