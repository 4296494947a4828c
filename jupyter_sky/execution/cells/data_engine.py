"""Data engine of a cell: the code that it runs, its node, and the wait until Spark is ready."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from jupyter_sky.base.clouds.managed_facts import MANAGED
from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.launch_support import runs_here
from jupyter_sky.machines.provisioner import Report

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.machines.engines.wire.messages import Content


def engine_code(code: str, options: CellOptions) -> str:
    """Return the code that engines run: of a cell of SQL, what runs its statement.

    Examples
    --------
    >>> engine_code("1 + 1", CellOptions())
    '1 + 1'
    """
    if not options.sql:
        return code
    from jupyter_sky.machines.services.sql import cell_code

    names = [output.name for output in options.outputs]
    return cell_code(code, names, [value.name for value in options.inputs])


def run_on(options: CellOptions) -> str | None:
    """Return the ranks on which a cell runs, as ``--on`` names them; None for all.

    Examples
    --------
    >>> run_on(CellOptions(engine="spark")), run_on(CellOptions())
    ('0', None)
    """
    # the driver of a data engine is on the head node
    return options.on or (None if options.engine is None else "0")


def await_data_engine(cluster: ClusterHandle, options: CellOptions, report: Report) -> str:
    """Wait until the data engine of a cell is ready, if it has one.

    Returns
    -------
    str
        Address of its web page on this machine; empty where it has none.

    Raises
    ------
    SkyError
        It cannot be started.
    """
    if options.engine is None:
        return ""
    from jupyter_sky.machines.services.requests import await_engine, check_client

    if runs_here(cluster.row.cloud):
        check_client(options.engine)
    if cluster.row.cloud in MANAGED:  # its session was waited for as it was launched
        if options.engine != "spark":
            raise SkyError(
                _("{name} is a session of {cloud}, without machines for --engine {engine}").format(
                    name=cluster.row.name, cloud=cluster.row.cloud, engine=options.engine
                ),
                hint=_("take another cluster: -c NAME"),
            )
        return ""
    ask = cluster.connection.ask_controller
    facts = await_engine(ask, options.engine, partial(report, "booting"))
    return page_link(cluster, facts)


def page_link(cluster: ClusterHandle, facts: Content) -> str:
    """Return the address of a data engine's web page on this machine; empty where it has none."""
    from jupyter_sky.machines.engines.node.service_orders import page_url

    port, token, path = facts.get("page", (0, "", ""))
    if not port:
        return ""
    here = cluster.tunnel.forward(port) if cluster.tunnel else port
    return page_url(here, token, path)
